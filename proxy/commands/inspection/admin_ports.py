"""Asks the admin ports of running proxies, all at once, with one request each that is bounded in time and size.
Blocking.

What is answered is not trusted: the address may be anything's, and many texts are chosen by clients."""

from __future__ import annotations

import http.client
import queue
import socket
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from ... import limits
from ...net.socket_errors import why_not_connected
from ...settings.addresses import join_host_and_port

Address = tuple[str, int]
Content = TypeVar("Content")
_OK: Final = 200
_HERE: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}
"""The address at which this machine's own port is asked if it is bound to all addresses."""


class UselessAnswer(Exception):
    """An answer that is not that of an admin port; one sentence."""


@dataclass(frozen=True, slots=True)
class AdminAnswer(Generic[Content]):
    """What one admin port answered. ``content``: None where it did not; then ``why_not`` is an error message, else
    empty."""

    address: Address
    content: Content | None = None
    why_not: str = ""

    @property
    def shown_address(self) -> str:
        """Its host and port."""
        return join_host_and_port(*self.address)


def asked_addresses(own: Address | str | None, named: Iterable[Address]) -> list[Address]:
    """Return which admin ports to ask, each once. ``own``: that of the configuration; None: it has none; a text is a
    unix socket, which only a supervisor asks."""
    found = [*([own] if isinstance(own, tuple) else []), *named]
    return list(dict.fromkeys((_HERE.get(host, host), port) for host, port in found))


def ask_ports(
    addresses: Sequence[Address], target: str, bytes_max: int, read: Callable[[bytes], Content]
) -> list[AdminAnswer[Content]]:
    """Ask every admin port for ``target``, a path with its query. ``bytes_max``: of an answer; ``read``: makes
    something of one, or raises UselessAnswer. Takes ``ADMIN_ASKED_SECONDS_MAX`` at most, whatever is there.

    Each is asked by a daemon thread: there is no other way to give up on a look-up of a name, or on a peer that sends a
    byte now and then."""
    answers: queue.SimpleQueue[AdminAnswer[Content]] = queue.SimpleQueue()
    questions = [_Question(address, target, bytes_max, read) for address in addresses]
    for question in questions:
        threading.Thread(target=lambda one=question: answers.put(one.ask()), daemon=True).start()
    until = time.monotonic() + limits.ADMIN_ASKED_SECONDS_MAX
    found: dict[Address, AdminAnswer[Content]] = {}
    with suppress(queue.Empty):
        while len(found) < len(questions):
            one = answers.get(timeout=max(0.0, until - time.monotonic()))
            found[one.address] = one
    late = f"no answer within {limits.ADMIN_ASKED_SECONDS_MAX:.0f} s"
    for question in questions:
        if question.address not in found:
            question.give_up()
    return [found.get(address) or AdminAnswer(address, why_not=late) for address in addresses]


class _Question(Generic[Content]):
    """One request to one admin port."""

    def __init__(self, address: Address, target: str, bytes_max: int, read: Callable[[bytes], Content]) -> None:
        self.address = address
        self._target = target
        self._bytes_max = bytes_max
        self._read = read
        self._connection = http.client.HTTPConnection(*address, timeout=limits.ADMIN_ASKED_SECONDS_MAX)

    def ask(self) -> AdminAnswer[Content]:
        """Return what it tells, or why it does not."""
        try:
            return AdminAnswer(self.address, self._answer())
        except UselessAnswer as problem:
            why_not = str(problem)
        except socket.gaierror as error:
            why_not = f"its name cannot be resolved: {error.strerror}"
        except TimeoutError:
            why_not = f"no answer within {limits.ADMIN_ASKED_SECONDS_MAX:.0f} s"
        except http.client.RemoteDisconnected:
            why_not = "it closed the connection without an answer; is it an admin port?"
        except (http.client.HTTPException, UnicodeError):
            why_not = "what answers is no HTTP server; is it an admin port?"
        except OSError as error:
            why_not = why_not_connected(error.errno or 0)
        finally:
            self._connection.close()
        return AdminAnswer(self.address, why_not=why_not)

    def give_up(self) -> None:
        """Have ``ask`` end soon."""
        if (opened := self._connection.sock) is not None:
            with suppress(OSError):
                opened.shutdown(socket.SHUT_RDWR)

    def _answer(self) -> Content:
        self._connection.request("GET", self._target)
        response = self._connection.getresponse()
        if response.status != _OK:
            raise UselessAnswer(f"it answers with HTTP status {response.status}; is it an admin port of this version?")
        body = response.read(self._bytes_max + 1)
        if len(body) > self._bytes_max:
            raise UselessAnswer(f"its answer has more than {self._bytes_max} bytes")
        return self._read(body)

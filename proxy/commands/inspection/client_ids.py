"""Client ids of the producers that ``inspect`` shows. They are not stored: running proxies are asked for them at their
admin ports, all at once, with one request each that is bounded in time and size. Blocking.

What is answered is not trusted: the address may be anything's, and a client id is text that its client chose."""

from __future__ import annotations

import http.client
import json
import queue
import socket
import threading
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from ... import limits
from ...net.socket_errors import why_not_connected
from ...settings.addresses import join_host_and_port

Address = tuple[str, int]
_OK: Final = 200
_HERE: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}
"""The address at which this machine's own port is asked if it is bound to all addresses."""
_NOBODY: Final = (
    "client ids: no admin port was asked; --admin HOST:PORT names that of a running proxy, and so does admin.bind in "
    "the configuration (--config FILE)"
)


@dataclass(frozen=True, slots=True)
class ReportedClientIds:
    """What one admin port reported. ``why_not``: why it reported nothing, an error message; empty: it did."""

    address: Address
    client_ids: Mapping[int, str] = field(default_factory=dict)
    why_not: str = ""


@dataclass(frozen=True, slots=True)
class ClientIds:
    """What all admin ports reported. ``producers``: how many were asked about. ``is_cut``: more are shown than may be
    asked about."""

    reported: Sequence[ReportedClientIds] = ()
    producers: int = 0
    is_cut: bool = False

    def of(self, producer_id: int) -> str | None:
        """Return the client id of a producer; None: no port reported it."""
        return next((one.client_ids[producer_id] for one in self.reported if producer_id in one.client_ids), None)

    @property
    def is_anybody_silent(self) -> bool:
        """Did one that was asked tell nothing?"""
        return any(one.why_not for one in self.reported)

    def line(self) -> str:
        """Return one line: which ports reported, and why others did not."""
        if not self.reported:
            return _NOBODY
        text = "client ids: " + "; ".join(map(self._of_one, self.reported))
        if self.is_cut:
            text += f"; asked for the first {limits.CLIENT_IDS_ASKED_MAX} lines only: --limit and --page show others"
        return text

    def _of_one(self, one: ReportedClientIds) -> str:
        where = join_host_and_port(*one.address)
        if one.why_not:
            return f"{where} did not tell: {one.why_not}"
        others = "" if len(one.client_ids) == self.producers else " (the others are not in its memory)"
        return f"{where} told {len(one.client_ids)} of {self.producers}{others}"


def asked_addresses(own: Address | str | None, named: Iterable[Address]) -> list[Address]:
    """Return which admin ports to ask, each once. ``own``: that of the configuration; None: it has none; a text is a
    unix socket, which only a supervisor asks."""
    found = [*([own] if isinstance(own, tuple) else []), *named]
    return list(dict.fromkeys((_HERE.get(host, host), port) for host, port in found))


def ask(addresses: Sequence[Address], producer_ids: Collection[int], *, is_cut: bool = False) -> ClientIds:
    """Ask every admin port for these producers. Takes ``ADMIN_ASKED_SECONDS_MAX`` at most, whatever is there.

    Each is asked by a daemon thread: there is no other way to give up on a look-up of a name, or on a peer that sends a
    byte now and then."""
    answers: queue.SimpleQueue[ReportedClientIds] = queue.SimpleQueue()
    questions = [_Question(address, producer_ids) for address in addresses]
    for question in questions:
        threading.Thread(target=lambda one=question: answers.put(one.ask()), daemon=True).start()
    until = time.monotonic() + limits.ADMIN_ASKED_SECONDS_MAX
    found: dict[Address, ReportedClientIds] = {}
    with suppress(queue.Empty):
        while len(found) < len(questions):
            one = answers.get(timeout=max(0.0, until - time.monotonic()))
            found[one.address] = one
    late = f"no answer within {limits.ADMIN_ASKED_SECONDS_MAX:.0f} s"
    for question in questions:
        if question.address not in found:
            question.give_up()
    reported = [found.get(address, ReportedClientIds(address, why_not=late)) for address in addresses]
    return ClientIds(reported, len(producer_ids), is_cut)


class _Question:
    """One request to one admin port."""

    def __init__(self, address: Address, producer_ids: Collection[int]) -> None:
        self.address = address
        self._producer_ids = producer_ids
        self._connection = http.client.HTTPConnection(*address, timeout=limits.ADMIN_ASKED_SECONDS_MAX)

    def ask(self) -> ReportedClientIds:
        """Return what it tells, or why it does not."""
        try:
            return ReportedClientIds(self.address, self._answer())
        except _UselessAnswer as problem:
            return ReportedClientIds(self.address, why_not=str(problem))
        except socket.gaierror as error:
            return ReportedClientIds(self.address, why_not=f"its name cannot be resolved: {error.strerror}")
        except TimeoutError:
            return ReportedClientIds(self.address, why_not=f"no answer within {limits.ADMIN_ASKED_SECONDS_MAX:.0f} s")
        except http.client.RemoteDisconnected:
            return ReportedClientIds(
                self.address, why_not="it closed the connection without an answer; is it an admin port?"
            )
        except (http.client.HTTPException, UnicodeError):
            return ReportedClientIds(self.address, why_not="what answers is no HTTP server; is it an admin port?")
        except OSError as error:
            return ReportedClientIds(self.address, why_not=why_not_connected(error.errno or 0))
        finally:
            self._connection.close()

    def give_up(self) -> None:
        """Have ``ask`` end soon."""
        if (opened := self._connection.sock) is not None:
            with suppress(OSError):
                opened.shutdown(socket.SHUT_RDWR)

    def _answer(self) -> dict[int, str]:
        wanted = ",".join(map(str, sorted(self._producer_ids)))
        self._connection.request("GET", f"/api/v1/client_ids?producer_ids={wanted}")
        response = self._connection.getresponse()
        if response.status != _OK:
            raise _UselessAnswer(f"it answers with HTTP status {response.status}; is it an admin port of this version?")
        body = response.read(limits.ADMIN_ANSWER_BYTES_MAX + 1)
        if len(body) > limits.ADMIN_ANSWER_BYTES_MAX:
            raise _UselessAnswer(f"its answer has more than {limits.ADMIN_ANSWER_BYTES_MAX} bytes")
        return {key: text for key, text in client_ids_in(body).items() if key in self._producer_ids}


class _UselessAnswer(Exception):
    """An answer that says nothing of clients; one sentence."""


def client_ids_in(body: bytes) -> dict[int, str]:
    """Return the client ids in an answer, by producer id. Raises ``_UselessAnswer`` where it has none."""
    try:
        reported = json.loads(body)["client_ids"]
        if all(isinstance(text, str) for text in reported.values()):
            return {int(key): text for key, text in reported.items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        pass
    raise _UselessAnswer("its answer is not that of an admin port")

"""Runs ``idemproxy probe``: connects, probes, deletes its topic whatever happens, prints, returns the exit status."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeVar

from ....client.asking import Servers
from ....client.blocking_connections import Connections, Connector
from ....client.errors import AuthenticationFailed, ConnectionFailed
from ....client.settings import ClientSettings
from ....producing.errors import ClientError
from ...probe.batches import Maker
from ...probe.seen import Seen
from ...probe.verdict import rows_of, verdict_of
from ...settings.addresses import join_host_and_port
from ...settings.config import ConfigError, Settings
from ...settings.load import load
from ..broker_access import broker_access
from ..inspection.table import printable
from . import limits
from .batch_trials import BatchTrials, greet
from .shown import lines_of, object_of
from .topic import CannotProbe, NotCreated, create_topic, delete_topic, find_partition

TOPIC_PREFIX: Final = "idemproxy-probe-"
_RANDOM_BYTES: Final = 6
_SERVED, _NOT_SERVED, _WRONG, _INTERRUPTED, _TERMINATED = 0, 1, 2, 130, 143
Result = TypeVar("Result")


class _TerminatedBySignal(BaseException):
    """SIGTERM has come. As KeyboardInterrupt, it is no error."""


def run_probe(options: argparse.Namespace) -> int:
    """Return 0 for a cluster that can be served, 1 for one that cannot or where there is no verdict, 2 for wrong
    options, 130 after Ctrl-C, 143 after SIGTERM."""
    try:
        settings = load(Path(options.config) if options.config else None, {"upstream": options.upstream})
        probing = _Probing(settings, options.topic)
    except ConfigError as problem:
        # Here it is no option.
        shown = str(problem).replace("--upstream: ", "HOST:PORT: ").replace("(--upstream,", "(as an argument,")
        return _complain(shown, _WRONG)
    try:
        with _ended_by_sigterm():
            seen = probing.run()
    except CannotProbe as problem:
        return _complain(problem, _NOT_SERVED)
    except ClientError as problem:
        shown = ", ".join(join_host_and_port(*address) for address in settings.upstream)
        return _complain(f"{shown} cannot be probed: {problem}", _NOT_SERVED)
    except KeyboardInterrupt:
        return _INTERRUPTED
    except _TerminatedBySignal:
        return _TERMINATED
    rows = rows_of(seen)
    verdict = verdict_of(rows, seen)
    if options.json:
        print(object_of(rows, verdict, probing.used_topic, probing.topic_left))
    else:
        for line in lines_of(rows, verdict, sys.stdout):
            print(line)
    return _NOT_SERVED if verdict.form is None else _SERVED


class _Probing:
    """One probe. ``used_topic``: that batches were sent to. ``topic_left``: why a topic of our own is still there, a
    clause."""

    def __init__(self, settings: Settings, topic: str | None) -> None:
        """``topic``: that was given. Raises ConfigError."""
        tls, sasl = broker_access(settings)
        self._settings = ClientSettings(
            [join_host_and_port(*address) for address in settings.upstream],
            "idemproxy-probe",
            tls,
            sasl,
            request_seconds_max=limits.REQUEST_SECONDS_MAX,
            reads_old_brokers=True,
        )
        self._servers = Servers(settings.upstream)
        self._is_ours = topic is None
        self._was_created = False
        self._topic = topic or f"{TOPIC_PREFIX}{os.urandom(_RANDOM_BYTES).hex()}"
        self.used_topic: str | None = None
        self.topic_left = ""

    def run(self) -> Seen:
        """Return what was seen; the topic is deleted, or said by name. Raises CannotProbe, ClientError."""
        until = time.monotonic() + limits.PROBE_SECONDS_MAX
        connections, seen = self._greeted(until)
        is_there = False
        try:
            if seen is not None:
                return seen
            if self._is_ours:
                is_there = True  # also while its creation is not confirmed
                self._perform(connections, create_topic(self._servers, self._topic), until)
                self._was_created = True
            finding = find_partition(self._servers, self._topic, is_ours=self._is_ours)
            partition = self._perform(connections, finding, until)
            self.used_topic = self._topic
            maker = Maker(os.urandom(_RANDOM_BYTES).hex(), time.time_ns() // 1_000_000)
            return self._perform(connections, BatchTrials(partition, maker).run(), until)
        except NotCreated:
            is_there = False
            raise
        finally:
            connections.close()
            if is_there:
                self._delete()

    def _greeted(self, until: float) -> tuple[Connections, Seen | None]:
        """Return connections in the way in which the cluster answers, and what is seen already. Brokers before 0.10
        have to be asked for Metadata 1 first: 0.9 loses requests of other connections if it gets ApiVersions. A service
        may not have that version."""
        connections = Connections(Connector(self._settings))
        try:
            return connections, self._perform(connections, greet(self._servers), until)
        except AuthenticationFailed:
            raise
        except ConnectionFailed as error:
            self._settings = replace(self._settings, reads_old_brokers=False)
            connections = Connections(Connector(self._settings))
            try:
                return connections, self._perform(connections, greet(self._servers), until)
            except ConnectionFailed:
                raise error from None

    def _perform(self, connections: Connections, flow: Coroutine[Any, Any, Result], until: float) -> Result:
        return connections.run(flow, until, limits.REQUEST_SECONDS_MAX)

    def _delete(self) -> None:
        """Delete the topic over connections of its own, as the others may be within a response. If that fails, say
        its name."""
        connections = Connections(Connector(self._settings))
        until = time.monotonic() + limits.DELETION_SECONDS_MAX
        try:
            deleting = delete_topic(self._servers, self._topic, was_created=self._was_created)
            self._perform(connections, deleting, until)
        except (CannotProbe, ClientError) as problem:
            self.topic_left = str(problem)
        except (KeyboardInterrupt, _TerminatedBySignal):
            self.topic_left = "interrupted"
            raise
        finally:
            connections.close()
            if self.topic_left:
                may = "is" if self._was_created else "may be"
                _complain(f"the topic {self._topic} {may} still there, delete it: {self.topic_left}", _NOT_SERVED)


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """Raise _TerminatedBySignal inside where SIGTERM comes, which would leave the topic."""

    def end(_number: int, _frame: object) -> None:
        raise _TerminatedBySignal

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _complain(problem: object, status: int) -> int:
    print(f"idemproxy probe: {printable(str(problem))}", file=sys.stderr)  # it may have words of the server
    return status

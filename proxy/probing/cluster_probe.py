"""The shell of a probe on trio: connects, probes, and deletes its topic whatever happens. Judges nothing."""

from __future__ import annotations

import os
import time
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any, Final, TypeVar

import trio

from ...client.asking import Servers
from ...client.errors import AuthenticationFailed, ConnectionFailed
from ...client.settings import ClientSettings
from ...client.trio_connections import Connections, Connector
from ...producing.errors import ClientError
from ..probe.batches import Maker
from ..probe.seen import Seen
from ..settings.addresses import join_host_and_port
from ..settings.config import Settings
from . import limits
from .batch_trials import BatchTrials, greet
from .broker_access import broker_access
from .topic import CannotProbe, NotCreated, create_topic, delete_topic, find_partition

TOPIC_PREFIX: Final = "idemproxy-probe-"
_RANDOM_BYTES: Final = 6
Result = TypeVar("Result")


def may_pass(problem: ClientError | CannotProbe) -> bool:
    """May a probe that has ended with this go well at the next try? The servers were away."""
    return isinstance(problem, ConnectionFailed) and not isinstance(problem, AuthenticationFailed)


class ClusterProbe:
    """One probe. ``used_topic``: that batches were sent to. ``topic_left``: why a topic of our own is still there, a
    clause."""

    def __init__(self, settings: Settings, topic: str | None = None) -> None:
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
        self._step = trio.CancelScope()
        """What ``interrupt`` ends: the trials, and then the deletion of the topic."""
        self.used_topic: str | None = None
        self.topic_left = ""

    @property
    def why_left(self) -> str:
        """Return the sentence about a topic of our own that is still there, empty: there is none."""
        may = "is" if self._was_created else "may be"
        return f"the topic {self._topic} {may} still there, delete it: {self.topic_left}" if self.topic_left else ""

    def interrupt(self) -> None:
        """End it early; the topic is deleted. During the deletion: end that, and leave the topic."""
        self._step.cancel()

    async def run(self) -> Seen | None:
        """Return what was seen; None: it was interrupted. The topic is deleted, also where this is cancelled. Raises
        CannotProbe, ClientError."""
        with self._step:
            return await self._run()
        return None

    async def _run(self) -> Seen:
        until = trio.current_time() + limits.PROBE_SECONDS_MAX
        connections, seen = await self._greeted(until)
        is_there = False
        try:
            if seen is not None:
                return seen
            if self._is_ours:
                is_there = True  # also while its creation is not confirmed
                await self._perform(connections, create_topic(self._servers, self._topic), until)
                self._was_created = True
            finding = find_partition(self._servers, self._topic, is_ours=self._is_ours)
            partition = await self._perform(connections, finding, until)
            self.used_topic = self._topic
            maker = Maker(os.urandom(_RANDOM_BYTES).hex(), time.time_ns() // 1_000_000)
            return await self._perform(connections, BatchTrials(partition, maker).run(), until)
        except NotCreated:
            is_there = False
            raise
        finally:
            self._step = trio.CancelScope(shield=True)
            with self._step:
                await connections.aclose()
                if is_there:
                    await self._delete()

    async def _greeted(self, until: float) -> tuple[Connections, Seen | None]:
        """Return connections in the way in which the cluster answers, and what is seen already. Brokers before 0.10
        have to be asked for Metadata 1 first: 0.9 loses requests of other connections if it gets ApiVersions. A service
        may not have that version."""
        connections = Connections(Connector(self._settings))
        try:
            return connections, await self._perform(connections, greet(self._servers), until)
        except AuthenticationFailed:
            raise
        except ConnectionFailed as error:
            self._settings = replace(self._settings, reads_old_brokers=False)
            connections = Connections(Connector(self._settings))
            try:
                return connections, await self._perform(connections, greet(self._servers), until)
            except ConnectionFailed:
                raise error from None

    async def _perform(self, connections: Connections, flow: Coroutine[Any, Any, Result], until: float) -> Result:
        return await connections.run(flow, until, limits.REQUEST_SECONDS_MAX)

    async def _delete(self) -> None:
        """Delete the topic over connections of its own, as the others may be within a response. If that fails,
        ``topic_left`` says why."""
        connections = Connections(Connector(self._settings))
        until = trio.current_time() + limits.DELETION_SECONDS_MAX
        self.topic_left = "interrupted"
        try:
            deleting = delete_topic(self._servers, self._topic, was_created=self._was_created)
            await self._perform(connections, deleting, until)
            self.topic_left = ""
        except (CannotProbe, ClientError) as problem:
            self.topic_left = str(problem)
        finally:
            await connections.aclose()

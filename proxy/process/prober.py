"""Finds out what brokers do with batches that do not show that they are Kafka: by what is kept in Redis for all proxies
of the cluster name, else by a probe as ``idemproxy probe`` makes it. Two proxies that start at once may both probe,
each on a topic of its own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

import trio

from ...producing.errors import ClientError
from ...reactor import Reactor
from ...state.redis_claim import Stored, StoredLook
from ...state.redis_facts import RedisAddress
from ...state.redis_greeting import Login
from ...state.store import StoreAway
from .. import limits
from ..broker.probed import Probed, fingerprint_of
from ..broker.topology import Topology
from ..events import OperatorMessage, Report
from ..probe.verdict import forms_of, lack_responses, rows_of, verdict_of
from ..settings.config import ConfigError, Settings

Until = Callable[[Callable[[], bool]], Awaitable[None]]
_PROBES = (
    "the brokers do not show that they are Kafka: what they do with batches is probed, on a topic that is then deleted "
    "(upstream.idempotence: auto)"
)


class Prober:
    """The probes of one process. ``ask``: reads and writes what is kept; None: nothing is."""

    def __init__(
        self,
        settings: Callable[[], Settings],
        topology: Callable[[], Topology],
        report: Report,
        is_anothers: Callable[[bytes, str], None],
        why_no_look: Callable[[str], None],
    ) -> None:
        """``is_anothers``: see ``ClusterClaim``. ``why_no_look``: gets the reason why Redis cannot be asked, and then
        an empty one."""
        self._settings = settings
        self._topology = topology
        self._report = report
        self._is_anothers = is_anothers
        self._why_no_look = why_no_look
        self._ask: Callable[[Probed | None], Awaitable[Stored | StoreAway]] | None = None
        self._found: Probed | None = None
        """What was probed here."""

    async def keep(self, until: Until) -> None:
        """Judge brokers whenever some have to be probed. ``until``: waits for what brokers report."""
        topology = self._topology()
        while True:
            await until(lambda: bool(topology.unprobed))
            with trio.move_on_after(limits.QUIESCENCE_SECONDS):  # of all brokers that answer at once
                await until(lambda: all(one.awaits_probe or one.judgement is not None for one in topology.brokers))
            fingerprints = frozenset(fingerprint_of(one.ranges) for one in topology.brokers if one.ranges)
            probed = await self._kept(fingerprints) or await self._probe(fingerprints)
            if probed is None:
                await trio.sleep(limits.QUIESCENCE_SECONDS)
                continue
            topology.probed(probed)
            if probed.unprobed:
                await trio.sleep(limits.REFUSED_BACKOFF_SECONDS_MAX)
                topology.probed(None)

    async def use_redis(self, reactor: Reactor, login: RedisAddress) -> None:
        """Keep there what is probed from now on, and what was before."""
        self._ask = partial(self._look, reactor, login)
        if self._found is not None:
            await self._stored(self._found)

    def leave_redis(self) -> None:
        """It is stopped."""
        self._ask = None

    # ------------------------------------------------------------------ inside
    async def _kept(self, fingerprints: frozenset[str]) -> Probed | None:
        stored = await self._stored(None)
        kept = None if stored is None else Probed.unpack(stored.verdict)
        return kept if kept is not None and fingerprints <= kept.fingerprints else None

    async def _stored(self, found: Probed | None) -> Stored | None:
        """Write what was found, and return what is stored; None: nothing is kept. Does not return where the state is
        another cluster's."""
        stored: Stored | StoreAway | None = None
        while self._ask is not None and isinstance(stored := await self._ask(found), StoreAway):
            self._why_no_look(f"Redis is away: {stored.reason}")
            await trio.sleep(limits.QUIESCENCE_SECONDS)
        self._why_no_look("")
        if not isinstance(stored, Stored):
            return None
        reported = self._topology().cluster.cluster_id
        if reported is not None and stored.cluster_id not in (None, reported.encode()):
            assert stored.cluster_id is not None
            self._is_anothers(stored.cluster_id, reported)
            await trio.sleep_forever()
        return stored

    async def _look(self, reactor: Reactor, login: RedisAddress, found: Probed | None) -> Stored | StoreAway:
        looked: list[Stored | StoreAway] = []
        ended = trio.Event()

        def done(result: Stored | StoreAway) -> None:
            looked.append(result)
            ended.set()

        StoredLook(
            reactor,
            login.address,
            self._settings().cluster,
            login=Login(None, None, login.database),
            needs_entries=False,
            becomes=lambda _stored: None,
            done=done,
            verdict=None if found is None else (found.pack(), limits.PROBE_KEPT_SECONDS),
        )
        await ended.wait()
        return looked[0]

    async def _probe(self, fingerprints: frozenset[str]) -> Probed | None:
        """Return what was seen; None: the brokers were away, and the next try may see something."""
        # And with it the client and the protocol's library, which a proxy needs for nothing else.
        from ..probing.cluster_probe import ClusterProbe, may_pass
        from ..probing.topic import CannotProbe

        self._report(OperatorMessage("info", _PROBES))
        for left in reversed(range(limits.PROBE_TRIES_MAX)):
            try:
                probe = ClusterProbe(self._settings())
                seen = await probe.run()
            except (ConfigError, CannotProbe, ClientError) as problem:
                if isinstance(problem, ConfigError) or not may_pass(problem):
                    return Probed((), (), fingerprints, str(problem))
                self._report(OperatorMessage("warning", f"the brokers cannot be probed, and are again soon: {problem}"))
                return None
            if probe.why_left:
                self._report(OperatorMessage("warning", probe.why_left))
            assert seen is not None, "nobody interrupts it"
            rows = rows_of(seen)
            if left and lack_responses(rows):  # a broker that was restarted meanwhile is not one that fails
                continue
            verdict = verdict_of(rows, seen)
            self._report(OperatorMessage("info", f"the brokers were probed: {verdict}"))
            self._found = Probed(forms_of(rows), verdict.because, fingerprints)
            await self._stored(self._found)
            return self._found
        raise AssertionError("the last try is taken as it is")

"""The shell around the engine: listeners, the store's connection, signals, the data directory. Trio lives here; no
Kafka rule does."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from io import FileIO
from math import inf
from typing import TYPE_CHECKING, Any

import trio

from ...codecs.convert import HeaderPolicy
from ...codecs.kernel import KERNEL, TOLD
from ...codecs.steps import Steps
from ...reactor import Address, Reactor
from ...state.entry import NO_DATA_GENERATION
from ...state.redis_claim import ClusterClaim, Stored, StoredLook
from ...state.redis_facts import RedisAddress
from ...state.redis_greeting import Login
from ...state.redis_server import EmbeddedRedis, EmbeddedRedisError
from ...state.store import MODE_PROXY, StoreAway, StoreEvent, StoreReady
from .. import limits
from ..admission.connection_quotas import AdmittedConnection, ConnectionQuotas
from ..bridge.cluster import BrokerAddress
from ..broker.broker import Broker
from ..broker.cluster_id import mismatch
from ..broker.mode import (
    CHANGING,
    NATIVE_LATER,
    NATIVE_SOON,
    RESET_WHILE_CHANGING,
    Mode,
    native_now,
    native_though_brokers_cannot,
    shown_topics,
)
from ..broker.sasl_credentials import Credentials
from ..broker.sasl_login import OverSasl
from ..broker.served import Idempotence
from ..connection.shell import ConnectionShell
from ..engine.engine import Engine, MakeHandler
from ..events import InternalError, OperatorMessage, Report
from ..native.engine_session import EngineSession, serving
from ..native.raising import RaisingSession
from ..native.session import NativeSession
from ..net.certificates import REDIS_PLACE, UPSTREAM_PLACE, read_certificates, tls_by_place
from ..net.event_loop import TrioReactor
from ..pass_through.authentication import ClientAuthentication
from ..producer import left_out_ids
from ..session.conditional_topics import ConditionalTopics
from ..session.name_patterns import matching
from ..settings.addresses import shown
from ..settings.config import ConfigError, Settings
from ..settings.natively import SPANS_WITHOUT_EFFECT, missed_natively, without_effect
from ..settings.reload import changes
from ..settings.sasl import CLEAR_TEXT
from ..telemetry.logs import set_up
from ..telemetry.metric_names import REDIS_ROUND_TRIP
from ..telemetry.otel import wants
from ..telemetry.redis_hints import redis_reason
from ..telemetry.reports import Telemetry
from .checkpoint_file import CheckpointFile
from .data_directory import ROOM_BYTES, ROOM_WITH_REDIS_BYTES, DataDirectory
from .descriptors import Descriptors, ForClients
from .findings import Facts, Finding, all_findings, findings_of_start
from .free_memory import stay_small
from .journal_upkeep import JournalUpkeep
from .listeners import Listeners, try_ports
from .peers import BROKER, REDIS, is_no_answer
from .prober import Prober
from .redis_login import OverRedisLogin
from .redis_memory import MeasuredStore
from .service_manager import notify, notify_reloading
from .surroundings import facts_here, who_listens, with_brokers, with_unresolved
from .unserved_brokers import UnservedBrokers
from .worker import Place, beat, until_alone

if TYPE_CHECKING:
    from ..admin.serve import Admin

_LEVELS = {"note": "info", "warning": "warning", "problem": "error"}
"""At which level a finding is logged."""
_REASONS_SHOWN_MAX = 5
_WAITING_TOLD_SECONDS = 5.0
"""How often a start that cannot proceed logs what it waits for."""
_SILENT = "no answer yet"
_LOOK_CLOSER = "; `idemproxy check --connect` with the same options looks closer"
"""Said once: the check recognises an HTTP server, TLS on one side only, and a wrong password."""


class EndedItselfError(Exception):
    """Something was found that ends the process. The reason was logged. ``has_served``: clients were served before."""

    def __init__(self, has_served: bool) -> None:
        super().__init__()
        self.has_served = has_served


class Server:
    """One ``idemproxy run``."""

    def __init__(
        self,
        settings: Settings,
        report: Report,
        *,
        telemetry: Telemetry | None = None,
        upkeep: JournalUpkeep | None = None,
        load: Callable[[], Settings] | None = None,
        place: Place | None = None,
    ) -> None:
        """``telemetry``: its counters are shown by the admin port, its spans are made, and ``report`` leads to it.
        ``upkeep``: of the journal that ``report`` is, None: there is none. ``load``: reads the settings again on
        SIGHUP; raises ConfigError. ``place``: among the workers of a supervisor, None: this is the only process."""
        self._place, self._settings = place, settings
        self._load = load
        self._upkeep = upkeep
        self._journal = None if upkeep is None else upkeep.journal
        self._report = report
        self._telemetry = telemetry
        self._directory = DataDirectory(settings.data_directory)
        self._embedded = EmbeddedRedis(settings.data_directory / "redis") if settings.redis is None else None
        self._redis_told = ""
        self._reactor = TrioReactor(lambda where, error: report(InternalError(where, error)))
        self._reactor.shares_ports = place is not None
        self._certificates, self._sides = read_certificates(settings, report, self._reactor.later)
        self._ready = trio.Event()
        self._stop = trio.Event()
        self._earlier = self._directory.earlier_instance_ids()
        self._is_forgetful = False
        """Could the proxy instance not be stored in the data directory?"""
        if self._directory.damage is not None:
            report(OperatorMessage("warning", f"proxy instances in the data directory: {self._directory.damage}"))
        said = settings.upstream_sasl
        self._sasl = None if said is None else Credentials(said, os.urandom)
        self._mode = Mode.of_setting(settings.idempotence, settings.topics_of_engine)
        self._reported = trio.Event()
        """Set when brokers have reported something new of themselves; then another one takes its place."""
        self._serves_natively = False
        self._lost_at = -inf
        """When Redis may have lost entries last, reactor seconds."""
        self._found_none = False
        """Did the last look find no entry?"""
        self._found_all_ids = False
        """Did the last look find that no id was left out?"""
        self._began_at = inf
        """When this process began to give idempotence on all topics, reactor seconds."""
        self._is_settled = True
        """Did the last look find that no proxy gives idempotence on all topics, where the brokers are to give it?"""
        descriptors = Descriptors(
            lambda: self.engine.own_connections_max, lambda why: self.engine.make_room("descriptors", why)
        )
        self.engine = self._new_engine(descriptors)
        self._facts = facts_here(settings)
        self._found: set[Finding] = set()
        """What was logged of ``findings.py``."""
        self._unserved = UnservedBrokers(lambda: self.engine.topology.asked_first, report, self._end)
        self._listeners = self._new_listeners(descriptors)
        self._observe(telemetry, has_journal=upkeep is not None)
        self.engine.context.takes_append_reservations = settings.append_reservations
        if telemetry is not None:
            telemetry.later = self._reactor.later
            telemetry.broker = self.engine.topology.broker
            telemetry.leader_of = self.engine.topology.leader_of
        self._store: MeasuredStore | None = None
        self._redis_login: OverRedisLogin | None = None
        self.engine.conditional_topics = ConditionalTopics(settings.conditional_topics)
        self._take_over(settings)
        self._admin = self._open_admin()
        self._claim = ClusterClaim(
            settings.cluster,
            lambda: self.engine.topology.cluster.cluster_id,
            self._is_anothers,
            lambda: self._mode.value,
        )
        self._why_no_look = ""
        """Why Redis could not be asked what is stored under the cluster name."""
        self._prober = Prober(
            lambda: self._settings, lambda: self.engine.topology, report, self._is_anothers, self._cannot_look
        )
        self._listens: dict[Address, str] = {}
        """What listens at addresses that did not answer as they should (``peers.py``); empty texts: nobody can tell."""
        self._checkpoints = CheckpointFile(
            self._directory, self.engine.context.bounds.checkpoints, self._reactor.now, _wall_ms, report
        )

    def _new_engine(self, descriptors: Descriptors) -> Engine:
        towards_brokers = self._towards_brokers()
        return Engine(
            towards_brokers,
            self._settings.upstream,
            cluster=self._settings.cluster,
            report=self._report,
            random_bytes=os.urandom,
            wall_clock_ms=_wall_ms,
            caps=self._settings.limits,
            on_brokers=self._brokers_changed,
            on_ready=self._look_whether_ready,
            on_refused=lambda broker: self._unserved.refused(broker),
            shares_store=self._embedded is None,
            for_clients=ForClients(towards_brokers, descriptors.why_no_room),
            mode=self._mode,
            on_mode=self._brokers_told,
        )

    def _observe(self, telemetry: Telemetry | None, *, has_journal: bool) -> None:
        observers = self.engine.context.observers
        if telemetry is not None and telemetry.spans is not None:
            observers.step_begins, observers.begin_trace = self._reactor.now, telemetry.spans.begin_trace
        observers.wants_outcomes = has_journal
        if telemetry is not None and not has_journal:
            observers.counts = telemetry.metrics
        self.engine.refuses_all = self._refuses_all
        if self._journal is not None:
            self._journal.lost = self._journal_lost

    async def run(self) -> None:
        """Serve until SIGTERM or SIGINT, then drain (rule R15). Raises ConfigError for what stops the start, and
        EndedItselfError."""
        # Open until the private Redis has ended: a signal that came meanwhile would leave it running.
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
            await self._run(signals)

    async def _run(self, signals: AsyncIterator[int]) -> None:
        if KERNEL is None:
            self._report(OperatorMessage("info", f"checksums and conversion: {TOLD}"))
        try:
            if self._place is None:
                try_ports(self._settings.listeners)
            self._directory.try_to_write(self._earlier, ROOM_WITH_REDIS_BYTES if self._embedded else ROOM_BYTES)
            self._tell_findings()
            async with trio.open_nursery() as nursery:
                await nursery.start(self._reactor.run)
                nursery.start_soon(self._handle_signals, signals)
                if self._place is not None:
                    nursery.start_soon(self._wait_for_supervisor)
                    nursery.start_soon(beat)
                if self._admin is not None and self._telemetry is not None:
                    ports = (self._ready.is_set, self._listeners.taken)
                    look = partial(
                        self._admin.run,
                        ports_open=self._listeners.ports_open,
                        why_no_store=self._why_no_store,
                        host=os.uname().nodename,
                        findings=lambda: all_findings(self._facts_now()),
                        journal=self._upkeep,
                        client_traffic=self._reactor.client_traffic,
                    )
                    nursery.start_soon(look, self.engine, self._telemetry, lambda: self._store, *ports)
                self._certificates.watch()
                self.engine.look_for_brokers()
                nursery.start_soon(self._say_when_ready)
                nursery.start_soon(self._say_when_it_stood_still)
                nursery.start_soon(stay_small)
                if self._upkeep is not None:
                    nursery.start_soon(self._upkeep.keep)
                nursery.start_soon(self._begin, nursery)
                await self._stop.wait()
                await self._shut_down()
                nursery.cancel_scope.cancel()
            if self._store is not None and not self._serves_natively:
                for _ in self.engine.context.bounds.taking_checkpoints(self._reactor.now):
                    await trio.lowlevel.checkpoint()
                await self._checkpoints.write()
                self._remember_nobody()
        finally:
            with trio.CancelScope(shield=True):
                await trio.to_thread.run_sync(self._stop_redis)
            self._directory.close()
        if self.engine.why_ending:
            raise EndedItselfError(self._ready.is_set())

    async def _begin(self, nursery: trio.Nursery) -> None:
        """Serve, as soon as it is known who gives idempotence: brokers tell what they are, or a probe does, and Redis
        what was before. If proxies give it, serve so until the brokers can (docs/how-to/upgrade-brokers.md)."""
        mode, addresses = self._mode, self.engine.topology.asked_first
        await self._until(lambda: self.engine.topology.is_known)
        with trio.move_on_after(limits.QUIESCENCE_SECONDS):  # one that is of another cluster ends the start
            while any(_why_away(one) == _SILENT for one in addresses):  # noqa: ASYNC110 - looks only
                await trio.sleep(limits.PROBE_SECONDS)
        nothing_is_kept = self._embedded is not None and not self._embedded.data_directory.exists()
        keep_probed = partial(nursery.start_soon, self._prober.keep, self._until)
        if nothing_is_kept:
            keep_probed()
        with trio.move_on_after(inf if mode.wanted is None else _WAITING_TOLD_SECONDS):
            await self._until(
                lambda: (
                    mode.by_brokers is not None
                    or mode.wanted is Idempotence.NATIVE
                    or (bool(self.engine.topology.unprobed) and not nothing_is_kept)
                )
            )
        if mode.may_be_native and not mode.engine_topics and nothing_is_kept:
            settings = self._settings
            agreed = mode.agreed(settings.cluster, Stored(), mode.by_brokers, settings.allows_duplicates_in_flight)
            if why := agreed if isinstance(agreed, str) else self._why_not_natively(Stored()):
                self._end(why)
            else:
                self._serve_natively()  # nobody has ever stored anything, and nobody does now
            return
        try:
            login = await trio.to_thread.run_sync(self._start_redis)
        except EmbeddedRedisError as problem:
            self._end(str(problem))
            return
        over_login = self._over_login(login)
        await self._prober.use_redis(over_login, login)
        if not nothing_is_kept:
            keep_probed()
        await self._until(lambda: mode.by_brokers is not None or mode.wanted is not None)
        chosen = await self._agreed(over_login, login)
        if chosen is Idempotence.PROXY:
            self._say_which_redis()
            await self._give_idempotence(over_login, login)
        if not self.engine.why_ending and not self._stop.is_set():
            await self._settle(over_login, login)
            if chosen is Idempotence.PROXY and not self.engine.why_ending:
                self._report(OperatorMessage("info", native_now(self._mode.engine_topics)))
        if not self.engine.why_ending and not self._stop.is_set():
            if mode.wanted is None and mode.by_brokers is Idempotence.PROXY:
                self._report(OperatorMessage("warning", native_though_brokers_cannot(self._settings.cluster)))
            if mode.engine_topics:
                await self._give_it_on_engine_topics(over_login, login)
                return
            if self._embedded is not None:
                self._prober.leave_redis()
            await trio.to_thread.run_sync(self._stop_redis)
            self._serve_natively()

    async def _give_idempotence(self, over_login: OverRedisLogin, login: RedisAddress) -> None:
        """Give it on all topics until the brokers do, or the process ends."""
        self.engine.serve_as(Idempotence.PROXY)
        self.engine.context.left_out_ids.begin(self._settings.client_retry_seconds_max)
        self._began_at = self._reactor.now()
        store = await self._begin_to_store(over_login, login)
        self.engine.keep_hidden_ranges(self._settings.hidden_ranges_topic)
        store.start()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._keep_redis)
            nursery.start_soon(self._checkpoints.keep)
            await self._wait_for_native(over_login, login)
            nursery.cancel_scope.cancel()
        if self._stop.is_set() or self.engine.why_ending:
            return
        self._disconnect_clients()
        self.engine.context.left_out_ids.end()
        if self._mode.engine_topics:
            self.engine.serve_as(Idempotence.NATIVE)
            self.engine.begin_instance()  # its registration is from before
            self._remember_instance_id()
        else:
            self._serves_natively = True  # nothing is written any more
            self.engine.reset_busy("the brokers take over")
            with trio.move_on_after(limits.ASK_SECONDS_MAX):
                await _called_back(store.stop)
            self._checkpoints.remove()
            self._remember_nobody()

    async def _settle(self, over_login: OverRedisLogin, login: RedisAddress) -> None:
        """Wait until no proxy gives idempotence on all topics any more: a producer that came from one that does not to
        one that does would have left a gap in its sequences."""
        if not self._is_settled:
            self._report(OperatorMessage("info", CHANGING))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._keep_redis)
            while not self._is_settled and not self.engine.why_ending:
                await trio.sleep(limits.QUIESCENCE_SECONDS)
                await self._agreed(over_login, login)
            nursery.cancel_scope.cancel()

    async def _give_it_on_engine_topics(self, over_login: OverRedisLogin, login: RedisAddress) -> None:
        """Give it on these until the process ends. The brokers do on all others."""
        self.engine.serve_as(Idempotence.NATIVE)
        if self._store is None:
            self._say_which_redis()
            (await self._begin_to_store(over_login, login)).start()
        self._disconnect_clients()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._keep_redis)
            nursery.start_soon(self._checkpoints.keep)
            await trio.sleep_forever()

    async def _begin_to_store(self, over_login: OverRedisLogin, login: RedisAddress) -> MeasuredStore:
        """Make the store that the engine uses; it has to be started."""
        await self._checkpoints.read()
        self._store = store = self._new_store(over_login, login)
        self.engine.give_idempotence(store)
        return store

    async def _wait_for_native(self, over_login: OverRedisLogin, login: RedisAddress) -> None:
        """Return when the brokers take over. Until then Redis is told as long as ids are left out."""
        was_native = False
        while True:
            chosen = await self._agreed(over_login, login)
            if chosen is Idempotence.NATIVE:
                return
            if chosen is None:
                await trio.sleep_forever()  # the process ends
            is_native = self._mode.wanted is None and self._mode.by_brokers is Idempotence.NATIVE
            if is_native and not was_native:
                soon = NATIVE_SOON if self._mode.all_take_ids else ""
                self._report(OperatorMessage("info", NATIVE_LATER.format(soon)))
            was_native = is_native
            await trio.sleep(limits.NATIVE_LOOK_SECONDS)

    async def _agreed(self, over_login: OverRedisLogin, login: RedisAddress) -> Idempotence | None:
        """Look what is stored, and return who gives idempotence; None: the process ends, as this proxy disagrees."""
        while isinstance(decided := await self._look(over_login, login), StoreAway):
            self._why_no_look = f"Redis is away: {decided.reason}"
            await trio.sleep(limits.QUIESCENCE_SECONDS)
        self._why_no_look = ""
        if isinstance(decided, Idempotence):
            return decided
        self._end(decided)
        return None

    async def _look(self, over_login: OverRedisLogin, login: RedisAddress) -> Idempotence | str | StoreAway:
        settings, mode = self._settings, self._mode
        by_brokers, reported = mode.by_brokers, self.engine.topology.cluster.cluster_id
        decided: list[Idempotence | str | StoreAway] = []
        looked = trio.Event()
        needs_proxies = mode.wanted is Idempotence.NATIVE or not self._is_settled
        needs_entries = mode.may_be_native or needs_proxies
        mode.all_take_ids = needs_entries and await _in_passes(self.engine.topology.all_take_ids())
        is_settled, is_changing = True, not self._is_settled and self._store is not None

        def becomes(stored: Stored) -> bytes | None:
            nonlocal is_settled
            believed = self._believed(stored) if needs_entries else stored
            agreed = mode.agreed(settings.cluster, believed, by_brokers, settings.allows_duplicates_in_flight)
            if reported is not None and stored.cluster_id not in (None, reported.encode()):
                agreed = mismatch(settings.cluster, stored.cluster_id, reported)
            elif agreed is Idempotence.NATIVE and self._store is None and (off := self._why_not_natively(stored)):
                agreed = off
            elif is_changing and (agreed is Idempotence.PROXY or stored.mode is None):
                agreed = RESET_WHILE_CHANGING
            decided.append(agreed)
            if agreed is not Idempotence.NATIVE:
                return None
            following = mode.following(stored, is_alone=needs_proxies and not stored.has_proxies)
            is_settled = (following or stored.mode) in (None, mode.native_value)
            return following

        def done(result: Stored | StoreAway) -> None:
            if isinstance(result, StoreAway):
                decided.insert(0, result)
            else:
                self._is_settled = is_settled
            looked.set()

        StoredLook(
            over_login,
            login.address,
            settings.cluster,
            login=Login(None, None, login.database),
            needs_entries=needs_entries,
            needs_proxies=needs_proxies,
            becomes=becomes,
            done=done,
        )
        await looked.wait()
        return decided[0]

    def _believed(self, stored: Stored) -> Stored:
        """Without entries no producer has anything in flight, unless Redis has lost them. So entries are taken for
        there until all would have expired since a loss, and until a second look: by then a loss is noticed. In the same
        way it is taken for said that ids were left out, by a start too; and as long as clients rely on something that
        only proxies have."""
        settings, passed = self._settings, self._reactor.now() - self._lost_at
        if self._store is None:
            return replace(stored, is_without_ids=True)
        hidden_ranges, kept_seconds = self.engine.hidden_ranges, left_out_ids.kept_seconds
        hides = not hidden_ranges.is_read or any(hidden_ranges.by_state().values())
        is_known = not stored.is_without_ids and stored.mode is not None
        is_second, self._found_all_ids = is_known and self._found_all_ids, is_known
        since_seconds = self._reactor.now() - max(self._lost_at, self._began_at)
        is_early = since_seconds < kept_seconds(settings.client_retry_seconds_max)
        is_without_ids = not is_second or is_early or hides or bool(missed_natively(settings))
        is_first, self._found_none = not self._found_none, not stored.has_entries
        has_entries = stored.has_entries or passed < settings.producer_expiry_seconds or is_first
        return replace(stored, has_entries=has_entries, is_without_ids=is_without_ids)

    def _why_not_natively(self, stored: Stored) -> str:
        """Return why a start natively is refused: some settings would have no effect. Empty: it is not, as where the
        brokers have taken over from proxies that ran."""
        if self._mode.wanted is None and stored.mode not in (None, MODE_PROXY):
            return ""
        off = _without_effect(self._settings)
        said = f"the brokers give idempotence themselves (upstream.idempotence: {self._settings.idempotence})"
        return f"{said}: {off}" if off else ""

    def _serve_natively(self) -> None:
        """Serve where the brokers give idempotence on all topics: no state is kept."""
        self._serves_natively = True
        self.engine.serve_as(Idempotence.NATIVE)
        self._disconnect_clients()
        if off := _without_effect(self._settings):
            self._report(OperatorMessage("warning", f"without effect from now on: {off}"))

    def _disconnect_clients(self) -> None:
        """Those that are there were served in another mode."""
        for session in list(self.engine.sessions):
            session.close()
        self._look_whether_ready()

    def _cannot_look(self, why: str) -> None:
        self._why_no_look = why

    def _brokers_told(self) -> None:
        self._reported.set()
        self._reported = trio.Event()

    async def _until(self, is_so: Callable[[], bool]) -> None:
        """Wait for something that brokers tell."""
        while not is_so():
            await self._reported.wait()

    def _tell_findings(self) -> None:
        """Log what is new in the list that ``idemproxy check`` prints. Of several workers the first one does: the
        others would log the same."""
        if self._place is not None and self._place.number != 1:
            return
        for finding in findings_of_start(self._facts_now()):
            if finding not in self._found:
                self._found.add(finding)
                self._report(OperatorMessage(_LEVELS[finding.sign], f"{finding.what}: {finding.text}"))

    def _facts_now(self) -> Facts:
        gives_idempotence = self._mode.chosen is Idempotence.PROXY
        return replace(self._facts, unix_seconds=time.time(), gives_idempotence=gives_idempotence)

    def _towards_brokers(self) -> Reactor:
        reactor = self._below_sasl()
        if self._sasl is None:
            return reactor
        if UPSTREAM_PLACE not in self._sides and self._sasl.settings.mechanism in CLEAR_TEXT:
            self._report(
                OperatorMessage("warning", "upstream.sasl: without upstream.tls the secret can be read on the network")
            )
        return OverSasl(reactor, self._sasl, self._report)

    def _new_listeners(self, descriptors: Descriptors) -> Listeners:
        below = ForClients(self._below_sasl(), descriptors.why_no_room)
        for_clients = self.engine.for_clients
        native = partial(NativeSession, for_clients, False, RaisingSession)
        by_topic = partial(EngineSession, for_clients, RaisingSession)
        over = partial(serving, for_clients, RaisingSession), by_topic if self._mode.engine_topics else native
        login = partial(ClientAuthentication, below), partial(NativeSession, below, True, RaisingSession)
        return Listeners(
            self._reactor,
            self._settings.listeners,
            partial(self._accept, *over),
            self._report,
            self._sides,
            partial(self._accept, *login),
            ConnectionQuotas(self._reactor, lambda: self.engine.caps, self._report, descriptors.why_no_room),
            self._end,
        )

    def _accept(
        self, make: MakeHandler, make_native: MakeHandler, *client: Any, admitted: AdmittedConnection | None
    ) -> ConnectionShell | None:
        """Return the endpoint of a new client, None if it is refused. ``client``: see ``Engine.accept``."""
        broker_id, place_of, principal = client
        make = make_native if self._mode.is_native else make
        return self.engine.accept(broker_id, place_of, principal, make, admitted)

    def _refuses_all(self) -> tuple[str, str] | None:
        """No client is admitted while the journal is required and cannot be written: it could get an answer without a
        line there. Where the brokers give idempotence on all topics no batch has a line."""
        if not self._is_settled:
            return "mode", CHANGING
        why = "" if self._journal is None or self._mode.passes_all else self._journal.why_refusing
        return ("journal", f"the journal is required and cannot be written: {why}") if why else None

    def _journal_lost(self, reason: str) -> None:
        """A line of a required journal could not be written: the answer that it is about does not leave either."""
        if not self._mode.passes_all:
            self.engine.drop_clients(f"the journal is required and cannot be written: {reason}")

    def _below_sasl(self) -> Reactor:
        side = self._sides.get(UPSTREAM_PLACE)
        return self._reactor.over_tls(side) if side is not None else self._reactor

    def _open_admin(self) -> Admin | None:
        """Open the admin port and measure for it; without it, a batch pays nothing for measurements."""
        if self._telemetry is None or not (self._settings.admin or wants("metrics", os.environ)):
            return None
        from ..admin.serve import Admin  # and with it what serves HTTP and collects metrics

        metrics = self._telemetry.metrics
        metrics.measure_passes(self._reactor.now)
        self.engine.context.observers.measure = metrics.appended
        self._reactor.pass_ended = metrics.pass_ended
        self._reactor.step_took = metrics.step_took
        return Admin(self._settings.admin)

    # ------------------------------------------------------------------ the store
    def _start_redis(self) -> RedisAddress:
        if self._embedded is None:
            assert self._settings.redis is not None
            return self._settings.redis
        return RedisAddress(self._embedded.start())

    def _say_which_redis(self) -> None:
        if self._embedded is not None and self._embedded.shown != self._redis_told:
            self._redis_told = self._embedded.shown
            where = self._embedded.data_directory
            self._report(OperatorMessage("info", f"private Redis: {self._redis_told}; its data are in {where}"))

    def _stop_redis(self) -> None:
        """However this process ends, its private server is not left running."""
        if self._embedded is not None and self._embedded.is_started:
            try:
                self._embedded.stop()
            except EmbeddedRedisError as problem:
                self._report(OperatorMessage("error", str(problem)))

    def _over_login(self, login: RedisAddress) -> OverRedisLogin:
        side = self._sides.get(REDIS_PLACE)
        self._redis_login = OverRedisLogin(self._reactor.over_tls(side) if side is not None else self._reactor, login)
        return self._redis_login

    def _new_store(self, over_login: OverRedisLogin, login: RedisAddress) -> MeasuredStore:
        self._remember_instance_id()
        if self._telemetry is not None and self._telemetry.spans is not None:
            self._telemetry.spans.redis = login.address
        store = MeasuredStore(
            over_login,
            login.address,
            cluster=self._settings.cluster,
            instance_id=self.engine.context.instance.instance_id,
            random_bytes=os.urandom,
            on_data_generation=self._new_data_generation,
            on_lease_lost=self._lease_lost,
            report=self._store_says,
            database=login.database,
            compare=self._claim.compare,
        )
        if self._admin is not None and self._telemetry is not None:
            store.measure = self._telemetry.metrics.histograms[REDIS_ROUND_TRIP].observe
            store.watch_memory(self._report)
        return store

    def _store_says(self, event: StoreEvent) -> None:
        self._report(event)
        if isinstance(event, StoreReady):
            self._end_earlier()
            self._look_whether_ready()

    def _end_earlier(self) -> None:
        """End the leases of the earlier proxy instances of this process, under which nothing is sent any more: Redis
        may have read them from its file, and then everybody would wait for them."""
        assert self._store is not None
        for instance_id in self.engine.context.instance.earlier_instance_ids:
            self._store.end_member(instance_id, lambda _result: None)

    def _new_data_generation(self, data_generation: bytes) -> None:
        if self.engine.context.instance.data_generation != NO_DATA_GENERATION:
            self._lost_at = self._reactor.now()
        self.engine.new_data_generation(data_generation)
        self._remember_instance_id()
        assert self._store is not None
        for instance_id in self._earlier:
            self._store.end_member(instance_id, lambda _result: None)
        self._look_whether_ready()

    def _lease_lost(self) -> None:
        self._lost_at = self._reactor.now()
        self.engine.lease_lost()
        self._remember_instance_id()

    def _remember_instance_id(self) -> None:
        """Store the proxy instance before anything is reserved under it: the next start then ends its lease without
        waiting for it. If that fails now, it is tried again."""
        try:
            self._directory.remember([*self._earlier, self.engine.context.instance.instance_id])
        except OSError as error:
            if not self._is_forgetful:
                effect = "a start after a crash waits until the lease has ended"
                self._report(
                    OperatorMessage(
                        "warning", f"the data directory cannot be written: {error.strerror}; until it can, {effect}"
                    )
                )
            self._is_forgetful = True
            self._reactor.later(limits.CHECKPOINT_WRITE_SECONDS, self._remember_instance_id)
        else:
            self._is_forgetful = False

    def _remember_nobody(self) -> None:
        """The lease was given back: there is none to be ended by the next start."""
        try:
            self._directory.remember([])
        except OSError as error:
            self._report(OperatorMessage("warning", f"the data directory cannot be written: {error.strerror}"))

    async def _keep_redis(self) -> None:
        """Start the private server again when it has died; it has another data generation then (rule R10)."""
        if self._embedded is None:
            return
        was_away = False
        while not self._stop.is_set():
            await trio.sleep(limits.LEASE_RENEW_SECONDS)
            if self._store is not None and self._store.data_generation is not None:
                was_away = False
            elif not was_away:
                was_away = True  # a connection alone may have been lost; it is opened again by then
            else:
                launches = self._embedded.launches
                try:
                    await trio.to_thread.run_sync(self._embedded.start)
                    if self._telemetry is not None:
                        self._telemetry.metrics.redis_restarts += self._embedded.launches - launches
                    self._say_which_redis()
                except (EmbeddedRedisError, RuntimeError) as problem:  # RuntimeError: no thread for it
                    self._report(OperatorMessage("error", str(problem)))

    # ------------------------------------------------------------------ listeners
    def _brokers_changed(self, brokers: Mapping[int, BrokerAddress]) -> None:
        """Open the ports of new brokers, but none before the start is ready: clients that know a port from before
        connect at once, and nobody can be served until the state is there."""
        self._facts = with_brokers(self._facts, brokers)
        self._tell_findings()
        if self._ready.is_set():
            self._listeners.open_for(brokers)

    def _look_whether_ready(self) -> None:
        self._brokers_told()
        brokers = self.engine.topology.brokers
        known = self.engine.topology.is_known and any(broker.is_ready for broker in brokers)
        if known and not self.engine.why_ending and (self._serves_natively or self._has_state()):
            self._listeners.open_for(self.engine.topology.cluster.brokers)
            if self._listeners.open_bootstrap():
                self._unserved.serving()
                self._ready.set()
                self._notify(READY=1, STATUS="serving")

    def _has_state(self) -> bool:
        """Are Redis and its data there, and are they this cluster's?"""
        if (
            self._store is None
            or self.engine.context.instance.lease_epoch == 0
            or not (self._mode.is_native or self.engine.hidden_ranges.is_read)
        ):
            return False
        if not self._claim.is_of_this_cluster:
            self._store.compare_again()
            return False
        return True

    def _is_anothers(self, kept: bytes, reported: str) -> None:
        self._leave(mismatch(self._settings.cluster, kept, reported))

    def _leave(self, reason: str) -> None:
        """The state in Redis belongs to other brokers: end, and answer no client from it."""
        self._end(reason)
        for session in list(self.engine.sessions):
            session.abort("the state belongs to another cluster")

    def _end(self, reason: str) -> None:
        """Drain and end with an error, for the first reason that is found."""
        if not self.engine.why_ending:
            self.engine.why_ending = reason
            self._report(OperatorMessage("error", reason))
            self._stop.set()

    async def _say_when_it_stood_still(self) -> None:
        """Otherwise only Redis, brokers and clients are named, whose connections end because of that."""
        while True:
            before = self._reactor.now()
            await trio.sleep(limits.STANDSTILL_LOOK_SECONDS)
            late = self._reactor.now() - before - limits.STANDSTILL_LOOK_SECONDS
            if late > limits.STANDSTILL_SECONDS:
                what = (
                    f"this process stood still for {late:.1f} s (SIGSTOP, no CPU, or a frozen machine). Redis, brokers "
                    "and clients may have ended connections because of that; producers send again. Give the proxy "
                    "more CPU, or look what stopped it"
                )
                self._report(OperatorMessage("error", what))

    def _notify(self, **said: object) -> None:
        """Tell systemd. Of several workers the first one does (NotifyAccess=all)."""
        if self._place is None or self._place.number == 1:
            notify(**said)

    async def _say_when_ready(self) -> None:
        waited = 0.0
        while not self._ready.is_set():
            with trio.move_on_after(_WAITING_TOLD_SECONDS):
                await self._ready.wait()
                break
            waited += _WAITING_TOLD_SECONDS
            self._unserved.waited()
            if self.engine.why_ending:
                return
            await self._look_who_listens()
            missing, where = self._missing()
            hint = _LOOK_CLOSER if waited == 2 * _WAITING_TOLD_SECONDS else ""
            text = f"still waiting for {missing} after {waited:.0f} s ({where}){hint}"
            self._notify(STATUS=text)
            self._report(OperatorMessage("warning", text))
        with trio.move_on_after(limits.LEASE_RENEW_SECONDS):  # the other brokers' versions, if they come soon
            while not all(broker.is_ready for broker in self.engine.topology.brokers):  # noqa: ASYNC110 - looks only
                await trio.sleep(limits.PROBE_SECONDS)
        if self._place is None or self._place.number == 1:  # the others would say the same
            for line in self._shown():
                self._report(OperatorMessage("info", line))
            self._facts = await with_unresolved(self._facts)
            self._tell_findings()

    def _missing(self) -> tuple[str, str]:
        """Return what a start that cannot proceed waits for, and where that is configured."""
        topology = self.engine.topology
        is_ready = topology.is_known and any(broker.is_ready for broker in topology.brokers)
        looks = self._store is None and self._why_no_look  # no broker is served before it is known who gives it
        if not is_ready and not looks:
            if topology.unprobed:
                return "a probe of what brokers do with batches", ", ".join(one.name for one in topology.unprobed)
            silent = [broker.name for broker in topology.brokers if broker.judgement is None]
            if silent and self._mode.wanted is None and self._mode.by_brokers is None:
                return "word from all brokers, to know who gives idempotence", ", ".join(silent)
            away = [(one, reason) for one in topology.asked_first if (reason := _why_away(one))]
            why = "; ".join(
                f"{one.name}: {self._why(reason, one.address)}" for one, reason in away[:_REASONS_SHOWN_MAX]
            )
            return "a broker", why or f"upstream {', '.join(map(shown, self._settings.upstream))}"
        redis = self._settings.redis
        where = f"the private one in {self._embedded.data_directory}" if self._embedded is not None else str(redis)
        store = self._store
        why = self._why_no_store() if store is None or store.data_generation is not None else store.why_away
        why = redis_reason(why)
        return "Redis", f"{where}; {why}" if why else where

    def _why_no_store(self) -> str:
        """Return why Redis could not be asked what is stored, empty: it could, or was not asked yet."""
        redis = self._settings.redis
        return self._why_no_look if redis is None else self._why(self._why_no_look, redis.address)

    def _why(self, reason: str, address: Address) -> str:
        """Return why an address cannot be used, with what listens there where that was seen."""
        found = self._listens.get(address, "")
        return f"{reason}; {found}" if found and is_no_answer(reason) else reason

    async def _look_who_listens(self) -> None:
        """Look once what listens at addresses that take connections and do not answer."""
        asked_first, redis = self.engine.topology.asked_first, self._settings.redis
        wanted = [(one.address, BROKER, self._below_sasl()) for one in asked_first if is_no_answer(_why_away(one))]
        if redis is not None and is_no_answer(self._why_no_look):
            side = self._sides.get(REDIS_PLACE)
            over = self._reactor.over_tls(side) if side is not None else self._reactor
            wanted.append((redis.address, REDIS, over))
        for address, what, reactor in wanted[:_REASONS_SHOWN_MAX]:
            if address not in self._listens:
                self._listens[address] = await who_listens(reactor, address, what)

    def _shown(self) -> list[str]:
        """Return what an operator wants to read once at the start."""
        cluster = self.engine.topology.cluster
        versions: dict[str, list[int]] = {}
        for broker in self.engine.topology.brokers:
            versions.setdefault(broker.version or "not detected yet", []).append(broker.id)
        found = ", ".join(f"{version} (broker {', '.join(map(str, ids))})" for version, ids in versions.items())
        if self._mode.passes_all:
            kept = "their own idempotence; requests pass through, no Redis is used (upstream.idempotence: native)"
            has_spans = self._telemetry is not None and self._telemetry.spans is not None
            return [
                f"brokers: {found or self.engine.topology.bootstrap.version}, {kept}",
                *([SPANS_WITHOUT_EFFECT] if has_spans else []),
                *self._listeners.shown(cluster.brokers),
            ]
        is_private = self._embedded is not None or (self._place is not None and self._place.private_redis is not None)
        where = "private, in the data directory" if is_private else "external"
        found = found or self.engine.topology.bootstrap.version
        by_topic = []
        if self._mode.is_native:
            topics = shown_topics(self._mode.engine_topics)
            by_topic = [f"engine topics: {topics}; on all others the brokers give idempotence (native)"]
        return [
            f"brokers: {found}, message format {_formats(self.engine.topology.brokers)}; topics: {len(cluster.topics)}",
            *by_topic,
            f"Redis: {where}; cluster name {self._settings.cluster!r}",
            *self._listeners.shown(cluster.brokers),
        ]

    # ------------------------------------------------------------------ reload
    def _take_over(self, settings: Settings) -> None:
        """Use these settings from now on, as far as they may change while the process runs."""
        context = self.engine.context
        context.options.policy = HeaderPolicy(settings.dropped_headers)
        self.engine.names.set_patterns(settings.producer_names)
        context.instance.expiry_ms = settings.producer_expiry_seconds * 1000
        context.bounds.checkpoints.horizon_seconds = settings.client_retry_seconds_max
        if context.left_out_ids.retry_seconds:
            context.left_out_ids.begin(settings.client_retry_seconds_max)
        self.engine.set_caps(settings.limits)
        self.engine.topic_defaults, self.engine.old_client_settings = settings.topics, settings.old_clients
        client_ids = settings.upstream_idempotence
        self.engine.upstream_idempotence = matching(client_ids) if client_ids else None
        if self._telemetry is not None:
            self._telemetry.lines_per_minute_max = settings.log_lines_per_minute_max
        if self._sasl is not None and settings.upstream_sasl is not None:
            self._sasl.replace(settings.upstream_sasl)
        if self._redis_login is not None and settings.redis is not None:
            self._redis_login.replace(settings.redis)

    async def _reload(self) -> None:
        """SIGHUP: read settings and certificates again, open the journal again, and use what may change, or nothing at
        all."""
        taken: tuple[str, ...] = ()
        journal: FileIO | None = None
        try:
            new = await trio.to_thread.run_sync(self._load) if self._load is not None else self._settings
            found = changes(self._settings, new)
            taken = found.taken
            faults = [f"{name}: only a restart can change this" for name in found.refused]
            if self._mode.is_native and (off := _without_effect(new)):
                faults.append(off)
            if self._upkeep is not None and not faults:
                journal = self._upkeep.file.opened()
        except ConfigError as problem:
            faults = list(problem.problems)
        except OSError as error:
            faults = [f"journal: {error.strerror}"]
        except RuntimeError as error:  # no thread to read it
            faults = [str(error)]
        if not faults:
            faults = self._certificates.reload(tls_by_place(new))
        if faults:
            if journal is not None:
                journal.close()
            for sentence in faults:
                self._report(OperatorMessage("error", f"not reloaded: {sentence}"))
            self._report(OperatorMessage("error", "not reloaded: everything stays as it was"))
            return
        self._settings = new
        if self._upkeep is not None and journal is not None:
            self._upkeep.go_on(new.journal, journal)
        self._take_over(new)
        self._facts = with_brokers(facts_here(new), self._facts.broker_ids)
        self._tell_findings()
        set_up(new.log_level, new.log_format, None if self._place is None else self._place.number)
        what = f"{', '.join(taken)} changed" if taken else "nothing has changed"
        self._report(OperatorMessage("info", f"reloaded: {what}; certificates were read again"))

    # ------------------------------------------------------------------ the end
    async def _handle_signals(self, signals: AsyncIterator[int]) -> None:
        """While the process drains, further signals are ignored: a worker gets SIGTERM from systemd and from its
        supervisor."""
        async for number in signals:
            if self._stop.is_set():
                continue
            if number == signal.SIGHUP:
                if self._place is None:
                    notify_reloading()
                await self._reload()
                if self._place is None and self._ready.is_set():
                    notify(READY=1)
            else:
                self._stop.set()

    async def _wait_for_supervisor(self) -> None:
        await until_alone()
        self._stop.set()

    async def _shut_down(self) -> None:
        self._notify(STOPPING=1, STATUS="draining")
        self._report(OperatorMessage("info", "draining: nothing new is taken, what is in flight is finished"))
        with trio.move_on_after(self.engine.caps.drain_seconds) as scope:
            await _called_back(self.engine.drain)
        if scope.cancelled_caught:
            self._report(
                OperatorMessage("warning", "the drain took too long: what is left is resolved by the next start")
            )
            self.engine.reset_busy("the proxy ends")  # before other proxies take this one for dead
        if self._store is not None and not self._serves_natively:
            with trio.move_on_after(limits.ASK_SECONDS_MAX):
                await _called_back(self._store.stop)
        self.engine.close()
        self._reactor.end_pass()


async def _in_passes(steps: Steps[bool]) -> bool:
    """Take each step in a pass of its own of the loop."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return bool(end.value)
        await trio.lowlevel.checkpoint()


def _without_effect(settings: Settings) -> str:
    """Return all settings that have no effect in front of brokers that give idempotence, empty for none."""
    return "; ".join(map(str, without_effect(settings)))


def _why_away(broker: Broker) -> str:
    """Return why a broker that a start waits for has not answered; empty: it has."""
    is_known = broker.judgement is not None or broker.awaits_probe
    is_silent = not broker.is_ready and not is_known and broker.refusal is None
    return broker.why_away or (_SILENT if is_silent else "")


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


async def _called_back(start: Callable[[Callable[[], None]], None]) -> None:
    done = trio.Event()
    start(done.set)
    await done.wait()


def _formats(brokers: Iterable[Broker]) -> str:
    """Return the message formats that these brokers store."""
    return " and ".join(sorted({"v2" if one.form.is_v2 else "v1" for one in brokers})) or "v1"

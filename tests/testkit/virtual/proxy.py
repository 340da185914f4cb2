"""One shipped proxy on a virtual host: engine and Redis store, wired as ``proxy/process/server.py`` does on sockets.

Owns the life cycle of the process: start, crash, drain, and the data directory that the next process finds. It has no
proxy logic. ``package`` is the name under which the shipped code is imported, so that a patched copy can run as well.
"""

from __future__ import annotations

import importlib
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

from idemproxy.codecs.steps import at_once
from idemproxy.proxy.limits import CHECKPOINT_WRITE_SECONDS
from idemproxy.reactor import Address
from testkit.virtual.client import EPOCH_MS
from testkit.virtual.network import Network, VirtualReactor
from testkit.virtual.pass_through_client import password_of

CLUSTER_NAME = "simulated"
HELD_BACK_SECONDS = 0.1
OWN_NAME = "idemproxy"
"""The proxies' own principal, where brokers ask: it may not write."""
EVENTS_MAX = 4_000
"""Events that are kept of one proxy, for people who look at a failure."""


def _place_of(broker_id: int, host: str) -> tuple[str, int]:
    """Where clients are sent: they come to the bootstrap port all the same."""
    return host, 9093 + broker_id


class _InOrder(dict[Any, None]):
    """A set that is gone through in the order of arrival: that of a set differs from process to process, and with it
    what a seed does."""

    def add(self, one: object) -> None:
        """Put it in."""
        self[one] = None

    def discard(self, one: object) -> None:
        """Take it out, if it is there."""
        self.pop(one, None)


class _NotedIds:
    """Takes the place of ``ProducerIds``: the ids are brokers'."""

    def __init__(self, engine: Any, issue: Callable[[], int]) -> None:
        self._engine, self._issue = engine, issue

    def answer(self, principal: bytes, done: Callable[[int, int], None]) -> None:
        """Issue one, which its client learns of once it is noted."""
        producer_id = self._issue()
        client = SimpleNamespace(principal=principal, address="client")
        self._engine.note_issued(producer_id, client, lambda: done(0, producer_id))

    def forget(self) -> None:
        """Nothing is kept."""


class VirtualProxy:
    """One proxy over all its lives."""

    _is_conditional = _has_hidden_ranges = False

    may_start: Callable[[], bool] = staticmethod(lambda: True)
    """While it says no, no further life begins."""

    def __init__(
        self,
        network: Network,
        name: str,
        upstream: Address,
        redis: Address,
        *,
        package: str = "idemproxy",
        shares_store: bool = True,
        clock_offset: float = 0.0,
        clock_rate: float = 1.0,
        horizon_seconds: float | None = None,
        has_principals: bool = False,
        authenticating_brokers: Sequence[int] = (),
        expiry_seconds: float | None = None,
        name_expiry_seconds: float | None = None,
        wall_clock_rate: float = 1.0,
        has_names: bool = False,
        late_share: float = 0.0,
        traced_share: float = 0.0,
        owned_share: float = 0.0,
        broker_issues: Callable[[], int] | None = None,
        appends_with_ids: bool = False,
    ) -> None:
        """``shares_store``: other proxies may use its Redis. ``clock_offset``: how long its machine was up before the
        run. ``clock_rate``: its seconds in a second. ``horizon_seconds``: the longest time after which a client
        retries; None: as shipped. ``has_principals``: it knows its clients by name, as with certificates.
        ``authenticating_brokers``: the brokers, if they ask who is there: clients then show them at one port each, and
        the proxy is a principal of its own. ``expiry_seconds``: of the state of an idle producer; None: as shipped.
        ``name_expiry_seconds``: of a name. ``wall_clock_rate``: of the clock by which ids get old. ``has_names``:
        client ids are names. ``late_share``: of batches that are converted in a later pass. ``traced_share``: of
        batches whose span is wanted, which a flow prepares; 0: no spans are wanted. ``owned_share``: of its lives in
        which it takes append reservations. ``broker_issues``: makes the producer ids, which the proxy notes, as where
        brokers give idempotence on other topics; None: the proxy makes them. ``appends_with_ids``: what it appends has
        the clients' producer ids."""
        self._broker_issues = broker_issues
        self.network = network
        self.name = name
        self.address: Address = (name, 9092)
        self.lives = 0
        self.events: list[tuple[float, int, Any]] = []
        """(time, life, event) of everything that was reported."""
        self.errors: list[str] = []
        """Errors of the proxy's own that it reported: there may be none."""
        self.on_effect: list[Callable[[VirtualProxy, Any], None]] = []
        """Called before every effect of a flow; filled by ``watch_effects``."""
        self.on_event: list[Callable[[VirtualProxy, Any], None]] = []
        """Called with everything that is reported."""
        self.host: VirtualReactor
        self.engine: Any
        self.store: Any
        self._upstream = upstream
        self._redis = redis
        self._clock_offset, self._clock_rate = clock_offset, clock_rate
        self._horizon_seconds = horizon_seconds
        self._has_principals = has_principals
        self._authenticating_brokers = tuple(authenticating_brokers)
        self._expiry_seconds, self._name_expiry_seconds = expiry_seconds, name_expiry_seconds
        self._wall_clock_rate = wall_clock_rate
        self._has_names = has_names
        self._late_share, self._traced_share, self._owned_share = late_share, traced_share, owned_share
        self._appends_with_ids = appends_with_ids
        kinds = ("late", "traced", "owned")
        self._late, self._traced, self._owned = (Random(f"{network.seed}/{name}/{kind}") for kind in kinds)
        self._package, self._shares_store = package, shares_store
        self._engine_module = importlib.import_module(f"{package}.proxy.engine.engine")
        self._store_module = importlib.import_module(f"{package}.state.redis_store")
        self._random = Random(f"{network.seed}/{name}")
        self._directory: list[bytes] = []
        """Proxy instances that lived here and said no goodbye: what the data directory holds."""
        self.checkpoints: bytes | None = None
        """What the data directory knows of where the logs ended when."""
        self.is_listening = False
        self._is_ending = False
        self.start()

    @property
    def is_up(self) -> bool:
        """The process lives."""
        return self.host.alive

    def start(self) -> None:
        """Start the process."""
        self.lives += 1
        self.is_listening = False
        self._is_ending = False
        earlier = list(self._directory)
        name = self.name if self.lives == 1 else f"{self.name}.{self.lives}"
        self.host = self.network.host(name, clock_offset=self._clock_offset, clock_rate=self._clock_rate)
        self.host.keeps_alive = True  # as proxy/net/event_loop.py sets it
        self.host.failed = lambda error: self._failed("a callback", error)
        host, engine = self.host, self._new_engine()
        self.engine = engine
        if self.on_effect:
            self._watch_effects(engine)

        def remember() -> None:
            self._directory = [*earlier, engine.context.instance.instance_id]

        def new_data_generation(data_generation: bytes) -> None:
            engine.new_data_generation(data_generation)
            remember()
            for instance_id in earlier:
                self.store.end_member(instance_id, lambda result: None)
            self._listen_when_ready(host)

        def lease_lost() -> None:
            engine.lease_lost()
            remember()

        remember()
        self.store = self._store_module.RedisStore(
            host,
            self._redis,
            cluster=CLUSTER_NAME,
            instance_id=engine.context.instance.instance_id,
            random_bytes=self._random.randbytes,
            on_data_generation=new_data_generation,
            on_lease_lost=lease_lost,
            report=self._report,
        )
        self._begin(host, engine)
        self._keep_checkpoints(host, engine)

    def _begin(self, host: VirtualReactor, engine: Any) -> None:
        """Look for brokers and take part in what proxies share."""
        engine.start(self.store)
        if self._broker_issues is not None:
            engine.context.instance.brokers_issue_ids = True
            engine._producer_ids = _NotedIds(engine, self._broker_issues)
        if self._has_hidden_ranges:
            engine.keep_hidden_ranges()
        self.store.start()

    def _new_engine(self, **chosen: Any) -> Any:
        """``chosen``: what else it is made with."""
        host = self.host
        if self._appends_with_ids:
            idempotence = importlib.import_module(f"{self._package}.proxy.broker.served").Idempotence
            mode = importlib.import_module(f"{self._package}.proxy.broker.mode").Mode
            chosen = {"mode": mode(idempotence.PROXY, appends_with_ids=True), **chosen}
        engine = self._engine_module.Engine(
            self._as_a_principal(host) if self._authenticating_brokers else host,
            (self._upstream,),
            cluster=CLUSTER_NAME,
            report=self._report,
            shares_store=self._shares_store,
            random_bytes=self._random.randbytes,
            wall_clock_ms=lambda: EPOCH_MS + int(self.network.now * 1000 * self._wall_clock_rate),
            on_brokers=lambda brokers: self._listen_when_ready(host),
            on_ready=lambda: self._listen_when_ready(host),
            **chosen,
        )
        engine.context.takes_append_reservations = self._owned.random() < self._owned_share
        engine.context.is_pass_long = lambda: self._late.random() < self._late_share
        if self._traced_share:
            engine.context.observers.step_begins = host.now
            engine.context.observers.begin_trace = self._begin_trace
        if self._has_names:
            engine.names.set_patterns(("client-*",))
        if self._is_conditional:
            engine.conditional_topics = type(engine.conditional_topics)(("*",))
        if self._expiry_seconds is not None:
            engine.context.instance.expiry_ms = int(self._expiry_seconds * 1000)
        if self._name_expiry_seconds is not None:
            engine.context.instance.name_expiry_ms = int(self._name_expiry_seconds * 1000)
        if self._horizon_seconds is not None:
            engine.context.bounds.checkpoints.horizon_seconds = self._horizon_seconds
        if self.checkpoints is not None:
            engine.context.bounds.checkpoints.unpack(self.checkpoints, host.now(), self._wall_ms())
        engine.sessions = _InOrder()
        return engine

    def be_conditional(self) -> None:
        """From here on, and in all later lives, all topics take conditional publishes only."""
        self._is_conditional = True
        self.engine.conditional_topics = type(self.engine.conditional_topics)(("*",))

    def keep_hidden_ranges(self) -> None:
        """From here on, and in all later lives, fetches leave out what is named as a duplicate."""
        self._has_hidden_ranges = True
        self.engine.keep_hidden_ranges()

    def _begin_trace(self, _topic: str) -> Any:
        """As proxy/telemetry/spans.py does with a sampler."""
        is_sampled = self._traced.random() < self._traced_share
        observers = importlib.import_module(f"{self._package}.proxy.flow.observers")
        return observers.Trace(self._traced.getrandbits(128), is_sampled)

    def _as_a_principal(self, host: VirtualReactor) -> Any:
        """As proxy/process/server.py reaches brokers that ask who is there."""
        sasl = importlib.import_module(f"{self._package}.proxy.broker.sasl_login")
        mechanisms = importlib.import_module(f"{self._package}.proxy.broker.sasl_credentials")
        settings = importlib.import_module(f"{self._package}.proxy.settings.sasl")
        ours = settings.SaslClient(settings.PLAIN, OWN_NAME, password_of(OWN_NAME))
        return sasl.OverSasl(host, mechanisms.Credentials(ours, self._random.randbytes), self._report)

    def _wall_ms(self) -> int:
        return EPOCH_MS + int(self.network.now * 1000)

    def _keep_checkpoints(self, host: VirtualReactor, engine: Any) -> None:
        """As proxy/process/server.py writes them: every now and then, for whatever life comes next."""

        def write() -> None:
            self.checkpoints = engine.context.bounds.checkpoints.pack(host.now(), self._wall_ms())
            host.later(CHECKPOINT_WRITE_SECONDS, write)

        host.later(CHECKPOINT_WRITE_SECONDS, write)

    def watch_effects(self, on_effect: Callable[[VirtualProxy, Any], None]) -> None:
        """Have this called before every effect of this life and of all later ones."""
        self.on_effect.append(on_effect)
        self._watch_effects(self.engine)

    def _watch_effects(self, engine: Any) -> None:
        def look(effect: Any) -> None:
            for tell in self.on_effect:
                tell(self, effect)

        engine.runner.on_effect = look

    def _listen_when_ready(self, host: VirtualReactor) -> None:
        if host is not self.host or not host.alive or self.is_listening:
            return
        if self._is_ready:
            self.is_listening = True
            engine = self.engine

            def accept() -> Any:
                return engine.accept(None, _place_of, f"CN={host.caller}" if self._has_principals else None)

            if not self._authenticating_brokers:
                self.network.listen(host, self.address, accept)
                return
            authentication = importlib.import_module(
                f"{self._package}.proxy.pass_through.authentication"
            ).ClientAuthentication
            for address, broker_id in zip(self.addresses, self._authenticating_brokers, strict=True):
                make = partial(engine.accept, broker_id, _place_of, make=partial(authentication, host))
                self.network.listen(host, address, make)

    @property
    def _is_ready(self) -> bool:
        """May clients come?"""
        has_list = not self._has_hidden_ranges or self.engine.hidden_ranges.is_read
        return bool(self.engine.topology.is_known and self.engine.context.instance.lease_epoch > 0 and has_list)

    @property
    def addresses(self) -> list[Address]:
        """Where clients come to: one port for all, or one for each broker."""
        return [(self.name, 9093 + broker_id) for broker_id in self._authenticating_brokers] or [self.address]

    # ------------------------------------------------------------------ ends
    def crash(self, *, down_seconds: float | None = 0.5, half_open: bool = False) -> None:
        """SIGKILL, and a new process after some time (None: never)."""
        if not self.is_up:
            return
        self.host.crash(half_open=half_open)
        self.come_back(down_seconds)

    def come_back(self, down_seconds: float | None) -> None:
        """Start again after some time, unless somebody else did."""
        instance = self.lives

        def begin() -> None:
            if self.lives != instance:
                return
            if self.may_start():
                self.start()
            else:
                self.network.schedule(HELD_BACK_SECONDS, begin)

        if down_seconds is not None:
            self.network.schedule(down_seconds, begin)

    def drain(self, *, down_seconds: float | None = 0.5) -> None:
        """SIGTERM (rule R15), and a new process when it has ended."""
        if not self.is_up or self._is_ending:
            return
        self._is_ending = True
        host, engine, store = self.host, self.engine, self.store
        for address in self.addresses:
            self.network.unlisten(address)

        def stopped() -> None:
            engine.close()
            at_once(engine.context.bounds.taking_checkpoints(host.now))
            self.checkpoints = engine.context.bounds.checkpoints.pack(host.now(), self._wall_ms())
            self._directory = []
            host.crash_after_pass()
            self.come_back(down_seconds)

        host.post(lambda: engine.drain(lambda: store.stop(stopped)))

    def _report(self, event: Any) -> None:
        if len(self.events) < EVENTS_MAX:
            self.events.append((self.network.now, self.lives, event))
        for tell in self.on_event:
            tell(self, event)
        error = getattr(event, "error", None)
        if isinstance(error, BaseException):
            self._failed(str(getattr(event, "where", "a flow")), error)

    def _failed(self, where: str, error: BaseException) -> None:
        place = traceback.extract_tb(error.__traceback__)[-1]
        line = f"{Path(place.filename).name}:{place.lineno}"
        self.errors.append(f"{self.name} at {self.network.now:.3f} in {where}: {error!r} in {line}")

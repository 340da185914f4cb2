"""A shipped proxy that chooses itself who gives idempotence (``upstream.idempotence: auto``), as
``proxy/process/server.py`` wires it: it hands producers over when all brokers were upgraded, and passes bytes when none
of before can come again (rule R21).

Owns that wiring only. Clients come to one port for each broker, as bytes that pass go to the broker of the port.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from functools import partial
from typing import Any

from idemproxy.proxy.limits import PROBE_SECONDS
from idemproxy.reactor import Address
from testkit.virtual.client import EPOCH_MS
from testkit.virtual.network import Network, VirtualReactor
from testkit.virtual.proxy import CLUSTER_NAME, VirtualProxy, _place_of

LOOK_SECONDS = 1.0
PROXY, HANDING_OVER, NATIVE = "proxy", "handing_over", "native"


class UpgradingProxy(VirtualProxy):
    """One proxy over all its lives. ``broker_ids``: it has a port for each of these brokers."""

    _mode: Any = None
    _mark: Any = None
    _began = False
    _earlier: Sequence[bytes] = ()

    def __init__(self, network: Network, name: str, *addresses: Address, broker_ids: Sequence[int], **how: Any) -> None:
        """``addresses``: of a broker, and of Redis. ``how``: see ``VirtualProxy``."""
        self.broker_ids = tuple(broker_ids)
        self.ended_itself = 0
        """So often it ended with a sentence, instead of handing over."""
        super().__init__(network, name, *addresses, **how)

    def start(self) -> None:
        """Begin a life."""
        self._earlier = list(self._directory)
        super().start()

    def drain(self, *, down_seconds: float | None = 0.5) -> None:
        """SIGTERM (rule R15), and a new life when it has ended."""
        if self._began or not self.is_up:
            super().drain(down_seconds=down_seconds)
        else:
            self.crash(down_seconds=down_seconds)

    @property
    def mode(self) -> str:
        """Who gives idempotence; "" as long as it is not chosen."""
        chosen = self._mode.chosen
        return "" if chosen is None else str(chosen.value)

    @property
    def serves_in(self) -> str:
        """The same where clients are served; "" else: a start may find out yet that producers were handed over."""
        return self.mode if self.is_up and self.is_listening else ""

    @property
    def addresses(self) -> list[Address]:
        """One port for each broker."""
        return [(self.name, 9093 + broker_id) for broker_id in self.broker_ids]

    def _import(self, module: str) -> Any:
        return importlib.import_module(f"{self._package}.{module}")

    def _new_engine(self, **chosen: Any) -> Any:
        self._mode = self._import("proxy.broker.mode").Mode(None)
        self._mark, self._began = None, False
        host, mode = self.host, self._mode
        return super()._new_engine(mode=mode, on_mode=lambda: self._mode_changed(host, mode), **chosen)

    def _begin(self, host: VirtualReactor, engine: Any) -> None:
        engine.look_for_brokers()

    # ------------------------------------------------------------------ as server.py has it
    def _mode_changed(self, host: VirtualReactor, mode: Any) -> None:
        if host is not self.host or not host.alive:
            return
        if self.mode == HANDING_OVER:
            self.engine.hand_over()
            if self._mark is not None:
                self._mark.set(partial(self._pass_bytes_when_due, host))
        if not self._began:
            self._began = True
            host.post(lambda: self._give_idempotence(host))

    def _give_idempotence(self, host: VirtualReactor) -> None:
        if host is not self.host or not host.alive:
            return
        self.engine.give_idempotence(self.store)
        module = self._import("proxy.broker.hand_over_mark")
        self._mark = module.HandOverMark(host, self.store, CLUSTER_NAME, self._wall_ms)
        self.store.start()
        self._mark.look(partial(self._look_whether_handed_over, host))

    def _look_whether_handed_over(self, host: VirtualReactor) -> None:
        mark, topology = self._mark, self.engine.topology
        if mark.since_ms is not None and self._passes_in_seconds() <= 0 and self.mode == NATIVE:
            pass
        elif self.mode == HANDING_OVER:
            mark.set(partial(self._pass_bytes_when_due, host))
        elif mark.since_ms is not None:
            topology.hand_over()
        elif self.mode == NATIVE and (self._has_given_ids or mark.has_state):
            takes_over = self._import("proxy.broker.served").all_take_over
            judgements = [broker.judgement for broker in topology.brokers]
            if not takes_over(judgements) and None in judgements:
                host.later(PROBE_SECONDS, partial(self._look_whether_handed_over, host))
                return
            if not takes_over(judgements):
                self.ended_itself += 1
                self.drain()
                return
            topology.hand_over()
        self._listen_when_ready(host)

    @property
    def _has_given_ids(self) -> bool:
        return bool(self._earlier) or self.checkpoints is not None

    def _passes_in_seconds(self) -> float:
        context, since_ms = self.engine.context, self._mark.since_ms
        due = self._import("proxy.broker.hand_over_mark").bytes_pass_in_seconds
        expiry_seconds, retry_seconds = context.life.expiry_ms / 1000, context.bounds.checkpoints.horizon_seconds
        return float(due(since_ms, EPOCH_MS + int(self.network.now * 1000), expiry_seconds, retry_seconds))

    def _pass_bytes_when_due(self, host: VirtualReactor) -> None:
        if self._mark.since_ms is None:
            return
        if self._passes_in_seconds() > 0:
            host.later(LOOK_SECONDS, lambda: self._pass_bytes_when_due(host))
            return
        self._mode.chosen = self._import("proxy.broker.served").Idempotence.NATIVE
        self.network.note(self.name, "bytes pass")
        for session in list(self.engine.sessions):
            session.close()

    @property
    def _is_ready(self) -> bool:
        engine, mark = self.engine, self._mark
        if not engine.topology.is_known or mark is None or not mark.is_known:
            return False
        return self.mode == NATIVE or engine.context.life.era > 0

    def _listen_when_ready(self, host: VirtualReactor) -> None:
        if host is not self.host or not host.alive or self.is_listening or not self._is_ready:
            return
        self.is_listening = True
        for address, broker_id in zip(self.addresses, self.broker_ids, strict=True):
            self.network.listen(host, address, partial(self._accept, broker_id))

    def _accept(self, broker_id: int) -> Any:
        engine = self.engine
        if self.mode != NATIVE:
            return engine.accept(broker_id, _place_of)
        native = self._import("proxy.native.session").NativeSession
        return engine.accept(broker_id, _place_of, None, partial(native, engine.for_clients, False))

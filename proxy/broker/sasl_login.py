"""SASL towards the brokers, as a layer over any reactor: an endpoint that connects through it sees the connection once
the broker has accepted our principal. Sans-IO: ``codecs/sasl_exchange.py`` is the exchange; this file bounds its time,
backs off after a refusal and tells the operator."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from ...codecs.errors import WireError
from ...codecs.sasl import SaslError
from ...codecs.sasl_exchange import SaslExchange
from ...reactor import Address, Endpoint, Reactor, Wire
from .. import limits
from ..events import OperatorMessage, Report
from ..settings.addresses import shown
from .sasl_credentials import Credentials

_CLIENT_ID = "idemproxy-sasl"


@dataclass(slots=True)
class _Refusal:
    """A login that a broker refused. Until ``until`` no login is tried there; connections fail with the same reason."""

    reason: str
    seconds: float
    until: float
    version: int
    """The version of the credentials that were refused."""


class OverSasl:
    """A reactor's clock and timers, with connections that are authenticated as our principal."""

    def __init__(self, reactor: Reactor, credentials: Credentials, report: Report) -> None:
        self.now = reactor.now
        self.later = reactor.later
        self.at_flush = reactor.at_flush
        self._reactor = reactor
        self._credentials = credentials
        self._report = report
        self._refusals: dict[Address, _Refusal] = {}

    def connect(self, address: Address, endpoint: Endpoint) -> None:
        """Open a connection; ``connected`` is called once the broker has accepted us."""
        refusal = self._refusals.get(address)
        if refusal is not None and self._is_left_alone(refusal):
            reason = refusal.reason
            self.later(0, lambda: endpoint.lost(reason))
        else:
            self._reactor.connect(address, SaslLogin(self, address, endpoint, self._credentials))

    def accepted(self, address: Address) -> None:
        """The broker has accepted the login."""
        if self._refusals.pop(address, None) is not None:
            self._report(
                OperatorMessage("info", f"upstream.sasl: {shown(address)} accepts {self._credentials.shown} again")
            )

    def refused(self, address: Address, reason: str) -> None:
        """The broker refused the login, or never answered."""
        now, version = self.now(), self._credentials.version
        before = self._refusals.get(address)
        seconds = limits.SASL_BACKOFF_SECONDS_MIN
        if before is not None and before.version == version:
            if now < before.until:
                return  # one of several connections at a time
            seconds = min(before.seconds * 2, limits.SASL_BACKOFF_SECONDS_MAX)
        self._refusals[address] = _Refusal(reason, seconds, now + seconds, version)
        if before is None or before.reason != reason:
            what = f"upstream.sasl: {shown(address)}, {self._credentials.shown}: {reason}"
            self._report(OperatorMessage("error", f"{what}; tried again every {limits.SASL_BACKOFF_SECONDS_MAX:.0f} s"))

    def _is_left_alone(self, refusal: _Refusal) -> bool:
        with suppress(SaslError):  # the next exchange reports it
            self._credentials.look()
        return self.now() < refusal.until and refusal.version == self._credentials.version


class SaslLogin:
    """The endpoint of a connection until the broker has accepted the login; then everything goes to the endpoint that
    asked for the connection."""

    def __init__(self, over: OverSasl, address: Address, endpoint: Endpoint, credentials: Credentials) -> None:
        self._over = over
        self._address = address
        self._endpoint = endpoint
        self._credentials = credentials
        self._wire: Wire | None = None
        self._exchange: SaslExchange | None = None
        self._is_over = False

    def connected(self, wire: Wire) -> None:
        """The connection is open: begin the exchange."""
        self._wire = wire
        self._timer = self._over.later(limits.SASL_SECONDS, self._time_out)
        try:
            mechanism = self._credentials.begin()
        except SaslError as error:
            self._give_up(str(error))
            return
        self._exchange = SaslExchange(
            self._credentials.settings.mechanism,
            mechanism,
            shown=self._credentials.shown,
            client_id=_CLIENT_ID,
            frame_bytes_max=limits.SASL_FRAME_BYTES_MAX,
        )
        wire.send(self._exchange.start())

    def received(self, data: bytes) -> None:
        """Bytes of the exchange."""
        assert self._wire is not None
        assert self._exchange is not None
        try:
            reply = self._exchange.received(data)
        except WireError as error:
            self._give_up(f"the broker's answer cannot be read: {error}")
        except SaslError as error:
            self._give_up(str(error))
        else:
            if reply:
                self._wire.send(reply)
            if self._exchange.is_over:
                self._hand_over()

    def lost(self, reason: str) -> None:
        """The connection ended. While a token is out, this is how old brokers refuse it."""
        if self._wire is None:  # it was never open
            self._endpoint.lost(reason)
        elif not self._is_over:
            assert self._exchange is not None
            self._end(self._exchange.explain_loss(reason))

    def _hand_over(self) -> None:
        assert self._wire is not None
        self._is_over = True
        self._timer.cancel()
        self._over.accepted(self._address)
        self._wire.hand_over(self._endpoint)
        self._endpoint.connected(self._wire)

    def _time_out(self) -> None:
        if not self._is_over:
            self._give_up(f"the broker does not finish the SASL exchange within {limits.SASL_SECONDS:.0f} s")

    def _give_up(self, reason: str) -> None:
        assert self._wire is not None
        self._wire.reset()
        self._end(reason)

    def _end(self, reason: str) -> None:
        self._is_over = True
        self._timer.cancel()
        self._over.refused(self._address, reason)
        self._endpoint.lost(reason)

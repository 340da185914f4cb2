"""The broker's side of a native client: the endpoint of the one connection that carries its bytes. Sans-IO; reads no
frame."""

from __future__ import annotations

from collections.abc import Callable

from ...reactor import Buffer, Wire


def _ignore_bytes(_data: bytes) -> None:
    """The client has gone."""


def _ignore_reason(_reason: str) -> None:
    """The client has gone."""


def _nothing() -> None:
    """The client has gone."""


class NativeUpstream:
    """``received``: gets the broker's bytes. ``lost``: called with the reason why the connection has ended.
    ``took_all``: called whenever the broker has taken all that was sent. None of them is called after ``close``."""

    def __init__(
        self, received: Callable[[bytes], None], lost: Callable[[str], None], took_all: Callable[[], None]
    ) -> None:
        self.received = received
        self.is_paused = False
        self._lost = lost
        self._took_all = took_all
        self._wire: Wire | None = None
        self._early: list[Buffer] = []
        self._early_bytes = 0
        self._is_closed = False

    @property
    def wire(self) -> Wire | None:
        """None: it is not open."""
        return self._wire

    @property
    def unsent(self) -> int:
        """Bytes that the broker has not taken."""
        return self._early_bytes if self._wire is None else self._wire.unsent

    def send(self, *chunks: Buffer) -> None:
        """Send bytes on, or keep them until the connection is open."""
        if self._wire is not None:
            self._wire.send(*chunks)
        elif not self._is_closed:
            self._early += chunks
            self._early_bytes += sum(map(len, chunks))

    def read_or_not(self, is_paused: bool) -> None:
        """Leave the broker's answers unread, or resume."""
        if is_paused != self.is_paused:
            self.is_paused = is_paused
            self._read_as_said()

    def hand_over(self, received: Callable[[bytes], None], lost: Callable[[str], None]) -> None:
        """Somebody else needs the connection from now on, and closes it."""
        self.received, self._lost, self._took_all = received, lost, _nothing
        self.read_or_not(False)

    def close(self) -> None:
        """The client has gone: what it sent is still passed on, the answers are dropped."""
        self._is_closed = True
        self.received, self._lost, self._took_all = _ignore_bytes, _ignore_reason, _nothing
        if self._wire is not None:
            self._wire.close()
            self._wire = None

    # ------------------------------------------------------------------ endpoint
    def connected(self, wire: Wire) -> None:
        """The connection is open."""
        early, self._early, self._early_bytes = self._early, [], 0
        if early:
            wire.send(*early)
        if self._is_closed:
            wire.close()
            return
        self._wire = wire
        wire.after_writing(self._written)
        self._read_as_said()

    def lost(self, reason: str) -> None:
        """It has ended."""
        self._wire = None
        self._is_closed = True
        self._lost(reason)

    def _written(self) -> None:
        self._took_all()

    def _read_as_said(self) -> None:
        if self._wire is not None:
            if self.is_paused:
                self._wire.pause()
            else:
                self._wire.resume()

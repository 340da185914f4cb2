"""A client that knows no leaders, as it asks for no metadata: told that a broker does not lead, it goes to another
broker's port."""

from __future__ import annotations

from testkit.virtual.client import VirtualClient, _Session
from testkit.virtual.client_bytes import parse_produce
from testkit.virtual.producer import NOT_LEADER


class RovingClient(VirtualClient):
    """A producer of one connection."""

    def _connect(self) -> None:
        self._connect_is_planned = False
        self.connections_opened += 1
        session = self._session = _RovingSession(self)
        address, self.next_address = self.next_address, None
        self.host.connect(address or self.network.random.choice(self.addresses), session)


class _RovingSession(_Session):
    """A connection that is left when its broker does not lead."""

    def _answer(self, frame: bytes) -> None:
        if self._is_over:  # it went elsewhere at the answer before
            return
        is_produce = bool(next(iter(self.waiting.values())).batches) if self.waiting else False
        super()._answer(frame)
        if is_produce and any(code == NOT_LEADER for code, _ in parse_produce(frame[4:]).values()):
            self._client.move()

"""Ends of connections on the virtual network without any manners: they send the bytes that they are given, and
count the answers."""

from __future__ import annotations

from idemproxy.codecs.headers import encode_request_header
from idemproxy.reactor import Wire


def request(correlation_id: int, api_key: int, version: int = 0, body: bytes = b"") -> bytes:
    """Return one request with its size in front."""
    header = encode_request_header(api_key, version, correlation_id, "client")
    return (len(header) + len(body)).to_bytes(4, "big") + header + body


class End:
    """Of any connection: keeps what comes as long as its wire is not paused."""

    def __init__(self) -> None:
        self.wire: Wire | None = None
        self.data = bytearray()
        self.is_lost = False

    def connected(self, wire: Wire) -> None:
        self.wire = wire

    def received(self, data: bytes) -> None:
        self.data += data

    def lost(self, reason: str) -> None:
        self.is_lost = True


class Line(End):
    """A client's."""

    def __init__(self) -> None:
        super().__init__()
        self._answers: list[int] = []
        self._position = 0

    @property
    def answers(self) -> list[int]:
        """The correlation ids of all answers that are complete, in the order in which they came."""
        while len(self.data) - self._position >= 8:
            end = self._position + 4 + int.from_bytes(self.data[self._position : self._position + 4], "big")
            if end > len(self.data):
                break
            self._answers.append(int.from_bytes(self.data[self._position + 4 : self._position + 8], "big"))
            self._position = end
        return self._answers

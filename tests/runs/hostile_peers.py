"""A process of its own that opens very many connections to a proxy and behaves badly on some of them.

``python -m runs.hostile_peers HOST PORT --idle N --slow N``: says on one line of JSON when all are open, and on
another one what became of them when its standard input ends, or after ``--seconds``. Loopback only. Every loop ends.

The slow ones take turns: half a header and silence; a produce of which a byte a second comes; a part of a large produce
and silence; a request now and then whose answer is never read. Greedy ones, which are not slow, send such requests by
the thousand.
"""

from __future__ import annotations

import argparse
import ipaddress
import json
import resource
import select
import socket
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache

from idemproxy.codecs import messages
from idemproxy.codecs.framing import frame
from idemproxy.codecs.headers import encode_request_header
from idemproxy.proxy.versions import ApiKey
from testkit.real.clients.raw_client import PRODUCE_VERSION, RawClient, batch

KINDS = ("half_header", "dripping", "stalled", "deaf")
STALLED_BYTES = 60_000
"""Sent of a request that is said to have ten times as much."""
_TOPIC = "hostile"
SLICES = 20
"""They act one after the other, not all at the same moment."""
_OPEN_SECONDS_MAX = 120.0
_CONNECT_SECONDS_MAX = 10.0
_REQUESTS_PER_SECOND = {"deaf": 2, "greedy": 1000}
_RECEIVE_BUFFER_BYTES = 4096


@dataclass(slots=True, eq=False)
class Peer:
    """One connection. ``to_send``: what it keeps sending; ``sent``: how much of that the other side took."""

    kind: str
    connection: socket.socket
    to_send: bytes = b""
    sent: int = 0


@dataclass(slots=True)
class Peers:
    """All of them."""

    address: tuple[str, int]
    refused: int = 0
    ended: Counter[str] = field(default_factory=Counter)
    open: dict[int, Peer] = field(default_factory=dict)
    stalled_bytes: int = STALLED_BYTES
    to_come_again: list[str] = field(default_factory=list)
    slices: list[set[Peer]] = field(default_factory=lambda: [set() for _ in range(SLICES)])
    epoll: select.epoll = field(default_factory=select.epoll)

    # ------------------------------------------------------------------ opening
    def add(self, kind: str) -> None:
        """Open one, and send what this kind sends at first."""
        connection = socket.socket()
        connection.settimeout(_CONNECT_SECONDS_MAX)
        if kind in _REQUESTS_PER_SECOND:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER_BYTES)
        try:
            connection.connect(self.address)
        except OSError:
            connection.close()
            self.refused += 1
            return
        connection.setblocking(False)
        peer = Peer(kind, connection, _bytes_of(kind, self.stalled_bytes))
        self.open[connection.fileno()] = peer
        self.epoll.register(connection, select.EPOLLRDHUP)
        if kind not in ("idle", "half_header"):
            self.slices[connection.fileno() % SLICES].add(peer)
        if kind in ("half_header", "stalled"):
            self.send(peer, len(peer.to_send))

    # ------------------------------------------------------------------ misbehaving
    def act(self, slice_number: int) -> None:
        """Do for a slice of them what each does once in a second: another byte, more requests, the rest of what the
        kernel did not take; and come again where the other side has hung up."""
        kinds, self.to_come_again = self.to_come_again, []
        for kind in kinds:
            self.add(kind)
        for peer in self.slices[slice_number % SLICES].copy():
            if peer.kind == "dripping":
                self.send(peer, 1)
            elif peer.kind == "stalled":
                self.send(peer, len(peer.to_send) - peer.sent)
            else:
                self.send(peer, len(peer.to_send))

    def send(self, peer: Peer, count: int) -> None:
        """Send so many more bytes, as far as they are taken."""
        start = peer.sent % max(len(peer.to_send), 1)
        data = peer.to_send[start : start + count]
        try:
            peer.sent += peer.connection.send(data) if data else 0
        except BlockingIOError:
            pass
        except OSError:
            self.end(peer)

    def notice_ends(self, seconds: float) -> None:
        """Wait a little, and drop those that the other side has hung up on meanwhile."""
        for descriptor, _events in self.epoll.poll(seconds):
            self.end(self.open[descriptor])

    def end(self, peer: Peer) -> None:
        """Forget one that is over."""
        descriptor = peer.connection.fileno()
        self.epoll.unregister(descriptor)
        del self.open[descriptor]
        self.slices[descriptor % SLICES].discard(peer)
        peer.connection.close()
        self.ended[peer.kind] += 1
        self.to_come_again.append(peer.kind)

    def told(self) -> dict[str, object]:
        """Return how many of each kind are open, were ended by the other side, or were never let in."""
        return {
            "open": dict(Counter(peer.kind for peer in self.open.values())),
            "ended": dict(self.ended),
            "refused": self.refused,
        }


@cache
def _bytes_of(kind: str, stalled_bytes: int) -> bytes:
    if kind == "half_header":
        return b"\0\0\0\x40\0\0"
    if kind in _REQUESTS_PER_SECOND:
        body = messages.encode_request(ApiKey.METADATA, 4, topics=None, allow_auto_topic_creation=False)
        return frame(encode_request_header(ApiKey.METADATA, 4, 1, kind), body) * _REQUESTS_PER_SECOND[kind]
    values = [bytes(1000) for _ in range(1 + 10 * stalled_bytes // 1000 if kind == "stalled" else 20)]
    body = RawClient.produce_body([(_TOPIC, 0, batch(values))])
    whole = frame(encode_request_header(ApiKey.PRODUCE, PRODUCE_VERSION, 1, kind), body)
    return whole[:stalled_bytes] if kind == "stalled" else whole[:-1]  # the last byte never comes


def _kinds(idle: int, slow: int, kinds: Sequence[str]) -> Iterator[str]:
    yield from ("idle" for _ in range(idle))
    yield from (kinds[number % len(kinds)] for number in range(slow))


def main() -> int:
    """Open, misbehave until the input ends, and say what became of them."""
    parser = argparse.ArgumentParser()
    parser.add_argument("host")
    parser.add_argument("port", type=int)
    parser.add_argument("--idle", type=int, default=0)
    parser.add_argument("--slow", type=int, default=0)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--stalled-bytes", type=int, default=STALLED_BYTES)
    parser.add_argument("--seconds", type=float, default=600.0)
    options = parser.parse_args()
    if not ipaddress.ip_address(options.host).is_loopback:
        parser.error("only a proxy on this machine")
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    peers = Peers((options.host, options.port), stalled_bytes=options.stalled_bytes)
    began = time.monotonic()
    for kind in _kinds(options.idle, options.slow, options.kinds.split(",")):
        if time.monotonic() - began > _OPEN_SECONDS_MAX:
            break
        peers.add(kind)
    print(json.dumps({"seconds": round(time.monotonic() - began, 1), **peers.told()}), flush=True)
    end = time.monotonic() + options.seconds
    with suppress(KeyboardInterrupt):
        slice_number = 0
        while time.monotonic() < end and not select.select([sys.stdin], [], [], 0)[0]:
            peers.act(slice_number)
            slice_number += 1
            peers.notice_ends(1 / SLICES)
    print(json.dumps(peers.told()), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

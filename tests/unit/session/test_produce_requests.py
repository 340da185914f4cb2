"""Whether a request begins as one before it or is parsed as a whole: its client is answered the same, and the same is
in the log and in the store."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from idemproxy.codecs.compression import Codec
from idemproxy.codecs.headers import encode_request_header
from idemproxy.proxy import limits
from idemproxy.proxy.session.produce import ProduceRequests
from idemproxy.proxy.versions import ApiKey
from testkit.real.clients.raw_client import RawClient, batch, resigned
from testkit.virtual.line import Line
from testkit.virtual.redis import LEASE
from testkit.virtual.world import TOPIC, World, WorldSettings

VERSIONS = range(3, 9)
PRODUCER_ID = 7_000
TIMEOUT_MS = 3_000
BATCH_HEADER_BYTES = 61


class Forgetful(dict[bytes, Any]):
    """Keeps nothing."""

    def __setitem__(self, _name: bytes, _prefix: object) -> None:
        """It is forgotten at once."""


class Scene:
    """A proxy, a broker with two partitions, and one client."""

    def __init__(self, *, keeps: bool) -> None:
        """``keeps``: prefixes are kept; else all requests are parsed as a whole."""
        self.world = World(1, WorldSettings(brokers=1, partitions=2, clients=0))
        self.world.start()
        self.world.network.run(20)  # leases of an earlier life have ended, and the first looks are over
        (self.proxy,) = self.world.proxies
        self.line = Line()
        host = self.world.network.host("client")
        host.connect(self.proxy.addresses[0], self.line)
        assert self.world.network.run(5, lambda: self.line.wire is not None)
        for session in self.proxy.engine.sessions if not keeps else ():
            session.handler._requests.prefixes = Forgetful()
        self.correlation_id = 0x7FFFFFF0

    def send(self, *frames: bytes, seconds: float = 1.0) -> None:
        """Requests, in one piece."""
        assert self.line.wire is not None
        if not self.line.is_lost:
            self.line.wire.send(b"".join(frames))
        self.world.network.run(seconds)

    def request(self, ask: Ask, records: bytes | None) -> bytes:
        """Return one request with its size in front."""
        self.correlation_id = (self.correlation_id + 1) & 0x7FFFFFFF
        header = encode_request_header(ApiKey.PRODUCE, ask.version, self.correlation_id, ask.client_id)
        parts = [(ask.topic, ask.partition, records)] * (2 if ask.is_twice else 1)
        body = RawClient.produce_body(parts, version=ask.version, acks=ask.acks, timeout_ms=ask.timeout_ms)
        frame = bytearray(header + body)
        if ask.cut:
            del frame[-ask.cut :]
        return len(frame).to_bytes(4, "big") + frame

    @property
    def left(self) -> dict[str, Any]:
        """What is left in the end."""
        self.world.network.run(30)
        logs = [self.world.cluster.log(TOPIC, partition) for partition in range(2)]
        engine = self.proxy.engine
        gc.collect()  # a batch that cannot be unpacked leaves an error that holds itself, whichever path it took
        return {
            "answers": bytes(self.line.data),
            "is_lost": self.line.is_lost,
            "log": [log.read(0, 1 << 20, whole_first=True, up_to=log.end_offset) for log in logs],
            "store": {key: one.value for key, one in self.world.redis.server.data.items() if is_kept(key)},
            "held": engine.memory.bytes_held,
            "requests": engine.statistics().requests_by_key,
            "in flight": [connection.handler.in_flight for connection in engine.sessions],
            "errors": self.world.errors(),
        }


@dataclass(frozen=True)
class Ask:
    """One produce request. ``step``: by how much its sequence is ahead of what is due. ``change``: other bytes at a
    place of the batch, signed again or not."""

    version: int = 3
    client_id: str | None = "client"
    topic: str = TOPIC
    partition: int = 0
    acks: int = -1
    timeout_ms: int = TIMEOUT_MS
    records: int = 1
    codec: Codec = Codec.NONE
    step: int = 0
    epoch: int = 0
    producer_id: int = PRODUCER_ID
    change: tuple[int, bytes] | None = None
    is_signed: bool = True
    is_twice: bool = False
    cut: int = 0
    has_records: bool = True
    is_with_next: bool = False
    """It is sent in one piece with the next one."""


def is_kept(key: bytes) -> bool:
    """Whether it is of a producer, not one that changes with each heartbeat."""
    return LEASE not in key and not key.endswith(b":life")


def play(asks: Sequence[Ask], *, keeps: bool) -> dict[str, Any]:
    scene = Scene(keeps=keeps)
    due: dict[int, int] = {}
    waiting: list[bytes] = []
    for ask in (Ask(), Ask(), *asks):
        sequence = max(due.get(ask.partition, 0) + ask.step, 0)
        values = [b"%d" % (sequence + index) * 9 for index in range(ask.records)]
        whose = ask.producer_id, ask.epoch, sequence
        records = batch(values, producer_id=whose[0], epoch=whose[1], sequence=whose[2], codec=ask.codec)
        if ask.change is not None:
            at, data = ask.change[0] % len(records), ask.change[1]
            changed = records[:at] + data + records[at + len(data) :]
            records = resigned(changed, 0, b"") if ask.is_signed and len(changed) > BATCH_HEADER_BYTES else changed
        elif not ask.step and not ask.cut and ask.has_records and ask.topic == TOPIC and not ask.is_twice:
            due[ask.partition] = sequence + ask.records
        waiting.append(scene.request(ask, records if ask.has_records else None))
        if not ask.is_with_next:
            scene.send(*waiting)
            waiting.clear()
    if waiting:
        scene.send(*waiting)
    return scene.left


def compare(asks: Sequence[Ask]) -> None:
    parsed, kept = play(asks, keeps=False), play(asks, keeps=True)
    assert kept == parsed
    assert kept["held"] == 0
    assert kept["errors"] == []


def taken(asks: Sequence[Ask], monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Which of them are not parsed."""
    found: list[bool] = []
    take, parse = ProduceRequests.take_known, ProduceRequests.parse

    def watched(self: Any, *arguments: Any) -> bool:
        is_known = take(self, *arguments)
        if is_known:
            found.append(True)
        return is_known

    def parsed(self: Any, *arguments: Any) -> Any:
        found.append(False)
        return parse(self, *arguments)

    monkeypatch.setattr(ProduceRequests, "take_known", watched)
    monkeypatch.setattr(ProduceRequests, "parse", parsed)
    play(asks, keeps=True)
    return found[-len(asks) :]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_that_begins_as_one_before_is_not_parsed(version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    asks = [Ask(version=version, records=3), Ask(version=version), Ask(version=version, codec=Codec.LZ4)]
    assert taken(asks, monkeypatch)[1:] == [True, True]
    compare([*asks, Ask(version=version, is_with_next=True), Ask(version=version, records=5)])


OTHERS: dict[str, Ask] = {
    "a version of another layout": Ask(version=9),
    "another client id": Ask(client_id="another"),
    "no client id": Ask(client_id=None),
    "another topic": Ask(topic="other"),
    "another partition": Ask(partition=1),
    "other acks": Ask(acks=1),
    "acks that are no acks": Ask(acks=7),
    "another timeout": Ask(timeout_ms=TIMEOUT_MS + 1),
    "two partitions": Ask(is_twice=True),
    "no records": Ask(has_records=False),
    "bytes that are missing": Ask(cut=3),
    "a batch that ends in its header": Ask(cut=40),
}
REFUSED: dict[str, Ask] = {
    "a codec that is not served": Ask(change=(22, b"\4")),
    "a control batch": Ask(change=(22, b"\x20")),
    "a transactional batch": Ask(change=(22, b"\x10")),
    "a base offset": Ask(change=(7, b"\1")),
    "another length": Ask(change=(11, b"\1")),
    "another magic": Ask(change=(16, b"\1")),
    "a checksum that is wrong": Ask(change=(20, b"\0"), is_signed=False),
    "a byte that is wrong": Ask(change=(64, b"\x7f"), is_signed=False),
    "another number of records": Ask(change=(57, b"\0\0\0\2")),
    "no producer id": Ask(change=(43, b"\xff" * 8)),
    "another producer id": Ask(producer_id=PRODUCER_ID + 1),
    "no epoch": Ask(change=(51, b"\xff\xff")),
    "no sequence": Ask(change=(53, b"\xff" * 4)),
}


@pytest.mark.parametrize("name", [*OTHERS, *REFUSED])
def test_only_what_has_another_prefix_is_parsed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ask = OTHERS[name] if name in OTHERS else REFUSED[name]
    assert taken([Ask(), ask], monkeypatch) == [True, name in REFUSED]
    compare([Ask(), ask, Ask(), Ask(records=2)])


@pytest.mark.parametrize("name", ["a retry", "a gap", "a newer epoch in its middle"])
def test_what_its_sequencer_refuses_is_answered_alike(name: str) -> None:
    asks = {"a retry": Ask(step=-1), "a gap": Ask(step=3), "a newer epoch in its middle": Ask(epoch=1, step=2)}
    compare([Ask(), *(replaced(asks[name], version) for version in VERSIONS), Ask()])


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_what_has_no_producer_id_is_answered_only_if_an_answer_is_wanted(acks: int) -> None:
    compare([Ask(producer_id=-1, acks=acks)] * 3)


def replaced(ask: Ask, version: int) -> Ask:
    return Ask(version=version, step=ask.step, epoch=ask.epoch)


ASKS = st.builds(
    Ask,
    version=st.sampled_from((3, 3, 3, *VERSIONS)),
    client_id=st.sampled_from(("client", "client", "other client", None)),
    partition=st.integers(0, 2),
    acks=st.sampled_from((-1, -1, -1, 1, 0)),
    records=st.integers(1, 3),
    codec=st.sampled_from((Codec.NONE, Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4)),
    step=st.sampled_from((0, 0, 0, 0, -1, 2)),
    change=st.none() | st.none() | st.none() | st.tuples(st.integers(0, 90), st.binary(min_size=1, max_size=3)),
    is_signed=st.booleans(),
    is_with_next=st.booleans(),
)


@settings(max_examples=40)
@given(st.lists(ASKS, min_size=1, max_size=8))
def test_of_any_requests_both_leave_the_same(asks: list[Ask]) -> None:
    compare(asks)


def test_only_so_many_prefixes_are_kept() -> None:
    scene = Scene(keeps=True)
    (session,) = scene.proxy.engine.sessions
    prefixes = session.handler._requests.prefixes

    def send(client_id: str) -> None:
        scene.send(scene.request(Ask(client_id=client_id), batch([b"v"], producer_id=1)), seconds=0.1)

    for number in range(limits.REQUEST_PREFIXES_MAX * 2 + 1):
        send(f"client {number}")
        assert 0 < len(prefixes) <= limits.REQUEST_PREFIXES_MAX
    prefixes.clear()
    send("c" * limits.REQUEST_PREFIX_BYTES_MAX)
    assert not prefixes

"""The fault relay, in front of a small upstream of our own that answers every frame."""

import random
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from kafka.protocol.metadata import FindCoordinatorResponse, MetadataResponse

from idemproxy.demo import relay_link
from idemproxy.demo.fault_relay import FaultKind, FaultPlan, FaultRelay
from idemproxy.demo.relay_frames import FIND_COORDINATOR, METADATA, FrameBuffer, NotKafka, rewrite_addresses
from testkit.real.proxies.proxy_process import wait_until

PRODUCE, INIT_PRODUCER_ID = 0, 22


def test_the_same_seed_chooses_the_same_faults() -> None:
    plan = FaultPlan(seed=7, rate=0.3, faults_max=20)

    def choices() -> list[FaultKind | None]:
        relay = FaultRelay(("127.0.0.1", 9), plan=plan)
        chosen = []
        for _ in range(200):
            kind = relay.choose_fault()
            chosen.append(kind)
            if kind is not None:
                relay.fault_happened(kind)
        assert relay.faults == 20
        return chosen

    assert choices() == choices()


# In front of an upstream that echoes the correlation id of every request


class Upstream:
    """Answers every frame with its correlation id, unless ``answers`` is false, and remembers all frames."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.answers = True
        self.resets = 0
        self.arrived = threading.Condition()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._listener.getsockname()
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def wait_for_frames(self, count: int) -> None:
        with self.arrived:
            assert self.arrived.wait_for(lambda: len(self.frames) >= count, 30), f"only {len(self.frames)} arrived"

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(5)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        frames = FrameBuffer()
        with connection:
            while True:
                try:
                    data = connection.recv(1 << 16)
                    if not data:
                        return
                    for frame in frames.feed(data):
                        with self.arrived:
                            self.frames.append(frame)
                            self.arrived.notify_all()
                        if self.answers:
                            connection.sendall(struct.pack(">i", 8) + frame[8:12] + b"done")
                except OSError:
                    self.resets += 1
                    return


@contextmanager
def relayed(plan: FaultPlan | None = None) -> Iterator[tuple[FaultRelay, Upstream, socket.socket]]:
    upstream = Upstream()
    try:
        with (
            FaultRelay(upstream.address, plan=plan) as relay,
            socket.create_connection(("127.0.0.1", relay.port), 30) as client,
        ):
            yield relay, upstream, client
    finally:
        upstream.close()


def request(api_key: int, version: int, correlation_id: int, body: bytes) -> bytes:
    header = struct.pack(">hhih", api_key, version, correlation_id, 4) + b"test"
    if api_key == PRODUCE and version >= 9:
        header += b"\0"
    return struct.pack(">i", len(header) + len(body)) + header + body


def batch(producer_id: int) -> bytes:
    """The 61 bytes of an empty record batch, as far as the relay looks at them."""
    return struct.pack(">qiiB", 0, 49, 0, 2) + bytes(26) + struct.pack(">qhii", producer_id, 0, 0, 0)


def produce_body(version: int, acks: int, *batches: bytes) -> bytes:
    """One topic, one partition per batch."""
    if version < 9:
        transactional_id = b"\xff\xff" if version >= 3 else b""
        parts = b"".join(struct.pack(">ii", 0, len(one)) + one for one in batches)
        return (
            transactional_id + struct.pack(">hiih", acks, 1000, 1, 1) + b"t" + struct.pack(">i", len(batches)) + parts
        )
    parts = b"".join(struct.pack(">iB", 0, len(one) + 1) + one + b"\0" for one in batches)
    topic = bytes(16) if version >= 13 else b"\x02t"
    return b"\0" + struct.pack(">hiB", acks, 1000, 2) + topic + bytes([len(batches) + 1]) + parts + b"\0\0"


def answer(client: socket.socket) -> bytes:
    return client.recv(12, socket.MSG_WAITALL)


@pytest.mark.parametrize("version", range(14))
def test_producer_ids_are_seen_in_every_version_of_produce(version: int) -> None:
    with relayed() as (relay, upstream, client):
        sent = request(PRODUCE, version, 5, produce_body(version, -1, batch(-1), batch(4711), batch(4711), batch(12)))
        client.sendall(sent)
        assert answer(client)[4:8] == struct.pack(">i", 5)
        assert relay.producer_ids == {4711, 12}
        assert relay.produce_requests == 1
        assert upstream.frames == [sent]


def test_two_batches_in_one_record_set_are_both_seen() -> None:
    with relayed() as (relay, _, client):
        client.sendall(request(PRODUCE, 3, 5, produce_body(3, -1, batch(1) + batch(2))))
        answer(client)
        assert relay.producer_ids == {1, 2}


def test_requests_are_counted_by_api_and_version() -> None:
    with relayed() as (relay, _, client):
        client.sendall(b"".join(request(INIT_PRODUCER_ID, version, version, b"") for version in (0, 4, 4)))
        for _ in range(3):
            answer(client)
        assert relay.init_producer_id_requests == 3
        assert relay.requests == {(INIT_PRODUCER_ID, 0): 1, (INIT_PRODUCER_ID, 4): 2}
        assert relay.produce_requests == 0


def test_bytes_pass_unchanged_in_pieces_of_every_size() -> None:
    dice = random.Random(3)
    frames = [request(1, 2, number, dice.randbytes(dice.choice((0, 1, 100, 70_000)))) for number in range(200)]
    stream = b"".join(frames)
    with relayed() as (_, upstream, client):
        at = 0
        while at < len(stream):
            size = dice.choice((1, 3, 17, 5_000, 300_000))
            client.sendall(stream[at : at + size])
            at += size
        answers = [answer(client)[4:8] for _ in frames]
        assert answers == [struct.pack(">i", number) for number in range(200)]
        assert upstream.frames == frames


def test_a_fault_that_is_never_answered_for_is_not_planned_for_acks_0() -> None:
    plan = FaultPlan(kinds=[FaultKind.LOST_ANSWER], every_nth_produce=1)
    with relayed(plan) as (relay, upstream, client):
        client.sendall(request(PRODUCE, 2, 1, produce_body(2, 0, b"x" * 50)))
        upstream.wait_for_frames(1)
        assert relay.faults == 0


def test_a_lost_answer_means_that_the_request_arrived_and_the_client_saw_a_reset() -> None:
    with relayed(FaultPlan(kinds=["lost_answer"], every_nth_produce=1)) as (relay, upstream, client):
        sent = request(PRODUCE, 2, 1, produce_body(2, -1, b"x" * 50))
        client.sendall(sent)
        with pytest.raises(ConnectionResetError):
            answer(client)
        assert upstream.frames == [sent]
        assert relay.counts[FaultKind.LOST_ANSWER] == 1


def test_half_a_request_never_becomes_a_whole_one() -> None:
    with relayed(FaultPlan(kinds=["half_request"], every_nth_produce=1)) as (relay, upstream, client):
        one = request(PRODUCE, 2, 1, produce_body(2, -1, b"x" * 50))
        client.sendall(one + request(METADATA, 0, 2, b"\0\0\0\0"))
        with pytest.raises(ConnectionResetError):
            answer(client)
        assert upstream.frames == []
        assert relay.counts[FaultKind.HALF_REQUEST] == 1


def test_a_late_request_arrives_after_its_client_was_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay_link, "LATE_SECONDS", 2.0)
    with relayed(FaultPlan(kinds=["late_delivery"], every_nth_produce=1)) as (relay, upstream, client):
        sent = request(PRODUCE, 2, 1, produce_body(2, -1, b"x" * 50))
        start = time.monotonic()
        client.sendall(sent)
        with pytest.raises(ConnectionResetError):
            answer(client)
        assert upstream.frames == []
        upstream.wait_for_frames(1)
        assert time.monotonic() - start >= 2.0
        assert upstream.frames == [sent]
        assert relay.counts[FaultKind.LATE_DELIVERY] == 1


def test_slow_answers_keep_their_order() -> None:
    with relayed(FaultPlan(kinds=["slow_answer"], every_nth_produce=1)) as (relay, _, client):
        start = time.monotonic()
        client.sendall(b"".join(request(PRODUCE, 2, number, produce_body(2, -1, b"x" * 50)) for number in range(3)))
        assert [answer(client)[7] for _ in range(3)] == [0, 1, 2]
        assert time.monotonic() - start >= 0.05
        assert relay.faults >= 1


def test_relay_passes_on_a_clients_orderly_close_after_all_its_data() -> None:
    with relayed() as (_, upstream, client):
        upstream.answers = False
        client.sendall(b"".join(request(PRODUCE, 2, number, produce_body(2, 0, b"x" * 50_000)) for number in range(40)))
        client.close()
        upstream.wait_for_frames(40)


def test_a_client_that_resets_resets_the_upstream() -> None:
    with relayed() as (_, upstream, client):
        client.sendall(request(METADATA, 0, 1, b"\0\0\0\0"))
        answer(client)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
        wait_until(lambda: upstream.resets == 1, "the upstream is reset")


def test_an_unreachable_upstream_resets_the_client_and_the_relay_keeps_running() -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        address = unused.getsockname()
    with FaultRelay(address) as relay:
        for _ in range(3):
            # The reset may be there before connecting has returned.
            with (
                pytest.raises(ConnectionResetError),
                socket.create_connection(("127.0.0.1", relay.port), 30) as client,
            ):
                answer(client)
        assert relay.connections == 3


def test_what_is_no_kafka_is_cut_off() -> None:
    with relayed() as (_, upstream, client):
        client.sendall(b"GET / HTTP/1.1\r\n\r\n")
        with pytest.raises(ConnectionResetError):
            answer(client)
        assert upstream.frames == []


# Addresses in answers


def translate(host: str, port: int) -> tuple[str, int]:
    return "127.0.0.1", {("broker-a", 9092): 1111, ("broker-b", 9092): 2222}[host, port]


@pytest.mark.parametrize("version", range(14))
def test_broker_addresses_are_rewritten_in_every_version_of_metadata(version: int) -> None:
    def frame(*places: tuple[str, int]) -> bytes:
        brokers = [
            MetadataResponse.MetadataResponseBroker(node_id=number, host=host, port=port, rack=None)
            for number, (host, port) in enumerate(places)
        ]
        body: bytes = MetadataResponse(
            version=version, throttle_time_ms=0, brokers=brokers, cluster_id="c", controller_id=1, topics=[]
        ).encode()
        tags = b"\0" if version >= 9 else b""
        return struct.pack(">ii", 4 + len(tags) + len(body), 77) + tags + body

    before, after = frame(("broker-a", 9092), ("broker-b", 9092)), frame(("127.0.0.1", 1111), ("127.0.0.1", 2222))
    assert rewrite_addresses(before, METADATA, version, translate) == after


@pytest.mark.parametrize("version", range(7))
def test_the_coordinator_is_rewritten_in_every_version_of_find_coordinator(version: int) -> None:
    def frame(host: str, port: int) -> bytes:
        place: dict[str, Any] = {"node_id": 3, "host": host, "port": port, "error_code": 0, "error_message": None}
        if version >= 4:
            place = {"coordinators": [FindCoordinatorResponse.Coordinator(key="g", **place)]}
        body: bytes = FindCoordinatorResponse(version=version, throttle_time_ms=0, **place).encode()
        tags = b"\0" if version >= 3 else b""
        return struct.pack(">ii", 4 + len(tags) + len(body), 77) + tags + body

    before, after = frame("broker-b", 9092), frame("127.0.0.1", 2222)
    assert rewrite_addresses(before, FIND_COORDINATOR, version, translate) == after


def test_an_answer_that_can_not_be_read_is_an_error() -> None:
    with pytest.raises(NotKafka):
        rewrite_addresses(struct.pack(">iii", 8, 77, 1 << 30), METADATA, 1, translate)

"""The virtual producer against a scripted server: its order, retries, epochs and what it tells its user."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import pytest

from idemproxy.codecs.framing import FrameSplitter, frame
from idemproxy.codecs.headers import encode_response_header, parse_request_header
from idemproxy.codecs.produce import PartitionAnswer, encode_response, parse_request
from idemproxy.codecs.record_batch import BatchHeader, parse_single_batch, verify_crc
from idemproxy.reactor import Wire
from testkit.virtual.client import ClientSettings, VirtualClient
from testkit.virtual.connection import Direction
from testkit.virtual.network import Network
from testkit.virtual.producer import Batch

ADDRESS = ("server", 9092)
TOPIC = "t"
HANG_UP = "hang up"
SILENCE = "silence"

Script = Callable[[BatchHeader], int | str]
"""A batch -> the error code that answers it, or what happens instead."""


class Server:
    """Answers InitProducerId with id 7, and produce requests as the script says; offsets count up."""

    def __init__(self, network: Network, script: Script) -> None:
        self.script = script
        self.seen: list[BatchHeader] = []
        self.in_flight_most = 0
        self.next_offset = 0
        network.listen(network.host("server"), ADDRESS, lambda: Session(self))

    def sequences(self) -> list[tuple[int, int]]:
        """(epoch, base sequence) of every batch that arrived."""
        return [(header.producer_epoch, header.base_sequence) for header in self.seen]


class Session:
    """One connection; answers leave a moment later, so that requests pile up."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.splitter = FrameSplitter(1_000_000)
        self.waiting: deque[bytes] = deque()
        self.wire: Wire | None = None

    def connected(self, wire: Wire) -> None:
        self.wire = wire

    def received(self, data: bytes) -> None:
        self.waiting.extend(map(bytes, self.splitter.feed(data)))
        self.server.in_flight_most = max(self.server.in_flight_most, len(self.waiting))
        while self.waiting and self.wire is not None:
            self.handle(self.waiting.popleft())

    def lost(self, reason: str) -> None:
        self.wire = None

    def handle(self, request: bytes) -> None:
        assert self.wire is not None
        header = parse_request_header(request)
        start = encode_response_header(header.api_key, header.api_version, header.correlation_id)
        if header.api_key == 22:
            self.wire.send(frame(start, bytes(6), (7).to_bytes(8, "big"), bytes(2)))
            return
        answers = []
        for part in parse_request(request, header.body_offset, header.api_version).partitions:
            assert part.records is not None
            batch = parse_single_batch(part.records)
            verify_crc(part.records, batch)
            self.server.seen.append(batch)
            verdict = self.server.script(batch)
            if verdict == HANG_UP:
                self.wire.reset()
                self.wire = None
                return
            if verdict == SILENCE:
                return
            assert isinstance(verdict, int)
            offset = -1
            if verdict == 0:
                offset, self.server.next_offset = self.server.next_offset, self.server.next_offset + batch.record_count
            answers.append(PartitionAnswer(part.topic, part.partition, verdict, offset))
        self.wire.send(frame(start, encode_response(header.api_version, answers)))


def world(script: Script, settings: ClientSettings | None = None) -> tuple[Network, Server, VirtualClient]:
    """A client that is about to connect to a scripted server."""
    network = Network(1)
    return network, Server(network, script), VirtualClient(network, "client", [ADDRESS], settings)


def once(code: int | str, sequence: int) -> Script:
    """Answer the first sight of a sequence so, all else with success."""
    done: list[int] = []

    def script(batch: BatchHeader) -> int | str:
        if batch.base_sequence == sequence and not done:
            done.append(1)
            return code
        return 0

    return script


def test_batches_are_numbered_by_records_and_acknowledged_with_their_offsets() -> None:
    network, server, client = world(lambda batch: 0)
    for count in (2, 1, 3):
        client.send(TOPIC, 0, count)
    client.send(TOPIC, 1, 2)
    assert network.run(5, lambda: client.is_done)
    assert [batch.identity.base_sequence for batch in client.batches if batch.identity] == [0, 2, 3, 0]
    assert sorted(batch.acknowledged[1] for batch in client.batches if batch.acknowledged) == [0, 2, 4, 5]
    assert {header.producer_id for header in server.seen} == {7}
    values = [value for batch in client.batches for value in batch.values]
    assert len(set(values)) == len(values) == 8


def test_at_most_five_requests_are_in_flight() -> None:
    network, server, client = world(lambda batch: SILENCE, ClientSettings(request_timeout=1.0))
    for _ in range(8):
        client.send(TOPIC, 0)
    network.run(0.5)
    assert server.sequences() == [(0, number) for number in range(5)]


def test_a_retriable_error_is_sent_again_in_order_and_unchanged() -> None:
    network, server, client = world(once(7, 1))
    for _ in range(4):
        client.send(TOPIC, 0)
    assert network.run(5, lambda: client.is_done)
    assert server.sequences() == [(0, 0), (0, 1), (0, 2), (0, 3), (0, 1)]
    assert [len(batch.sent_as) for batch in client.batches] == [1, 1, 1, 1]


def test_after_a_lost_connection_everything_unanswered_is_sent_again_one_by_one() -> None:
    network, server, client = world(once(HANG_UP, 0))
    for _ in range(3):
        client.send(TOPIC, 0)
    assert network.run(5, lambda: client.is_done)
    assert server.sequences()[-3:] == [(0, 0), (0, 1), (0, 2)]
    assert client.connections_opened == 2


def test_a_server_that_keeps_silent_is_left_after_the_request_timeout() -> None:
    network, _, client = world(once(SILENCE, 0), ClientSettings(request_timeout=2.0))
    client.send(TOPIC, 0)
    network.run(1.9)
    assert client.connections_opened == 1
    assert network.run(2, lambda: client.is_done)
    assert client.connections_opened == 2


def test_46_is_a_success_without_an_offset() -> None:
    network, _, client = world(once(46, 0))
    batch = client.send(TOPIC, 0)
    assert network.run(5, lambda: client.is_done)
    assert batch.acknowledged is not None
    assert batch.acknowledged[1] == -1


def test_45_for_the_next_batch_bumps_the_epoch_and_renumbers_what_is_unfinished() -> None:
    network, server, client = world(lambda batch: 45 if batch.producer_epoch == 0 else 0)
    for _ in range(3):
        client.send(TOPIC, 0)
    assert network.run(5, lambda: client.is_done)
    assert server.sequences()[-3:] == [(1, 0), (1, 1), (1, 2)]
    assert all(batch.renumbered_for == ["45 for batch 0"] for batch in client.batches)


def test_out_of_order_after_an_unfinished_batch_only_causes_a_retry() -> None:
    network, server, client = world(once(45, 1))
    client.send(TOPIC, 0)
    server.script = lambda batch: 7 if len(server.seen) == 1 else 45 if len(server.seen) == 2 else 0
    client.send(TOPIC, 0)
    assert network.run(5, lambda: client.is_done)
    assert server.sequences() == [(0, 0), (0, 1), (0, 0), (0, 1)]


def was_overtaken_when_told(batch: Batch) -> bool:
    """Was anything on its way when it read the first 45?"""
    told = next(answer for answer in batch.answers if answer.error_code == 45)
    return batch.overtaken_until[told.identity] >= told.at


@pytest.mark.parametrize("held_seconds", [2.0, 0.0])
def test_out_of_order_counts_as_overtaken_only_with_a_try_under_way(held_seconds: float) -> None:
    network, server, client = world(lambda batch: 0)
    client.send(TOPIC, 0)
    assert network.run(5, lambda: client.is_done)
    server.script = lambda batch: 0 if batch.producer_epoch else 45
    batch = client.send(TOPIC, 0)

    def strand(way: Direction, data: bytes) -> None:
        network.watchers.remove(strand)
        network.schedule(0, lambda: way.sender.connection.strand(held_seconds))

    network.watchers.append(strand)
    assert network.run(5, lambda: client.is_done)
    assert batch.renumbered_for
    assert was_overtaken_when_told(batch) == bool(held_seconds)


@pytest.mark.parametrize("is_seen", [False, True])
def test_out_of_order_counts_as_overtaken_until_the_server_sees_the_disconnect(
    is_seen: bool,
) -> None:
    network, server, client = world(lambda batch: 0, ClientSettings(request_timeout=2.0))
    client.send(TOPIC, 0)
    assert network.run(5, lambda: client.is_done)
    server.script = lambda batch: 0 if batch.producer_epoch else SILENCE if len(server.seen) == 2 else 45
    batch = client.send(TOPIC, 0)
    assert network.run(1.5, lambda: len(server.seen) == 2)
    assert client.connection is not None
    if is_seen:
        client.disconnect()
    else:
        client.connection.half_open()
    assert network.run(5, lambda: client.is_done)
    assert batch.renumbered_for
    assert was_overtaken_when_told(batch) != is_seen


def test_a_batch_of_a_new_epoch_overtakes_older_ones_in_flight() -> None:
    """As Java's does: these are numbered again at once, and sent again when they are answered."""
    network, server, client = world(lambda batch: 0, ClientSettings(request_timeout=2.0))
    client.send(TOPIC, 0)
    assert network.run(5, lambda: client.is_done)
    server.script = lambda batch: 0 if batch.producer_epoch else 45 if batch.base_sequence == 1 else SILENCE
    for _ in range(2):
        client.send(TOPIC, 0)
    assert network.run(1, lambda: client.producer.producer_epoch == 1)
    late = client.send(TOPIC, 0)
    server.script = lambda batch: SILENCE
    assert network.run(1, lambda: (1, 2) in server.sequences())
    assert (1, 1) not in server.sequences()
    server.script = lambda batch: 0
    assert network.run(5, lambda: client.is_done)
    assert [identity.base_sequence for identity in late.ahead_as] == [2]
    assert [batch.ahead_as for batch in client.batches[:-1]] == [[], [], []]


def test_59_bumps_the_epoch() -> None:
    network, server, client = world(once(59, 0))
    client.send(TOPIC, 0)
    assert network.run(5, lambda: client.is_done)
    assert server.sequences() == [(0, 0), (1, 0)]


def test_a_fatal_error_reaches_the_user_and_later_batches_begin_an_epoch() -> None:
    network, server, client = world(once(47, 0))
    first = client.send(TOPIC, 0)
    assert network.run(5, lambda: client.is_done)
    second = client.send(TOPIC, 0)
    assert network.run(5, lambda: client.is_done)
    assert first.failed is not None
    assert first.failed[1] == "code 47"
    assert second.acknowledged is not None
    assert server.sequences() == [(0, 0), (1, 0)]


def test_a_batch_that_is_too_large_is_split_within_its_sequences() -> None:
    network, server, client = world(lambda batch: 10 if batch.record_count > 2 else 0)
    batch = client.send(TOPIC, 0, 5)
    assert network.run(5, lambda: client.is_done)
    assert batch.is_done
    assert [leaf.first for leaf in client.leaves] == [0, 2, 3]
    taken = [header for header in server.seen if header.record_count <= 2]
    assert [(header.base_sequence, header.record_count) for header in taken] == [(0, 2), (2, 1), (3, 2)]


def test_what_is_in_flight_stays_on_its_connection_when_another_leader_is_named() -> None:
    """And what is new goes over another one; at its first answer nothing is lost, and nothing is sent twice."""
    network, server, client = world(lambda batch: SILENCE if batch.base_sequence < 2 else 0)
    for _ in range(2):
        client.send(TOPIC, 0)
    assert network.run(1, lambda: len(server.seen) == 2)
    client.turn()
    later = client.send(TOPIC, 0)
    assert network.run(1, lambda: later.is_done)
    assert client.connections_opened == 2
    assert len(client.oldest_unanswered()) == 1
    assert server.sequences() == [(0, 0), (0, 1), (0, 2)]


def test_what_a_client_left_unanswered_is_sent_again_over_its_newest_connection_alone_and_first() -> None:
    network, server, client = world(lambda batch: SILENCE if len(server.seen) <= 2 else 0)
    first = [client.send(TOPIC, 0) for _ in range(2)]
    assert network.run(1, lambda: len(server.seen) == 2)
    assert client.connection is not None
    old = client.connection
    client.turn()
    assert network.run(1, lambda: client.connection not in (None, old))
    server.script = lambda batch: 19 if batch.base_sequence == 0 and len(server.seen) == 3 else 0
    old.cut()
    assert network.run(1, lambda: len(server.seen) == 3)
    new = client.send(TOPIC, 0)
    assert network.run(5, lambda: client.is_done)
    assert client.connections_opened == 2
    assert server.sequences()[2:] == [(0, 0), (0, 0), (0, 1), (0, 2)]
    assert [one.acknowledged is not None for one in (*first, new)] == [True] * 3


def test_a_client_with_one_request_in_flight_waits_for_its_answer_on_the_connection_that_it_turned_from() -> None:
    network, server, client = world(
        lambda batch: SILENCE if len(server.seen) == 1 else 0, ClientSettings(in_flight_max=1, request_timeout=2.0)
    )
    client.send(TOPIC, 0)
    assert network.run(1, lambda: len(server.seen) == 1)
    client.turn()
    client.send(TOPIC, 0)
    assert not network.run(1, lambda: len(server.seen) > 1)
    assert network.run(5, lambda: client.is_done)
    assert server.sequences() == [(0, 0), (0, 0), (0, 1)]


def test_out_of_order_counts_as_ahead_only_with_older_batches_on_another_connection() -> None:
    network, server, client = world(lambda batch: SILENCE if batch.base_sequence == 0 else 45)
    client.send(TOPIC, 0)
    assert network.run(1, lambda: len(server.seen) == 1)
    client.turn()
    ahead = client.send(TOPIC, 0)
    assert network.run(1, lambda: bool(ahead.answers))
    server.script = lambda batch: 0
    client.disconnect()
    assert network.run(5, lambda: client.is_done)
    assert ahead.answers[0].ahead_since is not None
    assert ahead.answers[-1].ahead_since is None


def test_a_client_that_gives_up_tells_its_user_and_begins_a_new_epoch() -> None:
    network, server, client = world(once(SILENCE, 0), ClientSettings(request_timeout=2.5, delivery=2.0))
    first = client.send(TOPIC, 0)
    network.run(3)
    assert first.failed is not None
    assert first.failed[1] == "gave up"
    second = client.send(TOPIC, 0)
    assert network.run(5, lambda: client.is_done)
    assert second.acknowledged is not None
    assert server.sequences() == [(0, 0), (1, 0)]

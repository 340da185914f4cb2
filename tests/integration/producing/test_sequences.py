"""Sequence numbers against the running proxy and a real broker: Kafka's idempotent protocol, answer by answer."""

import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from idemproxy.codecs.batch_marker import Identity, encode_batch_marker
from idemproxy.codecs.compression import Codec
from idemproxy.codecs.convert import HeaderPolicy
from idemproxy.codecs.message_set import encode_set
from idemproxy.codecs.produce import PartitionAnswer
from idemproxy.demo.legacy_cluster import LegacyCluster
from idemproxy.demo.segments import StoredRecord
from idemproxy.state.entry import NO_DIGEST, NO_PRINCIPAL, Entry, WindowBatch, unpack
from idemproxy.state.sequence import SEQUENCE_MODULUS
from idemproxy.state.store import entry_key
from testkit.real.brokers.kafka_cluster import stored
from testkit.real.clients.raw_client import HIGH_WATERMARK, RawClient, batch
from testkit.real.proxies.proxy_process import ProxyProcess
from testkit.stage.wrappers import to_wrapper

Place = tuple[str, int]
DUPLICATE, OUT_OF_ORDER, FENCED = 46, 45, 47


def states(proxy: ProxyProcess) -> Mapping[bytes, Entry]:
    """What is stored, whichever version it is: a refusal is confirmed by a swap, which raises that alone."""
    return {key: replace(unpack(value), version=0) for key, value in proxy.entries().items()}


class Producer:
    """One producer id on one partition, with values that tell their sequence."""

    def __init__(self, client: RawClient, place: Place, producer_id: int | None = None) -> None:
        self.client = client
        self.place = place
        self.producer_id = client.new_producer_id() if producer_id is None else producer_id

    def records(self, sequence: int, count: int = 1, epoch: int = 0) -> bytes:
        return batch(self.values(sequence, count, epoch), producer_id=self.producer_id, epoch=epoch, sequence=sequence)

    def values(self, sequence: int, count: int = 1, epoch: int = 0) -> list[bytes]:
        return [b"%d:%d" % (epoch, (sequence + index) % SEQUENCE_MODULUS) for index in range(count)]

    def send(self, sequence: int, count: int = 1, epoch: int = 0, version: int = 3) -> PartitionAnswer:
        records = self.records(sequence, count, epoch)
        return self.client.produce_one(*self.place, records, version=version)

    def appends(self, sequences: Sequence[int], epoch: int = 0) -> list[int]:
        """Send one record for each sequence, one after the other; all have to be appended. Returns the offsets."""
        answers = [self.send(sequence, epoch=epoch) for sequence in sequences]
        assert [one.error_code for one in answers] == [0] * len(answers)
        return [one.base_offset for one in answers]


@pytest.fixture
def producer(client: RawClient, place: Place) -> Producer:
    return Producer(client, place)


def outcome(answer: PartitionAnswer) -> tuple[int, int]:
    return answer.error_code, answer.base_offset


# ---------------------------------------------------------------------- in order
def test_batches_in_order_are_appended_and_read_back_through_the_proxy(producer: Producer) -> None:
    assert outcome(producer.send(0, 3)) == (0, 0)
    assert outcome(producer.send(3, 1)) == (0, 3)
    answer = producer.send(4, 2, version=8)
    assert (outcome(answer), answer.log_append_time_ms, answer.message) == ((0, 4), -1, None)
    assert producer.client.values(*producer.place) == producer.values(0, 6)
    assert producer.client.values(*producer.place, offset=4) == producer.values(4, 2)
    assert producer.client.end_offset(*producer.place, HIGH_WATERMARK) == 6


@pytest.mark.parametrize("codec", list(Codec)[:4])
def test_every_codec_is_stored_as_one_wrapper_with_its_identity(
    client: RawClient, legacy_broker: LegacyCluster, place: Place, codec: Codec
) -> None:
    producer_id = client.new_producer_id()
    values = [b"value %d" % index for index in range(20)]
    assert client.produce_one(*place, batch(values, producer_id=producer_id, codec=codec)).error_code == 0
    records = stored_records(legacy_broker, place)
    assert [record.value for record in records] == values
    assert {record.codec for record in records} == {codec or Codec.GZIP}
    assert {record.batch_marker for record in records} == {((producer_id, 0, 0, 20),)}


def test_five_pipelined_batches_are_appended_in_order(producer: Producer) -> None:
    for sequence in range(0, 10, 2):
        producer.client.send_produce([(*producer.place, producer.records(sequence, 2))])
    assert [outcome(producer.client.produce_answer()[0]) for _ in range(5)] == [
        (0, offset) for offset in range(0, 10, 2)
    ]
    assert producer.client.values(*producer.place) == producer.values(0, 10)


def test_one_request_with_several_partitions_is_answered_for_each(client: RawClient, place: Place) -> None:
    producer = Producer(client, place)
    other = ("compacted", 3)
    keyed = batch([b"v"], producer_id=producer.producer_id, key=b"k")
    gap = batch([b"v"], producer_id=producer.producer_id, key=b"k", sequence=9)
    end = client.end_offset(*other)
    answers = client.produce([(*other, keyed), (*place, producer.records(0))])
    assert {(one.topic, one.partition): outcome(one) for one in answers} == {other: (0, end), place: (0, 0)}
    answers = client.produce([(*other, gap), (*place, producer.records(1))])
    assert {(one.topic, one.partition): outcome(one) for one in answers} == {other: (OUT_OF_ORDER, -1), place: (0, 1)}


# ---------------------------------------------------------------------- duplicates
@pytest.mark.promise("last-five-offsets")
def test_each_of_the_last_five_batches_is_answered_with_its_old_offset(producer: Producer) -> None:
    first = [outcome(producer.send(sequence, 2)) for sequence in range(0, 14, 2)]
    for _ in range(2):
        again = [outcome(producer.send(sequence, 2)) for sequence in range(4, 14, 2)]
        assert again == first[2:]
    assert producer.client.values(*producer.place) == producer.values(0, 14)


@pytest.mark.promise("older-duplicate")
def test_a_batch_below_the_window_is_duplicate_only_with_the_stored_content(
    producer: Producer, shared_proxy: ProxyProcess
) -> None:
    producer.appends(range(7))
    before = states(shared_proxy)
    assert [outcome(producer.send(sequence)) for sequence in (0, 1)] == [(DUPLICATE, -1)] * 2
    other = batch([b"other content"], producer_id=producer.producer_id, sequence=1)
    assert outcome(producer.client.produce_one(*producer.place, other)) == (OUT_OF_ORDER, -1)
    longer = producer.records(0, 2)
    assert producer.client.produce_one(*producer.place, longer).error_code in (DUPLICATE, OUT_OF_ORDER)
    assert states(shared_proxy) == before
    assert producer.appends([7]) == [7]


# ---------------------------------------------------------------------- refusals
@pytest.mark.promise("gaps-refused")
@pytest.mark.parametrize(
    ("sequence", "count", "reason"),
    [
        (6, 1, "gap"),
        (5 + 2**30 - 1, 1, "gap"),
        (5 + 2**30, 1, ""),
        (3, 1, "overlap"),
        (4, 1, "overlap"),
        (0, 4, "overlap"),
        (SEQUENCE_MODULUS - 1, 1, ""),
        (SEQUENCE_MODULUS - 1, 2, "overlap"),
        (SEQUENCE_MODULUS - 1, 8, "overlap"),
    ],
)
def test_a_gap_and_an_overlap_are_out_of_order(
    producer: Producer, shared_proxy: ProxyProcess, sequence: int, count: int, reason: str
) -> None:
    assert [outcome(producer.send(0, 3)), outcome(producer.send(3, 2))] == [(0, 0), (0, 3)]
    before = states(shared_proxy)
    answer = producer.send(sequence, count, version=8)
    assert outcome(answer) == (OUT_OF_ORDER, -1)
    assert reason in (answer.message or "")
    assert states(shared_proxy) == before
    assert outcome(producer.send(5)) == (0, 5)


@pytest.mark.parametrize(("sequence", "count"), [(3, 3), (0, 6), (0, 40)])
def test_a_half_stored_batch_is_completed_if_it_has_that_content(producer: Producer, sequence: int, count: int) -> None:
    assert [outcome(producer.send(0, 3)), outcome(producer.send(3, 2))] == [(0, 0), (0, 3)]
    other = batch([b"of another batch"] * count, producer_id=producer.producer_id, sequence=sequence)
    assert outcome(producer.client.produce_one(*producer.place, other)) == (OUT_OF_ORDER, -1)
    for _ in range(2):
        assert outcome(producer.send(sequence, count)) == (0, sequence)
    assert producer.client.values(*producer.place) == producer.values(0, sequence + count)


def test_a_gap_is_refused_at_once_also_right_after_a_success(producer: Producer, shared_proxy: ProxyProcess) -> None:
    producer.appends([0])
    assert producer.send(5).error_code == OUT_OF_ORDER
    assert f"in doubt: producer {producer.producer_id} " not in shared_proxy.log


@pytest.mark.promise("starts-at-zero")
@pytest.mark.parametrize("sequence", [1, 5, SEQUENCE_MODULUS - 1])
def test_a_new_producer_starts_at_sequence_zero(producer: Producer, sequence: int) -> None:
    assert outcome(producer.send(sequence)) == (OUT_OF_ORDER, -1)
    assert producer.appends([0, 1]) == [0, 1]


@pytest.mark.promise("starts-at-zero")
def test_a_producer_id_that_nobody_handed_out_is_looked_for_in_the_log_first(
    client: RawClient, direct: RawClient, place: Place, other_place: Place
) -> None:
    stranger = Producer(client, place, producer_id=0x0123456789ABCDEF)
    assert outcome(stranger.send(4)) == (OUT_OF_ORDER, -1)
    assert stranger.appends([0, 1]) == [0, 1]

    known = Producer(client, other_place, stranger.producer_id)
    batch_marker = encode_batch_marker([Identity(known.producer_id, 0, 0, 3)])
    records = memoryview(known.records(0, 3))
    stored_before = to_wrapper(
        [records], key=batch_marker, codec=Codec.GZIP, policy=HeaderPolicy(), output_bytes_max=1 << 20
    ).message_set
    assert outcome(direct.produce_one(*other_place, bytes(stored_before), version=2)) == (0, 0)
    assert outcome(known.send(4)) == (OUT_OF_ORDER, -1)
    assert outcome(known.send(0, 3)) == (0, 0), "a duplicate of what only the log knows"
    assert known.appends([3]) == [3]


@pytest.mark.promise("entry-unreadable")
@pytest.mark.parametrize("value", [b"", b"\x01", b"\xff" * 80, b"\x02" + bytes(63)])
def test_a_stored_entry_that_cannot_be_read_is_no_licence_to_append(
    producer: Producer, shared_proxy: ProxyProcess, value: bytes
) -> None:
    key = entry_key("default", producer.producer_id, *producer.place)
    shared_proxy.redis("SET", key, value)
    records = producer.records(0)
    answer = producer.client.produce_one(*producer.place, records, timeout_ms=1000)
    assert outcome(answer) == (7, -1)
    assert shared_proxy.redis("GET", key) == value
    assert producer.client.end_offset(*producer.place) == 0
    assert f"stored state of producer {producer.producer_id}" in shared_proxy.log
    shared_proxy.redis("DEL", key)
    assert producer.appends([0]) == [0]


# ---------------------------------------------------------------------- epochs
@pytest.mark.promise("epoch-fences")
def test_a_new_epoch_starts_at_zero_and_fences_the_old_one(producer: Producer) -> None:
    producer.appends(range(3))
    assert outcome(producer.send(3, epoch=1)) == (OUT_OF_ORDER, -1)
    assert producer.appends([3]) == [3]
    assert producer.appends([0, 1], epoch=1) == [4, 5]
    assert outcome(producer.send(4)) == (FENCED, -1)
    assert outcome(producer.send(3)) == (FENCED, -1)
    assert producer.appends([0, 1], epoch=1) == [4, 5], "retries of the present epoch"
    assert producer.appends([0], epoch=32767) == [6], "upward jumps are allowed"
    assert outcome(producer.send(2, epoch=1)) == (FENCED, -1)


@pytest.mark.promise("epoch-fences")
def test_the_epoch_is_kept_per_partition(client: RawClient, place: Place, other_place: Place) -> None:
    producer = Producer(client, place)
    neighbour = Producer(client, other_place, producer.producer_id)
    producer.appends([0])
    producer.appends([0], epoch=1)
    assert neighbour.appends([0, 1]) == [0, 1]


# ---------------------------------------------------------------------- the numbers of a stored batch
@pytest.mark.promise("other-records")
def test_other_records_under_the_numbers_of_a_stored_batch_are_out_of_order(
    client: RawClient, shared_proxy: ProxyProcess, place: Place
) -> None:
    producer = Producer(client, place)
    producer.appends([0, 1, 2])

    def told(sequence: int, value: bytes, codec: Codec = Codec.NONE) -> tuple[int, int]:
        records = batch([value], producer_id=producer.producer_id, sequence=sequence, codec=codec)
        return outcome(client.produce_one(*place, records, version=8))

    assert told(1, b"another") == (OUT_OF_ORDER, -1)
    assert told(1, b"0:1") == (0, 1)
    assert told(1, b"0:1", Codec.GZIP) == (0, 1), "recreated: other bytes with the same records"
    assert f"other_content: producer {producer.producer_id}" in shared_proxy.log
    entry = shared_proxy.entry(producer.producer_id, *place)
    assert entry is not None
    unknown = tuple(replace(one, digest=NO_DIGEST) for one in entry.window)
    shared_proxy.store_entry(replace(entry, version=entry.version + 1, window=unknown), producer.producer_id, *place)
    assert told(3, b"0:3") == (0, 3)
    assert told(2, b"another") == (0, 2), "where no digest is known the numbers decide, as at a broker"
    assert client.values(*place) == producer.values(0, 4)


# ---------------------------------------------------------------------- the wrap
@pytest.mark.promise("sequences-wrap")
@pytest.mark.parametrize("before_wrap", [1, 2, 3])
def test_the_sequence_after_the_last_one_is_zero(
    client: RawClient, shared_proxy: ProxyProcess, place: Place, other_place: Place, before_wrap: int
) -> None:
    known = Producer(client, other_place)
    known.appends([0])
    sample = shared_proxy.entry(known.producer_id, *known.place)
    assert sample is not None
    producer = Producer(client, place)
    start = SEQUENCE_MODULUS - before_wrap
    # A window that is not empty says what is due; a blank entry would not.
    last = WindowBatch(start - 1, 1, 0)
    near_the_end = Entry(1, sample.data_generation, NO_PRINCIPAL, 0, start, (last,))
    shared_proxy.store_entry(near_the_end, producer.producer_id, *place)

    assert outcome(producer.send(start, 2)) == (0, 0), "up to the last one, across it, or right before it"
    after = (start + 2) % SEQUENCE_MODULUS
    assert outcome(producer.send(after, 3)) == (0, 2)
    end = (after + 3) % SEQUENCE_MODULUS
    assert outcome(producer.send(start, 2)) == (0, 0), "a duplicate"
    assert outcome(producer.send(after, 3)) == (0, 2), "a duplicate"
    assert outcome(producer.send((end + 1) % SEQUENCE_MODULUS)) == (OUT_OF_ORDER, -1)
    assert outcome(producer.send(end)) == (0, 5)
    assert client.values(*place) == producer.values(start, 6)
    entry = shared_proxy.entry(producer.producer_id, *place)
    assert entry is not None
    assert entry.next_sequence == (start + 6) % SEQUENCE_MODULUS


# ---------------------------------------------------------------------- acks
@pytest.mark.promise("fewer-acks")
def test_one_ack_makes_no_difference_to_the_sequence(client: RawClient, place: Place) -> None:
    producer = Producer(client, place)
    for sequence in range(3):
        client.send_produce([(*place, producer.records(sequence))], acks=1)
    assert [outcome(client.produce_answer()[0]) for _ in range(3)] == [(0, 0), (0, 1), (0, 2)]
    assert outcome(producer.send(3)) == (0, 3)
    assert outcome(producer.send(2)) == (0, 2)
    assert client.values(*place) == producer.values(0, 4)


# ---------------------------------------------------------------------- sizes
@pytest.mark.promise("parts")
@pytest.mark.parametrize("compressible", [True, False])
def test_a_batch_that_grows_above_the_brokers_limit_is_stored_whole_and_in_order(
    client: RawClient, place: Place, compressible: bool
) -> None:
    values = [(bytes(96) if compressible else os.urandom(96)) + index.to_bytes(4, "big") for index in range(8950)]
    producer_id = client.new_producer_id()
    records = batch(values, producer_id=producer_id)
    assert 990_000 < len(records) < 1_000_012, "what a broker of today takes; converted it has 1.2 MB"
    assert outcome(client.produce_one(*place, records)) == (0, 0)
    assert client.values(*place) == values
    assert outcome(client.produce_one(*place, records)) == (0, 0)
    assert outcome(client.produce_one(*place, batch([b"next"], producer_id=producer_id, sequence=8950))) == (0, 8950)


def test_a_single_record_above_the_limit_is_too_large(client: RawClient, direct: RawClient) -> None:
    place = ("small", 1)
    producer = Producer(client, place)
    producer.appends([0])
    for count in (1, 3):
        large = batch([os.urandom(30_000)] * count, producer_id=producer.producer_id, sequence=1)
        answer = client.produce_one(*place, large, version=8)
        assert outcome(answer) == (10, -1)
    assert direct.end_offset(*place) == 1, "not a part of it either"
    assert producer.appends([1]) == [1]


# ---------------------------------------------------------------------- one producer's trouble
def test_a_record_that_the_broker_refuses_harms_no_other_producer(
    client: RawClient, shared_proxy: ProxyProcess
) -> None:
    place = ("compacted", 1)
    refused: list[PartitionAnswer] = []

    def without_keys() -> None:
        with RawClient(shared_proxy.address) as other:
            for _ in range(10):
                keyless = batch([b"v"], producer_id=other.new_producer_id())
                refused.append(other.produce_one(*place, keyless, version=8))

    thread = threading.Thread(target=without_keys)
    thread.start()
    producer_id = client.new_producer_id()
    for sequence in range(0, 100, 5):
        for one in range(sequence, sequence + 5):
            keyed = batch([b"%d" % one], producer_id=producer_id, key=b"%d" % one, sequence=one)
            client.send_produce([(*place, keyed)])
        answers = [client.produce_answer()[0] for _ in range(5)]
        assert [outcome(answer) for answer in answers] == [(0, one) for one in range(sequence, sequence + 5)]
    thread.join()
    assert [outcome(answer) for answer in refused] == [(87, -1)] * 10
    assert all("compacted" in (answer.message or "") for answer in refused)
    assert client.values(*place) == [b"%d" % one for one in range(100)]


@pytest.mark.promise("refused-batch-before")
def test_a_refused_batch_in_a_pipeline_takes_nobody_with_it(client: RawClient) -> None:
    place = ("compacted", 2)
    producer_id = client.new_producer_id()
    for sequence, key in enumerate([b"a", b"b", None, b"d", b"e"]):
        client.send_produce([(*place, batch([b"%d" % sequence], producer_id=producer_id, key=key, sequence=sequence))])
    answers = [client.produce_answer()[0] for _ in range(5)]
    refused = [(code, -1) for code in (87, OUT_OF_ORDER, OUT_OF_ORDER)]
    assert [outcome(answer) for answer in answers] == [(0, 0), (0, 1), *refused]
    assert client.values(*place) == [b"0", b"1"]


# ---------------------------------------------------------------------- plain producers
def test_producers_without_a_producer_id_pass(client: RawClient, place: Place) -> None:
    old = encode_set([(None, b"old %d" % index, 1000 + index) for index in range(3)], magic=1)
    assert outcome(client.produce_one(*place, old, version=2)) == (0, 0)
    assert outcome(client.produce_one(*place, encode_set([(b"k", b"oldest", -1)], magic=0), version=0)) == (0, 3)
    assert outcome(client.produce_one(*place, batch([b"new 0", b"new 1"]), version=3)) == (0, 4)
    assert outcome(client.produce_one(*place, batch([b"packed"] * 2, codec=Codec.GZIP), version=5, acks=1)) == (0, 6)
    client.send_produce([(*place, batch([b"silent"]))], acks=0)
    assert outcome(client.produce_one(*place, batch([b"again"]))) == (0, 9)
    wanted = [b"old 0", b"old 1", b"old 2", b"oldest", b"new 0", b"new 1", b"packed", b"packed", b"silent", b"again"]
    assert client.values(*place) == wanted


def stored_records(cluster: LegacyCluster, place: Place) -> list[StoredRecord]:
    return stored(cluster, place[0], place[1] + 1, broker=0)[place[1]]

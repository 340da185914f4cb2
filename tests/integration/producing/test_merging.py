"""Many producers on one partition with --merge-producers, on a real broker: what each is told, what lies in the
segments, what consumers read."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest
from kafka import KafkaConsumer, TopicPartition

from idemproxy.codecs.compression import Codec
from idemproxy.demo.legacy_cluster import LegacyCluster
from idemproxy.demo.segments import StoredRecord
from testkit.real.brokers.kafka_cluster import stored
from testkit.real.clients.raw_client import RawClient, batch
from testkit.real.proxies.proxy_process import ProxyProcess

Place = tuple[str, int]
PRODUCERS, ROUNDS = 40, 12
PATIENCE_MS = 60_000


@pytest.fixture(scope="module")
def merging_proxy(legacy_broker: LegacyCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxyProcess]:
    directory = tmp_path_factory.mktemp("merging-proxy")
    with ProxyProcess(directory, legacy_broker.address(0), options=("--merge-producers",)) as running:
        yield running


class Crowd:
    """Producers with a connection each that send at the same time. Values tell whose they are and which."""

    def __init__(self, proxy: ProxyProcess, place: Place, stack: ExitStack, codec: Codec = Codec.NONE) -> None:
        self.place = place
        self.codec = codec
        self.clients = [stack.enter_context(RawClient(proxy.address)) for _ in range(PRODUCERS)]
        self.ids = [client.new_producer_id() for client in self.clients]
        self.next = [0] * PRODUCERS
        self.offset_of: dict[bytes, int] = {}
        """What each producer was told of each of its values."""

    def round(self) -> None:
        """One batch of one to three records each; all are out before the first answer is read."""
        sent: list[list[bytes]] = []
        for number, client in enumerate(self.clients):
            count = 1 + (number + self.next[number]) % 3
            values = [b"%d:%d" % (number, self.next[number] + index) for index in range(count)]
            data = batch(values, producer_id=self.ids[number], sequence=self.next[number], codec=self.codec)
            client.send_produce([(*self.place, data)])
            self.next[number] += count
            sent.append(values)
        for client, values in zip(self.clients, sent, strict=True):
            (answer,) = client.produce_answer()
            assert answer.error_code == 0
            self.offset_of |= {value: answer.base_offset + index for index, value in enumerate(values)}

    def in_log_order(self) -> list[bytes]:
        """Every value that was acknowledged, by the offset that was told."""
        return sorted(self.offset_of, key=self.offset_of.__getitem__)


def wrappers(records: Sequence[StoredRecord]) -> dict[int, set[int]]:
    """Last offset of each wrapper -> the producer ids in its marker."""
    found: dict[int, set[int]] = {}
    for record in records:
        assert record.marker is not None
        found[record.last_offset] = {identity.producer_id for identity in record.marker}
    return found


def read_by_a_consumer(address: tuple[str, int], place: Place, count: int) -> list[tuple[int, bytes]]:
    """(offset, value) of the first so many records, as kafka-python's consumer gives them."""
    consumer = KafkaConsumer(bootstrap_servers=f"{address[0]}:{address[1]}", consumer_timeout_ms=PATIENCE_MS)
    try:
        partition = TopicPartition(*place)
        consumer.assign([partition])
        consumer.seek_to_beginning(partition)
        found: list[tuple[int, bytes]] = []
        for record in consumer:
            found.append((record.offset, record.value))
            if len(found) == count:
                break
        return found
    finally:
        consumer.close()


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY])
def test_each_producer_is_told_where_its_records_lie_in_wrappers_that_they_share(
    legacy_broker: LegacyCluster, merging_proxy: ProxyProcess, place: Place, codec: Codec
) -> None:
    with ExitStack() as stack:
        crowd = Crowd(merging_proxy, place, stack, codec)
        for _ in range(ROUNDS):
            crowd.round()
    topic, partition = place
    records = stored(legacy_broker, topic, partition + 1)[partition]
    assert [(record.offset, record.value) for record in records] == list(enumerate(crowd.in_log_order()))
    assert {record.codec for record in records} == {codec or Codec.GZIP}
    together = wrappers(records)
    assert max(map(len, together.values())) > PRODUCERS // 4, "that many share a wrapper"
    assert len(together) < PRODUCERS * ROUNDS / 2, "so there are far fewer wrappers than batches"
    expected = list(enumerate(crowd.in_log_order()))
    assert read_by_a_consumer(legacy_broker.address(0), place, len(expected)) == expected
    assert read_by_a_consumer(merging_proxy.address, place, len(expected)) == expected


def test_retries_after_a_restart_are_answered_with_offsets_in_the_middle_of_wrappers(
    legacy_broker: LegacyCluster, tmp_path: Path, place: Place
) -> None:
    with (
        ProxyProcess(tmp_path, legacy_broker.address(0), options=("--merge-producers",)) as proxy,
        ExitStack() as stack,
    ):
        crowd = Crowd(proxy, place, stack)
        crowd.round()
        proxy.kill()
        proxy.start()
        for number, producer_id in enumerate(crowd.ids):
            again = stack.enter_context(RawClient(proxy.address))
            values = [b"%d:%d" % (number, index) for index in range(crowd.next[number])]
            answer = again.produce_one(*place, batch(values, producer_id=producer_id), timeout_ms=30_000)
            assert (answer.error_code, answer.base_offset) == (0, crowd.offset_of[values[0]])
        assert again.values(*place) == crowd.in_log_order()

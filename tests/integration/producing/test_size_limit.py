"""Records around the size that a real broker takes: what it takes from a client itself gets through the proxy, and a
limit that is raised is used by a proxy that runs."""

import os
import time
from collections.abc import Iterator

import pytest

from idemproxy.codecs.batch_marker import parse_batch_marker
from idemproxy.codecs.compression import Codec, compress
from idemproxy.codecs.message_set import encode_message, encode_set, iterate_shallow
from testkit.real.brokers.kafka_cluster import fresh_topic
from testkit.real.clients.raw_client import RawClient, batch
from testkit.real.scenes.lossy import LossyScene, insist

TOO_LARGE, UNDECIDABLE = 10, 87
BYTES_MAX = 1_000_012
"""message.max.bytes of a broker that nobody has configured."""
LARGEST = BYTES_MAX - 34
"""The largest value that fits into a plain message without a key."""
BORDER = (999_700, 999_850, 999_880, 999_900, 999_930, LARGEST - 1, LARGEST, LARGEST + 1, 1_000_000, 1_000_012)
Place = tuple[str, int]
RECORD_MS = 1_700_000_000_000
"""The time of the first record of ``batch``."""


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LossyScene]:
    with LossyScene(tmp_path_factory.mktemp("sizes")) as running:
        yield running


@pytest.fixture
def client(scene: LossyScene) -> Iterator[RawClient]:
    with RawClient(scene.proxy.address) as connection:
        yield connection


@pytest.fixture
def direct(scene: LossyScene) -> Iterator[RawClient]:
    with RawClient(scene.cluster.address(0)) as connection:
        yield connection


def batch_markers(direct: RawClient, place: Place) -> list[bool]:
    """For each stored message: has it a batch marker?"""
    found: list[bool] = []
    offset = 0
    while offset < direct.end_offset(*place):
        for message in iterate_shallow(direct.fetch(*place, offset, version=2)):
            found.append(parse_batch_marker(message.key) is not None)
            offset = message.offset + 1
    return found


@pytest.mark.promise("stored-plain")
@pytest.mark.parametrize("key", [None, b"a key of a record"])
def test_whatever_the_broker_takes_from_a_client_gets_through_the_proxy(
    scene: LossyScene, client: RawClient, direct: RawClient, key: bytes | None
) -> None:
    topic = fresh_topic(scene.cluster, 2)
    sent = [os.urandom(size - len(key or b"")) for size in BORDER]
    taken = [direct.produce_one(topic, 0, encode_set([(key, one, 0)], magic=1), version=2).error_code for one in sent]
    assert taken == [0 if size <= LARGEST else TOO_LARGE for size in BORDER]
    producer_id, due = client.new_producer_id(), 0
    insist(client, (topic, 1), batch([b"first"], producer_id=producer_id, key=key))
    for value, code in zip(sent, taken, strict=True):
        due += not code
        records = batch([value], producer_id=producer_id, key=key, sequence=due + bool(code))
        answer = client.produce_one(topic, 1, records)
        assert (answer.error_code, answer.base_offset) == (code, -1 if code else due), len(value)
        if not code:
            assert client.produce_one(topic, 1, records).base_offset == due, "a retry"
    assert insist(client, (topic, 1), batch([b"last"], producer_id=producer_id, key=key, sequence=due + 1))
    assert client.values(topic, 1) == [b"first", *sent[:due], b"last"]
    assert batch_markers(direct, (topic, 1)) == [True, True, *[False] * (due - 1), True], (
        "only the first two and the last have room"
    )


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
def test_so_does_a_compressed_record(scene: LossyScene, client: RawClient, direct: RawClient, codec: Codec) -> None:
    """Of a size at which the broker takes it, but not with a batch marker. Its time counts: it is compressed, too."""
    value = os.urandom(1000) + bytes(1000)
    wrapper = encode_message(
        None,
        compress(codec, encode_set([(None, value, RECORD_MS)], magic=1), magic=1),
        magic=1,
        timestamp=0,
        codec=codec,
    )
    topic = fresh_topic(scene.cluster, 2, config={"max.message.bytes": len(wrapper) + 10})
    assert direct.produce_one(topic, 0, wrapper, version=2).error_code == 0
    records = batch([value], producer_id=client.new_producer_id(), codec=codec)
    assert insist(client, (topic, 1), records).base_offset == 0
    assert client.values(topic, 1) == [value]
    assert batch_markers(direct, (topic, 1)) == [False]


@pytest.mark.promise("no-room-for-marker")
def test_a_lost_answer_without_batch_marker_ends_in_error_and_one_copy(
    scene: LossyScene, client: RawClient, direct: RawClient
) -> None:
    place = (fresh_topic(scene.cluster, 1), 0)
    producer_id, sent = client.new_producer_id(), [os.urandom(LARGEST) for _ in range(2)]
    insist(client, place, batch(sent[:1], producer_id=producer_id))  # from now on the size is known
    records = batch(sent[1:], producer_id=producer_id, sequence=1)
    answer = scene.lose_answer_of(client, place, records)
    deadline = time.monotonic() + 60
    while answer.error_code != UNDECIDABLE and time.monotonic() < deadline:
        answer = client.produce_one(*place, records)
    assert (answer.error_code, answer.base_offset) == (UNDECIDABLE, -1)
    assert insist(client, place, batch([b"next"], producer_id=producer_id, epoch=1)).base_offset == 2
    assert client.values(*place) == [*sent, b"next"]


@pytest.mark.promise("raised-size-limit")
def test_a_raised_limit_is_used_at_once_when_a_larger_record_is_taken(
    scene: LossyScene, client: RawClient, direct: RawClient
) -> None:
    place = (fresh_topic(scene.cluster, 1, config={"max.message.bytes": 20_000}), 0)
    producer_id = client.new_producer_id()
    sent = [os.urandom(8_000) for _ in range(3)]
    insist(client, place, batch(sent, producer_id=producer_id))
    assert len(batch_markers(direct, place)) == 2, "in two parts"
    scene.cluster.alter_topic_config(place[0], {"max.message.bytes": 200_000})
    large = batch([os.urandom(50_000)], producer_id=producer_id, sequence=3)
    deadline = time.monotonic() + 60
    while (code := client.produce_one(*place, large).error_code) and time.monotonic() < deadline:
        assert code == TOO_LARGE
        time.sleep(0.1)
    assert not code
    insist(client, place, batch(sent, producer_id=producer_id, sequence=4))
    assert len(batch_markers(direct, place)) == 4, "as a whole"
    assert len(client.values(*place)) == 7

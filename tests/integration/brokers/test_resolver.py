"""What an unknown outcome reads of a real log, and what it concludes from one that has changed: gaps, deletion, lost
batch markers.

The proxy dies, or loses an answer, with a batch reserved; then the log is changed before its client comes back.
"""

import os
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from idemproxy.codecs.batch_marker import Identity, encode_batch_marker
from idemproxy.codecs.compression import Codec, compress
from idemproxy.codecs.convert import HeaderPolicy
from idemproxy.codecs.message_set import encode_message, encode_set
from idemproxy.codecs.produce import PartitionAnswer
from idemproxy.demo.segments import logged
from runs.acceptance import ANSWER_SECONDS_MAX, READ_BYTES_MAX
from testkit.real.brokers.kafka_cluster import fresh_topic, stored_values
from testkit.real.clients.raw_client import RawClient, batch
from testkit.real.proxies.crashing_proxy import CrashPoint
from testkit.real.proxies.mortal_proxy import MortalProxy
from testkit.real.proxies.proxy_process import wait_until
from testkit.real.scenes.lossy import LossyScene, Resolved, insist, resolved_in
from testkit.stage.wrappers import to_wrapper

pytestmark = pytest.mark.long

Place = tuple[str, int]
FOREIGN_RECORDS = 1_000_000
WRAPPER_RECORDS = 10_000
UNDECIDABLE = 87
DECIDED_SECONDS_MAX = 90.0
TIMESTAMP = 1_700_000_000_000
SEGMENT_BYTES = 20_000
HOUSEKEEPING = {"log.retention.check.interval.ms": 300, "log.cleaner.backoff.ms": 200}
"""So that deletion and compaction come within the test, not within minutes."""


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LossyScene]:
    with LossyScene(tmp_path_factory.mktemp("resolver"), HOUSEKEEPING) as running:
        yield running


@pytest.fixture
def mortal(scene: LossyScene, tmp_path: Path) -> Iterator[MortalProxy]:
    """A second proxy before the same broker, which does not run yet."""
    with MortalProxy(tmp_path, scene.cluster.address(0)) as proxy:
        yield proxy


@pytest.fixture
def direct(scene: LossyScene) -> Iterator[RawClient]:
    """A connection to the broker itself."""
    with RawClient(scene.cluster.address(0)) as client:
        yield client


def outcome(answer: PartitionAnswer) -> tuple[int, int]:
    return answer.error_code, answer.base_offset


def append(direct: RawClient, place: Place, message_set: bytes) -> int:
    """Append past the proxy and return the first offset."""
    answer = direct.produce_one(*place, message_set, version=2)
    assert answer.error_code == 0, answer
    return answer.base_offset


def plain(count: int, size_bytes: int = 10, key: bytes | None = None) -> bytes:
    """Return foreign messages that nobody marked."""
    return encode_set([(key, os.urandom(size_bytes), TIMESTAMP)] * count, magic=1)


# ---------------------------------------------------------------------- a million foreign records
@cache
def foreign_wrapper() -> bytes:
    """Return ten thousand small records in one message, as another producer's gzip batch looks."""
    inner = encode_set([(None, os.urandom(20), TIMESTAMP) for _ in range(WRAPPER_RECORDS)], magic=1)
    packed = compress(Codec.GZIP, inner)
    return encode_message(None, packed, magic=1, offset=WRAPPER_RECORDS - 1, timestamp=TIMESTAMP, codec=Codec.GZIP)


@pytest.fixture(scope="module")
def crowded(scene: LossyScene) -> Place:
    """A partition with a million foreign records, 30 MB of them."""
    place = (fresh_topic(scene.cluster, 1), 0)
    with RawClient(scene.cluster.address(0)) as direct:
        for first in range(0, FOREIGN_RECORDS, WRAPPER_RECORDS):
            assert append(direct, place, foreign_wrapper()) == first
    return place


def log_bytes(scene: LossyScene, place: Place) -> int:
    directory = scene.cluster.log_directories[0] / f"{place[0]}-{place[1]}"
    return sum(path.stat().st_size for path in directory.glob("*.log"))


def unknown_outcomes_of(log: str, producer_id: int) -> list[Resolved]:
    return [one for one in resolved_in(log) if one.producer_id == producer_id]


def test_a_new_producers_unknown_outcome_reads_nothing_of_a_million_foreign_records_below_it(
    scene: LossyScene, crowded: Place
) -> None:
    assert log_bytes(scene, crowded) > 20_000_000
    with RawClient(scene.proxy.address) as client:
        producer_id = client.new_producer_id()
        end = scene_end(scene, crowded)
        assert end >= FOREIGN_RECORDS
        seconds = scene.lose_answer(client, crowded, batch([b"first"], producer_id=producer_id))
        assert scene.told == end
        second = scene.lose_answer(client, crowded, batch([b"second"], producer_id=producer_id, sequence=1))
        assert scene.told == end + 1
    found = unknown_outcomes_of(scene.proxy.log, producer_id)
    assert [(one.result, one.sequence) for one in found] == [("found", 0), ("found", 1)]
    assert len(foreign_wrapper()) < found[0].bytes_read <= READ_BYTES_MAX, "the message below the bound, and no more"
    assert found[1].bytes_read < 1000
    assert max(seconds, second) < 2 * ANSWER_SECONDS_MAX
    assert scene_end(scene, crowded) == end + 2


@pytest.mark.promise("proof-of-absence")
def test_a_batch_that_never_left_is_proven_absent_without_reading_a_million_foreign_records(
    scene: LossyScene, crowded: Place, mortal: MortalProxy, direct: RawClient
) -> None:
    end = append(direct, crowded, foreign_wrapper()) + WRAPPER_RECORDS
    mortal.dies_at(CrashPoint.AFTER_RESERVE, 1)
    mortal.start()
    with RawClient(mortal.address) as client:
        producer_id = client.new_producer_id()
        records = batch([b"never left"], producer_id=producer_id)
        with pytest.raises(ConnectionError):
            client.produce_one(*crowded, records)
    assert mortal.wait() < 0
    mortal.lives_on()
    mortal.start()
    with RawClient(mortal.address) as client:
        assert insist(client, crowded, records).base_offset == end
    (absent,) = unknown_outcomes_of(mortal.log, producer_id)
    assert absent.result == "not_found"
    assert len(foreign_wrapper()) <= absent.bytes_read <= READ_BYTES_MAX, "the message below the bound, and no more"
    assert scene_end(scene, crowded) == end + 1


def scene_end(scene: LossyScene, place: Place) -> int:
    with RawClient(scene.cluster.address(0)) as direct:
        return direct.end_offset(*place)


# ---------------------------------------------------------------------- a log that has changed
class Orphan:
    """A batch that its proxy reserved before it died: after one that is committed, and after foreign records."""

    def __init__(self, scene: LossyScene, mortal: MortalProxy, place: Place, point: CrashPoint) -> None:
        self.place = place
        self._scene = scene
        self._proxy = mortal
        with RawClient(scene.cluster.address(0)) as direct:
            assert append(direct, place, plain(5, key=b"foreign")) == 0
        mortal.dies_at(point, 2)
        mortal.start()
        with RawClient(mortal.address) as client:
            self.producer_id = client.new_producer_id()
            assert insist(client, place, self.records(0)).base_offset == 5
            mortal.entries()
            with pytest.raises(ConnectionError):
                client.produce_one(*place, self.records(1))
        assert mortal.wait() < 0

    def records(self, sequence: int, epoch: int = 0, value: bytes = b"orphan") -> bytes:
        return batch(
            [value + b" %d" % sequence], producer_id=self.producer_id, epoch=epoch, sequence=sequence, key=b"orphan"
        )

    def marked(self, sequence: int) -> bytes:
        """The batch as the proxy would have stored it."""
        records = memoryview(self.records(sequence))
        batch_marker = encode_batch_marker([Identity(self.producer_id, 0, sequence, 1)])
        converted = to_wrapper(
            [records], key=batch_marker, codec=Codec.NONE, policy=HeaderPolicy(), output_bytes_max=1 << 20
        )
        return bytes(converted.message_set)

    def next_life(self) -> None:
        self._proxy.lives_on()
        self._proxy.start()

    def dies_and_lives_again(self) -> None:
        time.sleep(1.5)  # what is to be written is written
        self._proxy.kill()
        self._proxy.start()

    @property
    def log(self) -> str:
        return self._proxy.log

    def retry(self, sequence: int = 1, epoch: int = 0, value: bytes = b"orphan") -> PartitionAnswer:
        """Send until the answer is final."""
        end = time.monotonic() + DECIDED_SECONDS_MAX
        with RawClient(self._proxy.address) as client:
            while True:
                answer = client.produce_one(*self.place, self.records(sequence, epoch, value), version=8)
                if answer.error_code not in {3, 6, 7, 19}:
                    return answer
                assert time.monotonic() < end, answer
                time.sleep(0.05)

    def stored(self) -> list[tuple[int, bytes]]:
        """(offset, value) of what is no foreign record."""
        try:
            values = stored_values(self._scene.cluster, self.place)
        except FileNotFoundError:  # retention has taken a segment in this moment
            return self.stored()
        return [one for one in values if one[1].startswith((b"orphan", b"again"))]


def never_forwarded_again(orphan: Orphan, reason: str) -> None:
    """The proxy returns ``INVALID_RECORD``, however often the producer retries; in a new epoch it can continue."""
    before = orphan.stored()
    for _ in range(2):
        answer = orphan.retry()
        assert outcome(answer) == (UNDECIDABLE, -1)
        assert "it cannot be decided" in (answer.message or "")
        assert orphan.stored() == before
    assert reason in orphan.log
    orphan.dies_and_lives_again()
    assert outcome(orphan.retry()) == (UNDECIDABLE, -1), "it is remembered by the next life too"
    fresh = orphan.retry(0, epoch=1, value=b"again")
    assert fresh.error_code == 0
    assert orphan.stored() == [*before, (fresh.base_offset, b"again 0")]


@pytest.mark.promise("log-cannot-tell")
def test_a_batch_that_compaction_may_have_removed_is_never_forwarded_again(
    scene: LossyScene, mortal: MortalProxy, direct: RawClient
) -> None:
    config: dict[str, str | int] = {
        "cleanup.policy": "compact",
        "segment.bytes": SEGMENT_BYTES,
        "min.cleanable.dirty.ratio": "0.01",
    }
    place = (fresh_topic(scene.cluster, 1, config=config), 0)
    orphan = Orphan(scene, mortal, place, CrashPoint.AFTER_RESERVE)
    for _ in range(10):
        append(direct, place, plain(10, size_bytes=1000, key=b"the same"))

    def has_gap_behind() -> bool:
        try:
            offsets = [message.offset for message in logged(scene.cluster.log_directories[0], *place)]
        except FileNotFoundError:  # the broker is just putting the cleaned segment in its place
            return False
        return 6 not in offsets and len(offsets) > 0

    wait_until(has_gap_behind, "compaction has left a gap", 120)
    orphan.next_life()
    never_forwarded_again(orphan, "missing from the log")


@pytest.mark.promise("log-cannot-tell")
def test_a_batch_whose_batch_marker_was_lost_is_never_forwarded_again(scene: LossyScene) -> None:
    """The topic's compression was changed under the proxy: what the broker stores has no batch marker any more."""
    place = (fresh_topic(scene.cluster, 1), 0)
    with RawClient(scene.proxy.address) as client:
        producer_id = client.new_producer_id()
        insist(client, place, batch([b"first"], producer_id=producer_id))
        scene.cluster.alter_topic_config(place[0], {"compression.type": "uncompressed"})
        time.sleep(3)  # the broker takes it over, and nobody can ask it whether it has
        records = batch([b"second"], producer_id=producer_id, sequence=1)
        lost = scene.lose_answer_of(client, place, records, timeout_ms=1000)
        assert outcome(lost) == (7, -1), "its time is up before the unknown outcome is decided"
        scene.proxy.wait_for_log(f"resolved as unrecoverable: producer {producer_id} ", DECIDED_SECONDS_MAX)
        for _ in range(2):
            answer = client.produce_one(*place, records, version=8, timeout_ms=30_000)
            assert outcome(answer) == (UNDECIDABLE, -1)
            assert "it cannot be decided" in (answer.message or "")
        assert [value for _, value in stored_values(scene.cluster, place)] == [b"first", b"second"]


# ---------------------------------------------------------------------- a topic that was recreated
@pytest.mark.promise("recreated-topic")
def test_in_a_topic_that_was_recreated_a_batch_is_looked_for_from_the_start(
    scene: LossyScene, mortal: MortalProxy, direct: RawClient
) -> None:
    topic = fresh_topic(scene.cluster, 1)
    orphan = Orphan(scene, mortal, (topic, 0), CrashPoint.AFTER_RESERVE)
    scene.cluster.delete_topic(topic)
    scene.cluster.create_topic(topic)
    append(direct, orphan.place, plain(2))
    assert append(direct, orphan.place, orphan.marked(1)) == 2, "far below the bound, which was 6"
    append(direct, orphan.place, plain(20))
    orphan.next_life()
    assert outcome(orphan.retry()) == (0, 2)
    (found,) = unknown_outcomes_of(mortal.log, orphan.producer_id)
    assert found.result == "found"
    assert orphan.stored() == [(2, b"orphan 1")]
    assert outcome(orphan.retry(2)) == (0, 23)


@pytest.mark.parametrize("foreign_records", [0, 3, 20])
def test_a_batch_missing_from_a_recreated_topic_is_forwarded_once(
    scene: LossyScene, mortal: MortalProxy, direct: RawClient, foreign_records: int
) -> None:
    topic = fresh_topic(scene.cluster, 1)
    orphan = Orphan(scene, mortal, (topic, 0), CrashPoint.AFTER_RESERVE)
    scene.cluster.delete_topic(topic)
    scene.cluster.create_topic(topic)
    if foreign_records:
        append(direct, orphan.place, plain(foreign_records))
    orphan.next_life()
    assert outcome(orphan.retry()) == (0, foreign_records)
    assert outcome(orphan.retry()) == (0, foreign_records)
    (absent,) = unknown_outcomes_of(mortal.log, orphan.producer_id)
    assert absent.result == "not_found"
    gone = orphan.retry(0)
    assert outcome(gone) == (UNDECIDABLE, -1), "it was committed in the topic that is gone"
    assert "not in the log any more" in (gone.message or "")
    assert orphan.stored() == [(foreign_records, b"orphan 1")]


# ---------------------------------------------------------------------- last: nothing is deleted in the first 30 s
@pytest.mark.promise("log-cannot-tell")
def test_a_batch_that_retention_may_have_deleted_is_never_forwarded_again(
    scene: LossyScene, mortal: MortalProxy, direct: RawClient
) -> None:
    config = {"segment.bytes": SEGMENT_BYTES, "retention.bytes": SEGMENT_BYTES}
    orphan = Orphan(scene, mortal, (fresh_topic(scene.cluster, 1, config=config), 0), CrashPoint.AFTER_WRITE)
    wait_until(lambda: orphan.stored() == [(5, b"orphan 0"), (6, b"orphan 1")], "it is stored")
    for _ in range(10):
        append(direct, orphan.place, plain(10, size_bytes=1000))
    wait_until(lambda: orphan.stored() == [], "retention has deleted it", 120)
    orphan.next_life()
    never_forwarded_again(orphan, "deleted by retention")

"""Producers in each other's way: a refused batch, a stopped follower, foreign traffic, a client that goes away.

Real brokers, the shipped proxy, a client without manners. What counts is the log in the end: the segment files.
"""

import itertools
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from idemproxy.codecs.produce import PartitionAnswer
from idemproxy.demo.child_processes import stands_still
from idemproxy.demo.legacy_cluster import LegacyCluster
from idemproxy.demo.segments import read_partition
from idemproxy.proxy import limits
from idemproxy.state.entry import Entry, Intent, IntentBatch, unpack
from idemproxy.state.store import entry_key, member_key
from runs.acceptance import ANSWER_SECONDS_MAX, READ_BYTES_MAX, idle_producer
from testkit.real.brokers.kafka_cluster import fresh_topic, stored_values
from testkit.real.clients.raw_client import RawClient, batch
from testkit.real.proxies.crashing_proxy import CrashPoint
from testkit.real.proxies.mortal_proxy import MortalProxy
from testkit.real.proxies.proxy_process import ProxyProcess, wait_until
from testkit.real.scenes.lossy import LossyScene, insist

from .conftest import QuietPair

pytestmark = pytest.mark.long

Place = tuple[str, int]
REFUSED, IN_DOUBT = 87, 7
IN_FLIGHT = 5
QUIET_SECONDS = 1.5
"""Long enough for the batch of a recovered outcome, or one that somebody still forwards, to reach the log."""


def values(cluster: LegacyCluster, place: Place, broker: int = 0) -> list[bytes]:
    """Return all values in one broker's segment files."""
    return [one.value or b"" for one in read_partition(cluster.log_directories[broker], *place)]


def outcome(answer: PartitionAnswer) -> tuple[int, int]:
    return answer.error_code, answer.base_offset


# ---------------------------------------------------------------------- a batch that the broker refuses
class KeylessProducer(threading.Thread):
    """Sends batches without a key to a compacted topic, each from a producer of its own, until it is stopped."""

    def __init__(self, address: tuple[str, int], place: Place) -> None:
        super().__init__(daemon=True)
        self.refusals: list[PartitionAnswer] = []
        self._address = address
        self._place = place
        self._stopping = threading.Event()

    def run(self) -> None:
        with RawClient(self._address) as client:
            while not self._stopping.is_set():
                keyless = batch([b"keyless"], producer_id=client.new_producer_id())
                self.refusals.append(client.produce_one(*self._place, keyless, version=8))

    def stop(self) -> None:
        self._stopping.set()
        self.join(20)


@pytest.mark.promise("refused-other-producer")
def test_a_batch_that_the_broker_refuses_leaves_the_other_producer_of_the_partition_unharmed(quiet: QuietPair) -> None:
    place = (fresh_topic(quiet.cluster, 1, config={"cleanup.policy": "compact"}), 0)
    waited: list[float] = []
    with RawClient(quiet.proxy.address) as client:
        producer_id = client.new_producer_id()

        def keyed(sequence: int) -> bytes:
            return batch([b"%d" % sequence], producer_id=producer_id, key=b"k%d" % sequence, sequence=sequence)

        assert insist(client, place, keyed(0)).base_offset == 0
        keyless = KeylessProducer(quiet.proxy.address, place)
        keyless.start()
        wait_until(lambda: len(keyless.refusals) > 0, "a batch was refused")
        for first in itertools.count(1, IN_FLIGHT):
            if first > 200 and (len(keyless.refusals) > 5 or first > 4000):
                break
            begun = time.monotonic()
            for sequence in range(first, first + IN_FLIGHT):
                client.send_produce([(*place, keyed(sequence))])
            answers = [client.produce_answer()[0] for _ in range(IN_FLIGHT)]
            waited.append(time.monotonic() - begun)
            assert [outcome(one) for one in answers] == [(0, offset) for offset in range(first, first + IN_FLIGHT)]
        refusals_meanwhile = len(keyless.refusals)
        keyless.stop()
    assert refusals_meanwhile > 5, "they were at it at the same time"
    assert {outcome(one) for one in keyless.refusals} == {(REFUSED, -1)}
    assert sorted(waited)[len(waited) * 9 // 10] < 1, "no batch waited for another producer's trouble"
    assert values(quiet.cluster, place) == [b"%d" % sequence for sequence in range(first)]


@pytest.mark.promise("refused-other-partition")
def test_a_refused_batch_does_not_fail_other_partitions_of_its_request(quiet: QuietPair) -> None:
    topic = fresh_topic(quiet.cluster, 3, config={"cleanup.policy": "compact"})
    with RawClient(quiet.proxy.address) as client:
        producer_id = client.new_producer_id()
        for partition in range(3):
            insist(client, (topic, partition), batch([b"v"], producer_id=producer_id, key=b"k0"))
        keys = [b"k1", None, b"k1"]
        answers = client.produce(
            [
                (topic, partition, batch([b"v"], producer_id=producer_id, key=key, sequence=1))
                for partition, key in enumerate(keys)
            ],
            version=8,
        )
        assert [outcome(one) for one in answers] == [(0, 1), (REFUSED, -1), (0, 1)]
        assert [client.end_offset(topic, partition) for partition in range(3)] == [2, 1, 2]
        fixed = batch([b"v"], producer_id=producer_id, key=b"k1", sequence=1)
        assert outcome(client.produce_one(topic, 1, fixed)) == (0, 1), "its sequence is still due"


# ---------------------------------------------------------------------- a follower that is stopped
@pytest.mark.promise("slow-partition", "answered-in-time")
def test_a_stopped_follower_delays_its_own_partition_only_and_every_answer_comes_in_time(tmp_path: Path) -> None:
    """Three partitions on two leaders; the third one's follower is a broker that stops, and its session stays."""
    timeout_ms = 4000
    settings = {"min.insync.replicas": 1, "replica.lag.time.max.ms": 6000}
    cluster = LegacyCluster(
        tmp_path / "cluster",
        brokers=3,
        session_timeout_ms=60_000,
        auto_create_topics=False,
        broker_settings=settings,
    )
    with cluster:
        topic, leaders = "replicated", [0, 1, 0]
        cluster.create_topic(topic, assignment=[[0, 1], [1, 0], [0, 2]])
        cluster.wait_in_sync(topic, 3)
        with (
            ProxyProcess(tmp_path / "proxy", cluster.address(0), brokers=3) as proxy,
            RawClient(proxy.address) as client,
        ):
            producer_id = client.new_producer_id()

            def parts(sequence: int, *partitions: int) -> list[tuple[str, int, bytes]]:
                return [
                    (topic, one, batch([b"%d:%d" % (one, sequence)], producer_id=producer_id, sequence=sequence))
                    for one in partitions
                ]

            assert [outcome(one) for one in client.produce(parts(0, 0, 1, 2))] == [(0, 0)] * 3
            cluster.pause_broker(2)
            begun = time.monotonic()
            answers = client.produce(parts(1, 0, 1, 2), timeout_ms=timeout_ms)
            seconds = time.monotonic() - begun
            assert [outcome(one) for one in answers] == [(0, 1), (0, 1), (IN_DOUBT, -1)]
            assert seconds < timeout_ms / 1000, "three quarters, and what a busy machine adds"

            begun = time.monotonic()
            answers = client.produce(parts(2, 0, 1), timeout_ms=timeout_ms)
            assert [outcome(one) for one in answers] == [(0, 2), (0, 2)]
            assert time.monotonic() - begun < 0.75 * timeout_ms / 1000, "they do not wait for the third one's follower"

            late = insist(client, (topic, 2), parts(1, 2)[0][2], timeout_ms=timeout_ms)
            assert outcome(late) == (0, 1)
            assert outcome(client.produce(parts(2, 2))[0]) == (0, 2)
        for partition, leader in enumerate(leaders):
            found = values(cluster, (topic, partition), leader)
            assert found == [b"%d:%d" % (partition, sequence) for sequence in range(3)]
        cluster.resume_broker(2)


# ---------------------------------------------------------------------- a producer that was idle
@pytest.fixture(scope="module")
def lossy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LossyScene]:
    with LossyScene(tmp_path_factory.mktemp("lossy")) as scene:
        yield scene


@pytest.mark.promise("reads-only-new")
def test_an_idle_producers_unknown_outcome_does_not_read_what_passed_meanwhile(lossy: LossyScene) -> None:
    found = idle_producer(lossy, 100_000_000, idle_seconds=12)
    assert (found.result, found.copies, found.told_offset) == ("found", 1, found.stored_offset)
    assert found.bytes_read <= READ_BYTES_MAX
    assert found.answered_seconds <= 2 * ANSWER_SECONDS_MAX, "the broker may have 100 MB to write out meanwhile"


def test_an_unknown_outcome_right_after_a_burst_is_resolved_in_seconds_too(lossy: LossyScene) -> None:
    found = idle_producer(lossy, 100_000_000, idle_seconds=0)
    assert (found.result, found.copies, found.told_offset) == ("found", 1, found.stored_offset)
    assert found.answered_seconds <= 2 * ANSWER_SECONDS_MAX


# ---------------------------------------------------------------------- a client that goes away
class Leaver:
    """A producer on a partition of its own that hangs up while its batch waits, and comes back in a new epoch."""

    def __init__(self, cluster: LegacyCluster, proxy: ProxyProcess) -> None:
        self._cluster = cluster
        self._proxy = proxy
        self.place = (fresh_topic(cluster, 1), 0)
        with RawClient(proxy.address) as client:
            self.producer_id = client.new_producer_id()
            assert insist(client, self.place, self.records(0)).base_offset == 0
        proxy.entries()

    def records(self, sequence: int, epoch: int = 0, value: bytes = b"sent") -> bytes:
        return batch([value + b" %d" % sequence], producer_id=self.producer_id, epoch=epoch, sequence=sequence)

    @property
    def key(self) -> bytes:
        return entry_key("default", self.producer_id, *self.place)

    def has_intent(self) -> bool:
        return self.intent() is not None

    def intent(self) -> Intent | None:
        value = self._proxy.redis("GET", self.key)
        return unpack(value).intent if isinstance(value, bytes) else None

    def sends_and_leaves(self, sequence: int, after_seconds: float) -> None:
        with RawClient(self._proxy.address) as client:
            client.send_produce([(*self.place, self.records(sequence))])
            assert client.is_silent(after_seconds), "it is parked"

    def stored(self) -> list[bytes]:
        return [value for _, value in stored_values(self._cluster, self.place)]

    def comes_back(self) -> PartitionAnswer:
        """The client has abandoned the batch: its records come again under a new epoch."""
        with RawClient(self._proxy.address) as client:
            return insist(client, self.place, self.records(0, epoch=1, value=b"again"))


@pytest.mark.promise("client-gone")
@pytest.mark.parametrize("stopped_seconds", [1.0, 8.0], ids=["within the lease", "longer than the lease"])
def test_nothing_is_appended_for_a_client_that_left_while_redis_was_stopped(
    quiet: QuietPair, tmp_path: Path, stopped_seconds: float
) -> None:
    with ProxyProcess(tmp_path, quiet.cluster.address(0)) as proxy:
        leaver = Leaver(quiet.cluster, proxy)
        with stopped_redis(proxy):
            begun = time.monotonic()
            leaver.sends_and_leaves(1, after_seconds=0.4)
            time.sleep(max(0.0, stopped_seconds - (time.monotonic() - begun)))
        time.sleep(QUIET_SECONDS)
        assert leaver.stored() == [b"sent 0"]
        assert outcome(leaver.comes_back()) == (0, 1)
        assert leaver.stored() == [b"sent 0", b"again 0"]
        wait_until(lambda: not leaver.has_intent(), "the intent is released")


@pytest.mark.promise("living-proxy", "client-gone")
def test_a_departed_clients_batch_that_a_living_instance_blocked_is_never_appended(
    quiet: QuietPair,
) -> None:
    proxy, leaver = quiet.proxy, Leaver(quiet.cluster, quiet.proxy)
    stranger = b"stranger"
    entry = proxy.entry(leaver.producer_id, *leaver.place)
    assert entry is not None
    assert proxy.redis("SET", member_key("default", stranger), b"", "PX", 60_000) == b"OK"
    proxy.store_entry(held_by(stranger, entry), leaver.producer_id, *leaver.place)

    leaver.sends_and_leaves(1, after_seconds=3 * limits.QUIESCENCE_SECONDS)  # it could have been looked for meanwhile
    held = leaver.intent()
    assert held is not None
    assert held.owner == stranger
    assert proxy.redis("DEL", member_key("default", stranger)) == 1
    time.sleep(QUIET_SECONDS)
    assert leaver.stored() == [b"sent 0"]
    assert outcome(leaver.comes_back()) == (0, 1)
    assert leaver.stored() == [b"sent 0", b"again 0"]


@pytest.mark.promise("dead-proxy-intent")
@pytest.mark.parametrize(
    ("point", "stored_before"),
    [(CrashPoint.AFTER_RESERVE, [b"sent 0"]), (CrashPoint.AFTER_WRITE, [b"sent 0", b"sent 1"])],
)
def test_resolving_a_dead_proxys_intent_appends_nothing_for_a_departed_client(
    quiet: QuietPair, tmp_path: Path, point: CrashPoint, stored_before: list[bytes]
) -> None:
    with MortalProxy(tmp_path, quiet.cluster.address(0)) as proxy:
        proxy.dies_at(point, 2)
        proxy.start()
        leaver = Leaver(quiet.cluster, proxy)
        with RawClient(proxy.address) as client, pytest.raises(ConnectionError):
            client.produce_one(*leaver.place, leaver.records(1))
        assert proxy.wait() < 0
        wait_until(lambda: leaver.stored() == stored_before, "what had left is stored")

        proxy.lives_on()
        proxy.start()
        leaver.sends_and_leaves(1, after_seconds=0.3)
        proxy.wait_for_log("resolved as")
        wait_until(lambda: not leaver.has_intent(), "the intent ends without a client")
        time.sleep(QUIET_SECONDS)
        assert leaver.stored() == stored_before
        assert outcome(leaver.comes_back()) == (0, len(stored_before))
        assert leaver.stored() == [*stored_before, b"again 0"]


@contextmanager
def stopped_redis(proxy: ProxyProcess) -> Iterator[None]:
    """The private Redis is stopped (SIGSTOP) meanwhile; its sockets stay open."""
    pid = int((proxy.data_directory / "redis" / "redis.pid").read_text())
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: stands_still(pid), "it stands still")
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def held_by(owner: bytes, entry: Entry) -> Entry:
    """Return the entry with an intent of somebody else for the next batch."""
    intent = Intent(
        owner, 0, (IntentBatch(entry.next_sequence, 1, b"digest-0"),), entry.end_offset, entry.anchor, bytes(8), 0
    )
    return replace(entry, version=entry.version + 1, intent=intent)

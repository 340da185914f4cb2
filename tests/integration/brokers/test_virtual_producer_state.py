"""The virtual broker's checks of producer ids, epochs and sequences, held to real brokers by random scripts: what each
answers to the same batches, also after it was killed, after it has forgotten producers, and on a recreated topic."""

from __future__ import annotations

import time
from collections.abc import Iterator
from random import Random

import pytest

from idemproxy.codecs.record_batch import Record, encode_batch
from idemproxy.demo.legacy_cluster import LegacyCluster
from testkit.real.brokers.kafka_cluster import fresh_topic
from testkit.real.brokers.kraft_cluster import NEWEST, KraftCluster
from testkit.real.clients.raw_client import RawClient
from testkit.virtual.batches import MAGIC
from testkit.virtual.log import PartitionLog, Refusal

EXPIRES_SECONDS = 4
SETTINGS = {"producer.id.expiration.check.interval.ms": 500}
SCRIPTS, STEPS = 12, 80
PRODUCERS = (4_000_000_000, 5, 1 << 61)
SEQUENCES = 1 << 31


@pytest.fixture(scope="module", params=["3.9.1", pytest.param(NEWEST, marks=pytest.mark.long)])
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LegacyCluster]:
    kind = KraftCluster if request.param == NEWEST else LegacyCluster
    with kind(
        tmp_path_factory.mktemp("kafka"), version=request.param, auto_create_topics=False, broker_settings=SETTINGS
    ) as running:
        yield running


class Script:
    """The same batches for both: with what is due, what was, and what nobody would send."""

    def __init__(self, cluster: LegacyCluster, random: Random) -> None:
        self.cluster, self.random = cluster, random
        self.log = PartitionLog()
        self.topic = fresh_topic(cluster, 1)
        self.due: dict[int, tuple[int, int]] = {}
        self.sent: list[tuple[int, int, int, int]] = []
        self.told: list[str] = []

    def _next(self) -> tuple[int, int, int, int]:
        random = self.random
        producer = random.choice(PRODUCERS)
        epoch, due = self.due.get(producer, (0, random.choice((0, 17, SEQUENCES - 2))))
        count = random.choice((1, 1, 2, 5))
        kind = random.random()
        if kind < 0.25 and self.sent:
            return random.choice(self.sent[-9:])
        if kind < 0.35:
            return producer, epoch, (due + random.choice((-7, -2, -1, 1, 3))) % SEQUENCES, count
        if kind < 0.45:
            return producer, epoch + random.choice((-1, 1, 2)), random.choice((0, 0, due)), count
        return producer, epoch, due, count

    def step(self, client: RawClient, age_seconds: int = 0) -> None:
        producer, epoch, sequence, count = one = self._next()
        if epoch < 0:
            return
        now = int(time.time() * 1000) - age_seconds * 1000
        records = [Record(number, now, None, b"%d" % number) for number in range(count)]
        data = encode_batch(records, producer_id=producer, producer_epoch=epoch, base_sequence=sequence)
        answer = client.produce_one(self.topic, 0, data, version=7)
        end = self.log.end_offset
        try:
            expected = 0, self.log.append(data, 0.0, stores=MAGIC)
        except Refusal as refusal:
            expected = refusal.code, -1
        self.told.append(f"{one} -> {(answer.error_code, answer.base_offset)}")
        assert (answer.error_code, answer.base_offset) == expected, self.told[-12:]
        if self.log.end_offset > end:
            self.due[producer] = epoch, (sequence + count) % SEQUENCES
            self.sent.append(one)

    def run(self, steps: int) -> None:
        with RawClient(self.cluster.address(0)) as client:
            for _ in range(steps):
                self.step(client)


@pytest.mark.parametrize("seed", range(SCRIPTS))
def test_the_virtual_broker_answers_as_a_real_one(cluster: LegacyCluster, seed: int) -> None:
    Script(cluster, Random(seed)).run(STEPS)


def test_a_killed_broker_knows_the_last_batch_of_each_producer(cluster: LegacyCluster) -> None:
    script = Script(cluster, Random(100))
    script.run(STEPS)
    cluster.kill_broker(0)
    cluster.start_broker(0)
    cluster.wait_for_leaders(script.topic)
    script.log.know_producers(last_only=True)
    script.run(STEPS)


def test_a_recreated_topic_knows_no_producer(cluster: LegacyCluster) -> None:
    script = Script(cluster, Random(101))
    script.run(STEPS)
    script.topic = fresh_topic(cluster, 1)
    script.log.begin_again()
    script.run(STEPS)


def test_a_producer_whose_timestamps_are_old_is_forgotten_and_begins_anywhere(cluster: LegacyCluster) -> None:
    """It expires by the timestamps of its records (``producer.id.expiration.ms``)."""
    script = Script(cluster, Random(102))
    with RawClient(cluster.address(0)) as client:
        for _ in PRODUCERS:
            script.step(client, age_seconds=2 * 86_400)
    time.sleep(EXPIRES_SECONDS)
    script.log.producers.clear()
    script.run(STEPS)

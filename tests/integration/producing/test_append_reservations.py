"""Append reservations on a real broker and a real Redis, with two proxies: what a killed owner has appended is found in
the log, and an owner that lives gives the producer away when another proxy asks."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from idemproxy.demo.legacy_cluster import LegacyCluster
from idemproxy.proxy.settings.config import DEFAULT_CLUSTER
from idemproxy.state.entry import Entry
from idemproxy.state.store import entry_key
from testkit.real.clients.raw_client import RawClient, batch
from testkit.real.proxies.proxy_process import wait_until
from testkit.real.proxies.two_proxies import TwoProxies

TOPIC, PARTITIONS = "reserved", 8
TIMED_OUT = 7
BUSY_BATCHES = 100
Place = tuple[str, int]
_partitions = iter(range(PARTITIONS))


@pytest.fixture(scope="module")
def pair(legacy_broker: LegacyCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoProxies]:
    legacy_broker.create_topic(TOPIC, PARTITIONS)
    with TwoProxies(tmp_path_factory.mktemp("reserved"), legacy_broker) as running:
        yield running
        assert running.errors_of_ours() == []


@pytest.fixture
def place() -> Place:
    """A partition that no other test uses."""
    return TOPIC, next(_partitions)


class Busy:
    """One producer by one proxy; each batch is sent when the one before it was answered. ``acknowledged``: value ->
    offset."""

    def __init__(self, pair: TwoProxies, place: Place, index: int = 0) -> None:
        self._pair = pair
        self.place = place
        self.raw = RawClient(pair.addresses[index])
        self.producer_id, self.epoch = self.raw.new_producer_id(), 0
        self.sequence = 0
        self.acknowledged: dict[bytes, int] = {}

    def __enter__(self) -> Busy:
        return self

    def __exit__(self, *error: object) -> None:
        self.raw.close()

    def send(self) -> None:
        value = b"%d" % self.sequence
        self.acknowledged[value] = self.bring(value)
        self.sequence += 1

    def bring(self, value: bytes, *, epoch: int | None = None, sequence: int | None = None) -> int:
        """As often as the proxy says that it does not know yet. Returns the offset."""
        records = batch(
            [value],
            producer_id=self.producer_id,
            epoch=self.epoch if epoch is None else epoch,
            sequence=self.sequence if sequence is None else sequence,
        )
        for _ in range(30):
            answer = self.raw.produce_one(*self.place, records)
            if answer.error_code != TIMED_OUT:
                break
        assert answer.error_code == 0, answer
        return answer.base_offset

    def move(self, index: int) -> None:
        """Continue at another proxy."""
        self.raw.close()
        self.raw = RawClient(self._pair.addresses[index])

    def stored(self) -> Entry:
        """What Redis has."""
        return self._pair.redis.entries()[entry_key(DEFAULT_CLUSTER, self.producer_id, *self.place)]


def is_reserved(entry: Entry) -> bool:
    return entry.intent is not None and entry.intent.is_append_reservation


def times_reserved(busy: Busy) -> int:
    """After how many of its next batches the entry has an append reservation."""
    seen = 0
    for _ in range(BUSY_BATCHES):
        busy.send()
        seen += is_reserved(busy.stored())
    return seen


def test_redis_has_an_append_reservation_only_while_a_producer_is_busy(pair: TwoProxies, place: Place) -> None:
    with Busy(pair, place) as busy:
        is_busy = any(times_reserved(busy) > BUSY_BATCHES / 2 for _ in range(5))
        assert is_busy, "it rests where other programs hold it up"
        wait_until(lambda: busy.stored().intent is None, "the append reservation is handed over")
        assert busy.stored().next_sequence == busy.sequence


@pytest.mark.promise("append-reservations")
def test_with_the_setting_off_each_batch_is_reserved_by_itself(
    pair: TwoProxies, place: Place, legacy_broker: LegacyCluster, tmp_path: Path
) -> None:
    settings = "producers: {append_reservations: false}"
    with TwoProxies(tmp_path, legacy_broker, redis=pair.redis, settings=settings) as off, Busy(off, place) as busy:
        assert times_reserved(busy) == 0
        assert [value for _, value in off.stored([place])[place]] == [b"%d" % one for one in range(BUSY_BATCHES)]


def test_what_a_killed_owner_has_appended_is_found_in_the_log(pair: TwoProxies, place: Place) -> None:
    with Busy(pair, place) as busy:
        busy.send()
        while True:  # until it stands still with batches in the log that Redis has not heard of
            for _ in range(25):
                busy.send()
            pair.proxies[0].pause()
            left = busy.stored()
            if is_reserved(left) and left.next_sequence < busy.sequence:
                break
            pair.proxies[0].signal(signal.SIGCONT)
        pair.proxies[0].kill()
        busy.move(1)
        for _ in range(5):
            busy.send()
        assert busy.bring(b"%d" % (busy.sequence - 3), sequence=busy.sequence - 3) == busy.sequence - 3
        pair.proxies[0].start()
        records = pair.stored([place])[place]
        assert [value for _, value in records] == [b"%d" % number for number in range(busy.sequence)]
        assert {value: offset for offset, value in records} == busy.acknowledged


def test_a_running_owner_gives_the_producer_to_the_proxy_that_asks(pair: TwoProxies, place: Place) -> None:
    with Busy(pair, place) as busy, Busy(pair, place, 1) as newer:
        for _ in range(BUSY_BATCHES):
            busy.send()
        newer.producer_id = busy.producer_id
        began = time.monotonic()
        assert newer.bring(b"newer", epoch=1, sequence=0) == BUSY_BATCHES
        assert time.monotonic() - began < 5, "no lease was waited for"
        older = batch([b"older"], producer_id=busy.producer_id, epoch=0, sequence=busy.sequence)
        assert busy.raw.produce_one(*place, older).error_code == 47
        assert [value for _, value in pair.stored([place])[place]][-2:] == [b"%d" % (BUSY_BATCHES - 1), b"newer"]

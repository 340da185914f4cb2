"""Ends and restarts of the proxy and its Redis under working producers: nothing is lost, doubled or out of order.

SIGTERM ends the private Redis too, so the entries are unverified after it and the log is read (rule R10); nothing that
was under way is in doubt, though."""

import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from idemproxy.codecs.produce import PartitionAnswer
from idemproxy.demo.legacy_cluster import LegacyCluster
from idemproxy.state.entry import unpack
from idemproxy.state.store import entry_key
from testkit.real.clients.raw_client import RawClient, batch
from testkit.real.proxies.proxy_process import ProxyProcess, wait_until

Place = tuple[str, int]
RETRIABLE = {6, 7, 19}
OUT_OF_ORDER = 45
SETTLED_SECONDS_MAX = 90.0


@pytest.fixture
def proxy(legacy_broker: LegacyCluster, tmp_path: Path) -> Iterator[ProxyProcess]:
    """A proxy that the test may end."""
    with ProxyProcess(tmp_path, legacy_broker.address(0)) as running:
        yield running


class Producer:
    """A producer that connects again when its connection is lost; ``insists`` sends until the answer is final."""

    def __init__(self, proxy: ProxyProcess, place: Place) -> None:
        self.place = place
        self.told: list[int] = []
        """Every code that it got; -1 for a lost connection."""
        self._proxy = proxy
        self._client: RawClient | None = None
        self.producer_id = -1
        wait_until(self._has_producer_id, "a producer id is handed out")

    @property
    def client(self) -> RawClient:
        if self._client is None:
            self._client = RawClient(self._proxy.address)
        return self._client

    def _has_producer_id(self) -> bool:
        error_code, self.producer_id, _ = self.client.init_producer_id()
        assert error_code in (0, 14), "14: not now, come again"
        return error_code == 0

    def hang_up(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def records(self, sequence: int) -> bytes:
        return batch([b"%d" % sequence], producer_id=self.producer_id, sequence=sequence)

    def send(self, sequence: int, timeout_ms: int = 10_000) -> PartitionAnswer:
        """Send once."""
        answer = self.client.produce_one(*self.place, self.records(sequence), timeout_ms=timeout_ms)
        self.told.append(answer.error_code)
        return answer

    def pipeline(self, sequences: range) -> None:
        """Send without waiting for answers."""
        for sequence in sequences:
            self.client.send_produce([(*self.place, self.records(sequence))])

    def insists(self, sequence: int) -> int:
        """Send until the answer is final; return the offset. Anything else than success is a failure of the test."""
        end = time.monotonic() + SETTLED_SECONDS_MAX
        while time.monotonic() < end:
            try:
                answer = self.send(sequence)
            except ConnectionError:
                self.told.append(-1)
                self.hang_up()
                time.sleep(0.05)
                continue
            if answer.error_code not in RETRIABLE:
                assert answer.error_code == 0, answer
                return answer.base_offset
            time.sleep(0.05)
        raise AssertionError(f"sequence {sequence} was not settled: {self.told}")


@pytest.fixture
def producers(proxy: ProxyProcess) -> Iterator[Callable[[Place], Producer]]:
    made: list[Producer] = []

    def make(place: Place) -> Producer:
        made.append(Producer(proxy, place))
        return made[-1]

    yield make
    for one in made:
        one.hang_up()


@pytest.fixture
def producer(producers: Callable[[Place], Producer], place: Place) -> Producer:
    return producers(place)


def is_reserved(proxy: ProxyProcess, producer: Producer) -> bool:
    value = proxy.redis("GET", entry_key("default", producer.producer_id, *producer.place))
    return isinstance(value, bytes) and unpack(value).intent is not None


# ---------------------------------------------------------------------- the proxy
@pytest.mark.promise("crash-last-five")
@pytest.mark.parametrize("end", ["SIGTERM", "SIGKILL"])
def test_a_restart_of_the_proxy_keeps_the_window(proxy: ProxyProcess, producer: Producer, end: str) -> None:
    assert [producer.send(sequence).base_offset for sequence in range(7)] == list(range(7))
    if end == "SIGTERM":
        assert proxy.stop() == 0
    else:
        proxy.entries()  # until the last commit is written
        proxy.kill()
    proxy.start()
    producer.hang_up()
    assert [(one.error_code, one.base_offset) for one in map(producer.send, range(2, 7))] == [
        (0, offset) for offset in range(2, 7)
    ]
    assert [producer.send(sequence).error_code for sequence in (8, 0)] == [OUT_OF_ORDER, 46]
    assert producer.send(7).base_offset == 7
    assert ("in doubt" in proxy.log, "open intent" in proxy.log) == (end == "SIGTERM", False)
    assert producer.client.values(*producer.place) == [b"%d" % sequence for sequence in range(8)]


def test_a_retry_after_sigkill_is_answered_with_the_offset_of_the_one_copy(
    proxy: ProxyProcess, producer: Producer
) -> None:
    last = -1
    while True:  # until the proxy is caught between its answer and the commit, which rides on the next reserve
        last += 1
        assert producer.send(last).base_offset == last
        proxy.pause()
        if is_reserved(proxy, producer):
            break
        proxy.signal(signal.SIGCONT)
    proxy.kill()
    proxy.start()
    assert [producer.insists(last), producer.insists(last + 1)] == [last, last + 1]
    assert "resolved as found" in proxy.log
    assert producer.client.values(*producer.place) == [b"%d" % sequence for sequence in range(last + 2)]


@pytest.mark.promise("crash-pipeline")
def test_what_was_under_way_at_a_sigkill_is_in_the_log_once(
    proxy: ProxyProcess, producer: Producer, legacy_broker: LegacyCluster
) -> None:
    assert producer.send(0).base_offset == 0
    proxy.entries()
    legacy_broker.pause_broker(0)
    try:
        producer.pipeline(range(1, 6))
        wait_until(lambda: is_reserved(proxy, producer), "the batches are reserved")
        time.sleep(0.1)
        proxy.kill()
    finally:
        legacy_broker.resume_broker(0)
    proxy.start()
    assert [producer.insists(sequence) for sequence in range(1, 7)] == list(range(1, 7))
    assert OUT_OF_ORDER not in producer.told
    assert producer.client.values(*producer.place) == [b"%d" % sequence for sequence in range(7)]


@pytest.mark.promise("drain-finishes", "compared-6")
@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGINT])
def test_sigterm_finishes_what_is_under_way_and_takes_nothing_new(
    end: signal.Signals,
    proxy: ProxyProcess,
    producer: Producer,
    producers: Callable[[Place], Producer],
    other_place: Place,
    legacy_broker: LegacyCluster,
) -> None:
    late = producers(other_place)
    assert producer.send(0).base_offset == 0
    proxy.entries()
    legacy_broker.pause_broker(0)
    try:
        producer.pipeline(range(1, 6))
        wait_until(lambda: is_reserved(proxy, producer), "the batches are reserved")
        time.sleep(0.5)  # the others have been read by then
        proxy.signal(end)
        proxy.wait_for_log("draining")
        proxy.signal(end)  # a worker gets it from systemd and from its supervisor
        assert late.send(0).error_code == 19
        with RawClient(proxy.address) as newcomer:
            assert newcomer.is_closed()
    finally:
        legacy_broker.resume_broker(0)
    answers = [producer.client.produce_answer()[0] for _ in range(5)]
    assert [(one.error_code, one.base_offset) for one in answers] == [(0, offset) for offset in range(1, 6)]
    assert producer.client.is_closed()
    assert proxy.wait() == 0
    proxy.start()
    producer.hang_up()
    assert [producer.send(sequence).base_offset for sequence in (5, 6)] == [5, 6]
    assert "open intent" not in proxy.log, "a rolling restart leaves no doubt behind"


# ---------------------------------------------------------------------- its Redis
@pytest.mark.promise("redis-away")
def test_while_redis_is_away_nothing_is_forwarded_and_afterwards_every_producer_continues(
    proxy: ProxyProcess,
    producer: Producer,
    producers: Callable[[Place], Producer],
    place: Place,
    other_place: Place,
) -> None:
    robbed, quiet = producers(place), producers(place)
    for sequence in range(3):
        assert [one.send(sequence).error_code for one in (producer, robbed, quiet)] == [0, 0, 0]
    offsets = {one: [one.insists(sequence) for sequence in range(3)] for one in (producer, robbed, quiet)}
    proxy.entries()

    proxy.kill_redis()
    begun = time.monotonic()
    assert producer.send(3, timeout_ms=6000).error_code == 7
    assert 1.0 < time.monotonic() - begun < 4.5, "a quarter of its own timeout, and not three quarters"
    assert producer.client.end_offset(*place) == 9

    proxy.start_redis()
    assert proxy.redis("DEL", entry_key("default", robbed.producer_id, *place)) == 1  # its last writes are lost
    wait_until(lambda: proxy.log.count("Redis has data generation") >= 1, "the new data generation is seen")
    assert producer.client.is_closed(), "connections of idempotent producers are closed"
    for one in (producer, robbed, quiet):
        one.hang_up()
    begun = time.monotonic()
    assert producers(other_place).insists(0) == 0
    assert time.monotonic() - begun < 5, "a producer of the new data generation need not wait"

    assert producer.insists(3) == 9
    assert [robbed.insists(sequence) for sequence in (2, 3, 1)] == [offsets[robbed][2], 10, offsets[robbed][1]]
    assert [quiet.insists(sequence) for sequence in (0, 1, 2, 3)] == [*offsets[quiet], 11]
    assert all(code in {0, 7, 19, -1} for one in (producer, robbed, quiet) for code in one.told)
    assert producer.client.end_offset(*place) == 12

"""The product's own client, in both shells: through the proxy in front of a real old broker, and at a modern broker."""

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import trio

from idemproxy.client import (
    Client,
    Fenced,
    OffsetOutOfRange,
    OutOfOrder,
    ProducerId,
    Record,
    Refused,
    RequestRefused,
    Undecided,
    UnsupportedServer,
)
from idemproxy.client.trio_client import TrioClient
from idemproxy.demo.child_processes import ChildProcesses
from idemproxy.demo.fault_relay import FaultKind, FaultPlan, FaultRelay
from idemproxy.demo.legacy_cluster import LegacyCluster
from testkit.real.brokers.kafka_cluster import consume, stored_values
from testkit.real.clients.numbered_batches import SHELLS, Place, new_producer_id, numbered, read_values, values_of
from testkit.real.clients.programs import idemproxy_client
from testkit.real.proxies.proxy_process import ProxyProcess, wait_until
from testkit.real.proxies.two_proxies import TwoProxies

BATCHES = 300
KILLS = 3
KILLED_BATCHES = 2000
MODERN = "3.9.1"


def bootstrap_of(address: tuple[str, int]) -> str:
    return "{}:{}".format(*address)


def values_in_log(cluster: LegacyCluster, place: Place) -> list[bytes]:
    """All values in the segment files, whose offsets have no hole."""
    found = stored_values(cluster, place)
    assert [offset for offset, _ in found] == list(range(len(found)))
    return [value for _, value in found]


@pytest.fixture(params=SHELLS)
def shell(request: pytest.FixtureRequest) -> str:
    """The name of a shell."""
    name = request.param
    assert isinstance(name, str)
    return name


@pytest.fixture
def bootstrap(shared_proxy: ProxyProcess) -> str:
    """Where the shared proxy is."""
    return bootstrap_of(shared_proxy.address)


@pytest.fixture(scope="module")
def modern(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LegacyCluster]:
    """One broker that has idempotence itself."""
    with LegacyCluster(
        tmp_path_factory.mktemp("modern"), version=MODERN, heap_mb=320, auto_create_topics=False
    ) as running:
        running.create_topic("numbered", 8)
        yield running


# ---------------------------------------------------------------------- through the proxy
def test_batches_are_stored_in_order_and_their_receipts_tell_where(
    shell: str, bootstrap: str, place: Place, legacy_broker: LegacyCluster
) -> None:
    receipts = SHELLS[shell](
        bootstrap, new_producer_id(bootstrap), list(numbered(place, 0, BATCHES, compression="gzip"))
    )
    assert [one.base_offset for one in receipts] == [3 * index for index in range(BATCHES)]
    assert [one.base_sequence for one in receipts] == [3 * index for index in range(BATCHES)]
    assert values_in_log(legacy_broker, place) == values_of(0, BATCHES)
    assert read_values(bootstrap, place) == values_of(0, BATCHES)


@pytest.mark.promise("saved-numbers")
def test_the_same_batches_under_the_same_numbers_get_the_same_offsets(
    shell: str, bootstrap: str, place: Place, legacy_broker: LegacyCluster
) -> None:
    producer, batches = new_producer_id(bootstrap), list(numbered(place, 0, 8))
    before = SHELLS[shell](bootstrap, producer, batches)
    again = SHELLS[shell](bootstrap, producer, batches[3:], next_sequences={place: 9})
    assert [one.base_offset for one in again] == [one.base_offset for one in before[3:]]
    (older,) = SHELLS[shell](bootstrap, producer, batches[:1], next_sequences={place: 0})
    assert (older.is_old_duplicate, older.base_offset) == (True, None)
    assert values_in_log(legacy_broker, place) == values_of(0, 8)


@pytest.mark.promise("saved-numbers")
@pytest.mark.parametrize("kind", FaultKind)
def test_whatever_happens_to_connections_each_record_is_stored_once(
    shell: str, kind: FaultKind, shared_proxy: ProxyProcess, place: Place, legacy_broker: LegacyCluster
) -> None:
    plan = FaultPlan(seed=5, kinds=[kind], every_nth_produce=7, faults_max=8)
    with FaultRelay(shared_proxy.address, rewrite_addresses=True, plan=plan) as relay:
        producer = new_producer_id(relay.address)
        receipts = SHELLS[shell](relay.address, producer, list(numbered(place, 0, 120)))
        # A cut some milliseconds after the request finds it answered where the proxy was quicker.
        assert relay.faults == 8 or (kind is FaultKind.CUT and relay.faults >= 2)
    assert [one.base_offset for one in receipts] == [3 * index for index in range(120)]
    assert values_in_log(legacy_broker, place) == values_of(0, 120)


@pytest.mark.promise("saved-numbers")
def test_a_killed_client_resumes_with_its_saved_producer_state(
    shell: str, bootstrap: str, place: Place, legacy_broker: LegacyCluster, tmp_path: Path
) -> None:
    state_file = tmp_path / "state.json"
    given = {
        "shell": shell, "bootstrap": bootstrap, "topic": place[0], "partition": place[1],
        "batches": KILLED_BATCHES, "state_file": str(state_file),
    }  # fmt: skip
    command = [sys.executable, os.fspath(idemproxy_client.__file__), json.dumps(given)]

    def done() -> int:
        return int(json.loads(state_file.read_text())["done"]) if state_file.exists() else 0

    def has_done(batches: int) -> bool:
        return done() >= batches

    environment = {**os.environ, "PYTHONPATH": os.fspath(Path(idemproxy_client.__file__).parents[4])}
    children = ChildProcesses()
    try:
        for kill in range(1, KILLS + 1):
            process = children.start("client", command, tmp_path / "client.out", environment=environment)
            wait_until(partial(has_done, kill * 200), "the client comes so far", 120)
            process.kill()
            assert done() < KILLED_BATCHES, "it had ended by itself"
        process = children.start("client", command, tmp_path / "client.out", environment=environment)
        assert process.wait(180) == 0, process.last_output()
    finally:
        children.close()
    assert values_in_log(legacy_broker, place) == values_of(0, KILLED_BATCHES)


@pytest.mark.promise("saved-numbers")
def test_a_proxy_that_is_killed_is_replaced_by_the_other_one(
    shell: str, legacy_broker: LegacyCluster, place: Place, tmp_path: Path
) -> None:
    with TwoProxies(tmp_path, legacy_broker) as scene:
        bootstrap = ",".join(map(bootstrap_of, scene.addresses))
        producer = new_producer_id(bootstrap)
        victim = scene.proxies[0]

        def kill(index: int, _receipt: object) -> None:
            if index == 200:
                victim.kill()

        receipts = SHELLS[shell](bootstrap, producer, list(numbered(place, 0, 1500)), on_receipt=kill)
        assert [one.base_offset for one in receipts] == [3 * index for index in range(1500)]
    assert values_in_log(legacy_broker, place) == values_of(0, 1500)


def test_what_is_refused_is_said_by_name(
    bootstrap: str, place: Place, other_place: Place, legacy_broker: LegacyCluster
) -> None:
    with Client(bootstrap) as client:
        producer = client.init_producer_id()
        with client.producer(producer) as sender:
            sender.publish(*place, [Record(b"one")])
            sender.start_at(*place, 7)
            with pytest.raises(OutOfOrder) as gap:
                sender.publish(*place, [Record(b"eight")])
            assert (gap.value.code, gap.value.in_log, gap.value.base_sequence) == (45, None, 7)
            with pytest.raises(OutOfOrder):
                sender.publish(*place, [Record(b"nine")])  # the partition stands still
            with pytest.raises(OutOfOrder):
                sender.flush()
            with pytest.raises(Refused) as header:
                sender.publish(*other_place, [Record(b"two", headers=(("name", b"value"),))])
            assert (header.value.code, header.value.in_log) == (43, False)
            sender.start_at(*place, 1)
            assert sender.publish(*place, [Record(b"two")]).base_offset == 1
            sender.start_at(*other_place, 0)
        with client.producer(ProducerId(producer.number, producer.epoch + 1)) as newer:
            newer.publish(*place, [Record(b"three")])
        with pytest.raises(Fenced), client.producer(producer, next_sequences={place: 2}) as older:
            older.publish(*place, [Record(b"four")])
        impatient = Client(bootstrap, seconds_max=3.0)
        with impatient, pytest.raises(RequestRefused, match="UNKNOWN_TOPIC_OR_PARTITION"):
            impatient.partitions("no-such-topic")
        with client.reader(*place, offset=99) as reader, pytest.raises(OffsetOutOfRange):
            reader.read()
    assert values_in_log(legacy_broker, place) == [b"one", b"two", b"three"]


def test_a_server_that_says_nothing_leaves_a_batch_undecided_in_time(
    shell: str, shared_proxy: ProxyProcess, place: Place, legacy_broker: LegacyCluster
) -> None:
    plan = FaultPlan(kinds=[FaultKind.LOST_ANSWER], every_nth_produce=1)
    with FaultRelay(shared_proxy.address, rewrite_addresses=True, plan=plan) as relay:
        producer, (batch,) = new_producer_id(relay.address), numbered(place, 0, 1)
        begin = time.monotonic()
        with pytest.raises(Undecided) as unknown:
            SHELLS[shell](relay.address, producer, [batch], producer_options={"delivery_seconds_max": 4.0})
        assert time.monotonic() - begin < 30
        assert unknown.value.in_log is None
        relay.set_faults(False)
        (receipt,) = SHELLS[shell](relay.address, producer, [batch], next_sequences={place: 0})
    assert receipt.base_offset == 0
    assert values_in_log(legacy_broker, place) == values_of(0, 1)


def test_a_batch_after_a_pause_is_undecided_in_time_where_nobody_answers(
    place: Place, legacy_broker: LegacyCluster, tmp_path: Path
) -> None:
    """Nothing has had a deadline when it is sent, and the connection to the leader is open."""
    seconds = 6.0
    records = [Record(b"value")]

    async def on_trio(bootstrap: str) -> None:
        async with TrioClient(bootstrap) as client:
            sender = await client.init_producer_id()
            async with client.producer(sender, delivery_seconds_max=seconds) as producer:
                await producer.publish(*place, records)
                await trio.sleep(seconds + 1)
                proxy.pause()
                await producer.publish(*place, records)

    def blocking(bootstrap: str) -> None:
        with Client(bootstrap) as client:
            sender = client.init_producer_id()
            with client.producer(sender, delivery_seconds_max=seconds) as producer:
                producer.publish(*place, records)
                time.sleep(seconds + 1)
                proxy.pause()
                producer.publish(*place, records)

    with ProxyProcess(tmp_path, legacy_broker.address(0)) as proxy:
        for publishes in (blocking, lambda bootstrap: trio.run(on_trio, bootstrap)):
            begin = time.monotonic()
            with pytest.raises(Undecided):
                publishes(bootstrap_of(proxy.address))
            proxy.signal(signal.SIGCONT)
            assert time.monotonic() - begin < 4 * seconds, "or the time of a request, 30 s, counts"


def test_a_closed_client_leaves_no_thread_and_tells_what_it_had_not_sent(
    shared_proxy: ProxyProcess, place: Place
) -> None:
    before = set(threading.enumerate())
    with FaultRelay(shared_proxy.address, rewrite_addresses=True) as relay:
        client = Client(relay.address)
        sender = client.producer(client.init_producer_id())
        sender.publish(*place, [Record(b"one")])
        relay.stop()
        future = sender.send(*place, [Record(b"two")])
        sender.close()
        assert future.exception(0) is not None
        client.close()
    wait_until(lambda: set(threading.enumerate()) <= before, "no thread is left")


def test_tasks_that_share_a_producer_on_trio_wait_for_their_own_receipts(
    bootstrap: str, place: Place, other_place: Place, legacy_broker: LegacyCluster
) -> None:
    async def main() -> None:
        async with TrioClient(bootstrap) as client, client.producer(await client.init_producer_id()) as sender:

            async def publish(where: Place) -> None:
                for index in range(50):
                    receipt = await sender.publish(*where, [Record(b"%d" % index)])
                    assert receipt.base_offset == index

            async with trio.open_nursery() as nursery:
                nursery.start_soon(publish, place)
                nursery.start_soon(publish, other_place)
            async with client.reader(*place) as reader:
                assert [one.value async for one in reader.read_to_end()] == [b"%d" % index for index in range(50)]

    trio.run(main)
    assert values_in_log(legacy_broker, place) == values_in_log(legacy_broker, other_place)


# ---------------------------------------------------------------------- at brokers themselves
def test_an_old_broker_can_be_read_and_has_no_producer_ids(
    legacy_broker: LegacyCluster, bootstrap: str, place: Place
) -> None:
    SHELLS["blocking"](bootstrap, new_producer_id(bootstrap), list(numbered(place, 0, 20)))
    old = bootstrap_of(legacy_broker.address(0))
    assert read_values(old, place) == values_of(0, 20)
    with Client(old) as client, pytest.raises(UnsupportedServer, match="InitProducerId"):
        client.init_producer_id()


def test_a_modern_broker_finds_a_correct_idempotent_producer(shell: str, modern: LegacyCluster) -> None:
    place = "numbered", list(SHELLS).index(shell)
    plan = FaultPlan(seed=3, every_nth_produce=6, faults_max=30)
    with FaultRelay(modern.address(0), rewrite_addresses=True, plan=plan) as relay:
        producer = new_producer_id(relay.address)
        receipts = SHELLS[shell](relay.address, producer, list(numbered(place, 0, BATCHES, compression="gzip")))
        assert relay.faults == 30
        assert {version for (key, version) in relay.requests if key == 0} == {8}
    assert [one.base_offset for one in receipts] == [3 * index for index in range(BATCHES)]
    address = bootstrap_of(modern.address(0))
    assert read_values(address, place) == values_of(0, BATCHES)
    with Client(address) as client, client.producer(producer, next_sequences={place: 3 * BATCHES}) as sender:
        headers = (("name", b"value"), ("name", None))
        sender.publish(*place, [Record(None, b"key", headers, timestamp_ms=17)])
        with client.reader(*place, offset=3 * BATCHES) as reader:
            (record,) = reader.read()
            assert (record.key, record.value, record.headers, record.timestamp_ms) == (b"key", None, headers, 17)
        sender.start_at(*place, 0)
        with pytest.raises(OutOfOrder):  # too old for the five that a broker keeps, which does not tell why
            sender.publish(*numbered(place, 0, 1).__next__())
        sender.start_at(*place, 3 * BATCHES + 1)


def test_a_consumer_of_another_library_reads_what_a_modern_broker_was_sent(modern: LegacyCluster) -> None:
    modern.create_topic("others")
    address = bootstrap_of(modern.address(0))
    SHELLS["blocking"](address, new_producer_id(address), list(numbered(("others", 0), 0, 10, compression="gzip")))
    assert consume(address, "others", "group", 30) == values_of(0, 10)

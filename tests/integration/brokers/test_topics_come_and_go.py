"""Topics that come to be and go while the proxy runs, before a broker that creates what is named (the default)."""

import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from idemproxy.demo.legacy_cluster import LegacyCluster
from idemproxy.proxy import limits
from idemproxy.proxy.versions import ApiKey
from testkit.real.clients.raw_client import RawClient, batch
from testkit.real.proxies.proxy_process import ProxyProcess

LATER_SECONDS_MAX = 0.4
"""Than the broker itself shows it: of the best of some, on a machine that has other things to do."""
TRIES = 3
SECOND_LOOK_SECONDS = 1.5
UNKNOWN, LEADER_NOT_AVAILABLE = 3, 5
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def creating_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LegacyCluster]:
    with LegacyCluster(tmp_path_factory.mktemp("kafka"), session_timeout_ms=8000) as running:
        running.create_topic("known")
        yield running


@pytest.fixture(scope="module")
def proxy(creating_broker: LegacyCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxyProcess]:
    with ProxyProcess(tmp_path_factory.mktemp("proxy"), creating_broker.address(0)) as running:
        yield running


@pytest.fixture
def client(proxy: ProxyProcess) -> Iterator[RawClient]:
    with RawClient(proxy.address) as connection:
        yield connection


@pytest.fixture
def direct(creating_broker: LegacyCluster) -> Iterator[RawClient]:
    with RawClient(creating_broker.address(0)) as connection:
        yield connection


def a_name() -> str:
    return f"fresh-{next(_numbers)}"


def listed(client: RawClient) -> set[str]:
    """All topics."""
    return {topic.name for topic in client.ask(ApiKey.METADATA, 1, topics=None).topics}


def described(client: RawClient, name: str, *, may_create: bool = True) -> Any:
    """One topic as Metadata has it; a client that may not create it has to speak a version that can say so."""
    wanted = [{"name": name}]
    if may_create:
        return client.ask(ApiKey.METADATA, 1, topics=wanted).topics[0]
    return client.ask(ApiKey.METADATA, 4, topics=wanted, allow_auto_topic_creation=False).topics[0]


def is_usable(topic: Any) -> bool:
    return topic.error_code == 0 and bool(topic.partitions) and all(one.leader_id >= 0 for one in topic.partitions)


def seconds_until(condition: Callable[[], bool]) -> float:
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < 60
        time.sleep(0.01)
    return time.monotonic() - began


def create(client: RawClient, name: str) -> None:
    wanted = [{"name": name, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}]
    answer = client.ask(ApiKey.CREATE_TOPICS, 1, topics=wanted, timeout_ms=10_000, validate_only=False)
    assert answer.topics[0].error_code == 0


def delete(client: RawClient, name: str) -> None:
    answer = client.ask(ApiKey.DELETE_TOPICS, 0, topic_names=[name], timeout_ms=10_000)
    assert answer.responses[0].error_code == 0


def test_a_topic_that_a_client_creates_or_deletes_is_seen_at_once(client: RawClient, direct: RawClient) -> None:
    for _ in range(TRIES):
        name = a_name()
        assert name not in listed(client)
        assert described(client, name, may_create=False).error_code == UNKNOWN
        create(client, name)
        assert name in listed(client)
        assert is_usable(described(client, name, may_create=False))
        assert name in listed(client)
        delete(client, name)
        assert name not in listed(client)
        assert described(client, name, may_create=False).error_code == UNKNOWN
        assert name not in listed(direct)


def test_an_automatically_created_topic_is_usable_once_the_broker_has_it(client: RawClient, direct: RawClient) -> None:
    later: list[float] = []
    while len(later) < TRIES or (min(later) >= LATER_SECONDS_MAX and len(later) < 4 * TRIES):
        name = a_name()
        assert described(client, name).error_code == LEADER_NOT_AVAILABLE
        seconds_until(lambda name=name: is_usable(described(direct, name)))  # type: ignore[misc]
        later.append(seconds_until(lambda name=name: is_usable(described(client, name))))  # type: ignore[misc]
    assert min(later) < LATER_SECONDS_MAX, later


def leads(direct: RawClient, topic: str, partition: int) -> bool:
    """Does the broker know that it leads the partition?"""
    try:
        return direct.end_offset(topic, partition) == 0
    except AssertionError:
        return False


@pytest.mark.promise("creates-no-topic")
def test_an_added_partition_accepts_batches_as_soon_as_metadata_may_be_refreshed(
    creating_broker: LegacyCluster, client: RawClient, direct: RawClient
) -> None:
    producer_id = client.new_producer_id()
    assert len(described(client, "known").partitions) == 1
    seen_at = time.monotonic()
    creating_broker.add_partitions("known", 2)
    seconds_until(lambda: leads(direct, "known", 1))  # the broker tells of it first, and needs a moment to have it
    time.sleep(max(0.0, seen_at + limits.METADATA_PAUSE_SECONDS - time.monotonic()))  # no look before that, on purpose
    assert client.produce_one("known", 1, batch([b"first"], producer_id=producer_id)).error_code == 0
    assert client.values("known", 1) == [b"first"]
    assert client.produce_one("known", 2, batch([b"x"], producer_id=producer_id)).error_code == UNKNOWN


@pytest.mark.promise("creates-no-topic")
def test_a_topic_deleted_under_its_producer_is_not_recreated_by_the_proxy(
    creating_broker: LegacyCluster, client: RawClient, direct: RawClient
) -> None:
    name = a_name()
    creating_broker.create_topic(name)
    producer_id = client.new_producer_id()
    assert client.produce_one(name, 0, batch([b"0"], producer_id=producer_id)).error_code == 0
    time.sleep(SECOND_LOOK_SECONDS)  # what is known is old enough to be asked for again
    creating_broker.delete_topic(name)
    codes = []
    for _ in range(10):
        codes.append(client.produce_one(name, 0, batch([b"1"], producer_id=producer_id, sequence=1)).error_code)
        time.sleep(0.1)
    assert name not in listed(direct)
    assert codes[-1] == UNKNOWN
    assert set(codes) <= {UNKNOWN, LEADER_NOT_AVAILABLE}
    assert described(client, name, may_create=False).error_code == UNKNOWN
    assert name not in listed(direct)


def test_who_deletes_a_topic_and_asks_for_it_does_not_create_it_again(client: RawClient, direct: RawClient) -> None:
    """He says that he does not want it to be created, which brokers before 0.11 cannot hear."""
    for _ in range(TRIES):
        name = a_name()
        create(client, name)
        seconds_until(lambda name=name: is_usable(described(client, name, may_create=False)))  # type: ignore[misc]
        delete(client, name)
        assert described(client, name, may_create=False).error_code == UNKNOWN
        assert name not in listed(direct)

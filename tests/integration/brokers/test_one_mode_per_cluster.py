"""Who gives idempotence is one value per cluster in Redis: a start that disagrees changes nothing there, and natively
nothing is written. Brokers that are upgraded under a running proxy are held until producers were stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from idemproxy.demo.legacy_cluster import LegacyCluster
from idemproxy.demo.ports import HOST, free_ports
from idemproxy.proxy import limits
from idemproxy.state.store import mode_key, native_mode
from testkit.real.brokers.kafka_cluster import fresh_topic
from testkit.real.clients.raw_client import RawClient, batch
from testkit.real.proxies.configured_proxy import ConfiguredProxy
from testkit.real.proxies.proxy_process import wait_until
from testkit.real.store.redis_process import RedisProcess

NAME = "shop"
MODE = mode_key(NAME).decode()
WAIT_SECONDS = 60.0
ENDED_SECONDS_MAX = 90.0
RETRIABLE = (5, 6, 7, 19)
pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisProcess]:
    (port,) = free_ports(1)
    directory = tmp_path / "redis"
    directory.mkdir()
    with RedisProcess(directory, port=port) as server:
        yield server


@pytest.fixture(scope="module")
def modern(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LegacyCluster]:
    settings = {"transaction.state.log.num.partitions": 1, "transaction.state.log.replication.factor": 1}
    with LegacyCluster(tmp_path_factory.mktemp("3.9.1"), version="3.9.1", broker_settings=settings) as cluster:
        yield cluster


def proxy_of(
    directory: Path,
    cluster: LegacyCluster,
    redis: RedisProcess,
    *,
    upstream: Mapping[str, Any] | None = None,
    **more: Any,
) -> ConfiguredProxy:
    """A proxy with this Redis and the cluster name that all of them have here."""
    settings = {
        "upstream": {"bootstrap": [cluster.bootstrap.split(",")[0]], **(upstream or {})},
        "redis": {"url": f"redis://127.0.0.1:{redis.port}/0"},
        "cluster_name": NAME,
        **more,
    }
    return ConfiguredProxy(directory, settings, listener={}, brokers=len(cluster.broker_ids))


def content(redis: RedisProcess) -> dict[bytes, Any]:
    """Everything that is stored, and whether it expires."""
    keys = redis.call("KEYS", "*")
    assert isinstance(keys, list)
    return {key: (redis.call("DUMP", key), redis.call("PTTL", key) == -1) for key in keys}


def refused(proxy: ConfiguredProxy) -> str:
    """The one error with which a start ends."""
    proxy.launch()
    try:
        assert proxy.wait(ENDED_SECONDS_MAX) == 2
        (error,) = [line for line in proxy.log.splitlines() if " ERROR " in line]
        assert "point clients at" not in proxy.log
        return error
    finally:
        proxy.__exit__()


def check(proxy: ConfiguredProxy) -> tuple[int, str]:
    """Exit status and output of ``check --connect`` with the proxy's file."""
    proxy.write(proxy.configuration)
    command = [sys.executable, "-P", "-m", "idemproxy", "check", os.fspath(proxy.file), "--connect"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    return done.returncode, done.stdout + done.stderr


def produce(proxy: ConfiguredProxy, topic: str, sequence: int, producer_id: int | None = None) -> tuple[int, int]:
    """Append one batch of a producer; return its id and the offset."""
    with RawClient(proxy.address) as client:
        producer_id = client.new_producer_id() if producer_id is None else producer_id
        answer = client.produce_one(topic, 0, batch([b"value"], producer_id=producer_id, sequence=sequence))
        assert answer.error_code == 0
        return producer_id, answer.base_offset


@pytest.mark.parametrize("idempotence", ["auto", "native", "proxy"])
def test_a_proxy_of_another_cluster_changes_nothing_and_the_right_one_restarts(
    legacy_broker: LegacyCluster, modern: LegacyCluster, redis: RedisProcess, tmp_path: Path, idempotence: str
) -> None:
    topic = fresh_topic(legacy_broker)
    good = proxy_of(tmp_path / "good", legacy_broker, redis)
    with good:
        producer_id, _ = produce(good, topic, 0)
        assert good.stop() == 0
    before = content(redis)
    other = proxy_of(tmp_path / "other", modern, redis, upstream={"idempotence": idempotence})
    status, told = check(other)
    assert (status, "another cluster needs another name" in told) == (1, True), told
    assert content(redis) == before
    assert "another cluster needs another name" in refused(other)
    assert content(redis) == before
    assert check(good)[0] == 0
    good = proxy_of(tmp_path / "good", legacy_broker, redis)
    with good:
        assert produce(good, topic, 1, producer_id) == (producer_id, 1)


def test_before_kafka_0_10_settings_for_old_clients_have_no_effect_and_say_so(
    legacy_broker: LegacyCluster, redis: RedisProcess, tmp_path: Path
) -> None:
    """Only a warning: they may be there for the time after an upgrade of the brokers."""
    proxy = proxy_of(tmp_path / "proxy", legacy_broker, redis, old_clients={"translate": "always"})
    why = "old_clients.translate: has no effect where the proxy gives idempotence"
    status, told = check(proxy)
    assert (status, f"warning {why}" in told) == (0, True), told
    with proxy:
        assert " WARNING " in proxy.wait_for_log(why)
        produce(proxy, fresh_topic(legacy_broker), 0)
        more = {
            "old_clients": {"translate": "always", "fetch": "committed"},
            "producers": {"upstream_idempotence": "*"},
        }
        proxy.write({**proxy.configuration, **more})
        proxy.signal(signal.SIGHUP)
        for name in ("old_clients.fetch", "producers.upstream_idempotence"):
            proxy.wait_for_log(f"{name}: has no effect where the proxy gives idempotence")
        assert proxy.stop() == 0
        assert proxy.log.count(why) == 1


def transaction(proxy: ConfiguredProxy, topic: str) -> None:
    """Commit one, with a record header: no proxy gives that."""
    bootstrap = f"{proxy.address[0]}:{proxy.address[1]}"
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "app", "transaction.timeout.ms": 10_000})
    producer.init_transactions(WAIT_SECONDS)
    producer.begin_transaction()
    producer.produce(topic, b"value", headers=[("name", b"value")])
    producer.commit_transaction(WAIT_SECONDS)


def test_before_modern_brokers_alone_every_start_serves_transactions_and_none_leaves_a_trace(
    modern: LegacyCluster, redis: RedisProcess, tmp_path: Path
) -> None:
    topic = fresh_topic(modern)
    proxy = proxy_of(tmp_path / "proxy", modern, redis)
    for life in range(3):
        with proxy:
            assert "upstream.idempotence: native" in proxy.wait_for_log("brokers: newer")
            transaction(proxy, topic)
            if life == 1:
                proxy.kill()
            else:
                assert proxy.stop() == 0
        assert redis.call("DBSIZE") == 0
        assert sorted(path.name for path in proxy.data_directory.iterdir()) == ["instances", "proxy.lock"]
        assert (proxy.data_directory / "instances").read_text() == ""


@pytest.mark.promise("brokers-from-0-11")
def test_a_start_that_wants_another_mode_than_redis_has_is_refused_with_a_sentence(
    legacy_broker: LegacyCluster, modern: LegacyCluster, redis: RedisProcess, tmp_path: Path
) -> None:
    cluster_id = cluster_id_of(modern)
    redis.call("SET", f"idem:{NAME}:cluster", cluster_id)
    redis.call("SET", MODE, "native")
    before = content(redis)
    wants_proxy = proxy_of(tmp_path / "wants proxy", modern, redis, upstream={"idempotence": "proxy"})
    status, told = check(wants_proxy)
    for said in (told, refused(wants_proxy)):
        assert "Redis says that the brokers give idempotence under cluster name 'shop'" in said
        assert f"delete the key {MODE}" in said
    assert (status, content(redis)) == (1, before)

    redis.call("SET", MODE, "proxy")
    redis.call("SET", f"idem:{NAME}:{{orders/0}}:{7:016x}", b"\x02")
    before = content(redis)
    wants_native = proxy_of(tmp_path / "wants native", modern, redis, upstream={"idempotence": "native"})
    status, told = check(wants_native)
    for said in (told, refused(wants_native)):
        assert "Redis says that the proxies give idempotence under cluster name 'shop'" in said
        assert "upstream.allow_duplicates_in_flight" in said
    assert (status, content(redis)) == (1, before)

    accepts = {"idempotence": "native", "allow_duplicates_in_flight": True}
    with proxy_of(tmp_path / "accepts", modern, redis, upstream=accepts) as proxy:
        transaction(proxy, fresh_topic(modern))
        assert redis.call("GET", MODE) == b"native"
    with proxy_of(tmp_path / "auto", modern, redis) as proxy:
        transaction(proxy, fresh_topic(modern))


def test_where_brokers_were_rolled_back_auto_stays_native_and_says_how_to_go_back(
    legacy_broker: LegacyCluster, redis: RedisProcess, tmp_path: Path
) -> None:
    redis.call("SET", MODE, "native")
    before = content(redis)
    proxy = proxy_of(tmp_path / "proxy", legacy_broker, redis)
    assert "it has no producer ids of its own" in refused(proxy)
    assert f"delete the key {MODE} in Redis, and start them" in proxy.log
    assert content(redis) == before
    redis.call("DEL", MODE)
    with proxy_of(tmp_path / "proxy", legacy_broker, redis) as proxy:
        produce(proxy, fresh_topic(legacy_broker), 0)
        assert redis.call("GET", MODE) == b"proxy"


def cluster_id_of(cluster: LegacyCluster) -> str:
    with RawClient(cluster.address(0)) as client:
        return str(client.ask(3, 2, topics=[]).cluster_id)


# ---------------------------------------------------------------------- an upgrade under a running proxy
KEEPS = {"inter.broker.protocol.version": "2.8", "log.message.format.version": "0.10.2"}
TRANSACTIONS = {"transaction.state.log.num.partitions": 1, "transaction.state.log.replication.factor": 1}
TOPIC, COUNTED = "orders", "counted"
TAKEN_OVER_SECONDS_MAX = 90.0
SOON_TAKEN_OVER = """
import sys
from idemproxy.proxy import main
from idemproxy.proxy.producer import left_out_ids
left_out_ids.kept_seconds = lambda retry_seconds: 12
sys.exit(main.main())
"""


class Upgraded:
    """Three brokers, each with one partition of a topic, and a producer for each partition."""

    def __init__(self, cluster: LegacyCluster, proxy: ConfiguredProxy, admin: str) -> None:
        self.cluster, self.proxy, self._admin = cluster, proxy, admin
        self.sent = [0, 0, 0]
        self.ids: list[int] = []

    def become(self, broker: int, settings: Mapping[str, str | int]) -> None:
        self.cluster.stop_broker(broker)
        self.cluster.become("2.8.2", settings)
        self.cluster.start_broker(broker)

    def send(self, partition: int) -> int:
        """The answer to the next batch of this partition's producer; the same batch again until it is appended."""
        records = batch([b"%d" % self.sent[partition]], producer_id=self.ids[partition], sequence=self.sent[partition])
        with RawClient((HOST, self.proxy.address[1] + 1 + partition)) as client:
            code = client.produce_one(TOPIC, partition, records, timeout_ms=4000).error_code
        self.sent[partition] += code == 0
        return code

    def insist(self, partition: int) -> None:
        """The same until it is appended: a broker may only just be back."""
        end = time.monotonic() + WAIT_SECONDS
        while True:
            try:
                code = self.send(partition)
            except OSError:
                code = -1
            if code == 0:
                return
            assert time.monotonic() < end, (partition, code, self.proxy.log[-2000:])
            time.sleep(0.2)

    def repeat(self, partition: int) -> None:
        """Send the last batch again, and the one before: they are where they were."""
        for number in (self.sent[partition] - 1, self.sent[partition] - 2):
            records = batch([b"%d" % number], producer_id=self.ids[partition], sequence=number)
            with RawClient((HOST, self.proxy.address[1] + 1 + partition)) as client:
                answer = client.produce_one(TOPIC, partition, records, timeout_ms=8000)
            assert (answer.error_code, answer.base_offset) == (0, number)

    def asked(self, path: str) -> str:
        with urllib.request.urlopen(f"http://{self._admin}{path}", timeout=10) as answer:
            return str(answer.read().decode())


@pytest.mark.promise("brokers-from-0-11")
def test_producers_run_while_brokers_are_upgraded_and_native_follows_once_they_are_stopped(
    redis: RedisProcess, tmp_path: Path
) -> None:
    (admin_port,) = free_ports(1)
    admin = f"{HOST}:{admin_port}"
    with LegacyCluster(tmp_path / "kafka", brokers=3, auto_create_topics=False) as cluster:
        cluster.create_topic(TOPIC, 3)
        proxy = proxy_of(tmp_path / "proxy", cluster, redis, admin={"bind": admin})
        with proxy:
            pid, scene = proxy.pid, Upgraded(cluster, proxy, admin)
            with RawClient(proxy.address) as client:
                scene.ids = [client.new_producer_id() for _ in range(3)]
            for broker in range(3):
                scene.become(broker, KEEPS)
                for partition in range(3):
                    scene.insist(partition)

            for broker in range(3):
                scene.become(broker, TRANSACTIONS)
                for partition in range(3):  # each in the format that its leader stores
                    scene.insist(partition)
                    scene.repeat(partition)
            proxy.wait_for_log("all brokers have producer ids, and Redis has entries of producers")
            assert 'idemproxy_upstream_idempotence{by="proxy"} 1' in scene.asked("/metrics")
            assert (redis.call("GET", MODE), proxy.pid) == (b"proxy", pid)
            for partition in range(3):  # a consumer is served meanwhile
                with RawClient((HOST, proxy.address[1] + 1 + partition)) as client:
                    values = client.values(TOPIC, partition)
                assert values == [b"%d" % number for number in range(scene.sent[partition])]

            # Producers are stopped, and an operator does not wait for a day.
            for key in redis.call("KEYS", f"idem:{NAME}:{{*"):
                redis.call("DEL", key)
            proxy.wait_for_log("from now on they give idempotence, requests pass through")
            wait_until(lambda: 'by="native"} 1' in scene.asked("/metrics"), "it is native")
            transaction(proxy, TOPIC)
            keys = redis.call("KEYS", "*")
            assert redis.call("GET", MODE) == b"native"
            assert [key for key in keys if b":member:" in key] == []
            assert proxy.pid == pid
            assert " ERROR " not in proxy.log
            assert proxy.stop() == 0
            assert "checkpoints" not in [path.name for path in proxy.data_directory.iterdir()]
            proxy.start()
            transaction(proxy, TOPIC)


class Counting:
    """A client that numbers its records, as fast as they are acknowledged."""

    def __init__(self, addresses: Sequence[tuple[str, int]]) -> None:
        self.errors: list[str] = []
        self.acknowledged = 0
        self._is_over = threading.Event()
        bootstrap = ",".join(f"{host}:{port}" for host, port in addresses)
        self._thread = threading.Thread(target=self._run, args=(bootstrap,), daemon=True)
        self._thread.start()

    def _run(self, bootstrap: str) -> None:
        producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5})
        while not self._is_over.is_set():
            for partition in range(3):
                producer.produce(COUNTED, b"%d" % self.acknowledged, partition=partition, on_delivery=self._delivered)
            if producer.flush(120):
                self.errors.append("not acknowledged")
                return
            self.acknowledged += 1

    def _delivered(self, error: Any, _message: Any) -> None:
        if error is not None:
            self.errors.append(str(error))

    def end(self) -> int:
        """How many records each partition has to have."""
        self._is_over.set()
        self._thread.join()
        assert self.errors == []
        return self.acknowledged


@pytest.mark.promise("brokers-from-0-11")
@pytest.mark.parametrize("engine_topics", [(), ("engine-*",)], ids=["all pass", "engine topics"])
def test_brokers_that_know_what_is_in_flight_take_over_from_running_proxies(
    redis: RedisProcess, tmp_path: Path, engine_topics: tuple[str, ...]
) -> None:
    """Producers go on through all of it, with the ids that they have from the proxies."""
    with ExitStack() as stack:
        cluster = stack.enter_context(LegacyCluster(tmp_path / "kafka", brokers=3, auto_create_topics=False))
        for topic in (TOPIC, COUNTED, "engine-1"):
            cluster.create_topic(topic, 3)
        topics = {"topics": {"engine": list(engine_topics)}} if engine_topics else {}
        proxies = [stack.enter_context(soon_taken_over(tmp_path / name, cluster, redis, **topics)) for name in "ab"]
        scenes = [Upgraded(cluster, proxy, "") for proxy in proxies]
        with RawClient(proxies[0].address) as client:
            scenes[0].ids = scenes[1].ids = [client.new_producer_id() for _ in range(3)]
        scenes[1].sent = scenes[0].sent
        clients = [Counting([one.address for one in proxies])]
        for settings in (KEEPS, TRANSACTIONS):
            for broker in range(3):
                scenes[0].become(broker, settings)
                for partition in range(3):
                    scenes[partition % 2].insist(partition)
        for partition in (*range(3), *range(3)):  # in no broker's earlier format any more
            scenes[partition % 2].insist(partition)
        for scene, proxy in zip(scenes, proxies, strict=True):
            proxy.wait_for_log("from now on they give idempotence", TAKEN_OVER_SECONDS_MAX)
            for partition in range(3):  # what was sent before, to the brokers themselves now
                scene.repeat(partition)
                scene.insist(partition)
        assert redis.call("GET", MODE) == native_mode(engine_topics)
        if engine_topics:
            with RawClient(proxies[1].address) as client:
                records = batch([b"value"], producer_id=client.new_producer_id(), sequence=0)
                for proxy in proxies:  # each has to connect to Redis again
                    with RawClient(proxy.address) as client:
                        wait_until(lambda: client.produce_one("engine-1", 0, records).base_offset == 0, "it is stored")
        transaction(proxies[0], TOPIC)
        (count,) = (one.end() for one in clients)
        for partition in range(3):
            with RawClient(cluster.address(partition)) as client:
                assert client.values(COUNTED, partition) == [b"%d" % number for number in range(count)]
                values = client.values(TOPIC, partition)
            assert values[: scenes[0].sent[partition]] == [
                b"%d" % number for number in range(scenes[0].sent[partition])
            ]
        assert [proxy.log.count(" ERROR ") for proxy in proxies] == [0, 0]


def soon_taken_over(directory: Path, cluster: LegacyCluster, redis: RedisProcess, **more: Any) -> ConfiguredProxy:
    """As shipped, but as if clients would give a batch up after some seconds."""
    proxy = proxy_of(directory, cluster, redis, **more)
    python, *module = proxy._command[:3]
    assert module == ["-m", "idemproxy"]
    proxy._command[:3] = [python, "-P", "-c", SOON_TAKEN_OVER]
    return proxy


def test_after_flushall_upgraded_brokers_do_not_store_a_batch_a_second_time(
    redis: RedisProcess, tmp_path: Path
) -> None:
    with LegacyCluster(tmp_path / "kafka", version="2.8.2", broker_settings={**KEEPS, **TRANSACTIONS}) as cluster:
        topic = fresh_topic(cluster)
        with proxy_of(tmp_path / "proxy", cluster, redis) as proxy:
            with RawClient(proxy.address) as client:
                records = batch([b"value"], producer_id=client.new_producer_id(), sequence=0)
                assert client.produce_one(topic, 0, records).error_code == 0
            cluster.stop_broker(0)
            cluster.become("2.8.2", TRANSACTIONS)
            cluster.start_broker(0)
            proxy.wait_for_log("Redis has entries of producers")
            redis.call("FLUSHALL")
            wait_until(lambda: redis.call("GET", MODE) == b"proxy", "it has noticed")
            time.sleep(3 * limits.NATIVE_LOOK_SECONDS)
            with RawClient(proxy.address) as client:  # its answer was lost
                again = client.produce_one(topic, 0, records, timeout_ms=4000)
            assert (again.error_code, again.base_offset) == (0, 0)
            assert "from now on they give idempotence" not in proxy.log

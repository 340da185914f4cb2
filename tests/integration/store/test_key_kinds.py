"""Every key that proxies and commands write to a real Redis has an expiry, or its kind is declared to be bounded
(``state/store.py``). Nothing is listed here: the kinds are those that are declared, the keys those that are found."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import idemproxy
from idemproxy.client import Client
from idemproxy.demo.legacy_cluster import LegacyCluster
from idemproxy.state import store
from idemproxy.state.producer_ids import CONDITIONAL_ID
from idemproxy.state.store import KEY_KINDS, kind_of
from testkit.real.brokers.kafka_cluster import fresh_topic
from testkit.real.brokers.kraft_cluster import KraftCluster
from testkit.real.brokers.service_relay import ChecksIds, ServiceRelay
from testkit.real.clients.raw_client import RawClient, batch
from testkit.real.proxies.proxy_process import ProxyProcess, wait_until
from testkit.real.proxies.two_proxies import TwoProxies
from testkit.real.scenes.hidden_ranges import append, hide
from testkit.real.store.inspecting import idemproxy as command
from testkit.real.store.inspecting import insist
from testkit.real.store.two_proxies_redis import ExternalRedis

CLUSTER = "default"
CONDITIONAL_TOPIC = "kinds-of-keys"
FOR_EVER = -1
ABSENT = -2


@pytest.fixture(scope="module")
def pair(legacy_broker: LegacyCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoProxies]:
    legacy_broker.create_topic(CONDITIONAL_TOPIC, 2)
    settings = f"topics: {{conditional: [{CONDITIONAL_TOPIC}]}}\nproducers: {{names: [named-*]}}\n"
    with TwoProxies(tmp_path_factory.mktemp("kinds"), legacy_broker, settings=settings) as running:
        yield running
        assert running.errors_of_ours() == []


class Found:
    """What was seen in Redis. ``kinds``: the kinds of all keys so far; ``endless``: what is not as declared."""

    def __init__(self, redis: ExternalRedis) -> None:
        self._redis = redis
        self.kinds: set[str] = set()
        self.endless: list[str] = []

    def look(self, step: str) -> None:
        for key in self._redis.call("KEYS", "*"):
            ends_in = self._redis.call("PTTL", key)
            if ends_in == ABSENT:
                continue
            kind = kind_of(CLUSTER, key)
            if kind is not None:
                self.kinds.add(kind)
            if kind is None or (ends_in == FOR_EVER and KEY_KINDS[kind].bound is None):
                self.endless.append(f"{step}: {key!r} ({kind})")


def test_every_kind_of_key_ends_or_is_declared_to_be_bounded(
    pair: TwoProxies, legacy_broker: LegacyCluster, tmp_path: Path
) -> None:
    """All that is stored is made by what clients, operators and crashes do."""
    topic = fresh_topic(legacy_broker, 2)
    place, other, found = (topic, 0), (topic, 1), Found(pair.redis)
    with RawClient(pair.addresses[0]) as client, RawClient(pair.addresses[1]) as second:
        found.look("the proxies have started")
        producer_id = client.new_producer_id()
        for sequence in (0, 2, 4):
            assert insist(client, place, producer_id, sequence) >= 0
            found.look("a batch of a producer")
        foreign = 12345
        second.produce_one(*place, batch([b"x"], producer_id=foreign, sequence=0))
        second.produce_one(*place, batch([b"x"], producer_id=producer_id, sequence=9))
        found.look("an id that nobody issued, a gap")
        for epoch in range(3):
            error, named_id, began = client.init_producer_id(0, "by transactional id")
            assert (error, began) == (0, epoch)
            found.look("an instance of a name begins")
            answer = client.produce_one(*place, batch([b"x"], producer_id=named_id, epoch=epoch, sequence=0))
            assert answer.error_code == 0
            found.look("a batch of a name")
        second.produce_one(*other, batch([b"x"], producer_id=named_id, epoch=2, sequence=7))
        found.look("a gap of a name, where it has never written")
        second.produce_one(*other, batch([b"x"], producer_id=named_id, epoch=9, sequence=0))
        found.look("an epoch that was raised by the client")
        assert client.init_producer_id(0, "by transactional id")[1] != named_id
        found.look("the id of a name is replaced")
        written = client.produce_one(CONDITIONAL_TOPIC, 0, batch([b"x"], producer_id=CONDITIONAL_ID, sequence=0))
        assert written.error_code == 0
        found.look("a conditional publish")
        append(client, other, b"a")
        append(client, other, b"a")
    with Client("{}:{}".format(*pair.addresses[0])) as asking:
        asking.where_producers_stopped(*place)
    hide(pair.redis_url, other, 1, 1)
    found.look("a range is hidden")
    with RawClient(pair.addresses[1]) as client:
        producer_id = client.new_producer_id()
        assert insist(client, place, producer_id, 0) >= 0
        legacy_broker.pause_broker(0)
        try:
            client.send_produce([(*place, batch([b"1"], producer_id=producer_id, sequence=2))])
            wait_until(lambda: any(one.has_open_intent for one in pair.redis.entries().values()), "it is reserved")
            found.look("an open intent")
            pair.proxies[1].kill()
        finally:
            legacy_broker.resume_broker(0)
    wait_until(lambda: bool(pair.redis.intents_of_the_dead()), "its proxy has been dead for a while", 30)
    found.look("an intent of a dead proxy")
    brokers = "{}:{}".format(*legacy_broker.address(0))
    with ServiceRelay(legacy_broker.address(0), ChecksIds()) as relay:
        with ProxyProcess(tmp_path / "third", relay.address, options=("--redis", pair.redis_url)) as proxy:
            assert "the brokers were probed: wrapper v1" in proxy.log
        found.look("brokers that do not show that they are Kafka")
    rebuilt = command("rebuild", "--upstream", brokers, "--topic", topic, "--all", "--redis", pair.redis_url)
    assert "written:" in rebuilt.stdout, rebuilt.stdout + rebuilt.stderr
    found.look("a rebuild")
    for what in (("producer", producer_id, "--force"), ("name", "by transactional id")):
        assert command("forget", *what, "--yes", "--redis", pair.redis_url).returncode == 0
        found.look(f"forget {what[0]}")
    natively = seen_natively(tmp_path)
    assert found.endless + natively.endless == []
    assert found.kinds | natively.kinds == set(KEY_KINDS), "what is declared is written here"


def seen_natively(directory: Path) -> Found:
    """What is stored where brokers give producer ids, and the proxy has topics of its own."""
    engine = "topics: {engine: ['*']}"
    with ExternalRedis() as redis, KraftCluster(directory / "kafka", auto_create_topics=False) as cluster:
        options = ("--redis", "redis://{}:{}/0".format(*redis.address))
        found = Found(redis)
        with (
            ProxyProcess(directory / "native", cluster.address(0), options=options, settings=engine) as proxy,
            RawClient(proxy.address) as client,
        ):
            wait_until(lambda: client.init_producer_id()[0] == 0, "the broker issues producer ids")
            found.look("brokers have issued a producer id")
    return found


def test_every_key_is_made_where_its_kind_is_declared() -> None:
    makers = [name for name, _ in inspect.getmembers(store, inspect.isfunction) if name.endswith("_key")]
    source = inspect.getsource(store)
    for name in makers:
        before = source[: source.index(f"def {name}(")]
        decorated = before[before.rindex("\n\n\n") :]
        assert "@_kind(" in decorated, f"{name} makes keys of a kind that is not declared"
    root = Path(idemproxy.__file__).resolve().parent
    spellings = {
        path.name for path in root.rglob("*.py") if re.search(r"""["']idem:(?!\*)""", path.read_text(encoding="utf-8"))
    }
    assert spellings <= {"store.py", "inspection.py"}, "a key is made elsewhere"

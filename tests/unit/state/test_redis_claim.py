"""Whose state is under a cluster's name and who gives idempotence there: compared before anything is written."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from idemproxy.state.redis_claim import ClusterClaim, Stored, StoredLook
from idemproxy.state.redis_greeting import Login
from idemproxy.state.redis_store import RedisStore
from idemproxy.state.store import (
    MODE_NATIVE,
    MODE_PROXY,
    StoreAway,
    StoreEvent,
    StoreRefused,
    block_key,
    cluster_key,
    data_number_key,
    entry_key,
    member_key,
    mode_key,
    partition_index_key,
    without_ids_key,
)
from testkit.stage.store import ADDRESS, FIRST
from testkit.virtual.network import Network
from testkit.virtual.redis import VirtualRedis

CLUSTER, MODE, LIFE, MEMBER = cluster_key("c"), mode_key("c"), data_number_key("c"), member_key("c", FIRST)


class Scene:
    """A server, and a store that compares on each connection."""

    def __init__(self) -> None:
        self.network = Network(1)
        self.redis = VirtualRedis(self.network, ADDRESS)
        self.host = self.network.host("proxy")
        self.cluster_id: str | None = "ours"
        self.mode = MODE_PROXY
        self.anothers: list[tuple[bytes, str]] = []
        self.events: list[StoreEvent] = []
        is_anothers = lambda *ids: self.anothers.append(ids)  # noqa: E731
        self.claim = ClusterClaim("c", lambda: self.cluster_id, is_anothers, lambda: self.mode)

    def start(self) -> RedisStore:
        store: RedisStore = RedisStore(
            self.host,
            ADDRESS,
            cluster="c",
            instance_id=FIRST,
            random_bytes=self.network.random.randbytes,
            on_data_generation=lambda _data_generation: None,
            on_lease_lost=lambda: store.begin_instance(b"second--", lambda: None),
            report=self.events.append,
            compare=self.claim.compare,
        )
        self.host.post(store.start)
        self.network.run(3, lambda: False)
        return store

    def look(
        self,
        *,
        needs_entries: bool = True,
        needs_proxies: bool = False,
        becomes: Callable[[Stored], bytes | None] = lambda _stored: None,
        verdict: tuple[bytes, int] | None = None,
    ) -> Stored | StoreAway:
        looked: list[Stored | StoreAway] = []
        look = partial(
            StoredLook, self.host, ADDRESS, "c", done=looked.append, needs_entries=needs_entries, verdict=verdict
        )

        def begin() -> None:
            look(
                login=Login(None, None, 0),
                needs_proxies=needs_proxies,
                becomes=becomes,
            )

        self.host.post(begin)
        assert self.network.run(10, lambda: bool(looked))
        self.network.run(1, lambda: False)
        (found,) = looked
        return found

    @property
    def keys(self) -> dict[bytes, bytes | None]:
        return {key: self.redis.get(key) for key in self.redis.data if self.redis.get(key) is not None}


def test_the_first_proxy_writes_both_before_anything_else_and_the_next_one_finds_them() -> None:
    scene = Scene()
    store = scene.start()
    assert store.data_generation is not None
    assert list(scene.redis.data) == [CLUSTER, MODE, MEMBER, LIFE]
    assert (scene.redis.get(CLUSTER), scene.redis.get(MODE)) == (b"ours", b"proxy")
    assert scene.claim.is_of_this_cluster
    assert scene.start().data_generation is not None
    assert scene.anothers == []


def test_a_proxy_of_another_cluster_writes_nothing_not_even_its_registration() -> None:
    scene = Scene()
    scene.redis.put(CLUSTER, b"theirs")
    before = scene.keys
    assert scene.start().data_generation is None
    assert scene.anothers[0] == (b"theirs", "ours")
    assert scene.keys == before


def test_a_proxy_that_is_to_give_idempotence_where_brokers_do_writes_nothing() -> None:
    scene = Scene()
    scene.redis.put(CLUSTER, b"ours")
    scene.redis.put(MODE, b"native")
    before = scene.keys
    assert scene.start().data_generation is None
    assert any(isinstance(event, StoreRefused) and "is native in Redis" in event.reason for event in scene.events)
    assert (scene.keys, scene.anothers) == (before, [])


def test_brokers_that_tell_no_id_are_believed_until_they_tell_one() -> None:
    scene = Scene()
    scene.cluster_id = None
    store = scene.start()
    assert store.data_generation is not None
    assert scene.claim.is_of_this_cluster
    assert scene.redis.get(CLUSTER) is None
    scene.cluster_id = "ours"
    assert not scene.claim.is_of_this_cluster
    scene.host.post(store.compare_again)
    scene.network.run(3, lambda: False)
    assert store.data_generation is not None
    assert (scene.claim.is_of_this_cluster, scene.redis.get(CLUSTER)) == (True, b"ours")


def test_what_redis_has_lost_is_written_again() -> None:
    scene = Scene()
    store = scene.start()
    scene.redis.restart(down_seconds=1)
    scene.redis.flush()
    assert scene.network.run(30, lambda: store.data_generation is not None and scene.redis.get(MODE) == b"proxy")
    assert scene.redis.get(CLUSTER) == b"ours"


# ---------------------------------------------------------------------- a look
@pytest.mark.parametrize("entries", [0, 1])
def test_a_look_finds_an_entry_among_everything_else_and_writes_nothing(entries: int) -> None:
    scene = Scene()
    scene.redis.put(CLUSTER, b"ours")
    scene.redis.put(MODE, b"proxy")
    for number in range(2_000):
        scene.redis.put(b"another:%d" % number, b"")
        scene.redis.put(block_key("c", number), b"")
        scene.redis.put(entry_key("another", number, "orders", 0), b"")
    scene.redis.put(partition_index_key("c", "orders", 0), b"")
    for number in range(entries):
        scene.redis.put(entry_key("c", number, "orders", 0), b"")
    before = scene.keys
    assert scene.look() == Stored(b"ours", b"proxy", bool(entries))
    assert scene.look(needs_entries=False) == Stored(b"ours", b"proxy", False)
    assert scene.keys == before


@pytest.mark.parametrize("entries", [0, 1])
def test_a_look_finds_a_running_proxy_with_and_without_an_entry(entries: int) -> None:
    scene = Scene()
    for number in range(entries):
        scene.redis.put(entry_key("c", number, "orders", 0), b"")
    for number in range(2_000):
        scene.redis.put(block_key("c", number), b"")
    assert scene.look(needs_proxies=True) == Stored(None, None, bool(entries), has_proxies=False)
    scene.start()
    assert scene.look(needs_proxies=True) == Stored(b"ours", b"proxy", bool(entries), has_proxies=True)


def becomes_native(_stored: Stored) -> bytes:
    return MODE_NATIVE


def test_nothing_stored_stays_nothing_also_where_brokers_give_idempotence_from_now_on() -> None:
    scene = Scene()
    assert scene.look(becomes=becomes_native) == Stored(None, None, False)
    assert scene.keys == {}


def test_where_proxies_gave_it_the_brokers_are_noted() -> None:
    scene = Scene()
    scene.redis.put(MODE, b"proxy")
    assert scene.look(becomes=becomes_native) == Stored(None, b"proxy", False)
    assert scene.redis.get(MODE) == b"native"


def test_of_a_mode_that_another_has_changed_meanwhile_nothing_is_changed() -> None:
    scene = Scene()
    scene.redis.put(MODE, b"proxy")

    def overtaken(_stored: Stored) -> bytes:
        scene.redis.put(MODE, b"changing to native")
        return MODE_NATIVE

    assert isinstance(scene.look(becomes=overtaken), StoreAway)
    assert scene.redis.get(MODE) == b"changing to native"


def test_a_mode_stays_if_a_proxy_says_meanwhile_that_it_leaves_ids_out() -> None:
    scene, key = Scene(), without_ids_key("c")
    scene.redis.put(MODE, b"proxy")

    def told(stored: Stored) -> bytes:
        assert not stored.is_without_ids
        scene.redis.put(key, b"told")
        return MODE_NATIVE

    assert isinstance(scene.look(becomes=told), StoreAway)
    assert scene.redis.get(MODE) == b"proxy"
    assert scene.look() == Stored(None, b"proxy", is_without_ids=True)


def test_a_verdict_is_kept_for_its_time_and_replaces_the_one_before() -> None:
    scene = Scene()
    assert scene.look(verdict=(b"first", 60)) == Stored(verdict=b"first")
    assert scene.look(verdict=(b"second", 20)) == scene.look() == Stored(verdict=b"second")
    scene.network.run(30, lambda: False)
    assert scene.look() == Stored()


def test_a_server_that_is_away_is_reported() -> None:
    scene = Scene()
    scene.redis.restart(down_seconds=60)
    assert isinstance(scene.look(becomes=becomes_native), StoreAway)

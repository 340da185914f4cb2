"""Rule R22 in the shortest scenes in which exactly it matters: instances of one name at two proxies, over Redis and a
broker on a virtual network."""

from __future__ import annotations

from functools import partial
from math import inf
from types import SimpleNamespace

import pytest

from idemproxy.proxy import limits
from idemproxy.proxy.admission.init_pace import InitPace
from idemproxy.proxy.bridge.init_producer_id import InitProducerIdRequest
from idemproxy.state.entry import NO_DATA_GENERATION, NO_PRINCIPAL
from idemproxy.state.names import is_named, pack_name, with_higher_epoch
from idemproxy.state.producer_ids import block_of
from idemproxy.state.store import block_key, entry_key, index_key, kind_of, name_key
from testkit.virtual.client import VirtualClient
from testkit.virtual.named_scene import NAME, NamedScene
from testkit.virtual.producer import Identity
from testkit.virtual.proxy import CLUSTER_NAME
from testkit.virtual.thief import VirtualThief
from testkit.virtual.world import TOPIC

TIMED_OUT, LOADING, FENCED, NOT_ALLOWED, PRODUCER_FENCED = 7, 14, 47, 53, 90


@pytest.fixture(params=[False, True], ids=["transactional id", "client id"])
def scene(request: pytest.FixtureRequest) -> NamedScene:
    return NamedScene(by_client_id=request.param)


def test_an_older_instance_is_fenced_on_a_partition_where_the_newer_one_never_wrote(scene: NamedScene) -> None:
    older, newer = scene.instance(), scene.instance(1)
    assert scene.codes(scene.send(older, 0)) == [0]
    assert scene.codes(scene.send(newer, 0)) == [0]
    assert scene.codes(scene.send(older, 1)) == [FENCED]
    assert scene.stored(1) == []
    assert scene.codes(scene.send(newer, 1)) == [0]


def test_the_name_is_compared_in_the_step_of_the_reserve(scene: NamedScene) -> None:
    """The older instance's proxy knows the name as it was, and has no reason to look again."""
    older, newer = scene.instance(), scene.instance(1)
    assert scene.codes(scene.send(older, 0)) == [0]
    assert scene.codes(scene.send(newer, 1)) == [0]
    assert scene.codes(scene.send(older, 0)) == [FENCED]
    assert len(scene.stored(0)) == 1
    scene.network.run(5.0)
    assert scene.codes(scene.send(newer, 0)) == [0], "what was committed for the older one is written"


def test_by_transactional_id_the_producer_id_stays_and_the_epoch_rises() -> None:
    scene = NamedScene()
    for number in range(3):
        scene.send(scene.instance(number % 2))
    (producer_id, epoch), *others = scene.began()
    assert is_named(producer_id)
    assert (epoch, others) == (0, [(producer_id, 1), (producer_id, 2)])
    assert len(scene.stored()) == 3


def test_by_client_id_every_instance_has_a_producer_id_of_its_own() -> None:
    """Such clients raise their epoch by themselves when they are fenced: it would be that of the newer instance."""
    scene = NamedScene(by_client_id=True)
    older, newer = scene.instance(), scene.instance(1)
    scene.send(older)
    scene.send(newer)
    for _ in range(3):
        assert scene.codes(scene.send(older)) == [FENCED]
    assert older.producer.producer_epoch > newer.producer.producer_epoch
    assert scene.codes(scene.send(newer)) == [0]
    (first, _), (second, _) = scene.began()
    assert first != second
    assert len(scene.stored()) == 3


def test_a_self_raised_epoch_counts_and_the_next_instance_has_another_id() -> None:
    scene = NamedScene()
    older = scene.instance()
    scene.send(older)
    older.producer._bump_wanted[TOPIC, 0] = "the test says so"
    assert scene.codes(scene.send(older)) == [0]
    assert (scene.record().producer_epoch, scene.record().data_generation) == (1, NO_DATA_GENERATION)
    scene.send(scene.instance(1))
    (first, _), (second, epoch) = scene.began()
    assert (first == second, epoch) == (False, 0)
    assert scene.codes(scene.send(older)) == [FENCED]


def test_in_a_new_data_generation_instances_continue_and_newcomers_get_new_ids(scene: NamedScene) -> None:
    older = scene.instance()
    scene.send(older)
    scene.world.redis.restart()
    scene.network.run(15.0)
    assert scene.codes(scene.send(older))[-1] == 0
    assert scene.codes(scene.send(older, 1))[-1] == 0
    scene.send(scene.instance(1))
    (first, _), (second, epoch) = scene.began()
    assert (first == second, epoch) == (False, 0)
    assert scene.codes(scene.send(older)) == [FENCED]


@pytest.mark.promise("name-one-instance")
def test_when_redis_has_lost_the_last_instance_its_epoch_is_not_issued_again() -> None:
    scene = NamedScene()
    first, second, third = scene.instance(), scene.instance(1), scene.instance()
    scene.send(first)
    before = scene.world.redis.get(name_key(CLUSTER_NAME, NAME))
    scene.send(second)
    scene.world.redis.put(name_key(CLUSTER_NAME, NAME), before)
    scene.world.redis.restart()
    scene.network.run(15.0)
    value = scene.send(third).values[0]
    assert value in scene.stored(), "it is not taken for what the second one has written"
    assert len(set(scene.began())) == 3


def test_an_instance_that_redis_lost_continues_and_fences_the_older_one() -> None:
    scene = NamedScene()
    older, newer = scene.instance(), scene.instance(1)
    scene.send(older)
    before = scene.world.redis.get(name_key(CLUSTER_NAME, NAME))
    scene.send(newer)
    scene.world.redis.put(name_key(CLUSTER_NAME, NAME), before)
    scene.world.redis.restart()
    scene.network.run(15.0)
    assert scene.codes(scene.send(newer, 1))[-1] == 0
    assert scene.codes(scene.send(older, 0)) == [FENCED]


def test_after_a_total_loss_living_instances_are_fenced_and_the_next_works(scene: NamedScene) -> None:
    older = scene.instance()
    scene.send(older)
    scene.world.redis.flush()
    scene.network.run(15.0)
    assert scene.codes(scene.send(older))[-1] == FENCED
    assert scene.codes(scene.send(scene.instance(1)))[-1] == 0
    (first, _), (second, _) = scene.began()
    assert first != second
    assert len(scene.stored()) == 2


EXPIRY_SECONDS = 100.0


@pytest.fixture(params=[False, True], ids=["transactional id", "client id"])
def expiring(request: pytest.FixtureRequest) -> NamedScene:
    return NamedScene(by_client_id=request.param, expiry_seconds=EXPIRY_SECONDS, name_expiry_seconds=EXPIRY_SECONDS)


@pytest.mark.promise("name-one-instance")
def test_a_producer_names_state_on_all_partitions_lives_while_one_is_used(expiring: NamedScene) -> None:
    instance = expiring.instance()
    first = expiring.send(instance, 0)
    identity = first.sent_as[0]
    for _ in range(30):
        expiring.network.run(EXPIRY_SECONDS / 3)
        assert expiring.codes(expiring.send(instance, 1)) == [0]
    again = VirtualThief(expiring.network)
    again.produce(expiring.world.proxies[1].address, (TOPIC, 0), identity, first.values)
    expiring.network.run(5.0)
    assert [(code, offset) for _, _, code, offset in again.answers] == [(0, 0)]
    assert len(expiring.stored(0)) == 1, "sent again after ten times that time it is still known"


def test_an_epoch_is_issued_only_once_what_the_id_has_on_partitions_is_renewed() -> None:
    """The name is about to expire, and the proxy dies right after it has begun the next instance."""
    scene = NamedScene(expiry_seconds=EXPIRY_SECONDS, name_expiry_seconds=EXPIRY_SECONDS)
    scene.send(scene.instance())
    scene.network.run(0.9 * EXPIRY_SECONDS)
    (code, producer_id, epoch), *_ = ask(scene, 1)
    for proxy in scene.world.proxies:
        proxy.crash(down_seconds=None)
    assert (code, epoch) == (0, 1)
    data = scene.world.redis.data
    name, entry = name_key(CLUSTER_NAME, NAME), entry_key(CLUSTER_NAME, producer_id, TOPIC, 0)
    times = [data[key].expires_at for key in (name, entry, index_key(CLUSTER_NAME, producer_id))]
    assert None not in times
    assert times[0] < min(times[1:])  # type: ignore[type-var,operator]


@pytest.mark.promise("name-one-instance")
def test_an_instance_back_after_its_name_expired_is_fenced_and_leaves_nothing(
    expiring: NamedScene,
) -> None:
    paused = expiring.instance()
    expiring.send(paused, 0)
    assert expiring.world.redis.endless_keys(CLUSTER_NAME) == [], "from its first moment on"
    expiring.network.run(3 * EXPIRY_SECONDS)
    left = [key for key in list(expiring.world.redis.data) if expiring.world.redis.get(key) is not None]
    assert {kind_of(CLUSTER_NAME, key) for key in left} <= {"registration", "cluster id", "life", "hidden ranges"}
    *before, last = expiring.codes(expiring.send(paused, 0))
    assert (set(before) <= {TIMED_OUT}, last) == (True, FENCED)
    assert len(expiring.stored(0)) == 1
    newer = expiring.instance(1)
    assert expiring.codes(expiring.send(newer, 0)) == [0]
    began = expiring.began()
    assert len({producer_id for producer_id, _ in began}) == len(began), "no epoch is issued twice"
    assert expiring.codes(expiring.send(paused, 1))[-1] == FENCED
    assert expiring.world.redis.endless_keys(CLUSTER_NAME) == []


def test_an_instance_with_a_cached_expired_name_is_fenced_by_the_swap() -> None:
    """Its proxy knows the name as it was. What is stored of it is gone before, as by a wrong clock of Redis."""
    scene = NamedScene(expiry_seconds=EXPIRY_SECONDS, name_expiry_seconds=EXPIRY_SECONDS)
    instance = scene.instance()
    scene.send(instance, 0)
    scene.world.redis.put(name_key(CLUSTER_NAME, NAME), None)
    assert scene.codes(scene.send(instance, 0))[-1] == FENCED
    assert len(scene.stored(0)) == 1


def test_the_state_of_an_id_that_its_name_has_no_longer_expires() -> None:
    scene = NamedScene(by_client_id=True, expiry_seconds=EXPIRY_SECONDS)
    scene.send(scene.instance())
    scene.send(scene.instance(1))
    (first, _), (second, _) = scene.began()
    data = scene.world.redis.data
    gone, kept = entry_key(CLUSTER_NAME, first, TOPIC, 0), entry_key(CLUSTER_NAME, second, TOPIC, 0)
    assert (data[kept].expires_at or 0) > scene.network.now + limits.NAME_EXPIRY_SECONDS
    scene.network.run(0.9 * EXPIRY_SECONDS)
    for key in (gone, index_key(CLUSTER_NAME, first), block_key(CLUSTER_NAME, first)):
        assert (data[key].expires_at or inf) < scene.network.now + limits.CLIENT_RETRY_SECONDS_MAX


def test_a_block_of_ids_is_kept_only_while_one_is_used() -> None:
    scene = NamedScene(expiry_seconds=EXPIRY_SECONDS, name_expiry_seconds=EXPIRY_SECONDS)
    client = VirtualClient(scene.network, "without-a-name", [scene.world.proxies[0].addresses[0]])
    scene.send(client)
    key = block_key(CLUSTER_NAME, block_of(client.producer.producer_id))
    assert scene.world.redis.data[key].expires_at is not None, "from its first moment on"
    for _ in range(15):
        scene.network.run(EXPIRY_SECONDS / 3)
        assert scene.codes(scene.send(client)) == [0]
        assert scene.world.redis.get(key) is not None
    assert scene.world.redis.endless_keys(CLUSTER_NAME) == []
    scene.network.run(2 * EXPIRY_SECONDS)
    assert scene.world.redis.get(key) is None
    assert scene.codes(scene.send(client))[-1] == 0, "it goes on, once the log has been read"


def test_beyond_a_principals_limit_new_names_wait_and_others_continue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "NAMES_PER_PRINCIPAL_MAX", 3)
    scene = NamedScene(name_expiry_seconds=EXPIRY_SECONDS)
    names = [f"name-{number}" for number in range(5)]
    assert [ask(scene, 0, name=name)[0][0] for name in names] == [0, 0, 0, LOADING, LOADING]
    assert ask(scene, 1, name="name-1")[0][0] == 0, "a name that it has is renewed"
    assert scene.record("name-1").producer_epoch == 1
    assert name_key(CLUSTER_NAME, "name-3") not in scene.world.redis.data
    scene.network.run(2 * EXPIRY_SECONDS)
    assert ask(scene, 0, name="name-4")[0][0] == 0, "the others have expired"
    assert scene.world.redis.endless_keys(CLUSTER_NAME) == []


def test_an_address_with_endless_id_requests_gets_delayed_retriable_errors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "INIT_PRODUCER_IDS_PER_IP_BURST_MAX", 20)
    monkeypatch.setattr(limits, "INIT_PRODUCER_IDS_PER_IP_RATE_MAX", 0.05)
    scene = NamedScene()
    scene.network.run(5.0)
    for name in (None, *(f"name-{number}" for number in range(19))):
        assert ask(scene, 0, name=name)[0][0] == 0
    before = len(scene.world.redis.data)
    now = scene.network.now
    assert [ask(scene, 0, name=name) for name in ("one-more", None)] == [[(LOADING, -1, -1)]] * 2
    assert scene.network.now - now >= 2 * limits.INIT_PRODUCER_ID_REFUSAL_SECONDS
    assert len(scene.world.redis.data) == before, "nothing is written for it"
    assert ask(scene, 0, name="one-more", address="another")[0][0] == 0
    scene.network.run(2 / limits.INIT_PRODUCER_IDS_PER_IP_RATE_MAX)
    assert ask(scene, 0, name=None)[0][0] == 0


def test_an_address_that_asks_slightly_too_often_gets_ids_later_without_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "INIT_PRODUCER_IDS_PER_IP_BURST_MAX", 5)
    monkeypatch.setattr(limits, "INIT_PRODUCER_IDS_PER_IP_RATE_MAX", 2.0)
    scene = NamedScene()
    scene.network.run(5.0)
    now = scene.network.now
    answers = ask(scene, *[0] * 15, name=None)
    assert [code for code, *_ in answers] == [0] * 15
    assert len({producer_id for _, producer_id, _ in answers}) == 15
    assert scene.network.now - now >= 4.5


def test_an_address_that_may_have_more_connections_may_ask_for_as_many_more_ids() -> None:
    at_once = {500: 1_000, 5_000: 10_000}
    for connections_max, expected in at_once.items():
        pace = InitPace()
        waits = [pace.wait_seconds("load balancer", connections_max, 0.0) for _ in range(12_000)]
        assert waits.count(0.0) == expected
        assert (waits[0], waits[-1]) == (0.0, None)


def test_a_name_belongs_to_the_principal_that_made_it() -> None:
    scene = NamedScene(has_principals=True)
    owner, other = scene.instance(), scene.instance(1)
    scene.send(owner)
    other.send(TOPIC, 0)
    scene.network.run(10.0)
    assert not other.producer.has_id()
    assert scene.began() == [(owner.producer.producer_id, 0)]
    assert scene.codes(scene.send(owner, 1)) == [0], "it is not fenced"


def test_the_id_of_a_name_is_of_no_use_to_another_principal() -> None:
    scene = NamedScene(has_principals=True)
    owner = scene.instance()
    scene.send(owner)
    thief = VirtualThief(scene.network)
    for epoch in (0, 1):
        identity = Identity(owner.producer.producer_id, epoch, 0, 1)
        thief.produce(scene.world.proxies[1].address, (TOPIC, 1), identity)
        scene.network.run(5.0)
    assert [code for _, _, code, _ in thief.answers] == [49, 49]
    assert scene.record().newest == (owner.producer.producer_id, 0), "its epoch is not raised by others"


# ---------------------------------------------------------------------- questions themselves
Answer = tuple[int, int, int]
"""Error code, producer id, epoch."""


def ask(
    scene: NamedScene,
    *proxies: int,
    given: tuple[int, int] = (-1, -1),
    name: str | None = NAME,
    address: str = "client",
) -> list[Answer]:
    """The transactional id's InitProducerId at each of these proxies, all in one moment. ``given``: what the client has
    already. ``name`` None: that of a producer without a name."""
    answers: list[Answer] = []
    for number in proxies:
        proxy = scene.world.proxies[number]
        client = SimpleNamespace(principal=NO_PRINCIPAL, is_closed=False, address=address)
        question = partial(
            proxy.engine.init_producer_id, InitProducerIdRequest(name, 60_000, *given), 4, "instance", client
        )
        proxy.host.post(lambda question=question: question(lambda *answer: answers.append(answer)))  # type: ignore[misc]
    assert scene.network.run(10.0, lambda: len(answers) == len(proxies))
    return answers


@pytest.mark.parametrize("proxies", [(0, 0), (0, 0, 0), (0, 1)])
def test_instances_that_begin_in_the_same_moment_have_different_epochs(proxies: tuple[int, ...]) -> None:
    """What each would write is equal to the last byte, but for a random part of its version."""
    scene = NamedScene()
    scene.send(scene.instance())
    answers = ask(scene, *proxies)
    assert {code for code, _, _ in answers} == {0}
    assert len(set(answers)) == len(proxies)


def test_an_epoch_is_not_issued_again_by_who_knows_that_redis_has_lost_it() -> None:
    """Two writes are lost within one data generation. Another proxy cannot know that and issues one of them again; what
    it writes has any version."""
    for instances in range(24):
        scene = NamedScene()
        issued = ask(scene, 0)
        for _ in range(instances):
            issued += ask(scene, instances % 2) + ask(scene, 0)
        issued += ask(scene, 0)
        key = name_key(CLUSTER_NAME, NAME)
        before = scene.world.redis.get(key)
        issued += ask(scene, 0) + ask(scene, 0)
        assert before is not None
        scene.world.redis.put(key, before)
        ask(scene, 1)
        assert ask(scene, 0)[0] not in issued


def test_an_epoch_of_the_id_before_is_not_issued_again_either() -> None:
    """Its client had raised it by itself, so the name has another id since. Redis loses all of that."""
    for instances in range(16):
        scene = NamedScene()
        issued = ask(scene, 0)
        for _ in range(instances):
            issued += ask(scene, 0) + ask(scene, 1)
        issued += ask(scene, 0)
        key = name_key(CLUSTER_NAME, NAME)
        before = scene.world.redis.get(key)
        assert before is not None
        issued += ask(scene, 0)
        record = with_higher_epoch(scene.record(), scene.record().producer_epoch + 1)
        scene.world.redis.put(key, pack_name(record))
        issued.append((0, *record.newest))
        issued += ask(scene, 0)
        scene.world.redis.put(key, before)
        ask(scene, 1)
        assert ask(scene, 0)[0] not in issued


def test_of_instances_that_began_in_the_same_moment_one_is_fenced() -> None:
    scene = NamedScene()
    scene.send(scene.instance())
    instances = [VirtualThief(scene.network) for _ in range(2)]
    for number, (_, producer_id, epoch) in enumerate(ask(scene, 0, 0)):
        identity = Identity(producer_id, epoch, 0, 1)
        instances[number].produce(scene.world.proxies[number].address, (TOPIC, number), identity)
    scene.network.run(10.0)
    assert sorted(code for one in instances for _, _, code, _ in one.answers) == [0, FENCED]


def test_a_repeated_epoch_request_gets_the_same_new_id_again() -> None:
    """The first answer is lost. After a new data generation of Redis nobody knows which epochs were issued."""
    scene = NamedScene()
    ((_, *has),) = ask(scene, 0)
    scene.world.redis.restart()
    scene.network.run(15.0)
    (first,) = ask(scene, 0, given=(has[0], has[1]))
    assert first[0] == 0
    assert first[1] != has[0]
    assert ask(scene, 1, given=(has[0], has[1])) == [first]
    (later,) = ask(scene, 0, given=(first[1], first[2]))
    assert later == (0, first[1], first[2] + 1)
    assert ask(scene, 0, given=(has[0], has[1]))[0][0] == PRODUCER_FENCED, "it has been overtaken"

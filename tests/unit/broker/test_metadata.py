"""Metadata of large clusters: what one answer costs, how often brokers are asked, and that answers are made once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from idemproxy.codecs.errors import WireError
from idemproxy.codecs.steps import Steps, at_once
from idemproxy.proxy import limits
from idemproxy.proxy.bridge.base import Addresses
from idemproxy.proxy.bridge.cluster import BrokerAddress, Cluster, Partition, Topic, told_rows
from idemproxy.proxy.bridge.metadata import encode_client_answer, parse_answer, read_answer, tell_client
from idemproxy.proxy.broker.topology import Topology
from idemproxy.proxy.engine import metadata_answers
from idemproxy.proxy.engine.metadata_answers import MetadataAnswers
from idemproxy.proxy.session.new_topics import NewTopics
from testkit.virtual import broker as virtual_broker
from testkit.virtual import kafka_bytes as kafka
from testkit.virtual.cluster import VirtualCluster
from testkit.virtual.network import Network, NetworkSettings, VirtualReactor

TOPICS = 1000
PARTITIONS = 50
VERSION = 2
ADDRESSES = {1: ("proxy", 19091), 2: ("proxy", 19092)}
BROKERS = {1: BrokerAddress(1, "kafka-1", 9092), 2: BrokerAddress(2, "kafka-2", 9092)}


def topic_of(name: str, leader: int = 1, partitions: int = PARTITIONS, code: int = 0) -> Topic:
    rows = (Partition(code, index, leader if index == 0 else 1, (1, 2), (1,)) for index in range(partitions))
    return Topic(name, 0, False, rows)


def large_cluster(**changed: Topic) -> Cluster:
    topics = {f"topic{number}": topic_of(f"topic{number}") for number in range(TOPICS)}
    return Cluster("cluster", 1, BROKERS, topics | changed)


def told(cluster: Cluster) -> bytes:
    addresses = {one.id: (one.host, one.port) for one in cluster.brokers.values()}
    return encode_client_answer(VERSION, cluster, None, addresses, fallback_cluster_id="x")


def count_steps(steps: Steps[Any]) -> int:
    return 1 + sum(1 for _ in steps)


# ---------------------------------------------------------------------- one answer
def test_topics_that_an_answer_repeats_unchanged_are_not_parsed_again() -> None:
    before = large_cluster()
    body = told(large_cluster(topic7=topic_of("topic7", leader=2)))
    answer = at_once(read_answer(VERSION, body, before.topics))
    assert [name for name, topic in answer.topics.items() if topic is not before.topics[name]] == ["topic7"]
    assert answer == parse_answer(VERSION, body)
    assert answer.topics["topic7"].rows.leaders[0] == 2
    assert count_steps(read_answer(VERSION, body, before.topics)) == 1


def test_a_large_answer_is_read_and_written_in_steps() -> None:
    cluster = large_cluster()
    body = told(cluster)
    steps = TOPICS * PARTITIONS / limits.METADATA_ROWS_PER_STEP
    assert count_steps(read_answer(VERSION, body, {})) == pytest.approx(steps, rel=0.1)
    one_broker = {1: ADDRESSES[1]}
    alien = Cluster("cluster", 1, BROKERS, {name: topic_of(name, leader=2) for name in cluster.topics})
    assert count_steps(tell_client(VERSION, alien, None, one_broker, "x")) == pytest.approx(steps, rel=0.1)
    assert count_steps(tell_client(VERSION, cluster, None, one_broker, "x")) == 1, "as it came"


def test_an_answer_about_many_names_is_begun_when_these_have_been_read() -> None:
    names = [f"topic{number}" for number in range(limits.METADATA_ROWS_PER_STEP + 1)]
    for several, steps in ((names, 3), (names[1:], 1)):
        assert count_steps(tell_client(VERSION, Cluster("cluster", 1, BROKERS), several, ADDRESSES, "x")) == steps


def test_one_large_topic_is_read_and_written_in_steps() -> None:
    cluster = Cluster("cluster", 1, BROKERS, {"t": topic_of("t", 2, 10 * limits.METADATA_ROWS_PER_STEP)})
    assert count_steps(read_answer(VERSION, told(cluster), {})) == 10
    assert count_steps(tell_client(VERSION, cluster, None, {1: ADDRESSES[1]}, "x")) == 10


@pytest.mark.parametrize("version", [0, 1, 4])
@pytest.mark.parametrize("code", [0, 5, 9])
@pytest.mark.parametrize("leader", [-1, 1, 2])
def test_partitions_go_out_unchanged_only_where_clients_need_no_other_values(
    version: int, code: int, leader: int
) -> None:
    topic = topic_of("t", leader, code=code)
    for alive in (frozenset({1}), frozenset({1, 2})):
        told = at_once(told_rows(version, topic.rows, alive))
        for row, was in zip(topic_from(told).rows, topic.rows, strict=True):
            is_led = was.leader in alive or code == 5
            assert row.leader == (was.leader if is_led else -1)
            assert row.error_code == ((0 if version and code == 9 else code) if is_led else 5)


def topic_from(rows: bytes) -> Topic:
    body = bytes(4) + (1).to_bytes(4, "big") + b"\0\0\0\1t" + rows
    return parse_answer(0, body).topics["t"]


@pytest.mark.parametrize("row", [b"\0\0" + bytes(8) + b"\xff" * 4 + bytes(4), b"\0\0" + bytes(12) + b"\xff" * 4])
def test_a_list_that_is_null_goes_out_as_an_empty_one(row: bytes) -> None:
    topic = topic_from((1).to_bytes(4, "big") + row)
    assert topic.partitions == (Partition(0, 0, 0, (), ()),)
    assert at_once(told_rows(1, topic.rows, frozenset({0}))) == (1).to_bytes(4, "big") + bytes(18)


@pytest.mark.parametrize("count", [-2, -(2**31), 2**31 - 1, 2**30, 5])
@pytest.mark.parametrize("at", [14, 18])
def test_a_list_of_an_impossible_length_is_a_wire_error(count: int, at: int) -> None:
    rows = bytearray((1).to_bytes(4, "big") + bytes(18))
    rows[at : at + 4] = count.to_bytes(4, "big", signed=True)
    with pytest.raises(WireError):
        topic_from(bytes(rows))


# ---------------------------------------------------------------------- the questions
class Scene:
    """A topology before virtual brokers, and what they are asked."""

    def __init__(self, topics: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
        self.network = Network(1, NetworkSettings())
        self.cluster = VirtualCluster(self.network, topics)
        self.reactor: VirtualReactor = self.network.host("proxy")
        self.questions: list[list[str] | None] = []
        self.held: list[Callable[[], None]] | None = None
        self.topology = Topology(
            self.reactor,
            self.cluster.addresses,
            may_send=lambda: True,
            report=lambda _: None,
            on_brokers=lambda _: None,
            on_ready=lambda: None,
        )
        shipped = virtual_broker.BrokerConnection._metadata

        def metadata(connection: Any, request: Any) -> None:
            before = request.body.position
            asked = kafka.parse_metadata(request.body, request.api_version)
            request.body.position = before
            self.questions.append(asked)
            shipped(connection, request)

        monkeypatch.setattr(virtual_broker.BrokerConnection, "_metadata", metadata)
        self.reactor.post(self.topology.open)
        self.network.run(10, lambda: all(one.is_ready for one in self.topology.brokers) and self.topology.is_known)
        self.network.run(2)
        self.questions.clear()

    def named(self) -> Iterator[str]:
        for asked in self.questions:
            yield from asked or ()


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    return Scene({f"topic{number}": 1 for number in range(700)}, monkeypatch)


def test_seven_hundred_producers_that_wait_ask_together(scene: Scene) -> None:
    found: list[int | None] = []
    for number in range(700):
        scene.reactor.post(lambda name=f"topic{number}": scene.topology.leader(name, 0, True, found.append))  # type: ignore[misc]
    assert scene.network.run(limits.METADATA_WAIT_SECONDS / 2, lambda: len(found) == 700)
    assert len(scene.questions) <= 2
    assert sorted(scene.named()) == sorted(f"topic{number}" for number in range(700))


def test_questions_a_second_have_a_limit_and_so_have_the_topics_in_one(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "METADATA_TOPICS_PER_QUESTION_MAX", 10)
    asked = [0]

    def ask() -> None:
        for _ in range(10):
            asked[0] += 1
            scene.topology.refresh((f"topic{asked[0] % 700}",), lambda: None)
        scene.reactor.later(0.02, ask)

    scene.reactor.post(ask)
    scene.network.run(2)
    assert len(scene.questions) >= 2 * limits.METADATA_QUESTIONS_PER_SECOND_MAX * 0.9
    assert len(scene.questions) <= 2 * limits.METADATA_QUESTIONS_PER_SECOND_MAX + 1
    assert max(len(names or ()) for names in scene.questions) == 10


def test_partitions_that_are_asked_about_have_a_limit(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "METADATA_PARTITION_SECONDS", 1 / 700)

    def ask() -> None:
        scene.topology.refresh(None, lambda: None)
        scene.topology.refresh(tuple(f"topic{number}" for number in range(700)), lambda: None)
        scene.reactor.later(0.01, ask)

    scene.reactor.post(ask)
    scene.network.run(2.9)
    assert sorted(len(asked or ()) for asked in scene.questions) == [0] * 3 + [700] * 3


def test_who_names_few_topics_does_not_wait_for_who_names_many(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "METADATA_TOPICS_PER_QUESTION_MAX", 10)
    found: list[int | None] = []
    scene.reactor.post(lambda: scene.topology.refresh(tuple(f"topic{number}" for number in range(600)), lambda: None))
    scene.reactor.post(lambda: scene.topology.leader("topic650", 0, True, found.append))
    assert scene.network.run(limits.METADATA_WAIT_SECONDS / 2, lambda: bool(found))
    assert "topic650" in (scene.questions[1] or ())


def test_what_nobody_waits_for_any_more_is_not_asked(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "METADATA_TOPICS_PER_QUESTION_MAX", 1)
    scene.reactor.post(lambda: scene.topology.refresh(tuple(f"topic{number}" for number in range(600)), lambda: None))
    scene.network.run(10)
    a_wait = limits.METADATA_WAIT_SECONDS * limits.METADATA_QUESTIONS_PER_SECOND_MAX
    assert len(list(scene.named())) <= a_wait + 1


def test_waiting_callbacks_are_called_in_several_steps(scene: Scene) -> None:
    """Each of them may continue a batch, which takes some 0.1 ms."""
    told: dict[int, int] = {}

    def done() -> None:
        told[scene.reactor.passes_run] = told.get(scene.reactor.passes_run, 0) + 1

    for number in range(700):
        scene.reactor.post(lambda name=f"topic{number}": scene.topology.refresh((name,), done))  # type: ignore[misc]
    scene.network.run(limits.METADATA_WAIT_SECONDS / 2, lambda: sum(told.values()) == 700)
    assert (sum(told.values()), max(told.values())) == (700, limits.METADATA_TOLD_PER_STEP)
    for broker in scene.cluster.brokers.values():
        broker.host.crash()
    told.clear()
    for number in range(700):
        scene.reactor.post(lambda name=f"topic{number}": scene.topology.refresh((name,), done))  # type: ignore[misc]
    scene.network.run(2 * limits.METADATA_WAIT_SECONDS, lambda: sum(told.values()) == 700)
    assert (sum(told.values()), max(told.values())) == (700, limits.METADATA_TOLD_PER_STEP)


def test_too_many_topic_names_get_the_whole_cluster_a_second_old(
    scene: Scene,
) -> None:
    known = tuple(f"topic{number}" for number in range(700))
    unknown = tuple(f"nowhere{number}" for number in range(10 * limits.METADATA_TOPICS_PER_QUESTION_MAX))
    answered: list[int] = []
    for may_create in (False, True):
        scene.network.run(limits.METADATA_FRESH_SECONDS)
        scene.questions.clear()
        scene.reactor.post(
            lambda may_create=may_create: scene.topology.refresh_if_stale(  # type: ignore[misc]
                known + unknown, may_create, lambda: answered.append(len(scene.questions))
            )
        )
        scene.network.run(limits.METADATA_WAIT_SECONDS)
        named = [asked for asked in scene.questions if asked is not None]
        assert scene.questions.count(None) == 1
        assert [set(asked) <= set(unknown) for asked in named] == [True] * may_create
        assert [len(asked) for asked in named] == [limits.METADATA_TOPICS_PER_QUESTION_MAX] * may_create
    assert len(answered) == 2


# ---------------------------------------------------------------------- what is learned
def test_an_answer_that_tells_nothing_new_changes_nothing(scene: Scene) -> None:
    before = scene.topology.cluster
    for topics in (("topic1",), None):
        scene.questions.clear()
        scene.reactor.post(lambda topics=topics: scene.topology.refresh(topics, lambda: None))  # type: ignore[misc]
        assert scene.network.run(2, lambda: len(scene.questions) == 1)
        scene.network.run(1)
        assert scene.topology.cluster is before


def test_only_the_topic_that_an_answer_names_is_replaced(scene: Scene) -> None:
    before = scene.topology.cluster.topics
    for number in (3, 4):
        one = scene.cluster.partitions[f"topic{number}", 0]
        one.leader = 1 if one.leader == 2 else 2
    scene.reactor.post(lambda: scene.topology.refresh(("topic3",), lambda: None))
    scene.network.run(1)
    after = scene.topology.cluster.topics
    assert [name for name in after if after[name] is not before[name]] == ["topic3"]
    assert scene.topology.leader_of("topic3", 0) == scene.cluster.partitions["topic3", 0].leader
    assert scene.topology.leader_of("topic4", 0) != scene.cluster.partitions["topic4", 0].leader


def test_an_answer_that_was_overtaken_takes_nothing_back(scene: Scene) -> None:
    """One about the whole cluster takes long, and is older than what was asked meanwhile."""
    known = scene.topology.cluster.topics
    stale = parse_answer(VERSION, told(scene.topology.cluster))
    scene.network.run(1)
    asked_at = scene.reactor.now()
    scene.network.run(1)
    one = scene.cluster.partitions["topic3", 0]
    one.leader = 1 if one.leader == 2 else 2
    scene.reactor.post(lambda: scene.topology.refresh(("topic3",), lambda: None))
    scene.network.run(1)
    scene.topology._learn(None, asked_at, known, stale)
    assert scene.topology.leader_of("topic3", 0) == one.leader
    del scene.cluster.partitions["topic4", 0]
    scene.reactor.post(lambda: scene.topology.refresh(None, lambda: None))
    scene.network.run(1)
    scene.topology._learn(("topic4",), asked_at, known, stale)
    assert scene.topology.leader_of("topic4", 0) is None


def test_a_topic_that_a_question_created_survives_a_later_answer_without_it(scene: Scene) -> None:
    """Brokers create what is named, and those that were not asked learn of it later."""
    known, asked_at = scene.topology.cluster.topics, scene.reactor.now()
    created = replace(scene.topology.cluster, topics={"new": Topic("new", 5, False)})
    scene.network.run(1)
    scene.reactor.post(lambda: scene.topology.refresh(None, lambda: None))
    scene.network.run(1)
    scene.topology._learn(("new",), asked_at, known, created)
    told = scene.topology.cluster.topics
    assert (told["new"].error_code, len(told)) == (5, len(known) + 1)
    scene.questions.clear()
    scene.network.run(limits.METADATA_FRESH_SECONDS)
    scene.reactor.post(lambda: scene.topology.leader("new", 0, False, lambda _: None))
    scene.network.run(1)
    assert scene.questions == [None], "it may be gone again, and would be created again"
    assert "new" not in scene.topology.cluster.topics, "no broker lists it"
    scene.topology._learn(("new",), asked_at, {**known, **created.topics}, created)
    assert "new" not in scene.topology.cluster.topics, "it was known when it was asked for, so it was deleted meanwhile"


@pytest.mark.parametrize("may_create", [False, True])
@pytest.mark.parametrize("others", [0, limits.METADATA_TOPICS_PER_QUESTION_MAX])
def test_names_that_no_topic_can_have_are_neither_asked_for_nor_remembered(
    scene: Scene, may_create: bool, others: int
) -> None:
    impossible = ["x" * 32_000, "a b", "", ".", "..", "\u00e9", "y" * 256, *(f"?{number}" for number in range(others))]
    done: list[int] = []
    scene.topology.refresh_if_stale([*impossible, "missing"], may_create, lambda: done.append(1))
    scene.topology.look_for("z" * 300, lambda: done.append(1))
    scene.network.run(2)
    assert done == [1, 1]
    freshness = scene.topology._freshness
    assert {*freshness._topic_asked_at, *freshness._looked_for} <= {"missing"}
    assert set(scene.named()) <= {"missing"}


# ---------------------------------------------------------------------- answers to clients
@pytest.fixture
def reactor() -> VirtualReactor:
    return Network(1, NetworkSettings()).host("proxy")


def test_an_answer_is_made_once_and_again_when_anything_about_it_has_changed(reactor: VirtualReactor) -> None:
    answers, cluster = MetadataAnswers(reactor, "x"), large_cluster()
    got: list[bytes] = []

    def answer(version: int, seen: Cluster, topics: tuple[str, ...] | None, addresses: Addresses) -> bytes:
        answers.tell(version, seen, topics, addresses, {}, got.append)
        reactor.network.run(1)
        return got[-1]

    first = answer(4, cluster, None, ADDRESSES)
    assert first == encode_client_answer(4, cluster, None, ADDRESSES, fallback_cluster_id="x")
    assert answer(4, cluster, None, dict(ADDRESSES)) is first
    others: tuple[tuple[int, Cluster, tuple[str, ...] | None, Addresses], ...] = (
        (1, cluster, None, ADDRESSES),
        (4, large_cluster(topic1=topic_of("topic1", 2)), None, ADDRESSES),
        (4, cluster, ("topic7",), ADDRESSES),
        (4, cluster, (), ADDRESSES),
        (4, cluster, None, {1: ("other", 19091), 2: ("proxy", 19092)}),
    )
    for version, seen, topics, addresses in others:
        expected = encode_client_answer(version, seen, topics, addresses, fallback_cluster_id="x")
        assert answer(version, seen, topics, addresses) == expected
        assert expected != first
    assert answer(4, cluster, None, ADDRESSES) == first


def test_clients_that_ask_together_share_one_answer_made_in_steps(
    reactor: VirtualReactor, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Cluster("c", 1, BROKERS, {"t": topic_of("t", 2, 3 * limits.METADATA_ROWS_PER_STEP)})
    answers, got, made = MetadataAnswers(reactor, "x"), list[bytes](), list[int]()

    def counted(*arguments: Any) -> Steps[bytes]:
        made.append(1)
        return tell_client(*arguments)

    monkeypatch.setattr(metadata_answers, "tell_client", counted)
    for _ in range(700):
        answers.tell(4, cluster, None, {1: ADDRESSES[1]}, {}, got.append)
    assert got == []
    reactor.network.run(1)
    assert len(got) == 700
    assert len(set(map(id, got))) == len(made) == 1


def test_an_answer_outdated_when_it_is_ready_is_sent_but_not_cached(reactor: VirtualReactor) -> None:
    large = Cluster("c", 1, BROKERS, {"t": topic_of("t", 2, 3 * limits.METADATA_ROWS_PER_STEP)})
    answers, got = MetadataAnswers(reactor, "x"), list[bytes]()
    addresses = {1: ADDRESSES[1]}
    answers.tell(4, large, None, addresses, {}, got.append)
    answers.tell(4, Cluster("c", 1, BROKERS), None, addresses, {}, got.append)
    reactor.network.run(1)
    assert len(got) == 2
    assert list(answers._made.values()) == [got[0]], "the second one was ready first"


def test_answers_that_are_kept_have_a_bound_whatever_clients_ask_for(reactor: VirtualReactor) -> None:
    answers, cluster = MetadataAnswers(reactor, "x"), Cluster("c", 1, BROKERS)
    for number in range(3 * limits.ANSWERS_KEPT_MAX):
        answers.tell(4, cluster, (f"topic-{number}",), ADDRESSES, {}, lambda _: None)
        assert len(answers._made) <= limits.ANSWERS_KEPT_MAX


def test_what_is_kept_has_a_bound_of_bytes_whatever_clients_ask_for(
    reactor: VirtualReactor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "ANSWERS_KEPT_BYTES_MAX", 10_000)
    answers, cluster, got = MetadataAnswers(reactor, "x"), Cluster("c", 1, BROKERS), list[bytes]()
    for name in ("a", "b" * 4_000, "c" * 4_000, "d" * 20_000):
        answers.tell(4, cluster, (name,), ADDRESSES, {}, got.append)
        assert sum(len(body) + len(asked[0]) for (_, asked, _), body in answers._made.items() if asked) <= 10_000
    assert len(got) == 4
    assert answers._made_bytes <= 10_000


def test_an_answer_with_a_topic_not_listed_yet_is_for_one_client() -> None:
    reactor = VirtualReactor(Network(0, NetworkSettings()), "proxy")
    answers, got = MetadataAnswers(reactor, "x"), list[bytes]()
    new = {"new": Topic("new", 5, False)}
    answers.tell(VERSION, CLUSTER, ("t", "new"), ADDRESSES, new, got.append)
    answers.tell(VERSION, CLUSTER, ("t", "new"), ADDRESSES, {}, got.append)
    told = [{name: topic.error_code for name, topic in parse_answer(VERSION, body).topics.items()} for body in got]
    assert told == [{"t": 0, "new": 5}, {"t": 0, "new": 3}]
    assert list(answers._made.values()) == [got[1]]


# ---------------------------------------------------------------------- topics that have just been created
CLUSTER = Cluster("c", 1, BROKERS, {"t": topic_of("t")})


def test_a_just_created_topic_that_a_broker_lacks_has_no_leader_yet() -> None:
    new = NewTopics()
    new.changed(("new", "t"), (), 10.0)
    asked = ("t", "new", "other")
    told = new.not_listed(CLUSTER.topics, asked, 10.0)
    assert told == {"new": Topic("new", 5, False)}
    with_new = replace(CLUSTER, topics={**CLUSTER.topics, **told})
    body = encode_client_answer(VERSION, with_new, asked, ADDRESSES, fallback_cluster_id="x")
    answered = {name: topic.error_code for name, topic in parse_answer(VERSION, body).topics.items()}
    assert answered == {"t": 0, "new": 5, "other": 3}
    assert new.not_listed(CLUSTER.topics, asked, 10.0 + limits.NEW_TOPIC_SECONDS) == {}


def test_new_topics_are_reported_only_to_clients_that_name_an_unlisted_one() -> None:
    new = NewTopics()
    assert new.not_listed(CLUSTER.topics, ("new",), 10.0) == {}
    new.changed(("new", "t"), (), 10.0)
    many = tuple(f"topic{number}" for number in range(limits.METADATA_TOPICS_PER_QUESTION_MAX))
    for asked in (None, (), ("t",), ("other", "t"), ("new", *many)):
        assert new.not_listed(CLUSTER.topics, asked, 10.0) == {}


def test_a_deleted_topic_is_no_longer_new_and_a_recreated_one_is() -> None:
    new = NewTopics()
    new.changed(("a", "b"), (), 10.0)
    new.changed((), ("a",), 11.0)
    assert set(new.not_listed(CLUSTER.topics, ("a", "b"), 11.0)) == {"b"}
    new.changed(("a",), (), 11.0)
    assert set(new.not_listed(CLUSTER.topics, ("a", "b"), 11.0)) == {"a", "b"}


def test_so_many_new_topics_are_known_and_no_old_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "NEW_TOPICS_MAX", 2)
    new = NewTopics()
    new.changed(("a", "b", "c"), (), 10.0)
    assert list(new._until) == ["b", "c"]
    new.changed((), (), 10.0 + limits.NEW_TOPIC_SECONDS)
    assert not new._until

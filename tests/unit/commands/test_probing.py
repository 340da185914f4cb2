"""``idemproxy probe`` without sockets: the life of its topic at servers that refuse, and what is printed."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import pytest

from idemproxy.client.asking import LIST_OFFSETS, Ask, Servers
from idemproxy.client.errors import ConnectionFailed
from idemproxy.codecs.error_codes import ErrorCode
from idemproxy.producing.cluster import METADATA
from idemproxy.producing.numbered_batch import Place
from idemproxy.proxy.commands.probing.shown import lines_of, object_of
from idemproxy.proxy.flow.form import Form
from idemproxy.proxy.main import _parser, main
from idemproxy.proxy.probe.verdict import Row, Verdict
from idemproxy.proxy.probing import limits
from idemproxy.proxy.probing.topic import (
    CREATE_TOPICS,
    DELETE_TOPICS,
    CannotProbe,
    NotCreated,
    create_topic,
    delete_topic,
    find_partition,
)
from testkit.stage.client import ADDRESS, BROKERS, FlowRun, answer, metadata

TOPIC = "idemproxy-probe-1"
OLD_VERSION, NEW_VERSION = 2, 5


def servers() -> Servers:
    return Servers([ADDRESS])


def run_of(*replies: Any, highest: int = NEW_VERSION) -> FlowRun:
    """Metadata is answered always, the rest in turn; the last one again and again."""
    left = list(replies)

    def reply(ask: Ask) -> Any:
        if ask.api_key == METADATA:
            return metadata({})
        return left.pop(0) if len(left) > 1 else left[0]

    run = FlowRun(reply)
    run.offered = {CREATE_TOPICS: (0, highest)}
    return run


def created(code: int = 0, message: str | None = None) -> Any:
    topic = {"name": TOPIC, "error_code": code, "error_message": message}
    return answer(CREATE_TOPICS, 1, topics=[topic])


def deleted(code: int = 0) -> Any:
    return answer(DELETE_TOPICS, 0, responses=[{"name": TOPIC, "error_code": code}])


def asked(run: FlowRun, api_key: int) -> list[Ask]:
    return [one for one in run.asked if one.api_key == api_key]


# ---------------------------------------------------------------------- creation
@pytest.mark.parametrize(("highest", "replication"), [(OLD_VERSION, 1), (NEW_VERSION, -1)])
def test_the_controller_creates_the_topic_with_the_clusters_replication_where_it_can(
    highest: int, replication: int
) -> None:
    run = run_of(created(), highest=highest)
    run.run(create_topic(servers(), TOPIC))
    (ask,) = asked(run, CREATE_TOPICS)
    assert ask.address == BROKERS[0]
    (topic,) = ask.fields["topics"]
    assert (topic["num_partitions"], topic["replication_factor"]) == (1, replication)


@pytest.mark.parametrize("code", [ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT])
def test_an_error_that_passes_and_a_lost_answer_are_tried_again(code: ErrorCode) -> None:
    run = run_of(created(code), ConnectionFailed("closed"), created(ErrorCode.TOPIC_ALREADY_EXISTS))
    run.run(create_topic(servers(), TOPIC))
    assert len(asked(run, CREATE_TOPICS)) == 3


def test_too_few_brokers_for_the_default_replication_get_one_replica() -> None:
    run = run_of(created(ErrorCode.INVALID_REPLICATION_FACTOR), created())
    run.run(create_topic(servers(), TOPIC))
    assert [one.fields["topics"][0]["replication_factor"] for one in asked(run, CREATE_TOPICS)] == [-1, 1]


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (
            created(ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
            r"cannot be created: CLUSTER_AUTHORIZATION_FAILED: grant Create on Cluster, or create an empty topic",
        ),
        (created(ErrorCode.POLICY_VIOLATION, "too short"), r"POLICY_VIOLATION \(44\) \(too short\): create an empty"),
        (created(ErrorCode.NOT_CONTROLLER), r"cannot be created: NOT_CONTROLLER \(41\)$"),
        (ConnectionFailed("closed"), "cannot be created: closed$"),
        (answer(CREATE_TOPICS, 1, topics=[]), "lacks the topic$"),
    ],
)
def test_a_topic_that_cannot_be_created_is_said_with_the_remedy(reply: Any, said: str) -> None:
    run = run_of(reply)
    with pytest.raises(CannotProbe, match=said):
        run.run(create_topic(servers(), TOPIC))
    assert run.now <= limits.TOPIC_SECONDS_MAX


def test_a_topic_that_was_never_asked_for_is_not_looked_for() -> None:
    run = FlowRun(lambda _ask: ConnectionFailed("away"))
    with pytest.raises(NotCreated, match=r"cannot be created: away$"):
        run.run(create_topic(servers(), TOPIC))
    asked_for = run_of(ConnectionFailed("closed"))
    with pytest.raises(CannotProbe) as failed:
        asked_for.run(create_topic(servers(), TOPIC))
    assert not isinstance(failed.value, NotCreated)


def test_a_server_without_create_topics_gets_a_topic_by_name() -> None:
    run = run_of(created())
    run.offered = {}
    with pytest.raises(CannotProbe, match=r"lists no CreateTopics: .* --topic"):
        run.run(create_topic(servers(), TOPIC))


# ---------------------------------------------------------------------- deletion
def test_a_topic_is_deleted_by_the_controller() -> None:
    run = run_of(deleted(ErrorCode.NOT_CONTROLLER), deleted())
    run.run(delete_topic(servers(), TOPIC, was_created=True))
    assert [one.address for one in asked(run, DELETE_TOPICS)] == [BROKERS[0]] * 2


def test_a_topic_that_may_come_yet_is_looked_for_again() -> None:
    unknown = deleted(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    sure = run_of(unknown)
    sure.run(delete_topic(servers(), TOPIC, was_created=True))
    assert sure.now == 0
    run = run_of(unknown, unknown, deleted())
    run.run(delete_topic(servers(), TOPIC, was_created=False))
    assert len(asked(run, DELETE_TOPICS)) == 3
    never = run_of(unknown)
    never.run(delete_topic(servers(), TOPIC, was_created=False))
    assert limits.UNCERTAIN_SECONDS_MAX <= never.now < limits.UNCERTAIN_SECONDS_MAX + 1


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (deleted(ErrorCode.TOPIC_AUTHORIZATION_FAILED), "^TOPIC_AUTHORIZATION_FAILED: grant Delete on the topic$"),
        (deleted(ErrorCode.TOPIC_DELETION_DISABLED), r"TOPIC_DELETION_DISABLED \(73\)$"),
        (ConnectionFailed("closed"), "closed$"),
    ],
)
def test_a_topic_that_cannot_be_deleted_is_said_in_time(reply: Any, said: str) -> None:
    run = run_of(reply)
    with pytest.raises(CannotProbe, match=said):
        run.run(delete_topic(servers(), TOPIC, was_created=True))
    assert run.now <= limits.DELETION_SECONDS_MAX


# ---------------------------------------------------------------------- the partition
def offsets(offset: int, code: int = 0) -> Any:
    partition = {"partition_index": 0, "error_code": code, "timestamp": -1, "offset": offset}
    return answer(LIST_OFFSETS, 1, topics=[{"name": TOPIC, "partitions": [partition]}])


def seeing(*views: Any, ends: Callable[[Ask], Any] = lambda _ask: offsets(7)) -> FlowRun:
    left = list(views)

    def reply(ask: Ask) -> Any:
        if ask.api_key == METADATA:
            return left.pop(0) if len(left) > 1 else left[0]
        return ends(ask)

    return FlowRun(reply)


def test_a_leader_is_waited_for_and_the_end_is_asked_of_it() -> None:
    run = seeing(metadata({}, [(TOPIC, 3)]), metadata({}, [(TOPIC, 5)]), metadata({Place(TOPIC, 0): 1}))
    found = run.run(find_partition(servers(), TOPIC, is_ours=True))
    assert (found.leader, found.start) == (BROKERS[1], 7)
    assert {one.address for one in asked(run, LIST_OFFSETS)} == {BROKERS[1]}


@pytest.mark.parametrize(
    ("code", "said"),
    [(5, r"gets no leader: LEADER_NOT_AVAILABLE \(5\)$"), (29, "cannot be seen: .*: grant Describe on it$")],
)
def test_a_topic_without_a_leader_or_a_right_is_said_in_time(code: int, said: str) -> None:
    run = seeing(metadata({}, [(TOPIC, code)]))
    with pytest.raises(CannotProbe, match=said):
        run.run(find_partition(servers(), TOPIC, is_ours=True))
    assert run.now <= limits.TOPIC_SECONDS_MAX


@pytest.mark.parametrize(
    ("end", "said"),
    [
        (offsets(0, ErrorCode.TOPIC_AUTHORIZATION_FAILED), "grant Describe on it$"),
        (offsets(0, ErrorCode.INVALID_REQUEST), r"cannot be seen: INVALID_REQUEST \(42\)$"),
        (offsets(0, ErrorCode.NOT_LEADER_OR_FOLLOWER), "cannot be seen: NOT_LEADER_OR_FOLLOWER"),
        (answer(LIST_OFFSETS, 1, topics=[]), "lacks the partition$"),
    ],
)
def test_an_end_that_cannot_be_seen_is_said_in_time(end: Any, said: str) -> None:
    run = seeing(metadata({Place(TOPIC, 0): 1}), ends=lambda _ask: end)
    with pytest.raises(CannotProbe, match=said):
        run.run(find_partition(servers(), TOPIC, is_ours=True))
    assert run.now <= limits.RETRY_SECONDS_MAX


def test_a_given_topic_is_not_named_before_it_is_known_to_exist() -> None:
    run = seeing(metadata({Place("other", 0): 0}))
    with pytest.raises(CannotProbe, match=f"there is no topic {TOPIC}"):
        run.run(find_partition(servers(), TOPIC, is_ours=False))
    assert [one.fields["topics"] for one in run.asked] == [None]


# ---------------------------------------------------------------------- what is printed
ROWS = [
    Row("base offset in responses", "-1", dict.fromkeys(Form, False)),
    Row("record headers", "kept", {Form.MARKED_V2: True}),
]
NONE = Verdict(None, ("base offset in responses: -1",), ("a hint",))


def test_the_table_shows_what_each_form_lacks() -> None:
    out = io.StringIO()
    assert list(lines_of(ROWS, NONE, out)) == [
        "TRIAL                     SEEN  OWN IDS  MARKED  WRAPPER V1",
        "base offset in responses  -1    no       no      no",
        "record headers            kept           ok",
        "",
        "verdict: cannot be served",
        "  because base offset in responses: -1",
        "  a hint",
    ]


def test_the_object_has_all_of_it() -> None:
    found = json.loads(object_of(ROWS, NONE, TOPIC, "interrupted"))
    assert (found["form"], found["because"], found["hints"]) == (None, list(NONE.because), ["a hint"])
    assert (found["topic"], found["topic_left"]) == (TOPIC, "interrupted")
    assert found["trials"][1] == {"trial": "record headers", "seen": "kept", "meets": {"v2, marked": True}}
    served = json.loads(object_of(ROWS, Verdict(Form.MARKED_V2, ()), TOPIC, ""))
    assert (served["form"], served["topic_left"]) == ("v2, marked", None)


def test_without_an_address_there_is_nothing_to_probe(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["probe"]) == 2
    assert "upstream" in capsys.readouterr().err
    assert main(["probe", "nowhere"]) == 2
    assert "expected HOST:PORT" in capsys.readouterr().err


def test_the_options_are_those_of_the_help() -> None:
    options = _parser().parse_args(["probe", "k:1", "--topic", "t", "--json"])
    assert (options.upstream, options.topic, options.json) == ("k:1", "t", True)

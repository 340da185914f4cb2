"""Who may forward what of a client who shows the broker himself who he is (rules R6, R13, R17), and what is believed of
his rights."""

from typing import Any

import pytest

from idemproxy.proxy import limits
from idemproxy.proxy.broker.queued_append import QueuedAppend
from idemproxy.proxy.pass_through.write_acl import WriteAcl
from testkit.stage.sequencer import Client, Stage

DENIED = 29


def test_rights_are_asked_again_for_what_came_after_the_last_question() -> None:
    now, asked, heard = [100.0], list[Any](), list[int]()
    rights = WriteAcl(lambda: now[0], asked.append)
    rights.want({"a": 0, "b": 1})
    rights.answered({"a": 0, "b": DENIED})
    assert (rights.missing({"a": 0, "b": 1}), rights.code_of("b")) == ({}, DENIED)
    now[0] += 0.5
    rights.confirm("a", 3, now[0], heard.append)
    rights.confirm("a", 4, now[0] - 1, heard.append)
    assert (asked, heard) == ([{"a": 0, "b": 1}, {"a": 3}], [0])
    now[0] += 0.5
    rights.confirm("a", 5, now[0], heard.append)
    rights.answered({"a": 0})
    assert (asked[2:], heard) == ([{"a": 5}], [0, 0]), "it came after the question that was out"
    rights.answered({"a": DENIED})
    assert heard == [0, 0, DENIED]
    now[0] += 1
    assert rights.missing({"a": 0, "b": 1}) == {"a": 0, "b": 1}, "a no is believed for a second"
    rights.confirm("c", 0, now[0], heard.append)
    rights.end()
    rights.confirm("c", 0, now[0], heard.append)
    assert (heard[3:], len(asked)) == ([0, 0], 4), "he has gone: nobody hears it, and nothing is asked"


def test_while_a_question_is_out_nothing_is_asked_again_however_many_wait() -> None:
    asked, heard = list[Any](), list[int]()
    rights = WriteAcl(lambda: 100.0, asked.append)
    for partition in range(50):
        rights.confirm(f"topic {partition % 5}", partition, 100.0, heard.append)
    assert asked == [{"topic 0": 0}]
    for _ in range(5):
        rights.answered(dict.fromkeys(asked[-1], DENIED))
    assert heard == [DENIED] * 50
    assert sorted(topic for question in asked for topic in question) == [f"topic {number}" for number in range(5)]


def test_of_the_rights_to_many_topics_those_reported_last_are_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "PASS_THROUGH_TOPICS_MAX", 3)
    rights = WriteAcl(lambda: 100.0, lambda _topics: None)
    many = {f"topic {number}": 0 for number in range(5)}
    rights.want(many)
    rights.answered(dict.fromkeys(many, 0))
    assert rights.missing(many) == {}, "a request may have more"
    for topic in ("topic 3", "topic 0", "topic 4"):
        rights.reported(topic, 0, 100.0)
    rights.forget_oldest()
    assert rights.missing(many) == dict.fromkeys(("topic 1", "topic 2"), 0)


# ---------------------------------------------------------------------- who may forward
class Route:
    """Of one client."""

    def queue_append(self, append: QueuedAppend, broker_id: int) -> None:
        raise AssertionError("the stage carries appends out itself")


def client_of(route: Route) -> Client:
    client = Client("User:alice")
    client.route = route
    return client


def test_a_batch_missing_from_the_log_is_resent_over_its_retrys_connection() -> None:
    stage, first, second = Stage(), Route(), Route()
    stage.outcomes.append(stage.loses_request)
    one = client_of(first)
    stage.send(one, 0)
    stage.run(0.5)
    one.is_closed = True
    retry = stage.send(client_of(second), 0)
    stage.run(20)
    assert (retry.code, retry.offset) == (0, 0)
    assert [effect.route for effect in stage.sent] == [first, second]


@pytest.mark.promise("principal")
def test_nobody_forwards_a_batch_of_a_client_that_has_gone() -> None:
    stage, route = Stage(), Route()
    stage.outcomes.append(stage.loses_request)
    one = client_of(route)
    stage.send(one, 0)
    stage.run(0.5)
    one.is_closed = True
    stage.run(60)
    assert [effect.route for effect in stage.sent] == [route]
    assert stage.entry().intent is None


def test_the_rest_of_a_batch_in_parts_goes_over_its_retrys_connection() -> None:
    stage, first, second = Stage(), Route(), Route()
    stage.context.topics.note_too_large("topic", 120)
    stage.outcomes.extend([stage.succeeds, stage.loses_request])
    one = client_of(first)
    values = [b"%d" % number * 40 for number in range(4)]
    stage.send(one, 0, *values)
    stage.run(0.2)
    one.is_closed = True
    stage.run(30)
    retry = stage.send(client_of(second), 0, *values)
    stage.run(30)
    assert retry.code == 0
    assert stage.stored_values() == values
    assert {effect.route for effect in stage.sent} == {first, second}
    assert stage.sent[-1].route is second


def test_a_batch_of_another_kind_of_client_does_not_join() -> None:
    """Should a certificate bear the very name: what has to leave over a client's own connection never leaves by the
    pool."""
    stage, route = Stage(), Route()
    stage.outcomes.append(stage.loses_request)
    own = stage.send(client_of(route), 0)
    other = stage.send(Client("User:alice"), 0)
    stage.run(20)
    assert [effect.route for effect in stage.sent] == [route, route]
    assert [(one.code, one.offset) for one in (own, other)] == [(0, 0)] * 2

"""Which rights the proxy's principal lacks at the brokers, by what they tell."""

import re
from pathlib import Path

import pytest

from idemproxy.codecs import messages
from idemproxy.codecs.errors import UnsupportedVersion
from idemproxy.proxy.bridge.rights import AskRights, Operation, Rights
from idemproxy.proxy.broker.needed_rights import Lacking, lacking
from idemproxy.proxy.flow.form import Form
from idemproxy.proxy.versions import ApiKey, BrokerRanges

BEFORE_2_8: BrokerRanges = {ApiKey.PRODUCE: (0, 8)}
SINCE_2_8: BrokerRanges = {**BEFORE_2_8, ApiKey.DESCRIBE_CLUSTER: (0, 0)}
NONE: frozenset[Operation] = frozenset()
ALL = frozenset(Operation)
PAGE = Path(__file__).resolve().parents[3] / "docs" / "how-to" / "sasl.md"


def missing(rights: Rights, form: Form, ranges: BrokerRanges, *, writes: bool = True) -> list[Lacking]:
    return list(lacking(rights, ranges, form, writes=writes))


def test_an_idempotent_write_is_needed_for_producer_ids_before_2_8_alone() -> None:
    rights = Rights(NONE, {"t": ALL})
    for form in Form:
        needs = [one.operation for one in missing(rights, form, BEFORE_2_8)]
        assert needs == ([Operation.IDEMPOTENT_WRITE] if form is Form.OWN_IDS else [])
        assert missing(rights, form, SINCE_2_8) == []
        assert missing(rights, form, BEFORE_2_8, writes=False) == []
        assert missing(Rights(None, {"t": ALL}), form, BEFORE_2_8) == [], "such a broker does not tell"


def test_topics_are_named_by_what_may_not_be_done_there() -> None:
    topics = {"both": ALL, "read": frozenset({Operation.READ}), "none": NONE, "untold": None}
    first, second = missing(Rights(ALL, topics), Form.MARKED_V2, SINCE_2_8)
    assert (first.operation, first.topics) == (Operation.READ, ("none",))
    assert (second.operation, second.topics) == (Operation.WRITE, ("none", "read"))
    assert str(second) == "our principal lacks Write on none, read: batches are refused"
    assert missing(Rights(ALL, topics), Form.MARKED_V2, SINCE_2_8, writes=False) == [first]


def test_only_brokers_that_tell_rights_are_asked_for_them() -> None:
    question = AskRights(("t",))
    others: list[BrokerRanges] = [{ApiKey.METADATA: (0, 7)}, {ApiKey.METADATA: (9, 13)}, {}]
    for ranges in others:
        with pytest.raises(UnsupportedVersion):
            question.version_for(ranges)
    assert question.version_for({ApiKey.METADATA: (0, 13)}) == 8


def test_what_a_broker_tells_is_read() -> None:
    topic = {"error_code": 0, "name": "t", "is_internal": False, "partitions": []}
    body = messages.encode_response(
        *(ApiKey.METADATA, 8),
        brokers=[],
        cluster_id="c",
        controller_id=1,
        topics=[
            {**topic, "authorized_operations": {3, 8}},
            {**topic, "name": "away", "error_code": 3},
        ],
        authorized_operations=None,
    )
    assert AskRights(("t", "away")).parse(8, body) == Rights(None, {"t": frozenset({Operation.READ})})


def test_the_page_names_each_of_them() -> None:
    section = PAGE.read_text().partition("## Rights of the proxy at the brokers")[2].partition("\n## ")[0]
    named = set(re.findall(r"`(\w+)`", section))
    assert {one.name.title().replace("_", "") for one in Operation} <= named

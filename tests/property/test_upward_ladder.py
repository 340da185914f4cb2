"""Raised requests and lowered answers have the content that the library writes in the other version, whatever it is."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from idemproxy.codecs import messages
from idemproxy.codecs.errors import WireError
from idemproxy.codecs.steps import at_once
from idemproxy.proxy.bridge.upward.table import RAISED_VERSIONS, Raised, plan
from idemproxy.proxy.versions import ApiKey

from .test_codecs_messages import structs

TOKENS = range(ApiKey.CREATE_DELEGATION_TOKEN, ApiKey.DESCRIBE_DELEGATION_TOKEN + 1)
ALL = [(key, version) for key, top in RAISED_VERSIONS.items() for version in range(top)]
BY_LAYOUT = [(key, version) for key, version in ALL if key not in TOKENS and key != ApiKey.LIST_OFFSETS]
LITERAL, DEFAULT_CONFIG = 3, 5
KNOWN_CODES = 46
"""-1 to 44."""


def raised(key: int, version: int) -> Raised:
    found = plan(key, version, {key: (RAISED_VERSIONS[key], RAISED_VERSIONS[key])})
    assert found is not None
    return found


def sayable(value: Any) -> Any:
    """The same fields, with codes that every client knows and nothing that the lower version can not say."""
    if isinstance(value, list):
        return [sayable(one) for one in value]
    if not isinstance(value, dict):
        return value
    fields = {name: sayable(one) for name, one in value.items()}
    if "error_code" in fields:
        fields["error_code"] = fields["error_code"] % KNOWN_CODES - 1
    if "pattern_type" in fields:
        fields["pattern_type"] = LITERAL
    if "config_source" in fields:
        fields["config_source"] = fields["config_source"] % DEFAULT_CONFIG + 1
    return fields


def as_version_0_says(key: int, value: Any) -> Any:
    """What only a rule beyond the layout says."""
    if isinstance(value, list):
        return [as_version_0_says(key, one) for one in value]
    if not isinstance(value, dict):
        return value
    fields = {name: as_version_0_says(key, one) for name, one in value.items()}
    if "config_source" in fields:
        fields["is_default"] = fields["config_source"] == DEFAULT_CONFIG
        del fields["synonyms"]  # the library can not build one for version 0
    if fields.get("committed_offset") == -1 and fields["error_code"] == 0:
        fields["error_code"] = 3
    return fields


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_a_raised_request_is_what_the_library_writes_in_the_higher_version(data: st.DataObject) -> None:
    key, version = data.draw(st.sampled_from(BY_LAYOUT))
    fields = data.draw(structs(messages.LIBRARY_CLASSES[key, "request"]._struct, version))
    one = raised(key, version)
    (body,) = at_once(one.requests(messages.encode_request(key, version, **fields)))
    assert bytes(body) == messages.encode_request(key, one.broker_version, **fields)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_a_lowered_answer_is_what_the_library_writes_in_the_lower_version(data: st.DataObject) -> None:
    key, version = data.draw(st.sampled_from(BY_LAYOUT))
    one = raised(key, version)
    fields = sayable(data.draw(structs(messages.LIBRARY_CLASSES[key, "response"]._struct, one.broker_version)))
    body = at_once(one.response([messages.encode_response(key, one.broker_version, **fields)]))
    assert bytes(body) == messages.encode_response(key, version, **as_version_0_says(key, fields))


@st.composite
def offset_requests(draw: st.DrawFn) -> dict[str, Any]:
    """Each topic and partition once."""
    entry = st.fixed_dictionaries(
        {
            "partition_index": st.integers(0, 3),
            "timestamp": st.integers(-2, 3),
            "max_num_offsets": st.integers(-1, 3),
        }
    )
    names = draw(st.lists(st.text(max_size=3), unique=True, max_size=3))
    entries = st.lists(entry, unique_by=lambda one: one["partition_index"], max_size=3)
    return {"replica_id": -1, "topics": [{"name": name, "partitions": draw(entries)} for name in names]}


@settings(max_examples=150, deadline=None)
@given(offset_requests(), st.integers(0, 5), st.integers(0, 5))
def test_lists_of_offsets_are_those_of_a_log(fields: dict[str, Any], start: int, records: int) -> None:
    """Each record of the log has its offset as its time stamp."""
    end = start + records

    def offset_for(timestamp: int) -> int:
        if timestamp < 0:
            return end if timestamp == -1 else start
        return max(timestamp, start) if timestamp < end else -1

    one = raised(ApiKey.LIST_OFFSETS, 0)
    answers = []
    for body in at_once(one.requests(messages.encode_request(2, 0, **fields))):
        asked = messages.decode_request(2, 1, body)
        topics = [
            {
                "name": topic.name,
                "partitions": [
                    {"partition_index": part.partition_index, "error_code": 0, "offset": offset_for(part.timestamp)}
                    for part in topic.partitions
                ],
            }
            for topic in asked.topics
        ]
        answers.append(messages.encode_response(2, 1, topics=topics))
    answer = messages.decode_response(2, 0, at_once(one.response(answers)))
    assert [topic.name for topic in answer.topics] == [topic["name"] for topic in fields["topics"]]
    for topic, asked_topic in zip(answer.topics, fields["topics"], strict=True):
        for part, asked_part in zip(topic.partitions, asked_topic["partitions"], strict=True):
            offsets, count, timestamp = part.old_style_offsets, asked_part["max_num_offsets"], asked_part["timestamp"]
            assert part.partition_index == asked_part["partition_index"]
            assert len(offsets) <= max(count, 0)
            assert offsets == sorted(set(offsets), reverse=True)
            if count > 0:
                exact = offset_for(timestamp)
                assert offsets[0] == (end if exact == -1 else exact)
            if count > 1:
                assert offsets[-1] == start


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_any_bytes_are_rewritten_or_a_wire_error(data: st.DataObject) -> None:
    key, version = data.draw(st.sampled_from(ALL))
    body = data.draw(st.binary(max_size=60))
    if key not in TOKENS and data.draw(st.booleans()):
        fields = data.draw(structs(messages.LIBRARY_CLASSES[key, "request"]._struct, version))
        whole = bytearray(messages.encode_request(key, version, **fields))
        place = data.draw(st.integers(0, len(whole)))
        body = bytes(whole[:place]) + body[:2] + bytes(whole[place + 1 :])
    one = raised(key, version)
    try:
        further = len(at_once(one.requests(body))) - 1
    except WireError:
        further = 0
        one = raised(key, version)
    try:
        at_once(one.response([body, *[body] * further]))
    except WireError:
        return

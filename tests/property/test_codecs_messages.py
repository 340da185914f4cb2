"""Every API, version and direction: what is encoded comes back, and every byte string decodes or is a WireError."""

from __future__ import annotations

import uuid
from contextlib import suppress
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from idemproxy.codecs.errors import WireError
from idemproxy.codecs.messages import (
    LIBRARY_CLASSES,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)

ENCODE = {"request": encode_request, "response": encode_response}
DECODE = {"request": decode_request, "response": decode_response}
EVERY_MESSAGE = [
    (api_key, kind, version)
    for (api_key, kind), message in sorted(LIBRARY_CLASSES.items(), key=lambda item: item[0])
    for version in range(message.max_version + 1)
]


def integers(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(1 << (bits - 1)), (1 << (bits - 1)) - 1)


SIMPLE: dict[str, st.SearchStrategy[Any]] = {
    "int8": integers(8),
    "int16": integers(16),
    "uint16": st.integers(0, 65535),
    "int32": integers(32),
    "int64": integers(64),
    "float64": st.floats(allow_nan=False),
    "bool": st.booleans(),
    "uuid": st.uuids().filter(lambda value: value != uuid.UUID(int=0)),
    "string": st.text(max_size=5),
    "bytes": st.binary(max_size=5),
    "records": st.binary(max_size=5),
    "bitfield": st.sets(st.integers(0, 30), max_size=3),
}


def values(field: Any, version: int, *, is_element: bool = False) -> st.SearchStrategy[Any]:
    strategy: st.SearchStrategy[Any]
    if field.is_struct_array():
        strategy = st.lists(structs(field.array_of, version), max_size=2)
    elif field.is_array():
        strategy = st.lists(values(field.array_of, version, is_element=True), max_size=3)
    elif field.is_struct():
        strategy = structs(field, version)
    else:
        strategy = SIMPLE[field.type_str]
    # The library takes a tag that is null for one that is not there.
    if field.nullable_for_version_q(version) and field.tag is None and not is_element:
        strategy = st.none() | strategy
    return strategy


def structs(struct_field: Any, version: int) -> st.SearchStrategy[dict[str, Any]]:
    fields = struct_field.untagged_fields(version) + struct_field.tagged_fields(version)._fields
    return st.fixed_dictionaries({field.name: values(field, version) for field in fields})


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_every_message_comes_back_as_it_was_encoded(data: st.DataObject) -> None:
    api_key, kind, version = data.draw(st.sampled_from(EVERY_MESSAGE))
    fields = data.draw(structs(LIBRARY_CLASSES[api_key, kind]._struct, version))
    if (api_key, kind) == (18, "response"):
        fields["error_code"] = 0  # with 35 the layout is another one

    body = ENCODE[kind](api_key, version, **fields)

    assert DECODE[kind](api_key, version, body).to_dict(json=False) == fields


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_every_byte_string_is_a_message_or_a_wire_error(data: st.DataObject) -> None:
    api_key, kind, version = data.draw(st.sampled_from(EVERY_MESSAGE))
    body = data.draw(st.binary(max_size=60))

    with suppress(WireError):
        DECODE[kind](api_key, version, body)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_a_damaged_message_is_a_message_or_a_wire_error(data: st.DataObject) -> None:
    api_key, kind, version = data.draw(st.sampled_from(EVERY_MESSAGE))
    fields = data.draw(structs(LIBRARY_CLASSES[api_key, kind]._struct, version))
    body = bytearray(ENCODE[kind](api_key, version, **fields))
    for position in data.draw(st.lists(st.integers(0, max(len(body) - 1, 0)), max_size=3)) if body else []:
        body[position] = data.draw(st.integers(0, 255))
    body = body[: data.draw(st.integers(0, len(body)))] + data.draw(st.binary(max_size=3))

    with suppress(WireError):
        DECODE[kind](api_key, version, body)

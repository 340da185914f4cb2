"""What goes through to Kafka >= 0.11: nothing whose answer tells an address that is not rewritten.

The evidence are the message schemas in the jar of the newest Kafka client, and what real brokers of each release have.
"""

import json
import re
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from idemproxy.codecs.headers import FLEXIBLE_FROM
from idemproxy.demo.jars import client_class_path
from idemproxy.proxy.native.rewrites import REWRITES, REWRITTEN_FROM
from idemproxy.proxy.versions import NATIVE_MAX, ApiKey, native

ADDRESS_FIELDS = {"host", "port"}
ADDRESSES_OF_CLIENTS = {ApiKey.STREAMS_GROUP_HEARTBEAT, ApiKey.STREAMS_GROUP_DESCRIBE}
"""Their endpoints are those of applications."""
PATTERNS_OF_CLIENTS = {ApiKey.DESCRIBE_ACLS, ApiKey.CREATE_ACLS, ApiKey.DELETE_ACLS}
"""The host that an ACL is about."""


@cache
def schemas() -> dict[tuple[int, str], dict[str, Any]]:
    jar = next(path for path in client_class_path().split(":") if Path(path).name.startswith("kafka-clients"))
    found: dict[tuple[int, str], dict[str, Any]] = {}
    with zipfile.ZipFile(jar) as archive:
        for name in archive.namelist():
            if re.fullmatch(r"common/message/\w+(Request|Response)\.json", name):
                text = archive.read(name).decode()
                schema = json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE))
                found[schema["apiKey"], schema["type"]] = schema
    assert len(found) > 150
    return found


def first_version(versions: str) -> int:
    return int(re.match(r"\d+", versions)[0]) if versions[:1].isdigit() else 1 << 15  # type: ignore[index]


def address_fields(fields: Sequence[Mapping[str, Any]], shared: Mapping[str, Any], since: int) -> Iterator[int]:
    """The first version of each field that is an address."""
    for field in fields:
        first = max(since, first_version(field["versions"]))
        if field["name"].lower() in ADDRESS_FIELDS:
            yield first
        inner = field.get("fields") or shared.get(field["type"].removeprefix("[]"), ())
        yield from address_fields(inner, shared, first)


def first_with_address(api_key: int, kind: str) -> int:
    schema = schemas()[api_key, kind]
    shared = {one["name"]: one["fields"] for one in schema.get("commonStructs", ())}
    return min(address_fields(schema["fields"], shared, 0), default=1 << 15)


@pytest.mark.parametrize("api_key", sorted(NATIVE_MAX))
def test_no_body_that_passes_unread_has_the_address_of_a_broker(api_key: int) -> None:
    if api_key in ADDRESSES_OF_CLIENTS | PATTERNS_OF_CLIENTS:
        assert first_with_address(api_key, "response") < 1 << 15 or first_with_address(api_key, "request") < 1 << 15
        return
    assert first_with_address(api_key, "request") > NATIVE_MAX[api_key]
    if api_key in REWRITES:
        assert first_with_address(api_key, "response") == REWRITTEN_FROM[api_key] <= NATIVE_MAX[api_key]
    else:
        assert first_with_address(api_key, "response") > NATIVE_MAX[api_key]


@pytest.mark.parametrize("api_key", sorted(NATIVE_MAX))
def test_every_version_that_passes_is_known_and_its_header_is_read_right(api_key: int) -> None:
    schema = schemas()[api_key, "request"]
    last = int(schema["validVersions"].split("-")[-1])
    assert NATIVE_MAX[api_key] <= last
    flexible = first_version(schema["flexibleVersions"])
    assert FLEXIBLE_FROM.get(api_key, 1 << 15) == flexible or flexible > last < FLEXIBLE_FROM[api_key]


def test_what_is_left_out_is_left_out_for_a_reason() -> None:
    """Every API that clients may ask a broker for passes, but for share groups, and what controllers are asked for."""
    asked = {key for (key, kind), schema in schemas().items() if "broker" in schema.get("listeners", ())}
    share_groups = {76, 77, 78, 79, 83, 84, 85, 86, 87, 90, 91, 92}
    of_controllers = {80, 81}
    assert asked - set(NATIVE_MAX) == share_groups | of_controllers


def test_clients_get_the_version_ranges_that_all_brokers_have() -> None:
    old = {0: (0, 3), 1: (0, 5), 3: (0, 4), 22: (0, 0), 4: (0, 0)}
    new = {0: (0, 13), 1: (4, 18), 3: (0, 13), 22: (0, 5), 78: (1, 2)}
    assert native([new]) == {0: (0, 13), 1: (4, 15), 3: (0, 13), 22: (0, 5)}
    assert native([old, new]) == {0: (0, 3), 1: (4, 5), 3: (0, 4), 22: (0, 0)}
    assert native([]) == {}

"""DescribeConfigs where the brokers have none: what is said of a topic whose settings nobody tells."""

from __future__ import annotations

from typing import Any

import pytest

from idemproxy.codecs import messages
from idemproxy.codecs.errors import LimitExceeded, WireError
from idemproxy.codecs.steps import at_once
from idemproxy.proxy.bridge.cluster import BrokerAddress, Cluster, Partition, Topic
from idemproxy.proxy.bridge.describe_configs import (
    METADATA_VERSION,
    NO_SUCH_KIND,
    NOT_TOLD,
    REQUEST_BYTES_MAX,
    RESOURCES_PER_STEP,
    answer_describe_configs,
    parse_describe_configs,
)
from idemproxy.proxy.bridge.documented_settings import documented_of_topics
from idemproxy.proxy.bridge.metadata import encode_client_answer
from idemproxy.proxy.versions import KNOWN, OWN_WHERE_MISSING, ApiKey

KEY = ApiKey.DESCRIBE_CONFIGS
VERSIONS = range(OWN_WHERE_MISSING[KEY] + 1)
TOPIC, BROKER, LOGGER = 2, 4, 8
DEFAULT, STATIC = 5, 4
TOPICS = {
    "there": Topic("there", 0, False, [Partition(0, 0, 7, (7,), (7,))]),
    "new": Topic("new", 5, False),
    "denied": Topic("denied", 29, False),
}
CLUSTER = Cluster("id", 7, {7: BrokerAddress(7, "broker", 9092)}, TOPICS)


def asked(*resources: tuple[int, str, list[str] | None], version: int = 2, include_synonyms: bool = True) -> bytes:
    fields = [
        {"resource_type": kind, "resource_name": name, "configuration_keys": names} for kind, name, names in resources
    ]
    return messages.encode_request(KEY, version, resources=fields, include_synonyms=include_synonyms)


def told(body: bytes, version: int = 2, release: str = "0.10.2") -> list[Any]:
    request = parse_describe_configs(version, body)
    metadata = encode_client_answer(
        METADATA_VERSION, CLUSTER, request.topics, {7: ("proxy", 1)}, fallback_cluster_id="other"
    )
    answer = at_once(answer_describe_configs(request, metadata, release))
    return list(messages.decode_response(KEY, version, answer).results)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_topics_settings_have_no_value_and_the_default_as_synonym(version: int) -> None:
    (found,) = told(asked((TOPIC, "there", None), version=version), version)
    assert (found.error_code, found.error_message) == (0, NOT_TOLD)
    assert (found.resource_type, found.resource_name) == (TOPIC, "there")
    assert [one.name for one in found.configs] == list(documented_of_topics("0.10.2"))
    assert {one.value for one in found.configs} == {None}
    assert {one.read_only for one in found.configs} == {True}
    (policy,) = (one for one in found.configs if one.name == "cleanup.policy")
    if version == 0:
        assert policy.is_default
    else:
        assert policy.config_source == DEFAULT
        (synonym,) = policy.synonyms
        assert (synonym.name, synonym.value, synonym.source) == ("log.cleanup.policy", "delete", DEFAULT)


def test_only_the_settings_that_are_named_are_returned_and_synonyms_on_demand() -> None:
    names = ["retention.ms", "no.such.setting", "broker.id"]
    topic, none, broker = told(
        asked((TOPIC, "there", names), (TOPIC, "new", []), (BROKER, "7", names), include_synonyms=False)
    )
    assert [(one.name, list(one.synonyms)) for one in topic.configs] == [("retention.ms", [])]
    assert (none.error_code, list(none.configs)) == (0, [])
    assert [(one.name, one.value) for one in broker.configs] == [("broker.id", "7")]


def test_of_a_broker_its_id_is_known() -> None:
    (found,) = told(asked((BROKER, "7", None)))
    values = {one.name: (one.value, one.config_source) for one in found.configs}
    assert values.pop("broker.id") == ("7", STATIC)
    assert set(values.values()) == {(None, DEFAULT)}
    defaults = {one.name: [synonym.value for synonym in one.synonyms] for one in found.configs}
    assert defaults["log.retention.ms"] == ["604800000"]
    assert defaults["auto.create.topics.enable"] == ["true"]
    assert "follower.replication.throttled.replicas" not in defaults


def test_a_setting_without_a_default_is_there_without_a_synonym() -> None:
    names = ["advertised.listeners", "listeners", "broker.rack"]
    (found,) = told(asked((BROKER, "7", names)))
    assert [one.name for one in found.configs] == sorted(names)
    for one in found.configs:
        assert (one.value, one.config_source, one.is_sensitive, list(one.synonyms)) == (None, DEFAULT, False, [])


def test_what_is_not_there_or_not_to_be_seen_is_refused() -> None:
    found = told(
        asked(
            (TOPIC, "gone", None),
            (TOPIC, "denied", None),
            (TOPIC, "not a name", None),
            (BROKER, "8", None),
            (BROKER, "seven", None),
            (BROKER, "", None),
            (LOGGER, "7", None),
        )
    )
    assert [one.error_code for one in found] == [3, 29, 17, 42, 42, 0, 42]
    assert [list(one.configs) for one in found] == [[]] * 7
    assert found[3].error_message == "there is no broker '8' in the cluster"
    assert found[6].error_message == NO_SUCH_KIND


def test_each_is_answered_once() -> None:
    found = told(asked((TOPIC, "there", None), (TOPIC, "there", []), (BROKER, "there", None)))
    assert [(one.resource_type, one.resource_name) for one in found] == [(TOPIC, "there"), (BROKER, "there")]


def test_releases_differ() -> None:
    by_release = {release: documented_of_topics(release) for release in KNOWN}
    assert "min.compaction.lag.ms" not in by_release["0.10.0"]
    assert by_release["0.10.2"]["message.format.version"].default == "0.10.2-IV0"
    assert by_release["0.10.1"]["message.format.version"].default == "0.10.1-IV2"


def test_many_take_many_steps() -> None:
    request = parse_describe_configs(
        2, asked(*((TOPIC, f"t{number}", ["x"]) for number in range(2 * RESOURCES_PER_STEP)))
    )
    metadata = encode_client_answer(METADATA_VERSION, CLUSTER, [], {}, fallback_cluster_id="other")
    assert sum(1 for _ in answer_describe_configs(request, metadata, "0.10.2")) == 1


@pytest.mark.parametrize("version", VERSIONS)
def test_garbage_is_a_wire_error_and_much_is_not_read(version: int) -> None:
    body = asked((TOPIC, "there", ["x"]), (BROKER, "7", None), version=version)
    for cut in range(len(body)):
        with pytest.raises(WireError):
            parse_describe_configs(version, body[:cut])
    with pytest.raises(WireError):
        parse_describe_configs(version, body + b"\0")
    with pytest.raises(LimitExceeded):
        parse_describe_configs(version, body + bytes(REQUEST_BYTES_MAX))

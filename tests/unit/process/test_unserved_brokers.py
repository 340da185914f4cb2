"""Which brokers are served, and what follows from one that is not: what is said, how often, when the process ends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from idemproxy.codecs import messages
from idemproxy.codecs.errors import UnsupportedVersion, WireError
from idemproxy.proxy import limits
from idemproxy.proxy.bridge.configs import AskSettings, BrokerSettings
from idemproxy.proxy.broker.broker import BOOTSTRAP_ID, Broker
from idemproxy.proxy.broker.served import SETTINGS, Idempotence, Kind, Refusal, by_settings, by_version, judge
from idemproxy.proxy.flow.form import Form
from idemproxy.proxy.process.unserved_brokers import UnservedBrokers
from idemproxy.proxy.versions import KNOWN, NEWER, ApiKey, Detected
from testkit.stage.clock import Clock, Wire
from testkit.virtual import kafka_bytes as kafka

FORMAT, PROTOCOL = SETTINGS
NEW_RANGES = {
    **KNOWN["0.10.2"],
    ApiKey.PRODUCE: (0, 5),
    ApiKey.INIT_PRODUCER_ID: (0, 0),
    ApiKey.DESCRIBE_CONFIGS: (0, 1),
}


# ---------------------------------------------------------------------- the rule
@pytest.mark.parametrize("version", KNOWN)
def test_of_old_brokers_those_are_served_that_store_message_format_v1(version: str) -> None:
    refusal = by_version(Detected(version, KNOWN[version]))
    assert (None if refusal is None else refusal.kind) == (None if version.startswith("0.10") else Kind.UNSERVED)


def test_what_a_broker_is_may_be_known_later() -> None:
    assert by_version(Detected("unsure", reason="7 bytes")) == Refusal(Kind.UNSURE, "7 bytes")


@pytest.mark.parametrize(
    ("form", "protocol", "is_v1"),
    [
        ("0.10.2", "1.1-IV0", True),
        ("0.10.2-IV0", "2.8-IV1", True),
        ("0.9.0", "0.11.0-IV2", True),
        ("0.11.0-IV2", "0.11.0-IV2", False),
        ("1.1-IV0", "1.1-IV0", False),
        ("2.8", "0.10.2", False),
        ("0.10.2", "3.0-IV1", False),  # the format has no effect there
        ("3.0-IV1", "3.9-IV0", False),
        ("0.10.2", None, False),
        (None, None, False),  # 4.0 has neither
        ("old", "1.1", False),
        ("0.100", "1.1", False),
    ],
)
def test_a_newer_broker_gets_format_v1_only_if_it_certainly_stores_that(
    form: str | None, protocol: str | None, is_v1: bool
) -> None:
    told = {name: value for name, value in ((FORMAT, form), (PROTOCOL, protocol)) if value is not None}
    assert by_settings(BrokerSettings(0, told)) is (Form.WRAPPER_V1 if is_v1 else Form.MARKED_V2)


@pytest.mark.parametrize(
    ("ids_to", "is_kafka", "stored", "form"),
    [
        (4, True, "2.8", Form.OWN_IDS),
        (3, True, "2.8", Form.OWN_IDS),
        (2, True, "2.8", Form.MARKED_V2),  # before 2.5 an id that it does not know begins at 0 only
        (4, False, "2.8", Form.MARKED_V2),  # another service may ignore ids
        (4, True, "0.10.2", Form.WRAPPER_V1),
        (4, True, None, Form.OWN_IDS),  # it was not asked: producer ids are enough
    ],
)
def test_where_brokers_give_idempotence_batches_keep_their_ids_if_any_sequence_may_begin(
    ids_to: int, is_kafka: bool, stored: str | None, form: Form
) -> None:
    ranges = {**NEW_RANGES, ApiKey.INIT_PRODUCER_ID: (0, ids_to), ApiKey.FETCH: (0, 12)}
    ranges |= {ApiKey.WRITE_TXN_MARKERS: (0, 0)} if is_kafka else {}
    if not is_kafka:
        ranges = {key: one for key, one in ranges.items() if key not in (7, 27)}
    told = None if stored is None else BrokerSettings(0, {FORMAT: stored, PROTOCOL: "2.8"})
    judgement = judge(Detected(NEWER, ranges), told)
    assert judgement.form_in(Idempotence.NATIVE) is form
    assert judgement.form_in(Idempotence.PROXY) is not Form.OWN_IDS


@pytest.mark.parametrize(
    ("error_code", "kind", "end"),
    [
        (
            31,
            Kind.UNSERVED,
            "format it stores; allow the principal of idemproxy DescribeConfigs on the cluster, or say "
            "who gives idempotence (upstream.idempotence)",
        ),
        (-1, Kind.UNSURE, "format it stores: error -1"),
    ],
)
def test_one_that_does_not_tell_is_not_served_and_others_are(error_code: int, kind: Kind, end: str) -> None:
    refusal = by_settings(BrokerSettings(error_code, {}))
    assert isinstance(refusal, Refusal)
    assert refusal.kind is kind
    assert refusal.reason.endswith(end)


# ---------------------------------------------------------------------- the question
def settings_answer(
    version: int, values: Mapping[str, str], *, results: int = 1, name: str = "7", error_code: int = 0
) -> bytes:
    entries: list[dict[str, Any]] = [
        {"name": key, "value": value, "synonyms": [{"name": key, "value": value, "source": 5}] if version else []}
        for key, value in values.items()
    ]
    result = {"error_code": error_code, "resource_type": 4, "resource_name": name, "configs": entries}
    return messages.encode_response(ApiKey.DESCRIBE_CONFIGS, version, results=[result] * results)


@pytest.mark.parametrize("version", [0, 1])
def test_settings_requests_and_answers_equal_those_of_the_library(version: int) -> None:
    question = AskSettings(7, SETTINGS)
    resources = [{"resource_type": 4, "resource_name": "7", "configuration_keys": list(SETTINGS)}]
    assert question.encode(version) == messages.encode_request(ApiKey.DESCRIBE_CONFIGS, version, resources=resources)
    answer = settings_answer(version, {"one": "1", "two": "2"})
    assert question.parse(version, answer) == BrokerSettings(0, {"one": "1", "two": "2"})
    assert question.parse(version, settings_answer(version, {}, error_code=31)).error_code == 31
    for wrong in (answer + b"\x00", settings_answer(version, {}, name="8"), settings_answer(version, {}, results=2)):
        with pytest.raises(WireError):
            question.parse(version, wrong)
    for end in range(len(answer)):
        with pytest.raises(WireError):
            question.parse(version, answer[:end])


def test_the_highest_version_that_is_spoken_here_is_asked_in() -> None:
    question = AskSettings(7, SETTINGS)
    versions = [question.version_for({32: span}) for span in ((0, 0), (0, 1), (0, 4), (1, 4))]
    assert versions == [0, 1, 1, 1]
    for none in ({}, {32: (2, 4)}):
        with pytest.raises(UnsupportedVersion):
            question.version_for(none)


# ---------------------------------------------------------------------- one broker
class Told:
    """A broker that somebody else plays, from its connection on."""

    def __init__(self, broker_id: int = 7) -> None:
        self.clock = Clock()
        self.said: list[str] = []
        self.refused: list[str] = []
        self.broker = Broker(
            self.clock,
            broker_id,
            ("kafka", 9092),
            may_send=lambda: True,
            admits=lambda _cluster_id: True,
            on_ready=lambda _broker: None,
            report=lambda event: self.said.append(event.what),
            on_refused=lambda broker: self.refused.append(broker.why_refused),
        )
        self.broker.open()

    def connect(self, *answers: bytes) -> Wire:
        """Take the newest connection, and answer what is asked there."""
        wire = Wire()
        self.clock.opening[-1].connected(wire)
        for body in answers:
            request = kafka.parse_request(wire.sent[4:])
            wire.sent = b""
            self.clock.opening[-1].received(kafka.frame(request.correlation_id, body))
        return wire


def ranges_answer(ranges: dict[ApiKey | int, tuple[int, int]]) -> bytes:
    keys = [{"api_key": int(key), "min_version": low, "max_version": high} for key, (low, high) in ranges.items()]
    return messages.encode_response(ApiKey.API_VERSIONS, 0, api_keys=keys)


def metadata(version: int) -> bytes:
    return kafka.metadata_answer(version, [(7, "kafka", 9092)], "ours", 7, [])


NEW = (metadata(1), ranges_answer(NEW_RANGES), metadata(2))
OF_V0 = (kafka.metadata_answer(0, [(7, "kafka", 9092)], "", 7, []), bytes(8))


def settings(form: str) -> bytes:
    return settings_answer(1, {FORMAT: form, PROTOCOL: "1.1"})


def test_a_newer_broker_that_keeps_format_v1_is_served_with_a_remark() -> None:
    scene = Told()
    scene.connect(*NEW, settings("0.10.2"))
    assert scene.broker.is_ready
    assert "as long as it stores message format 0.10.2" in scene.broker.remark
    assert scene.refused == []


def test_its_settings_are_asked_for_on_every_connection() -> None:
    scene = Told()
    scene.connect(*NEW, settings("0.10.2"))
    scene.clock.opening[-1].lost("it is upgraded")
    scene.clock.run(1)
    scene.connect(*NEW)
    assert not scene.broker.is_ready
    scene.clock.opening[-1].lost("no answer")
    scene.clock.run(1)
    assert not scene.connect(*NEW, settings("1.1-IV0")).was_reset
    assert (scene.broker.takes_batches, scene.broker.form) == (True, Form.MARKED_V2)
    assert scene.refused == []
    scene.clock.opening[-1].lost("it gets the old format again")
    scene.clock.run(1)
    scene.connect(*NEW, settings("0.10.2"))
    assert (scene.broker.takes_batches, scene.broker.form) == (True, Form.WRAPPER_V1)


def test_one_that_cannot_be_asked_for_its_settings_is_not_served() -> None:
    scene = Told()
    ranges = {key: span for key, span in NEW_RANGES.items() if key != ApiKey.DESCRIBE_CONFIGS}
    scene.connect(metadata(1), ranges_answer(ranges), metadata(2))
    assert scene.refused == [
        "broker 7 at kafka:9092 cannot be served: it has producer ids of its own, and does not tell which message "
        "format it stores"
    ]


def test_a_bootstrap_address_without_produce_is_not_asked_for_settings() -> None:
    scene = Told(BOOTSTRAP_ID)
    scene.connect(*NEW)
    assert scene.broker.is_ready


def test_an_unservable_broker_is_named_once_retried_rarely_and_served_when_replaced() -> None:
    scene = Told()
    for _ in range(8):
        assert scene.connect(*OF_V0).was_reset
        tries = len(scene.clock.opening)
        scene.clock.run(limits.REFUSED_BACKOFF_SECONDS_MAX)
        assert len(scene.clock.opening) == tries + 1
    scene.clock.run(limits.REFUSED_BACKOFF_SECONDS_MAX)
    assert len(scene.refused) == 1
    assert scene.said == []
    scene.clock.opening[-1].lost("refused")
    scene.clock.run(limits.CONNECT_BACKOFF_SECONDS_MAX)
    scene.connect(metadata(1), kafka.api_versions_answer(), metadata(2))
    assert scene.broker.is_ready
    assert scene.broker.why_refused == ""
    assert scene.said == ["broker 7 at kafka:9092 is back"]
    scene.clock.opening[-1].lost("replaced once more")
    scene.clock.run(limits.CONNECT_BACKOFF_SECONDS_MAX)
    scene.connect(*OF_V0)
    assert len(scene.refused) == 2


# ---------------------------------------------------------------------- what follows
V0, DENIED = Refusal(Kind.UNSERVED, "format v0"), Refusal(Kind.UNSERVED, "denied")
UNSURE = Refusal(Kind.UNSURE, "garbage")


class Scene:
    """Some brokers, and what was said of them."""

    def __init__(self, *ids: int) -> None:
        self.brokers = [Told(id_).broker for id_ in ids]
        for number, broker in enumerate(self.brokers):
            broker.address = (f"kafka-{number}", 9092)
        self.said: list[str] = []
        self.ended: list[str] = []
        self.unserved = UnservedBrokers(
            lambda: self.brokers, lambda event: self.said.append(event.what), self.ended.append
        )

    def refuse(self, number: int, refusal: Refusal) -> None:
        self.brokers[number].refusal = refusal
        self.unserved.refused(self.brokers[number])


def test_a_start_ends_when_no_broker_can_be_served_and_names_all() -> None:
    scene = Scene(1, 2, 3)
    for number, refusal in enumerate((V0, DENIED)):
        scene.refuse(number, refusal)
        assert (scene.said, scene.ended) == ([], [])
    scene.refuse(2, V0)
    same, other = "broker 1 at kafka:9092, broker 3 at kafka:9092", "broker 2 at kafka:9092"
    assert scene.ended == [f"{same} cannot be served: format v0; {other} cannot be served: denied"]
    assert scene.said == []


def test_a_start_waits_for_a_while_for_one_that_does_not_answer() -> None:
    scene = Scene(1, 2)
    scene.unserved.waited()
    scene.refuse(0, V0)
    assert scene.ended == []
    scene.unserved.waited()
    assert scene.ended == ["broker 1 at kafka:9092 cannot be served: format v0"]


def test_a_serving_proxy_names_an_unservable_broker_once_and_continues() -> None:
    scene = Scene(1, 2)
    scene.refuse(0, V0)
    scene.brokers[1].is_ready = True
    scene.unserved.waited()
    scene.unserved.serving()
    scene.unserved.serving()
    assert scene.said == ["broker 1 at kafka:9092 cannot be served: format v0"]
    scene.refuse(1, V0)
    assert scene.said[1:] == ["broker 2 at kafka:9092 cannot be served: format v0"]
    assert scene.ended == []


def test_one_that_may_be_known_later_never_ends_a_start() -> None:
    scene = Scene(1)
    scene.refuse(0, UNSURE)
    scene.unserved.waited()
    assert (scene.said, scene.ended) == (["broker 1 at kafka:9092 cannot be served: garbage"], [])


def test_an_address_that_was_configured_is_silent_about_what_its_broker_says_itself() -> None:
    scene = Scene(1, 2)
    scene.unserved.serving()
    for address in (("kafka-0", 9092), ("elsewhere", 9092)):
        first = Told(BOOTSTRAP_ID).broker
        first.address, first.refusal = address, V0
        scene.unserved.refused(first)
    assert scene.said == ["upstream kafka:9092 cannot be served: format v0"]


def test_newer_is_what_has_producer_ids() -> None:
    assert by_version(Detected(NEWER, NEW_RANGES)) is None

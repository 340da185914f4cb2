"""What a probe has found out: what the brokers are served as that it is about, and how it is kept."""

from __future__ import annotations

import json

import pytest

from idemproxy.codecs import messages
from idemproxy.proxy import limits
from idemproxy.proxy.broker.broker import Broker
from idemproxy.proxy.broker.mode import Mode
from idemproxy.proxy.broker.probed import Probed, fingerprint_of
from idemproxy.proxy.broker.served import Idempotence, choose
from idemproxy.proxy.flow.form import Form
from idemproxy.proxy.versions import ApiKey, BrokerRanges
from testkit.stage.clock import Clock, Wire
from testkit.virtual import kafka_bytes as kafka

NATIVE, PROXY = Idempotence.NATIVE, Idempotence.PROXY
RANGES: BrokerRanges = {
    ApiKey.PRODUCE: (0, 9),
    ApiKey.FETCH: (0, 12),
    ApiKey.METADATA: (0, 9),
    ApiKey.API_VERSIONS: (0, 3),
}
OTHERS: BrokerRanges = {**RANGES, ApiKey.PRODUCE: (0, 8)}
BROKERS = frozenset({fingerprint_of(RANGES)})


@pytest.mark.parametrize(
    ("forms", "chosen", "form"),
    [
        ((Form.OWN_IDS, Form.MARKED_V2), NATIVE, Form.MARKED_V2),
        ((Form.OWN_IDS,), NATIVE, Form.MARKED_V2),
        ((Form.MARKED_V2,), PROXY, Form.MARKED_V2),
        ((Form.WRAPPER_V1,), PROXY, Form.WRAPPER_V1),
    ],
)
def test_the_forms_decide_who_gives_idempotence(forms: tuple[Form, ...], chosen: Idempotence, form: Form) -> None:
    judgement = Probed(forms, (), BROKERS).judgement
    assert choose([judgement]) is chosen
    assert judgement.refusal(chosen) is None
    assert judgement.form is form
    assert judgement.remark_in(chosen) == ""
    in_log = any(one in (Form.MARKED_V2, Form.WRAPPER_V1) for one in forms)
    assert (judgement.refusal(PROXY) is None) == in_log, "only what the log shows can the proxy give"


@pytest.mark.parametrize(
    ("probed", "words"),
    [
        (Probed((), ("a: b", "c: d"), BROKERS), "a probe has seen: a: b; c: d"),
        (Probed((), (), BROKERS, "no right"), "what it does with batches: no right. Or set upstream.idempotence"),
    ],
)
def test_without_a_form_brokers_are_refused_in_every_mode(probed: Probed, words: str) -> None:
    for mode in Idempotence:
        refusal = probed.judgement.refusal(mode)
        assert refusal is not None
        assert words in refusal.reason


@pytest.mark.parametrize(
    "probed", [Probed((Form.OWN_IDS, Form.MARKED_V2), (), BROKERS), Probed((), ("a: b",), BROKERS)]
)
def test_what_is_kept_is_read_again(probed: Probed) -> None:
    assert Probed.unpack(probed.pack()) == probed


def test_what_is_kept_has_a_bound() -> None:
    packed = Probed((), ("x" * 10_000,) * 100, frozenset(f"{one:016x}" for one in range(1000))).pack()
    found = Probed.unpack(packed)
    assert len(packed) < 20_000
    assert found is not None
    assert len(found.because) == limits.PROBE_REASONS_MAX
    assert len(found.fingerprints) == limits.PROBED_RANGES_MAX


@pytest.mark.parametrize(
    "kept",
    [
        None,
        b"",
        b"\xff",
        b"[]",
        b"{}",
        b"7",
        json.dumps({"forms": ["v9"], "because": [], "brokers": []}).encode(),
        json.dumps({"forms": [], "because": [], "brokers": []}).encode(),
        json.dumps({"forms": [], "because": [7], "brokers": []}).encode(),
        json.dumps({"forms": [[]], "because": [], "brokers": []}).encode(),
        json.dumps({"forms": [], "because": ["a"], "brokers": [[]]}).encode(),
    ],
)
def test_what_cannot_be_read_is_probed_again(kept: bytes | None) -> None:
    assert Probed.unpack(kept) is None


def test_brokers_are_known_again_by_the_versions_that_they_list() -> None:
    probed = Probed((Form.OWN_IDS,), (), BROKERS)
    assert probed.is_about(dict(sorted(RANGES.items(), reverse=True)))
    assert not probed.is_about(OTHERS)
    assert not probed.is_about({})


# ---------------------------------------------------------------------- a broker
class Scene:
    """A broker that does not show that it is Kafka."""

    def __init__(self, said: str) -> None:
        self.clock, self.mode = Clock(), Mode.of_setting(said)
        self.broker = Broker(
            self.clock,
            7,
            ("kafka", 9092),
            may_send=lambda: True,
            admits=lambda _cluster_id: True,
            on_ready=lambda _broker: None,
            report=lambda _event: None,
            mode=self.mode,
        )
        self.broker.open()

    def connect(self, ranges: BrokerRanges) -> Wire:
        wire = Wire()
        self.clock.opening[-1].connected(wire)
        keys = [{"api_key": int(key), "min_version": low, "max_version": high} for key, (low, high) in ranges.items()]
        listed = messages.encode_response(ApiKey.API_VERSIONS, 0, api_keys=keys)
        for body in (metadata(1), listed, metadata(8)):
            request = kafka.parse_request(wire.sent[4:])
            wire.sent = b""
            answer = metadata(request.api_version) if request.api_key == ApiKey.METADATA else body
            self.clock.opening[-1].received(kafka.frame(request.correlation_id, answer))
        return wire


def metadata(version: int) -> bytes:
    return kafka.metadata_answer(version, [(7, "kafka", 9092)], "ours", 7, [])


def test_a_broker_waits_for_a_probe_that_is_about_it() -> None:
    scene = Scene("auto")
    scene.connect(RANGES)
    assert scene.broker.awaits_probe
    assert scene.broker.judgement is None
    scene.mode.probed = Probed((Form.MARKED_V2,), (), frozenset({fingerprint_of(OTHERS)}))
    scene.broker.judge_by_probe()
    assert scene.broker.awaits_probe, "it was about others"
    scene.mode.probed = Probed((Form.MARKED_V2,), (), BROKERS)
    scene.broker.judge_by_probe()
    assert not scene.broker.awaits_probe
    scene.mode.chosen = PROXY
    scene.broker.serve_or_refuse()
    assert scene.broker.takes_batches
    assert scene.broker.form is Form.MARKED_V2
    scene.clock.opening[-1].lost("restarted")
    scene.clock.run(limits.CONNECT_BACKOFF_SECONDS_MAX)
    scene.connect(OTHERS)
    assert scene.broker.awaits_probe, "it lists other versions than before"
    assert not scene.broker.takes_batches


@pytest.mark.parametrize("said", ["proxy", "native"])
def test_where_it_is_configured_who_gives_idempotence_no_probe_is_awaited(said: str) -> None:
    scene = Scene(said)
    scene.connect({**RANGES, ApiKey.INIT_PRODUCER_ID: (0, 4)})
    assert not scene.broker.awaits_probe
    assert scene.broker.takes_batches
    assert "may be another service" in scene.broker.remark

"""A broker that answers the question for its settings with an error decides nothing: the next try may tell."""

from __future__ import annotations

from idemproxy.codecs import messages
from idemproxy.proxy import limits
from idemproxy.proxy.broker.broker import Broker
from idemproxy.proxy.broker.mode import Mode
from idemproxy.proxy.broker.served import SETTINGS, Idempotence, choose
from idemproxy.proxy.versions import KNOWN, ApiKey
from testkit.stage.clock import Clock, Wire
from testkit.virtual import kafka_bytes as kafka

FORMAT, PROTOCOL = SETTINGS
RANGES = {
    **KNOWN["0.10.2"],
    ApiKey.PRODUCE: (0, 5),
    ApiKey.INIT_PRODUCER_ID: (0, 0),
    ApiKey.DESCRIBE_CONFIGS: (0, 1),
}


def ranges_answer() -> bytes:
    keys = [{"api_key": int(key), "min_version": low, "max_version": high} for key, (low, high) in RANGES.items()]
    return messages.encode_response(ApiKey.API_VERSIONS, 0, api_keys=keys)


def metadata(version: int) -> bytes:
    return kafka.metadata_answer(version, [(7, "kafka", 9092)], "ours", 7, [])


def settings(error_code: int, form: str = "1.1-IV0") -> bytes:
    values = {} if error_code else {FORMAT: form, PROTOCOL: "1.1"}
    entries = [
        {"name": key, "value": value, "synonyms": [{"name": key, "value": value, "source": 5}]}
        for key, value in values.items()
    ]
    result = {"error_code": error_code, "resource_type": 4, "resource_name": "7", "configs": entries}
    return messages.encode_response(ApiKey.DESCRIBE_CONFIGS, 1, results=[result])


class Scene:
    def __init__(self) -> None:
        self.clock, self.mode = Clock(), Mode.of_setting("auto")
        self.broker = Broker(
            self.clock,
            7,
            ("kafka", 9092),
            may_send=lambda: True,
            admits=lambda _cluster_id: True,
            on_ready=lambda _broker: None,
            report=lambda _event: None,
            mode=self.mode,
            on_judged=self.choose,
        )
        self.broker.open()

    def choose(self) -> None:
        """As ``Topology._choose_mode`` does it, for its only broker."""
        if self.mode.chosen is None:
            self.mode.chosen = choose([self.broker.judgement])
            if self.mode.chosen is not None:
                self.broker.serve_or_refuse()

    def connect(self, *answers: bytes) -> Wire:
        wire = Wire()
        self.clock.opening[-1].connected(wire)
        for body in answers:
            request = kafka.parse_request(wire.sent[4:])
            wire.sent = b""
            self.clock.opening[-1].received(kafka.frame(request.correlation_id, body))
        return wire


def test_an_error_of_the_moment_does_not_choose_the_mode() -> None:
    scene = Scene()
    assert scene.connect(metadata(1), ranges_answer(), metadata(2), settings(-1)).was_reset
    assert scene.mode.chosen is None
    scene.clock.run(limits.CONNECT_BACKOFF_SECONDS_MAX)
    scene.connect(metadata(1), ranges_answer(), metadata(2), settings(0))
    assert scene.mode.chosen is Idempotence.NATIVE
    assert scene.broker.is_ready

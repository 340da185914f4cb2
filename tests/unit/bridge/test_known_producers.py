"""The question which producers a leader knows: as Kafka's own classes write and read it."""

import pytest

from idemproxy.codecs import messages
from idemproxy.codecs.errors import UnsupportedVersion, WireError
from idemproxy.proxy.bridge.known_producers import AskKnownProducer, KnownProducer

QUESTION = AskKnownProducer("orders", 3, 2**61 + 5)


def answer(*producers: tuple[int, int], error_code: int = 0, topic: str = "orders") -> bytes:
    """(Producer id, last sequence) of each that the leader knows."""
    known = [
        {
            "producer_id": producer_id,
            "producer_epoch": 0,
            "last_sequence": last,
            "last_timestamp": 1,
            "coordinator_epoch": -1,
            "current_txn_start_offset": -1,
        }
        for producer_id, last in producers
    ]
    partition = {"partition_index": 3, "error_code": error_code, "error_message": None, "active_producers": known}
    return bytes(
        messages.encode_response(61, 0, throttle_time_ms=0, topics=[{"name": topic, "partitions": [partition]}])
    )


def test_the_request_is_kafkas() -> None:
    topics = [{"name": "orders", "partition_indexes": [3]}]
    assert QUESTION.encode(0) == messages.encode_request(61, 0, topics=topics)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (answer(), KnownProducer(0, None)),
        (answer((7, 99)), KnownProducer(0, None)),
        (answer((7, 99), (2**61 + 5, 41), (8, 3)), KnownProducer(0, 41)),
        (answer(error_code=6), KnownProducer(6, None)),
    ],
)
def test_what_the_leader_knows(body: bytes, expected: KnownProducer) -> None:
    assert QUESTION.parse(0, body) == expected


def test_garbage_and_answers_about_something_else_are_errors() -> None:
    body = answer((2**61 + 5, 41))
    for wrong in (answer(topic="others"), body + b"\0", *(body[:size] for size in range(len(body)))):
        with pytest.raises(WireError):
            QUESTION.parse(0, wrong)


def test_brokers_before_2_8_cannot_be_asked() -> None:
    assert QUESTION.version_for({61: (0, 0)}) == 0
    with pytest.raises(UnsupportedVersion):
        QUESTION.version_for({22: (0, 4)})

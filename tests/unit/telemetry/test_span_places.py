"""Telemetry: what spans say of the client, of the broker and of what failed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import get_args

import pytest
from opentelemetry.trace import StatusCode

from idemproxy.codecs.batch_marker import Identity
from idemproxy.codecs.headers import encode_request_header
from idemproxy.codecs.record_batch import Record, encode_batch
from idemproxy.proxy import events
from idemproxy.proxy.flow.outcome import Outcome
from idemproxy.proxy.telemetry.spans import _FAILED
from testkit.stage.span_trees import APPEND, APPENDED, COMMIT, RESERVE, Broker, spans_of, traces

BROKERS: Mapping[int, Broker] = {0: Broker(("kafka-0", 9092)), 1: Broker(("kafka-1", 9093)), 2: Broker("/run/kafka")}


def sent(broker_id: int, producer_id: int = 7) -> events.AppendSent:
    return events.AppendSent(broker_id, "orders", 2, (Identity(producer_id, 1, 30, 3),))


def servers_of(reported: Iterable[object]) -> list[tuple[str, object, object]]:
    """Name, address and port of the batch's span and then of its steps."""
    ((root, children),) = traces(spans_of(reported, brokers=BROKERS))
    return [
        (span.name, (span.attributes or {}).get("server.address"), (span.attributes or {}).get("server.port"))
        for span in (root, *children)
    ]


def test_a_batch_and_its_append_name_the_broker_and_the_other_steps_none() -> None:
    assert servers_of([RESERVE, sent(0), APPEND, APPENDED, COMMIT]) == [
        ("produce orders", "kafka-0", 9092),
        ("reserve", None, None),
        ("append", "kafka-0", 9092),
        ("commit", None, None),
    ]


def test_an_append_of_no_producer_changes_no_span() -> None:
    """As those of hidden ranges in their topic."""
    of_nobody = events.AppendSent(1, "orders", 2, ())
    assert servers_of([RESERVE, sent(0), of_nobody, APPEND, APPENDED])[0] == ("produce orders", "kafka-0", 9092)


def test_every_span_names_its_system_and_redis_spans_address_and_command() -> None:
    spans = spans_of([RESERVE, sent(0), APPEND, APPENDED, COMMIT], brokers=BROKERS, redis=("redis", 6379))
    found = {span.name: dict(span.attributes or {}) for span in spans}
    assert {attributes["messaging.system"] for attributes in found.values()} == {"kafka"}
    for step in ("reserve", "commit"):
        names = ("db.system.name", "db.operation.name", "server.address", "server.port")
        assert [found[step][name] for name in names] == ["redis", "EVALSHA", "redis", 6379]
    assert "db.operation.name" not in found["append"]


def test_every_try_names_its_own_broker_and_the_batch_the_last_one() -> None:
    lost = replace(APPEND, detail="InDoubt")
    again = replace(APPEND, began=100.4, seconds=0.05)
    assert servers_of([sent(0), lost, sent(1), again, APPENDED]) == [
        ("produce orders", "kafka-1", 9093),
        ("append", "kafka-0", 9092),
        ("append", "kafka-1", 9093),
    ]


@pytest.mark.parametrize("before", [[], [sent(9)], [sent(0), sent(9)], [sent(0, producer_id=8)]])
def test_a_broker_that_is_not_known_is_left_out(before: list[object]) -> None:
    assert servers_of([*before, APPEND, APPENDED]) == [("produce orders", None, None), ("append", None, None)]


def test_what_was_not_sent_went_to_no_broker_and_a_path_is_no_port() -> None:
    assert servers_of([sent(2), replace(APPEND, detail="NotSent"), APPENDED])[0] == ("produce orders", None, None)
    assert servers_of([sent(2), APPEND, APPENDED])[0] == ("produce orders", "/run/kafka", None)


def client_id_of(records: memoryview) -> object:
    ((root, _),) = traces(spans_of([replace(APPENDED, records=records)]))
    return (root.attributes or {}).get("messaging.client.id")


def test_a_batch_names_the_client_whose_request_it_is_a_part_of() -> None:
    for client_id, expected in (("orders-service", "orders-service"), ("x" * 300, "x" * 64), ("", None)):
        head = encode_request_header(0, 7, 1, client_id)
        request = memoryview(head + bytes(20) + encode_batch([Record(0, 0, None, b"v", ())], producer_id=7))
        assert client_id_of(request[len(head) + 20 :]) == expected


@pytest.mark.parametrize("size", [1, 70_000])
def test_records_that_are_no_part_of_a_request_name_nobody(size: int) -> None:
    records = memoryview(encode_batch([Record(0, 0, None, b"v" * size, ())], producer_id=7))
    assert client_id_of(records) is None
    assert client_id_of(memoryview(bytearray(records))) is None
    fetched = encode_request_header(1, 4, 1, "a reader")
    assert client_id_of(memoryview(fetched + bytes(records))[len(fetched) :]) is None


# ---------------------------------------------------------------------- what failed
@pytest.mark.parametrize(
    ("step", "detail", "error_type"),
    [
        ("append", "InDoubt", "in_doubt"),
        ("append", "Refused", "refused"),
        ("append", "NotSent", "not_sent"),
        ("resolve", "unrecoverable", "unrecoverable"),
        ("append", "Appended", None),
        ("resolve", "found", None),
        ("resolve", "not_found", None),
        ("resolve", "prefix", None),
        ("resolve", "below the window", None),
        ("reserve", "", None),
    ],
)
def test_a_step_that_failed_is_an_error_with_a_type(step: str, detail: str, error_type: str | None) -> None:
    ((root, (child,)),) = traces(spans_of([replace(APPEND, step=step, detail=detail), APPENDED]))
    assert root.status.status_code is StatusCode.UNSET, "its batch is in the log all the same"
    assert (child.attributes or {}).get("error.type") == error_type
    assert child.status.status_code is (StatusCode.UNSET if error_type is None else StatusCode.ERROR)


def test_every_outcome_of_an_append_is_a_success_or_has_an_error_type() -> None:
    failed = {detail for step, detail in _FAILED if step == "append"}
    assert {outcome.__name__ for outcome in get_args(Outcome)} == failed | {"Appended"}

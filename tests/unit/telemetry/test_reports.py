"""Telemetry: the lines and counters that events become, and what is loaded when spans are wanted and when not."""

from __future__ import annotations

import json
import logging
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace

import pytest

from idemproxy.proxy import events, limits
from idemproxy.proxy.telemetry.otel import protocol_of, wants
from idemproxy.proxy.telemetry.reports import Telemetry, fields_of
from idemproxy.state import store

APPENDED = events.BatchAnswered("appended", 7, 1, 30, "orders", 2, 0, 400)
REFUSED = replace(APPENDED, verdict="refused", error_code=87, message="no")
RESERVE = events.StepDone("reserve", 7, 1, 30, "orders", 2, 100.1, 0.1)


def told(*reported: object) -> Telemetry:
    """Telemetry that got these events."""
    telemetry = Telemetry()
    for event in reported:
        telemetry(event)
    return telemetry


# ---------------------------------------------------------------------- counters
@pytest.mark.promise("second-copy-reported")
@pytest.mark.parametrize(
    ("event", "series"),
    [
        (events.AppendSent(0, "t", 0, ()), "appends_sent_total"),
        (APPENDED, "batches_answered_total{verdict=appended}"),
        (events.UnknownOutcomeOpened(7, "t", 0, 0, "the connection broke"), "unknown_outcomes_opened_total"),
        (
            events.UnknownOutcomeResolved(7, "t", 0, 0, "found", 100, 1.5),
            "unknown_outcomes_resolved_total{result=found}",
        ),
        (events.AppendSentAgain(7, "t", 0, 0, 1), "appends_sent_again_total"),
        (events.TakenOver(7, "t", 0, b"12345678"), "intents_taken_over_total"),
        (events.ProducerIdIssued(7), "producer_ids_issued_total"),
        (events.DataGenerationChanged(bytes(16)), "redis_data_generations_total"),
        (events.ClientRefused("client", "what it was"), "invalid_requests_total"),
        (events.OldRequestRefused(1, 3), "invalid_requests_total"),
        (events.ProduceConnectionLost(0, "reset", True), "produce_connections_lost_total"),
        (events.InternalError("somewhere", ValueError("x")), "internal_errors_total"),
        (store.StoreLost("reset"), "redis_lost_total"),
        (store.StoreEmptied(), "redis_emptied_total"),
        (events.DuplicateFound(7, 0, 3, "t", 0, (1, 2)), "duplicates_found_total"),
        (events.AppendAfterDeadline(7, 0, (3, 4), "t", 0), "appends_after_deadline_total"),
        (events.NoRoomForBatchMarker("t", 0, 1_000_000), "records_without_batch_markers_total"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_event_is_counted_under_its_name(event: object, series: str) -> None:
    assert told(event, event).counts == {series: 2}


def test_a_gap_is_counted_as_an_answer_and_as_a_gap() -> None:
    gap = replace(APPENDED, verdict="out_of_order", error_code=45)
    assert told(gap).counts == {
        "batches_answered_total{verdict=out_of_order}": 1,
        "batches_failed_total{error_code=OUT_OF_ORDER_SEQUENCE_NUMBER}": 1,
        "out_of_order_refused_total": 1,
    }


def test_the_counters_are_one_line_of_json_at_the_end(caplog: pytest.LogCaptureFixture) -> None:
    telemetry = told(APPENDED, APPENDED, events.ProducerIdIssued(7))
    with caplog.at_level(logging.INFO, "idemproxy"):
        telemetry.close()
    (line,) = caplog.messages
    assert json.loads(line.removeprefix("counters: ")) == {
        "batches_answered_total{verdict=appended}": 2,
        "producer_ids_issued_total": 1,
    }


def test_a_process_that_did_nothing_ends_without_a_word(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "idemproxy"):
        Telemetry().close()
    assert caplog.messages == []


# ---------------------------------------------------------------------- lines
@pytest.mark.promise("second-copy-reported")
@pytest.mark.parametrize(
    ("event", "level", "line"),
    [
        (events.OperatorMessage("warning", "the lease has run out"), logging.WARNING, "the lease has run out"),
        (
            replace(APPENDED, verdict="duplicate"),
            logging.INFO,
            "duplicate: producer 7 epoch 1 sequence 30 on orders-2 answered with offset 400",
        ),
        (
            replace(APPENDED, verdict="out_of_order", error_code=45, message="a gap"),
            logging.WARNING,
            "out_of_order: producer 7 epoch 1 sequence 30 on orders-2: OUT_OF_ORDER_SEQUENCE_NUMBER (45): a gap",
        ),
        (
            replace(REFUSED, client="etl", address="192.0.2.1"),
            logging.WARNING,
            "refused: producer 7 epoch 1 sequence 30 on orders-2 of client 'etl' at 192.0.2.1: INVALID_RECORD (87): no",
        ),
        (
            replace(REFUSED, client="etl", address="192.0.2.1", principal="User:etl"),
            logging.WARNING,
            "refused: producer 7 epoch 1 sequence 30 on orders-2 of client 'etl' at 192.0.2.1, principal 'User:etl': "
            "INVALID_RECORD (87): no",
        ),
        (
            replace(APPENDED, verdict="duplicate", client="etl", address="192.0.2.1"),
            logging.INFO,
            "duplicate: producer 7 epoch 1 sequence 30 on orders-2 of client 'etl' at 192.0.2.1 answered with offset "
            "400",
        ),
        (
            events.UnknownOutcomeOpened(7, "orders", 2, 30, "the connection broke"),
            logging.INFO,
            "in doubt: producer 7 sequence 30 on orders-2: the connection broke",
        ),
        (
            events.UnknownOutcomeOpened(7, "orders", 2, -1, "unverified"),
            logging.INFO,
            "in doubt: producer 7 on orders-2: what Redis has of it is of an earlier data generation, or nothing: its "
            "log is read",
        ),
        (
            events.UnknownOutcomeResolved(7, "orders", 2, -1, "not_found", 100, 1.5),
            logging.INFO,
            "resolved as not_found: producer 7 on orders-2, 100 bytes read in 1.5 s",
        ),
        (
            events.UnknownOutcomeResolved(7, "orders", 2, 30, "found", 100, 1.5),
            logging.INFO,
            "resolved as found: producer 7 sequence 30 on orders-2, 100 bytes read in 1.5 s",
        ),
        (
            events.UnknownOutcomeResolved(7, "orders", 2, 30, "unrecoverable", 0, 30.0, "a hole"),
            logging.ERROR,
            "resolved as unrecoverable: producer 7 sequence 30 on orders-2, 0 bytes read in 30.0 s: a hole",
        ),
        (events.ClientRefused("c\n1", "a null set"), logging.WARNING, "refused from 'c\\n1': a null set"),
        (
            events.OldClientSeen("c\n1", "10.0.0.1", "", "", 8, 1, False),
            logging.INFO,
            "old client 'c\\n1' at 10.0.0.1 sends OffsetCommit 1, which Kafka 4 dropped: upgrade the client before the "
            "brokers",
        ),
        (
            events.OldClientSeen("c", "10.0.0.1", "sarama 1.40.0", "User:a", 0, 2, True),
            logging.WARNING,
            "old client 'c' at 10.0.0.1, software 'sarama 1.40.0', principal 'User:a' sends Produce 2, which Kafka 4 "
            "dropped and its broker does not serve: the proxy refuses it; upgrade the client",
        ),
        (
            replace(APPENDED, verdict="duplicate_below_window", error_code=46, message="long ago"),
            logging.INFO,
            "duplicate_below_window: producer 7 epoch 1 sequence 30 on orders-2: "
            "DUPLICATE_SEQUENCE_NUMBER (46): long ago",
        ),
        (
            events.SmallFetch("c", 2, 100),
            logging.WARNING,
            "'c' fetches at most 100 bytes of a partition with Fetch 2: a stored batch that is larger is never read, "
            "and the consumer stands still; raise its fetch size to max.message.bytes of its topics",
        ),
        (events.SlowClient("c", "it sent nothing"), logging.WARNING, "disconnected 'c': it sent nothing"),
        (events.TlsRefused("192.0.2.1", "no certificate"), logging.WARNING, "TLS with 192.0.2.1: no certificate"),
        (
            events.ConnectionRefused("192.0.2.1", "too_many", "3 connections are open"),
            logging.WARNING,
            "no connection for 192.0.2.1: 3 connections are open",
        ),
        (
            events.CertificateLoaded("listeners[0].tls", "CN=x", 1_700_000_000.0),
            logging.INFO,
            "listeners[0].tls: the certificate of CN=x is in use, until 2023-11-14",
        ),
        (store.StoreReady(bytes(16)), logging.INFO, "Redis is ready"),
        (
            events.DuplicateFound(7, 0, 3, "t", 1, (12, 15)),
            logging.ERROR,
            "DUPLICATE: producer 7 epoch 0 sequence 3 is in t-1 at the offsets 12, 15: a broker, or a proxy in the "
            "middle of a send, was paused for so long that the first try was appended after all",
        ),
        (
            events.AppendAfterDeadline(7, 0, (3, 4), "t", 1),
            logging.ERROR,
            "LATE: producer 7 epoch 0 sequence 3, 4 was appended to t-1 after the lease deadline because the process "
            "was paused in the middle of a send; checking for duplicates in 1 and 10 minutes",
        ),
        (
            store.StoreLost("reset"),
            logging.WARNING,
            "Redis is away: reset; batches with a producer id get retriable errors until it is back",
        ),
        (
            store.StoreLost("a new lease is being taken, over a new connection"),
            logging.INFO,
            "Redis: a new lease is being taken, over a new connection",
        ),
        (
            store.StoreLost("Redis answered: OOM command not allowed when used memory > 'maxmemory'."),
            logging.WARNING,
            "Redis is away: Redis answered: OOM command not allowed when used memory > 'maxmemory': raise its "
            "maxmemory, or take out what others keep in it; batches with a producer id get retriable errors until it "
            "is back",
        ),
        (
            store.StoreRefused("Redis refuses the login or a command: NOAUTH Authentication required."),
            logging.ERROR,
            "Redis cannot be used: Redis refuses the login or a command: NOAUTH Authentication required: give its user "
            "and password: redis.username and redis.password_file, or in the URL",
        ),
        (
            store.StoreLost("no connection within 2 s"),
            logging.WARNING,
            "Redis is away: no connection within 2 s: the machine is away, or a firewall drops what is sent to it; "
            "batches with a producer id get retriable errors until it is back",
        ),
        (
            store.StoreLost("Redis answered: DENIED Redis is running in protected mode"),
            logging.WARNING,
            "Redis is away: Redis answered: DENIED Redis is running in protected mode: give it a password; or, where "
            "nobody else reaches it, set its protected-mode to no; batches with a producer id get retriable errors "
            "until it is back",
        ),
        (store.StoreRefused("it is a replica"), logging.ERROR, "Redis cannot be used: it is a replica"),
        (store.StoreWarning("no append-only file"), logging.WARNING, "Redis: no append-only file"),
    ],
    ids=lambda value: value[:24] if isinstance(value, str) else "",
)
def test_an_event_that_an_operator_wants_is_one_line(
    event: object, level: int, line: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "idemproxy"):
        told(event)
    assert [(record.levelno, record.getMessage()) for record in caplog.records] == [(level, line)]


class Leader:
    address = ("kafka-2", 9092)


def test_an_unknown_outcome_names_the_broker_that_leads_the_partition(caplog: pytest.LogCaptureFixture) -> None:
    telemetry = Telemetry()
    telemetry.leader_of = lambda _topic, partition: 5 if partition == 2 else None
    telemetry.broker = lambda broker_id: Leader() if broker_id == 5 else None
    with caplog.at_level(logging.INFO, "idemproxy"):
        telemetry(events.UnknownOutcomeOpened(7, "orders", 2, 30, "the connection broke"))
        telemetry(events.UnknownOutcomeResolved(7, "orders", 2, 30, "unrecoverable", 0, 30.0, "a hole"))
        telemetry(events.UnknownOutcomeOpened(7, "orders", 3, 30, "the connection broke"))
    assert caplog.messages == [
        "in doubt: producer 7 sequence 30 on orders-2, led by broker 5 at kafka-2:9092: the connection broke",
        "resolved as unrecoverable: producer 7 sequence 30 on orders-2, 0 bytes read in 30.0 s from broker 5 at "
        "kafka-2:9092: a hole",
        "in doubt: producer 7 sequence 30 on orders-3: the connection broke",
    ]


@pytest.mark.parametrize(
    ("event", "level", "parts"),
    [
        (
            events.DuplicateFound(7, 1, 30, "orders", 2, (400, 404)),
            logging.ERROR,
            ("DUPLICATE: producer 7 epoch 1 sequence 30 is in orders-2 at the offsets 400, 404: ",),
        ),
        (
            events.AppendAfterDeadline(7, 1, (30, 32), "orders", 2),
            logging.ERROR,
            ("LATE: producer 7 epoch 1 sequence 30, 32 was appended to orders-2 ", "in 1 and 10 minutes"),
        ),
        (
            events.BatchMarkerLost("orders", 2, "snappy"),
            logging.WARNING,
            ("topic orders keeps no batch markers: batches are stored in orders-2 as snappy. ", "with INVALID_RECORD"),
        ),
        (
            events.NoRoomForBatchMarker("orders", 2, 1_000_000),
            logging.WARNING,
            (
                "a record of 1000000 bytes is stored in orders-2 without a batch marker",
                "with INVALID_RECORD",
                "max.message.bytes",
            ),
        ),
    ],
    ids=["duplicate", "late write", "batch marker lost", "no room for a batch marker"],
)
def test_what_breaks_the_promise_is_one_line_that_names_all_of_it(
    event: object, level: int, parts: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "idemproxy"):
        told(event)
    (record,) = caplog.records
    assert record.levelno == level
    assert record.getMessage().startswith(parts[0])
    assert all(part in record.getMessage() for part in parts)


def test_the_last_lines_are_kept_with_their_level_also_those_of_errors_of_ours() -> None:
    telemetry = told(
        *[events.OperatorMessage("info", f"line {number}") for number in range(limits.RECENT_LINES_MAX + 1)]
    )
    assert [line.text for line in telemetry.recent][::199] == ["line 1", f"line {limits.RECENT_LINES_MAX}"]
    telemetry(events.OperatorMessage("warning", "so %s"))
    telemetry(events.InternalError("producer 7", ValueError("so not")))
    assert [line[1:] for line in telemetry.recent][-2:] == [
        ("warning", "so %s"),
        ("error", "internal error in producer 7: so not"),
    ]
    assert len(telemetry.recent) == limits.RECENT_LINES_MAX


def test_an_error_of_ours_is_written_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    told(events.InternalError("producer 7", ValueError("so not")))
    assert "internal error in producer 7" in caplog.text
    assert "ValueError: so not" in caplog.text


def test_what_goes_well_is_no_line(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "idemproxy"):
        told(APPENDED, RESERVE, events.AppendSent(0, "t", 0, ()), events.ProducerIdIssued(7))
    assert caplog.messages == []


# ---------------------------------------------------------------------- who is asked, and what is loaded
ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}


@pytest.mark.parametrize(
    ("environment", "wanted"),
    [
        ({}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": ""}, False),
        (ENDPOINT, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:4318/v1/traces"}, True),
        ({**ENDPOINT, "OTEL_SDK_DISABLED": "True"}, False),
        ({**ENDPOINT, "OTEL_SDK_DISABLED": "false"}, True),
        ({**ENDPOINT, "OTEL_TRACES_EXPORTER": "none"}, False),
        ({**ENDPOINT, "OTEL_TRACES_EXPORTER": ""}, True),
        ({**ENDPOINT, "OTEL_TRACES_EXPORTER": "console, otlp"}, True),
        ({**ENDPOINT, "OTEL_TRACES_EXPORTER": "console"}, False),
    ],
)
def test_the_standard_variables_say_whether_spans_are_wanted(environment: Mapping[str, str], wanted: bool) -> None:
    assert wants("traces", environment) is wanted


@pytest.mark.parametrize(
    ("environment", "traces", "metrics"),
    [
        ({}, "http/protobuf", "http/protobuf"),
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "grpc", "grpc"),
        (
            {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL": "http/protobuf"},
            "grpc",
            "http/protobuf",
        ),
        ({"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": " GRPC "}, "grpc", "http/protobuf"),
    ],
)
def test_each_signal_goes_over_the_protocol_that_the_variables_name(
    environment: Mapping[str, str], traces: str, metrics: str
) -> None:
    assert (protocol_of("traces", environment), protocol_of("metrics", environment)) == (traces, metrics)


def test_metrics_and_traces_are_wanted_apart() -> None:
    environment = {**ENDPOINT, "OTEL_METRICS_EXPORTER": "none"}
    assert (wants("traces", environment), wants("metrics", environment)) == (True, False)
    only = {"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://127.0.0.1:4318/v1/metrics"}
    assert (wants("traces", only), wants("metrics", only)) == (False, True)


PRELUDE = """
import logging, sys, time
logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s", stream=sys.stdout)
from idemproxy.proxy.telemetry import otel
"""
LOADED = "for name in sorted(sys.modules):\n    if name.startswith('opentelemetry'):\n        print(name)\n"


def run_python(code: str, environment: Mapping[str, str]) -> list[str]:
    """The lines that a Python with only these variables prints; it has to end well."""
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + code], env=dict(environment), capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    "environment",
    [{}, {**ENDPOINT, "OTEL_SDK_DISABLED": "true"}, {**ENDPOINT, "OTEL_TRACES_EXPORTER": "none"}],
    ids=["unset", "disabled", "none"],
)
def test_nothing_of_opentelemetry_is_loaded_when_nobody_asks_for_it(environment: Mapping[str, str]) -> None:
    assert run_python("assert otel.spans_from_environment() is None\n" + LOADED, environment) == []


def test_the_whole_proxy_loads_neither_exporter_nor_tracing_when_nobody_asks_for_it() -> None:
    loaded = run_python("import idemproxy.proxy.process.run\notel.spans_from_environment()\n" + LOADED, {})
    assert not [name for name in loaded if name.startswith(("opentelemetry.exporter", "opentelemetry.sdk.trace"))]


def test_the_exporter_is_loaded_when_an_endpoint_is_given() -> None:
    code = "spans = otel.spans_from_environment()\nassert spans is not None\n" + LOADED + "spans.close()"
    loaded = run_python(code, ENDPOINT)
    assert "opentelemetry.exporter.otlp.proto.http.trace_exporter" in loaded


def test_a_missing_exporter_is_one_warning_and_no_spans() -> None:
    hidden = "sys.modules['opentelemetry.exporter.otlp.proto.http.trace_exporter'] = None\n"
    lines = run_python(hidden + "assert otel.spans_from_environment() is None", ENDPOINT)
    assert len(lines) == 1
    assert lines[0].startswith("WARNING no spans are sent: ")
    assert lines[0].endswith(": pip install '.[otlp]' in a checkout of idemproxy")


def test_a_variable_that_cannot_be_used_is_one_warning_and_no_spans() -> None:
    environment = {**ENDPOINT, "OTEL_BSP_MAX_QUEUE_SIZE": "-1"}
    (line,) = run_python("assert otel.spans_from_environment() is None", environment)
    assert line.startswith("WARNING no spans are sent: an OTEL_* variable cannot be used: ")


def test_a_protocol_that_is_not_served_is_one_warning_for_each_signal() -> None:
    code = "assert otel.spans_from_environment() is None\nassert otel.metric_exporter_from_environment() is None"
    spans, metrics = run_python(code, {**ENDPOINT, "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"})
    assert spans.startswith("WARNING no spans are sent: ")
    assert metrics.startswith("WARNING no metrics are sent: ")
    assert "'http/json'; http/protobuf and grpc are served" in spans


def test_the_exporter_over_grpc_is_loaded_when_it_is_named() -> None:
    code = "spans = otel.spans_from_environment()\nassert spans is not None\n" + LOADED + "spans.close()"
    loaded = run_python(code, {**ENDPOINT, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"})
    assert "opentelemetry.exporter.otlp.proto.grpc.trace_exporter" in loaded
    assert "opentelemetry.exporter.otlp.proto.http.trace_exporter" not in loaded


@pytest.mark.parametrize(
    ("environment", "name"),
    [
        ({}, "idemproxy"),
        ({"OTEL_SERVICE_NAME": "orders-proxy"}, "orders-proxy"),
        ({"OTEL_RESOURCE_ATTRIBUTES": "service.name=named-otherwise"}, "named-otherwise"),
    ],
)
def test_the_service_is_called_as_the_variables_say(environment: Mapping[str, str], name: str) -> None:
    code = "spans = otel.spans_from_environment()\nprint(spans._provider.resource.attributes['service.name'])"
    assert run_python(code, {**ENDPOINT, **environment}) == [name]


def test_a_collector_that_does_not_answer_holds_the_end_up_for_seconds_only() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        code = (
            "from idemproxy.proxy.events import BatchAnswered\n"
            "spans = otel.spans_from_environment()\n"
            "spans.answered(BatchAnswered('appended', 7, 1, 30, 'orders', 2, 0, 400, None, 1.0, 2.0))\n"
            "begun = time.monotonic()\nspans.close()\nprint(time.monotonic() - begun)"
        )
        (seconds,) = run_python(code, {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint})
    assert 4 < float(seconds) < 25, "five, and not for ever"


def test_a_json_line_has_fields_under_the_same_names_whatever_it_is_about() -> None:
    answered = replace(APPENDED, verdict="refused", error_code=10, base_offset=-1, client="orders-service")
    assert fields_of(answered) == {
        "producer_id": "7",
        "producer_epoch": 1,
        "base_sequence": 30,
        "topic": "orders",
        "partition": 2,
        "client_id": "orders-service",
        "verdict": "refused",
        "error_code": "MESSAGE_TOO_LARGE",
    }
    assert fields_of(replace(APPENDED, verdict="duplicate"))["offset"] == 400
    assert fields_of(events.DuplicateFound(7, 0, 3, "t", 1, (4, 9)))["offsets"] == [4, 9]
    assert fields_of(events.ClientRefused("c", "x")) == {"client_id": "c"}
    assert fields_of(events.ConnectionRefused("192.0.2.1", "too_many", "x")) == {"client_address": "192.0.2.1"}


def test_the_first_data_generation_is_no_news_and_every_other_one_is(caplog: pytest.LogCaptureFixture) -> None:
    telemetry = Telemetry()
    with caplog.at_level(logging.INFO, "idemproxy"):
        telemetry(events.DataGenerationChanged(b"a" * 16))
        telemetry(events.DataGenerationChanged(b"b" * 16))
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.getMessage().startswith(f"Redis has data generation {(b'b' * 16).hex()}, a new one")

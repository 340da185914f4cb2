"""Log lines as text and as JSON."""

import json
import logging
import re
import time
from collections.abc import Iterator
from datetime import datetime, timedelta

import pytest

from idemproxy.proxy import limits
from idemproxy.proxy.telemetry import logs
from idemproxy.proxy.telemetry.logs import set_up

pytestmark = pytest.mark.usefixtures("logging_as_it_was")


def test_a_json_line_is_one_object_with_time_level_text_and_what_it_carries(capsys: pytest.CaptureFixture[str]) -> None:
    set_up("info", "json")
    logging.getLogger("idemproxy").warning("gap of %d\nhere", 3, extra={"trace_id": "0af7", "span_id": "b7ad"})
    (line,) = capsys.readouterr().err.splitlines()
    found = json.loads(line)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", found.pop("timestamp"))
    assert found == {
        "level": "WARNING",
        "logger": "idemproxy",
        "message": "gap of 3\nhere",
        "trace_id": "0af7",
        "span_id": "b7ad",
    }


@pytest.fixture
def _far_from_greenwich(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as changed:
        changed.setenv("TZ", "XXX-9")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("_far_from_greenwich")
def test_a_json_line_has_its_time_in_utc_wherever_the_machine_is(capsys: pytest.CaptureFixture[str]) -> None:
    set_up("info", "json")
    before = time.time()
    logging.getLogger("idemproxy").info("here")
    told = datetime.fromisoformat(json.loads(capsys.readouterr().err)["timestamp"])
    assert told.utcoffset() == timedelta(0)
    assert -0.002 < told.timestamp() - before < 60


def test_an_error_of_ours_has_its_traceback_in_the_same_json_line(capsys: pytest.CaptureFixture[str]) -> None:
    set_up("info", "json")
    try:
        raise RuntimeError("broken")
    except RuntimeError:
        logging.getLogger("idemproxy").exception("internal error")
    (line,) = capsys.readouterr().err.splitlines()
    assert "RuntimeError: broken" in json.loads(line)["exception"]


def test_a_text_line_is_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    set_up("info", "text")
    logging.getLogger("idemproxy").info("Redis is ready")
    assert re.search(r"^\d{4}-\d\d-\d\d [\d:,]+ INFO Redis is ready$", capsys.readouterr().err)


def test_an_error_that_nobody_can_take_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    class Falls:
        def __del__(self) -> None:
            raise ValueError("fallen " + 1000 * "x")

    set_up("info", "text")
    falls = Falls()
    del falls
    (line,) = capsys.readouterr().err.splitlines()
    assert "WARNING" in line
    assert "ValueError('fallen xxx" in line
    assert len(line) < 400


def test_what_is_below_the_level_is_not_written_and_the_level_can_be_changed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    log = logging.getLogger("idemproxy")
    set_up("error", "text")
    log.warning("not this")
    set_up("warning", "json")
    log.warning("but this")
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert json.loads(lines[0])["message"] == "but this"


def test_errors_that_nobody_can_take_do_not_fill_the_log(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client causes one with each server's name that is no ASCII."""

    class Falls:
        def __del__(self) -> None:
            raise ValueError("fallen")

    now = 1000.0
    monkeypatch.setattr(logs, "_unraisable", logs._Unraisable(lambda: now))
    set_up("info", "text")
    for _ in range(limits.LINES_PER_MINUTE_MAX + 7):
        Falls()
    assert capsys.readouterr().err.count("fallen") == limits.LINES_PER_MINUTE_MAX
    now += 61
    Falls()
    assert re.fullmatch(r".* WARNING 7 more errors of this kind were not logged\n.*fallen.*\n", capsys.readouterr().err)


def test_a_collector_outage_is_one_line_a_minute_and_delays_no_others(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr(logs, "_collector", logs.Collector(lambda: now))
    set_up("info", "text")
    exporter = logging.getLogger("opentelemetry.exporter.otlp.proto.http.trace_exporter")
    for attempt in range(5):
        try:
            raise ConnectionError("refused")
        except ConnectionError:
            exporter.exception("Failed to export span batch, attempt %d", attempt)
    logging.getLogger("idemproxy").warning("another line")
    first, second = capsys.readouterr().err.splitlines()
    assert "spans or metrics cannot be sent to the collector" in first
    assert "ConnectionError('refused')" in first
    assert second.endswith("another line")
    now += 61
    exporter.error("Failed to export")
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("Failed to export (4 lines like this were left out)")

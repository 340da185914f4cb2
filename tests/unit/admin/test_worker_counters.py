"""The metrics of workers over time: counters never fall, whichever worker is silent, has ended or has begun."""

from __future__ import annotations

import random
import socketserver
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from starlette.types import Message

from idemproxy.proxy import limits
from idemproxy.proxy.admin.worker_counters import WorkerCounters
from idemproxy.proxy.admin.workers import Workers, make_app
from idemproxy.proxy.telemetry.metrics import Metrics
from idemproxy.proxy.telemetry.metrics_export import MetricExport
from idemproxy.proxy.telemetry.otel import resource

from .test_summed import values_of

BATCHES = "idemproxy_batches_answered_totalappended"


def told(batches: float, started: float | None = 100.0, names: Mapping[str, int] = {}) -> str:
    """What one process tells: a counter, a histogram, a gauge, and a counter of clients' names."""
    lines = [
        "# TYPE idemproxy_batches_answered_total counter",
        f'idemproxy_batches_answered_total{{verdict="appended"}} {batches}',
        "# TYPE idemproxy_batch_duration_seconds histogram",
        f'idemproxy_batch_duration_seconds_bucket{{le="+Inf"}} {batches}',
        f"idemproxy_batch_duration_seconds_count {batches}",
        f"idemproxy_batch_duration_seconds_sum {batches / 10}",
        "# TYPE idemproxy_connections_open gauge",
        f"idemproxy_connections_open {batches}",
        "# TYPE idemproxy_topic_records_total counter",
        *(f'idemproxy_topic_records_total{{topic="{name}"}} {count}' for name, count in names.items()),
    ]
    if started is not None:
        lines += ["# TYPE process_start_time_seconds gauge", f"process_start_time_seconds {started}"]
    return "\n".join([*lines, ""])


class Scraped:
    """What a scrape shows, one after the other."""

    def __init__(self) -> None:
        self.counters = WorkerCounters()
        self.at = 0.0

    def __call__(self, texts: Mapping[int, str], asked_at: float | None = None) -> dict[str, float]:
        self.at += 1.0
        begun = self.at if asked_at is None else asked_at
        return values_of(self.counters.metrics(texts, begun, self.at, "", ()))


def test_a_silent_worker_keeps_its_last_counters_but_not_its_gauges() -> None:
    scraped = Scraped()
    first = scraped({1: told(2), 2: told(3)})
    second = scraped({1: told(2)})
    third = scraped({1: told(2), 2: told(4)})
    assert [one[BATCHES] for one in (first, second, third)] == [5, 5, 6]
    for end, numbers in (("bucket+Inf", [5, 5, 6]), ("count", [5, 5, 6]), ("sum", [0.5, 0.5, 0.6])):
        found = [one[f"idemproxy_batch_duration_seconds_{end}"] for one in (first, second, third)]
        assert found == pytest.approx(numbers)
    assert [one["idemproxy_connections_open"] for one in (first, second, third)] == [5, 2, 6]
    assert scraped({})[BATCHES] == 6
    assert "idemproxy_connections_open" not in scraped({})


def test_what_a_worker_has_counted_that_was_replaced_stays_in_the_sum() -> None:
    scraped = Scraped()
    scraped({1: told(2), 2: told(3, 100.01)})
    assert scraped({1: told(2), 2: told(0, 160.25)})[BATCHES] == 5
    assert scraped({1: told(2), 2: told(7, 160.25)})[BATCHES] == 12, "also where it is past the other one already"
    found = scraped({1: told(2), 2: told(1, 170.5)})
    assert (found[BATCHES], found["idemproxy_connections_open"]) == (13, 3)
    assert found["idemproxy_batch_duration_seconds_count"] == 13
    assert scraped({1: told(2)})[BATCHES] == 13
    assert scraped({1: told(2), 2: told(2, None)})[BATCHES] == 14, "one that cannot look is the same"
    assert scraped({1: told(2), 2: told(3, 170.5)})[BATCHES] == 15
    first_without = Scraped()
    first_without({1: told(2, None)})
    assert first_without({1: told(3, 170.5)})[BATCHES] == 3


def test_of_two_scrapes_at_a_time_neither_takes_the_sum_back() -> None:
    scraped = Scraped()
    scraped({1: told(5)})
    assert scraped({1: told(9)}, asked_at=2.0)[BATCHES] == 9
    assert scraped({1: told(7)}, asked_at=1.5)[BATCHES] == 9
    assert scraped({})[BATCHES] == 9


def test_names_of_the_past_stay_until_there_are_too_many_that_no_worker_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CLIENT_TOPIC_SERIES_MAX", 2)
    scraped, name = Scraped(), "idemproxy_topic_records_total"
    scraped({1: told(1, 1.0, {"a": 5, "other": 9}), 2: told(1, 1.0, {"b": 1})})
    found = scraped({1: told(1, 1.0, {"b": 2}), 2: told(1, 2.0, {"a": 1})})
    assert (found[f"{name}a"], found[f"{name}b"], found[f"{name}other"]) == (6, 3, 9), "it made room for another one"
    scraped({1: told(1, 2.0, {"c": 2}), 2: told(1, 3.0, {"a": 4})})
    found = scraped({1: told(1, 3.0, {"d": 2}), 2: told(1, 3.0, {"a": 5})})
    assert (found[f"{name}a"], found[f"{name}d"], found[f"{name}other"]) == (11, 2, 9)
    assert f"{name}b" not in found
    assert f"{name}c" not in found
    assert found[BATCHES] == 6, "what has no name of a client's is never forgotten"


def test_no_sum_ever_falls_not_by_the_last_bit_either() -> None:
    chance = random.Random(7)
    scraped, shown = Scraped(), dict[str, float]()
    counts, started = [0.0] * 5, [1.0] * 5
    for _ in range(300):
        for index in range(5):
            counts[index] += chance.random()
            if chance.random() < 0.1:
                counts[index], started[index] = chance.random(), started[index] + 1
        there = [index for index in range(5) if chance.random() < 0.7]
        found = scraped({index + 1: told(counts[index], started[index]) for index in there})
        for series, value in shown.items():
            assert found[series] >= value, series
        shown = {series: value for series, value in found.items() if "duration" in series or "total" in series}


def test_a_real_process_tells_when_it_has_started() -> None:
    metrics = Metrics()
    export = MetricExport(metrics.samples, metrics.histograms, resource())
    try:
        text = export.text().decode()
    finally:
        export.close()
    scraped, ours = Scraped(), "idemproxy_appends_sent_total 0.0"
    assert ours in text
    line = next(line for line in text.splitlines() if line.startswith("process_start_time_seconds "))
    scraped({1: text.replace(ours, ours.replace("0.0", "4.0"))})
    found = scraped({1: text.replace(line, "process_start_time_seconds 1.0")})
    assert found["idemproxy_appends_sent_total"] == 4


# ---------------------------------------------------------------------- over sockets
@contextmanager
def worker(path: Path, answer: dict[str, str]) -> Iterator[None]:
    """A server on a unix socket that answers with ``answer["text"]``."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(answer["text"].encode())

        def address_string(self) -> str:
            return "worker"

        def log_message(self, *_args: Any) -> None: ...

    with socketserver.ThreadingUnixStreamServer(str(path), Handler) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()


async def scrape(app: Any) -> dict[str, float]:
    told: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        told.append(message)

    scope: dict[str, Any] = {
        **{"type": "http", "http_version": "1.1", "method": "GET", "scheme": "http", "headers": []},
        **{"path": "/metrics", "raw_path": b"/metrics", "query_string": b"", "root_path": ""},
    }
    await app(scope, receive, send)
    return values_of(b"".join(one.get("body", b"") for one in told[1:]))


@pytest.mark.trio
async def test_admin_port_counters_never_fall_when_a_worker_is_away_or_replaced(
    tmp_path: Path,
) -> None:
    answers = {1: {"text": told(2)}, 2: {"text": told(3)}}
    paths = {number: tmp_path / f"{number}" for number in answers}
    sockets = {number: str(path) for number, path in paths.items()}
    app = make_app(lambda: Workers(sockets, 2, 0, None))
    with ExitStack() as first, ExitStack() as second:
        first.enter_context(worker(paths[1], answers[1]))
        second.enter_context(worker(paths[2], answers[2]))
        assert (await scrape(app))[BATCHES] == 5
        second.close()
        paths[2].unlink()
        found = await scrape(app)
        assert (found[BATCHES], found["idemproxy_connections_open"]) == (5, 2)
        del sockets[2]
        found = await scrape(app)
        assert (found[BATCHES], found["idemproxy_workers"]) == (5, 1)
        answers[2]["text"] = told(1, 200.0)
        second.enter_context(worker(paths[2], answers[2]))
        sockets[2] = str(paths[2])
        assert (await scrape(app))[BATCHES] == 6

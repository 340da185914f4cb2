"""``idemproxy inspect old-clients``: what it shows of the answers of admin ports, and how it ends. The answers are
those of a server of ours; tests/integration/native/test_old_clients.py asks real proxies."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from idemproxy.demo.ports import HOST, free_ports
from idemproxy.proxy import limits
from idemproxy.proxy.commands.inspection.old_clients import old_clients_finding
from testkit.real.store.inspecting import idemproxy

SARAMA = {
    **{"client_id": "sarama\n", "address": "10.0.0.1", "software": "sarama 1.40.0", "principal": "User:app"},
    "requests": [{"api": "Fetch", "version": 3, "requests": 20}, {"api": "OffsetCommit", "version": 1, "requests": 5}],
    **{"refused": 5, "first_seen": 1_790_000_000.0, "last_seen": 1_790_000_042.4, "idle_seconds": 1.0},
}
PLAIN = {
    **{"client_id": "jobs", "address": "10.0.0.2", "software": "", "principal": ""},
    "requests": [{"api": "Produce", "version": 2, "requests": 1}],
    **{"refused": 0, "first_seen": 1_790_000_000.0, "last_seen": 1_790_000_000.0, "idle_seconds": 9.0},
}


def answer_of(clients: Sequence[dict[str, Any]], forgotten: int = 0) -> bytes:
    return json.dumps({"uptime_seconds": 5_400.0, "forgotten": forgotten, "clients": clients}).encode()


@contextmanager
def serving(body: bytes) -> Iterator[tuple[str, int]]:
    """Yield the address of a server that answers everything so."""
    asked: list[str] = []

    class Answering(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def log_request(self, code: object = "-", size: object = "-") -> None:
            """Nothing is logged."""

    with HTTPServer((HOST, 0), Answering) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield HOST, server.server_address[1]
        finally:
            server.shutdown()
            thread.join()
    assert set(asked) <= {"/api/v1/old_clients"}


def inspected(*ports: tuple[str, int], options: Sequence[str] = ()) -> tuple[int, list[str], str]:
    admin = [word for host, port in ports for word in ("--admin", f"{host}:{port}")]
    done = idemproxy("inspect", "old-clients", *admin, *options)
    return done.returncode, done.stdout.splitlines(), done.stderr


def test_the_clients_of_all_proxies_are_one_table_and_no_redis_is_needed() -> None:
    with serving(answer_of([SARAMA])) as first, serving(answer_of([SARAMA, PLAIN], forgotten=3)) as second:
        status, lines, errors = inspected(first, second)
    assert status == 0
    assert [line.split() for line in lines[:1]] == [
        ["CLIENT", "ADDRESS", "SOFTWARE", "PRINCIPAL", "API,", "VERSION,", "REQUESTS", "REFUSED", "LAST", "SEEN"]
    ]
    assert lines[1].startswith("sarama\\n")
    assert "Fetch 3: 40, OffsetCommit 1: 10" in lines[1]
    assert lines[1].endswith("10  2026-09-21 14:14:02Z")
    assert lines[2].split() == ["jobs", "10.0.0.2", "-", "-", "Produce", "2:", "1", "0", "2026-09-21", "14:13:20Z"]
    assert "3 times the one seen the longest ago made room" in errors


def test_machines_get_an_object_a_line() -> None:
    with serving(answer_of([SARAMA, PLAIN])) as port:
        status, lines, errors = inspected(port, options=["--json"])
    assert (status, [json.loads(line) for line in lines], errors) == (0, [SARAMA, PLAIN], "")


def test_without_an_old_client_it_ends_with_1() -> None:
    with serving(answer_of([])) as port:
        status, lines, errors = inspected(port)
    assert (status, lines) == (1, [])
    assert errors == "idemproxy: no proxy that was asked has seen an old client since its start\n"


def test_a_proxy_that_does_not_answer_is_named_beside_the_rows_of_others() -> None:
    (nobody,) = free_ports(1)
    with serving(answer_of([PLAIN])) as port:
        status, lines, errors = inspected(port, (HOST, nobody))
    assert (status, len(lines)) == (0, 2)
    assert errors.startswith(f"idemproxy: {HOST}:{nobody} did not answer: ")


@pytest.mark.parametrize(
    "body",
    [
        b"{}",
        b"[" * 100_000,
        answer_of([{**PLAIN, "requests": [{}]}]),
        b'{"clients": 7}',
        b" " * (limits.OLD_CLIENTS_ANSWER_BYTES_MAX + 1),
    ],
    ids=["no clients", "deep", "a request without a version", "no list", "too long"],
)
def test_an_answer_that_is_none_ends_it_with_2(body: bytes) -> None:
    with serving(body) as port:
        status, lines, errors = inspected(port)
    assert (status, lines) == (2, [])
    assert "did not answer: its answer " in errors


def test_without_an_admin_port_it_says_how_to_name_one() -> None:
    status, lines, errors = inspected()
    assert (status, lines) == (2, [])
    assert "--admin HOST:PORT names the admin port" in errors


def test_texts_of_any_length_in_an_answer_are_cut() -> None:
    with serving(answer_of([{**PLAIN, "client_id": "x" * 1000}])) as port:
        status, lines, _ = inspected(port)
    assert status == 0
    assert lines[1].partition(" ")[0] == "x" * limits.OLD_CLIENT_TEXT_MAX


@pytest.mark.parametrize(
    ("clients", "sign", "text"),
    [
        ([], "ok", "none, says the proxy at {}, 1.5 h after its start"),
        (
            [PLAIN],
            "note",
            "seen: 1, requests in versions that Kafka 4 lacks: 1 (Produce), refused: 0, says the proxy at {}, 1.5 h "
            "after its start; `idemproxy inspect old-clients` lists them",
        ),
        (
            [SARAMA, PLAIN],
            "warning",
            "seen: 2, requests in versions that Kafka 4 lacks: 26 (Fetch, OffsetCommit, Produce), refused: 5, says the "
            "proxy at {}, 1.5 h after its start; `idemproxy inspect old-clients` lists them",
        ),
    ],
    ids=["none", "served", "refused"],
)
def test_a_check_sums_up_what_the_running_proxy_has_seen(clients: list[dict[str, Any]], sign: str, text: str) -> None:
    with serving(answer_of(clients)) as (host, port):
        (finding,) = old_clients_finding([(host, port)])
    assert finding == (sign, "old clients", text.format(f"{host}:{port}"))


def test_a_check_says_nothing_of_old_clients_where_no_proxy_runs() -> None:
    assert old_clients_finding([(HOST, free_ports(1)[0])]) == []

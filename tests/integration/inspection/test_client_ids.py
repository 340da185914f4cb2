"""The client ids that ``idemproxy inspect`` shows: running proxies report them at their admin ports, or it says that
they did not."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from idemproxy.demo.legacy_cluster import LegacyCluster
from idemproxy.demo.ports import HOST, free_ports
from idemproxy.proxy import limits
from idemproxy.proxy.commands.inspection import client_ids
from idemproxy.state.entry import Entry, pack
from idemproxy.state.store import entry_key
from testkit.real.clients.raw_client import RawClient
from testkit.real.proxies.proxy_process import ProxyProcess, wait_until
from testkit.real.store.inspecting import Place, idemproxy, lines_of, objects_of, send, stored
from testkit.real.store.two_proxies_redis import ExternalRedis

Admin = str


@pytest.fixture(scope="module")
def admin() -> Admin:
    (port,) = free_ports(1)
    return f"{HOST}:{port}"


@pytest.fixture(scope="module")
def proxy(
    legacy_broker: LegacyCluster, url: str, admin: Admin, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ProxyProcess]:
    """One with an admin port, in place of that of the other files."""
    options = ("--redis", url, "--admin-bind", admin)
    with ProxyProcess(tmp_path_factory.mktemp("asked"), legacy_broker.address(0), options=options) as running:
        yield running


def begin_as(proxy: ProxyProcess, redis: ExternalRedis, place: Place, client_id: str) -> int:
    """Return the id of a producer with this client id that has a batch in the log."""
    with RawClient(proxy.address, client_id=client_id) as client:
        producer_id = client.new_producer_id()
        assert send(client, place, producer_id, 0)[0] == 0
        wait_until(lambda: stored(redis, producer_id, place).intent is None, "its commit is written")
        return producer_id


@contextlib.contextmanager
def peer(serve: Callable[[socket.socket], None]) -> Iterator[str]:
    """Yield the address of a server of ours that does this with each connection."""
    with socket.create_server((HOST, 0)) as listener:

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    threading.Thread(target=one, args=(connection,), daemon=True).start()

        def one(connection: socket.socket) -> None:
            with connection, contextlib.suppress(OSError):
                connection.recv(65_536)
                serve(connection)

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        try:
            yield f"{HOST}:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(5)


def answering(body: bytes, status: bytes = b"200 OK") -> Callable[[socket.socket], None]:
    """Return what answers so to every request."""
    head = b"HTTP/1.1 %b\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % (status, len(body))
    return lambda connection: connection.sendall(head + body)


# ---------------------------------------------------------------------- reported
def test_a_running_proxy_tells_the_client_id_of_each_producer(
    proxy: ProxyProcess, redis: ExternalRedis, url: str, place: Place, admin: Admin
) -> None:
    first = begin_as(proxy, redis, place, "orders app")
    second = begin_as(proxy, redis, place, "audit")
    where = ("--redis", url, "--admin", admin)
    there = ("topic", place[0], "--partition", place[1])
    by_id = {row["producer_id"]: row["client_id"] for row in objects_of(*there, *where)}
    assert (by_id[str(first)], by_id[str(second)]) == ("orders app", "audit")
    title, *rows, said = lines_of(*there, "--sort", "producer", *where)
    assert title.endswith("CLIENT ID")
    assert [row.partition("  orders app")[1:] for row in rows if str(first) in row] == [("  orders app", "")]
    assert said == f"client ids: {admin} reported 2 of 2"
    (row,) = objects_of("producer", first, *where)
    assert row["client_id"] == "orders app"
    assert "  client id: orders app" in lines_of("producer", first, *where)
    assert lines_of("producer", first, *where)[-1] == f"client ids: {admin} reported 1 of 1"


def test_the_admin_port_of_the_configuration_is_asked_without_being_named(
    proxy: ProxyProcess, redis: ExternalRedis, url: str, place: Place, admin: Admin, tmp_path: Path
) -> None:
    producer_id = begin_as(proxy, redis, place, "configured")
    file = tmp_path / "idemproxy.yaml"
    for host in (HOST, "0.0.0.0"):
        bind = f"{host}:{admin.rpartition(':')[2]}"
        file.write_text(f"upstream: {{bootstrap: ['h:1']}}\nredis: {{url: '{url}'}}\nadmin: {{bind: '{bind}'}}\n")
        (row,) = objects_of("producer", producer_id, "--config", os.fspath(file))
        assert row["client_id"] == "configured"
        twice = lines_of("producer", producer_id, "--config", os.fspath(file), "--admin", admin)
        assert twice[-1] == f"client ids: {admin} reported 1 of 1", "the same port twice is asked once"


def test_of_several_proxies_each_tells_its_own_producers(
    proxy: ProxyProcess, legacy_broker: LegacyCluster, redis: ExternalRedis, url: str, admin: Admin, tmp_path: Path
) -> None:
    (port,) = free_ports(1)
    second = f"{HOST}:{port}"
    options = ("--redis", url, "--admin-bind", second)
    with ProxyProcess(tmp_path, legacy_broker.address(0), options=options) as other:
        here = begin_as(proxy, redis, ("small", 5), "here")
        there = begin_as(other, redis, ("small", 5), "there")
        where = ("topic", "small", "--partition", 5, "--sort", "producer", "--redis", url)
        reported = {row["producer_id"]: row["client_id"] for row in objects_of(*where, "--admin", second)}
        assert (reported[str(here)], reported[str(there)]) == (None, "there")
        reported = {
            row["producer_id"]: row["client_id"] for row in objects_of("--admin", admin, *where, "--admin", second)
        }
        assert (reported[str(here)], reported[str(there)]) == ("here", "there")
        said = lines_of(*where, "--admin", second)[-1]
        assert said == f"client ids: {second} reported 1 of {len(reported)} (the others are not in its memory)"
        pages = [
            lines_of(*where, "--limit", 1, "--page", page, "--admin", second) for page in range(1, len(reported) + 1)
        ]
        shown = {int(page[1].split()[2]): page[1] for page in pages}
        assert shown[there].endswith("  there")
        assert shown[here].endswith("  -")
        assert sum(page[-1] == f"client ids: {second} reported 1 of 1" for page in pages) == 1, (
            "each page asks for its own"
        )


def test_workers_tell_as_one(
    legacy_broker: LegacyCluster, redis: ExternalRedis, url: str, place: Place, tmp_path: Path
) -> None:
    (port,) = free_ports(1)
    file = tmp_path / "workers.yaml"
    file.write_text("workers: 2\n")
    options = ("--redis", url, "--admin-bind", f"{HOST}:{port}", "--config", os.fspath(file))
    with ProxyProcess(tmp_path, legacy_broker.address(0), options=options) as both:
        ids = {begin_as(both, redis, place, f"app-{number}"): f"app-{number}" for number in range(6)}
        for producer_id, client_id in ids.items():
            (row,) = objects_of("producer", producer_id, "--redis", url, "--admin", f"{HOST}:{port}")
            assert row["client_id"] == client_id


def test_a_client_id_controls_no_terminal_and_is_whole_for_machines(
    proxy: ProxyProcess, redis: ExternalRedis, url: str, place: Place, admin: Admin
) -> None:
    producer_id = begin_as(proxy, redis, place, "a\x1b[2Jb\nc")
    where = ("producer", producer_id, "--redis", url, "--admin", admin)
    assert "  client id: a\\x1b[2Jb\\nc" in lines_of(*where)
    listed = lines_of("producers", "--redis", url, "--admin", admin)
    assert all(character.isprintable() for line in listed for character in line)
    assert any(line.endswith("a\\x1b[2Jb\\nc") for line in listed)
    (row,) = objects_of(*where)
    assert row["client_id"] == "a\x1b[2Jb\nc"


# ---------------------------------------------------------------------- not reported
def test_where_nobody_is_asked_the_last_line_says_who_could_be(
    proxy: ProxyProcess, redis: ExternalRedis, url: str, place: Place
) -> None:
    producer_id = begin_as(proxy, redis, place, "unasked")
    _, row, said = lines_of("topic", place[0], "--partition", place[1], "--redis", url)
    assert row.endswith("  -")
    assert said.startswith("client ids: no admin port was asked; --admin HOST:PORT names that of a running proxy")
    done = idemproxy("inspect", "producer", producer_id, "--json", "--redis", url)
    assert done.stderr == "", "nothing was asked, and nothing went wrong"
    assert '"client_id": null' in done.stdout


def test_a_view_without_producers_refuses_the_option(url: str, admin: Admin) -> None:
    for view in ((), ("names",)):
        done = idemproxy("inspect", "--admin", admin, *view, "--redis", url)
        assert (done.returncode, done.stdout) == (2, "")
        assert "client ids are shown by inspect producers, intents, producer, topic" in done.stderr


@pytest.mark.parametrize(
    ("serve", "said"),
    [
        (answering(b"no", b"404 Not Found"), "it answers with HTTP status 404; is it an admin port of this version?"),
        (answering(b"[" * 100_000), "its answer is not that of an admin port"),
        (answering(b'{"client_ids": {"7": 8}}'), "its answer is not that of an admin port"),
        (answering(b"x" * (limits.ADMIN_ANSWER_BYTES_MAX + 1)), "its answer has more than 1048576 bytes"),
        (lambda connection: connection.sendall(b"\0\0\0\4\0\0\0\7"), "what answers is no HTTP server; is it an admin"),
        (lambda connection: None, "it closed the connection without an answer; is it an admin port?"),
    ],
)
def test_a_wrong_admin_address_is_named_with_the_reason_and_others_answer(
    proxy: ProxyProcess,
    redis: ExternalRedis,
    url: str,
    place: Place,
    admin: Admin,
    serve: Callable[[socket.socket], None],
    said: str,
) -> None:
    producer_id = begin_as(proxy, redis, place, "found")
    with peer(serve) as other:
        where = ("producer", producer_id, "--redis", url, "--admin", other, "--admin", admin)
        *_, last = lines_of(*where)
        done = idemproxy("inspect", "--json", *where)
    assert last.startswith(f"client ids: {other} did not report: {said}")
    assert last.endswith(f"; {admin} reported 1 of 1")
    assert '"client_id": "found"' in done.stdout
    assert done.stderr == f"idemproxy: {last}\n"


def test_a_closed_port_and_an_unknown_host_name_have_different_reasons(
    proxy: ProxyProcess, redis: ExternalRedis, url: str, place: Place
) -> None:
    producer_id = begin_as(proxy, redis, place, "lost")
    (nobody,) = free_ports(1)
    named = ("--admin", f"{HOST}:{nobody}", "--admin", "no.such.host.invalid:9644")
    *_, last = lines_of("producer", producer_id, "--redis", url, *named)
    assert f"{HOST}:{nobody} did not report: connection refused: nothing listens there; " in last
    assert "no.such.host.invalid:9644 did not report: its name cannot be resolved: " in last


def test_who_sends_a_byte_now_and_then_is_not_waited_for(
    proxy: ProxyProcess,
    redis: ExternalRedis,
    url: str,
    place: Place,
    admin: Admin,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "ADMIN_ASKED_SECONDS_MAX", 1.0)
    hung_up = threading.Event()

    def drip(connection: socket.socket) -> None:
        try:
            for byte in b"HTTP/1.1 200 OK\r\nx: " + b"y" * 600:
                connection.sendall(bytes([byte]))
                time.sleep(0.1)
        except OSError:
            hung_up.set()

    producer_id = begin_as(proxy, redis, place, "patient")
    with peer(drip) as other:
        begun = time.monotonic()
        *_, last = lines_of("producer", producer_id, "--redis", url, "--admin", other, "--admin", admin)
        passed = time.monotonic() - begun
        assert last == f"client ids: {other} did not report: no answer within 1 s; {admin} reported 1 of 1"
        assert passed < 10
        assert hung_up.wait(10), "the connection is left open"


def test_of_many_lines_the_first_ones_are_asked_for_and_the_page_says_so(
    proxy: ProxyProcess, url: str, admin: Admin, redis: ExternalRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "CLIENT_IDS_ASKED_MAX", 3)
    value = pack(Entry(1, bytes(16), bytes(8), 0, 0))
    for number in range(4):
        assert redis.call("SET", entry_key("default", number, "cut", 0), value) == b"OK"
    *rows, last = lines_of("topic", "cut", "--redis", url, "--admin", admin)
    assert len(rows) == 5
    assert last.startswith(f"client ids: {admin} reported 0 of 3 ")
    assert last.endswith("; asked for the first 3 lines only: --limit and --page show others")
    *rows, last = lines_of("topic", "cut", "--limit", 3, "--page", 2, "--redis", url, "--admin", admin)
    assert len(rows) == 2
    assert "reported 0 of 1" in last
    assert "lines only" not in last


def test_five_hundred_ids_fit_into_one_question(admin: Admin, proxy: ProxyProcess) -> None:
    host, port = admin.split(":")
    wanted = {2**63 - 1 - number for number in range(limits.CLIENT_IDS_ASKED_MAX)}
    assert client_ids.ask([(host, int(port))], wanted).line().startswith(f"client ids: {admin} reported 0 of 500")
    (reported,) = client_ids.ask([(host, int(port))], {*wanted, 7}).reported
    assert reported.why_not == "it answers with HTTP status 400; is it an admin port of this version?"

"""``check --connect`` says which ports could not be opened, and what listens where no broker does."""

from __future__ import annotations

import fcntl
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from idemproxy.demo.ports import free_ports, neighbouring_ports
from idemproxy.proxy.commands.check_guess import what_listens
from idemproxy.proxy.commands.check_ports import try_ports
from idemproxy.proxy.settings.load import load

HOST = "127.0.0.1"


def test_ports_of_bootstrap_brokers_and_admin_are_tried_and_one_in_use_is_told_in_words(tmp_path: Path) -> None:
    first, (admin,) = neighbouring_ports(3), free_ports(1)
    options = {"upstream": "k:1", "listen": f"{HOST}:{first}", "admin_bind": f"{HOST}:{admin}"}
    settings = replace(load(None, options), data_directory=tmp_path)
    found = try_ports(settings, [1, 0])
    assert [(one.sign, one.what, one.text) for one in found] == [
        ("ok", f"port {HOST}:{first} (clients)", "free"),
        ("ok", f"port {HOST}:{first + 1} (clients, broker 0)", "free"),
        ("ok", f"port {HOST}:{first + 2} (clients, broker 1)", "free"),
        ("ok", f"port {HOST}:{admin} (admin)", "free"),
    ]
    with socket.create_server((HOST, first + 1)):
        taken = try_ports(settings, [0])[1]
        assert (taken.sign, taken.text) == ("problem", "address already in use by another process")
        with (tmp_path / "proxy.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            mine = try_ports(settings, [0])[1]
    assert (mine.sign, mine.text) == ("ok", "open: an idemproxy runs with this data directory")
    assert os.listdir(tmp_path) == ["proxy.lock"], "to look at it changes nothing"


class _Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def web_server() -> Iterator[int]:
    with ThreadingHTTPServer((HOST, 0), _Page) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


def test_an_http_server_on_a_brokers_port_is_called_that() -> None:
    with web_server() as port:
        assert what_listens(HOST, port) == (
            f"an HTTP server listens at {HOST}:{port}, no Kafka broker: give the port of a broker's listener"
        )


def test_what_says_nothing_is_given_no_name() -> None:
    with socket.create_server((HOST, 0)) as silent:
        assert what_listens(HOST, silent.getsockname()[1]) is None
    (port,) = free_ports(1)
    assert what_listens(HOST, port) is None

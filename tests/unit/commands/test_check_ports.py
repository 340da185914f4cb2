"""``check --connect`` says which ports could not be opened."""

from __future__ import annotations

import fcntl
import os
import socket
from dataclasses import replace
from pathlib import Path

from idemproxy.demo.ports import free_ports, neighbouring_ports
from idemproxy.proxy.commands.check_ports import try_ports
from idemproxy.proxy.settings.load import load

HOST = "127.0.0.1"


def test_bootstrap_broker_and_admin_ports_are_tried_and_used_ones_reported(tmp_path: Path) -> None:
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

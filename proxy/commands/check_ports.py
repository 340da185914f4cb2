"""Tries the ports that ``idemproxy run`` would open, by opening and closing each. Takes no connection."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from ..net.socket_errors import why_not_open
from ..process.findings import Finding
from ..process.listeners import bind_error
from ..settings.addresses import Listener, join_host_and_port
from ..settings.config import Settings


def try_ports(settings: Settings, broker_ids: Iterable[int]) -> list[Finding]:
    """Return a finding per port. ``broker_ids``: of the brokers that were found; those that are listed count anyway."""
    is_running = _is_used(settings.data_directory)
    return [_tried(*one, is_running) for one in _ports(settings, sorted(broker_ids))]


def _ports(settings: Settings, broker_ids: Iterable[int]) -> Iterator[tuple[Listener, int | None, int]]:
    for one in settings.listeners:
        yield one, None, one.port
        if one.routing == "port":
            for broker_id in one.broker_ids or broker_ids:
                if (port := one.port_of(broker_id)) is not None:
                    yield one, broker_id, port
    if isinstance(settings.admin, tuple):
        yield Listener("admin", *settings.admin, settings.admin[1]), None, settings.admin[1]


def _tried(one: Listener, broker_id: int | None, port: int, is_running: bool) -> Finding:
    whose = one.name if broker_id is None else f"{one.name}, broker {broker_id}"
    what = f"port {join_host_and_port(one.host, port)} ({whose})"
    error = bind_error(one.host, port)
    if error is None:
        return Finding("ok", what, "free")
    if error.errno == errno.EADDRINUSE and is_running:
        return Finding("ok", what, "open: an idemproxy runs with this data directory")
    return Finding("problem", what, why_not_open(error))


def _is_used(data_directory: Path) -> bool:
    """Does a process hold this data directory now?"""
    try:
        lock = os.open(data_directory / "proxy.lock", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False

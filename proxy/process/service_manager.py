"""Tells systemd, or whatever else sets ``NOTIFY_SOCKET``, how the process does (sd_notify(3)). Does nothing without it,
and never waits."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping
from contextlib import suppress

_VARIABLE = "NOTIFY_SOCKET"


def notify(**said: object) -> None:
    """Send assignments in one datagram, such as ``READY=1``. A service manager that does not listen changes nothing."""
    address = os.environ.get(_VARIABLE, "")
    if not address.startswith(("/", "@")):
        return
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as towards:
        towards.setblocking(False)
        towards.sendto(_text(said), address if address[0] == "/" else "\0" + address[1:])


def notify_reloading() -> None:
    """Say that a reload begins; ``READY=1`` ends it (Type=notify-reload)."""
    notify(RELOADING=1, MONOTONIC_USEC=time.monotonic_ns() // 1000)


def _text(said: Mapping[str, object]) -> bytes:
    return "\n".join(f"{name}={value}" for name, value in said.items()).encode()

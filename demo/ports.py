"""Free TCP ports on loopback for servers that must be given their port before they start. Holds the last ones that it
gave away, so that no other process which asks here gets one before its server listens; never listens itself."""

from __future__ import annotations

import atexit
import random
import socket
from collections import deque

HOST = "127.0.0.1"
# Below the range that Linux gives to outgoing connections: a broker that was killed finds its port free again.
_LOWEST, _HIGHEST = 18_000, 32_000
_TRIES_MAX = 1_000
_HELD_MAX = 256
"""Several clusters' worth: a server listens seconds after it was given its port."""
_held: deque[socket.socket] = deque()


def free_ports(count: int) -> list[int]:
    """Return so many different ports that nothing listens on at this moment."""
    found: list[int] = []
    for candidate in random.SystemRandom().sample(range(_LOWEST, _HIGHEST), _TRIES_MAX):
        if len(found) == count:
            break
        if _take(candidate):
            found.append(candidate)
    if len(found) < count:
        raise OSError(f"no {count} free ports on {HOST} between {_LOWEST} and {_HIGHEST}")
    return found


def neighbouring_ports(count: int) -> int:
    """Return the first of so many consecutive free ports: a proxy derives its brokers' listeners from one number."""
    for _ in range(_TRIES_MAX):
        (first,) = free_ports(1)
        if all(_take(port) for port in range(first + 1, first + count)):
            return first
    raise OSError(f"no {count} free ports side by side on {HOST}")


def _take(port: int) -> bool:
    """Is nothing bound to this port? It is held from here on: a server that allows addresses to be reused, as all do
    that are started here, can listen on it, and the next call for it finds it taken."""
    held = socket.socket()
    try:
        held.bind((HOST, port))
    except OSError:
        held.close()
        return False
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    _held.append(held)
    while len(_held) > _HELD_MAX:
        _held.popleft().close()
    return True


@atexit.register
def _let_go() -> None:
    while _held:
        _held.pop().close()

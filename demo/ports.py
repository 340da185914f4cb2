"""Free TCP ports on loopback for servers that must be told their port before they start. Holds nothing open."""

from __future__ import annotations

import random
import socket

HOST = "127.0.0.1"
# Below the range that Linux gives to outgoing connections: a broker that was killed finds its port free again.
_LOWEST, _HIGHEST = 18_000, 32_000
_TRIES_MAX = 1_000


def free_ports(count: int) -> list[int]:
    """Return so many different ports that nothing listens on at this moment."""
    found: list[int] = []
    for candidate in random.SystemRandom().sample(range(_LOWEST, _HIGHEST), _TRIES_MAX):
        if len(found) == count:
            break
        if _is_free(candidate):
            found.append(candidate)
    if len(found) < count:
        raise OSError(f"no {count} free ports on {HOST} between {_LOWEST} and {_HIGHEST}")
    return found


def neighbouring_ports(count: int) -> int:
    """Return the first of so many consecutive free ports: a proxy derives its brokers' listeners from one number."""
    for _ in range(_TRIES_MAX):
        (first,) = free_ports(1)
        if all(_is_free(port) for port in range(first + 1, first + count)):
            return first
    raise OSError(f"no {count} free ports side by side on {HOST}")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True

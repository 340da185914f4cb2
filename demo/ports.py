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
        with socket.socket() as probe:
            try:
                probe.bind((HOST, candidate))
            except OSError:
                continue
        found.append(candidate)
    if len(found) < count:
        raise OSError(f"no {count} free ports on {HOST} between {_LOWEST} and {_HIGHEST}")
    return found

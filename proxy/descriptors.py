"""How many connections and files this process may have open at a time, as the system limits it. Raises its own limit
as far as that goes; opens nothing."""

from __future__ import annotations

import resource

_WANTED_MIN = 65_536
_PER_CLIENT = 2
"""Its own, and one of the connection to a broker that belongs to it."""


def raise_descriptors(clients: int) -> str | None:
    """Have enough for so many clients. Returns a warning where the system does not allow that."""
    wanted = _PER_CLIENT * clients
    have = _raise_limit(max(_WANTED_MIN, wanted))
    if have >= wanted:
        return None
    return f"{have} descriptors are too few for limits.connections_max {clients}: {wanted} are wanted (ulimit -n)"


def _raise_limit(wanted: int) -> int:
    """Return how many there are now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = wanted if hard == resource.RLIM_INFINITY else min(hard, wanted)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return max(soft, wanted)

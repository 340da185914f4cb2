"""The file descriptors of this process: how many the system allows, and a reserve that clients do not get. Without a
free one, a lost connection to Redis could not be replaced, and the lease would end. Raises the process's soft limit as
far as the hard limit allows."""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import sys
from collections.abc import Callable

from ...reactor import Address, Endpoint, Reactor
from .. import limits

_WANTED_MIN = 65_536
_STANDARD_INPUT = 0


def raise_descriptors(clients: int) -> int:
    """Raise the limit of descriptors to what this number of clients may use, as far as the system allows; return the
    limit now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = max(_WANTED_MIN, limits.DESCRIPTORS_PER_OLD_CLIENT * clients)
    wanted = wanted if hard == resource.RLIM_INFINITY else min(hard, wanted)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return max(soft, wanted)


class Descriptors:
    """The descriptors of this process. The kernel is asked each time: files, the admin port and threads take some as
    well."""

    def __init__(self, to_brokers: Callable[[], int], make_room: Callable[[str], bool]) -> None:
        """``to_brokers``: how many connections of its own the proxy may have to brokers. ``make_room``: called with
        the reason, closes the connection of a client that has been idle; False if there is none."""
        self._to_brokers = to_brokers
        self._make_room = make_room

    def why_no_room(self) -> str | None:
        """Return why there is no descriptor for a client, as a sentence; None if there is one, perhaps because another
        client's connection was closed for it."""
        have = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        kept = limits.DESCRIPTORS_KEPT + self._to_brokers()
        for_clients = have - min(kept, int(have * limits.DESCRIPTORS_KEPT_SHARE_MAX))
        if _in_use() < for_clients:
            return None
        kept = have - for_clients
        why = f"{for_clients} file descriptors are in use, and the last {kept} are kept for Redis and the brokers"
        return None if self._make_room(why) and _in_use() < for_clients else f"{why} (ulimit -n)"


def _in_use() -> int:
    """Return how many are in use below the first free one: the kernel gives out the lowest number that is free."""
    try:
        lowest = fcntl.fcntl(_STANDARD_INPUT, fcntl.F_DUPFD_CLOEXEC, 0)
    except OSError as error:
        return 0 if error.errno == errno.EBADF else sys.maxsize  # the first is free, or none is
    os.close(lowest)
    return lowest


class ForClients:
    """A reactor's clock and timers, with connections that belong to one client: they fail where clients get no
    descriptors."""

    def __init__(self, reactor: Reactor, why_no_room: Callable[[], str | None]) -> None:
        self.now = reactor.now
        self.later = reactor.later
        self.at_flush = reactor.at_flush
        self._connect = reactor.connect
        self._why_no_room = why_no_room

    def connect(self, address: Address, endpoint: Endpoint) -> None:
        """Open a connection, or report that there is no descriptor for it."""
        if why := self._why_no_room():
            self.later(0, lambda: endpoint.lost(f"cannot connect: {why}"))
        else:
            self._connect(address, endpoint)

"""Why a port cannot be opened, and why a connection cannot, in words. Pure."""

from __future__ import annotations

import errno
import os

_LISTEN = {
    errno.EADDRINUSE: "address already in use by another process",
    errno.EACCES: "permission denied: a port below 1024 needs rights of its own (CAP_NET_BIND_SERVICE)",
    errno.EADDRNOTAVAIL: "this machine has no such address",
}
NOTHING_CAME_BACK = "the machine is away, or a firewall drops what is sent to it"
_CONNECT = {
    errno.ECONNREFUSED: "connection refused: nothing listens there",
    errno.ETIMEDOUT: f"no answer: {NOTHING_CAME_BACK}",
    errno.ENOENT: "there is no such socket",
    errno.EMFILE: "this process has no file descriptor left (ulimit -n)",
}


def why_not_open(error: OSError) -> str:
    """Return why a socket cannot listen there, without the address."""
    number = error.errno or 0
    return _LISTEN.get(number) or error.strerror or os.strerror(number)


def why_broken(error: OSError) -> str:
    """Return why an open connection has ended."""
    if error.errno == errno.ETIMEDOUT:
        return f"what was sent is not confirmed: {NOTHING_CAME_BACK}"
    return error.strerror or str(error)


def why_not_connected(number: int) -> str:
    """Return why a connection cannot be opened. ``number``: of errno."""
    return _CONNECT.get(number) or os.strerror(number).lower()

"""What an operator can do about a Redis that refuses. Pure."""

from __future__ import annotations

_LOGIN = "give its user and password: redis.username and redis.password_file, or in the URL"
MAKE_ROOM = "raise its maxmemory, or take out what others keep in it"
_TODO = {
    "no connection within": "the machine is away, or a firewall drops what is sent to it",
    "NOAUTH": _LOGIN,
    "WRONGPASS": _LOGIN,
    "DENIED": "give it a password; or, where nobody else reaches it, set its protected-mode to no",
    "OOM": MAKE_ROOM,
    "has lost what was just written": "is it full (maxmemory)? `idemproxy check --connect` tells",
}
"""By Redis's error code, or by words of our own reasons."""


NEW_LEASE = "a new lease is being taken, over a new connection"
"""The reason of a connection that the proxy closes itself, after a lost lease."""


def redis_reason(reason: str) -> str:
    """Return why Redis cannot be used, with what can be done about it where that is known."""
    if reason.endswith(NEW_LEASE):
        return f"Redis: {NEW_LEASE}"
    todo = next((text for code, text in _TODO.items() if f" {code} " in f" {reason} "), None)
    return reason if todo is None else f"{reason.removesuffix('.')}: {todo}"

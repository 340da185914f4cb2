"""What an operator can do about a Redis that refuses. Pure."""

from __future__ import annotations

_LOGIN = "give its user and password: redis.username and redis.password_file, or in the URL"
_TODO = {
    "no connection within": "nothing came back; the host is off, or a firewall drops packets",
    "NOAUTH": _LOGIN,
    "WRONGPASS": _LOGIN,
    "DENIED": "give it a password; or, where nobody else reaches it, set its protected-mode to no",
    "OOM": "raise its maxmemory, or take out what others keep in it",
}
"""By the code that Redis gives, or the words of what is tried."""


def redis_reason(reason: str) -> str:
    """Return why Redis cannot be used, with what can be done about it where that is known."""
    todo = next((text for code, text in _TODO.items() if f" {code} " in f" {reason}"), None)
    return reason if todo is None else f"{reason.removesuffix('.')}: {todo}"

"""What an operator can do about a Redis that refuses. Pure."""

from __future__ import annotations

_LOGIN = "give its user and password: redis.username and redis.password_file, or in the URL"
_TODO = {
    "NOAUTH": _LOGIN,
    "WRONGPASS": _LOGIN,
    "OOM": "raise its maxmemory, or take out what others keep in it",
}
"""By the code that Redis gives."""


def redis_reason(reason: str) -> str:
    """Return why Redis cannot be used, with what can be done about it where that is known."""
    todo = next((text for code, text in _TODO.items() if f" {code} " in reason), None)
    return reason if todo is None else f"{reason.removesuffix('.')}: {todo}"

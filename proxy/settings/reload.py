"""What may change while a proxy runs, and what may not. Pure: compares settings; ``server.py`` applies them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from .config import Settings

_NAMES: Mapping[str, str] = {
    "upstream": "upstream.bootstrap",
    "upstream_tls": "upstream.tls",
    "upstream_sasl": "upstream.sasl",
    "idempotence": "upstream.idempotence",
    "allows_duplicates_in_flight": "upstream.allow_duplicates_in_flight",
    "allow_unauthenticated_clients": "upstream.allow_unauthenticated_clients",
    "redis_tls": "redis.tls",
    "cluster": "cluster_name",
    "producer_expiry_seconds": "producers.expiry_seconds",
    "append_reservations": "producers.append_reservations",
    "client_retry_seconds_max": "producers.client_retry_seconds_max",
    "producer_names": "producers.names",
    "dropped_headers": "producers.dropped_headers",
    "upstream_idempotence": "producers.upstream_idempotence",
    "conditional_topics": "topics.conditional",
    "engine_topics": "topics.engine",
    "hidden_ranges_topic": "hidden_ranges.topic",
    "admin": "admin.bind",
    "log_level": "log.level",
    "log_format": "log.format",
    "log_lines_per_minute_max": "log.lines_per_minute_max",
}
"""The names in the file of fields of the settings that are called otherwise there."""

_IN_FILE = re.compile(r"(?<=\])\.(?:host|port|advertised\.\w+)$")
"""Fields of a listener that are one text in the file: host and port of ``bind``, the parts of ``advertised``."""

_OF_REDIS = {"redis.address": "redis.url", "redis.database": "redis.url"}
_KEY_PASSWORD = re.compile(r".+\.tls\.key_password$")
_RELOADED = (
    "limits.",
    "old_clients.",
    "topics.default_",  # no list of topics: a topic must not change its kind while it is written to
    "upstream.sasl.",
    "redis.username",
    "redis.password",
    "producers.expiry_seconds",
    "producers.client_retry_seconds_max",
    "producers.dropped_headers",
    "producers.names",
    "producers.upstream_idempotence",
    "log.",
    "journal.rotate_bytes",
    "journal.keep_files",
    "journal.fsync_seconds",
    "journal.required",
)


@dataclass(frozen=True, slots=True)
class Changes:
    """Names of settings that differ, as in the file. ``refused``: only a restart can change these."""

    taken: tuple[str, ...]
    refused: tuple[str, ...]


def changes(old: Settings, new: Settings) -> Changes:
    """Return what differs. No value is shown: there are passwords among them."""
    found = (_IN_FILE.sub(_as_in_file, name) for name in _differences(old, new, ""))
    names = list(dict.fromkeys(_OF_REDIS.get(name, name) for name in found))
    taken = tuple(name for name in names if is_reloaded(name))
    return Changes(taken, tuple(name for name in names if name not in taken))


def is_reloaded(name: str) -> bool:
    """Return whether a running proxy takes over a change of this setting, named as in the file."""
    return name.startswith(_RELOADED) or _KEY_PASSWORD.match(name) is not None


def _as_in_file(match: re.Match[str]) -> str:
    """In the file an address is one text."""
    return ".advertised" if match[0].startswith(".advertised") else ".bind"


def _differences(old: Any, new: Any, place: str) -> Iterator[str]:
    if old == new:
        return
    if is_dataclass(old) and type(old) is type(new) and not isinstance(old, type):
        for field in fields(old):
            name = field.name if place else _NAMES.get(field.name, field.name)
            below = f"{place}.{name}" if place else name
            yield from _differences(getattr(old, field.name), getattr(new, field.name), below)
    elif place == "listeners" and len(old) == len(new):
        for index, (before, after) in enumerate(zip(old, new, strict=True)):
            yield from _differences(before, after, f"listeners[{index}]")
    else:
        yield place

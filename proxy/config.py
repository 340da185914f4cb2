"""The settings of one proxy process, frozen. Every problem is found at once; nothing is looked up here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..codecs.convert import TRACING_HEADERS
from ..state.redis_facts import RedisAddress, parse_redis_url
from ..state.store import is_cluster_name
from .limits import PRODUCER_EXPIRY_SECONDS

DEFAULT_LISTEN = "127.0.0.1:9092"
DEFAULT_CLUSTER = "default"
_SECONDS_MAX = 10 * 366 * 24 * 3600


class ConfigError(Exception):
    """The settings cannot be used; one sentence per problem."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What ``idemproxy run`` was told. ``redis`` None: a private server in ``data_directory``."""

    upstream: tuple[str, int]
    listen: tuple[str, int]
    redis: RedisAddress | None
    data_directory: Path
    cluster: str
    advertised_host: str | None = None
    dropped_headers: tuple[str, ...] = TRACING_HEADERS
    journal: Path | None = None
    producer_expiry_seconds: int = PRODUCER_EXPIRY_SECONDS
    merge_producers: bool = False


def parse_settings(
    *,
    upstream: str,
    listen: str,
    redis: str | None,
    data_directory: str,
    cluster: str,
    advertised_host: str | None,
    dropped_headers: str | None = None,
    journal: str | None = None,
    producer_expiry_seconds: str | None = None,
    merge_producers: bool = False,
) -> Settings:
    """Return the settings. Raises ConfigError with a line per problem."""
    problems: list[str] = []
    upstream_address = _host_and_port(upstream, "--upstream", problems)
    listen_address = _host_and_port(listen, "--listen", problems)
    login = _redis(redis, problems) if redis is not None else None
    if not is_cluster_name(cluster):
        problems.append(f"--cluster {cluster!r}: letters, digits, dot, underscore and hyphen, at most 64")
    expiry_seconds = PRODUCER_EXPIRY_SECONDS
    if producer_expiry_seconds is not None:
        expiry_seconds = _seconds(producer_expiry_seconds, "--producer-expiry-seconds", problems)
    if problems:
        raise ConfigError("\n".join(problems))
    names: tuple[str, ...] = TRACING_HEADERS
    if dropped_headers is not None:
        names = tuple(name.strip() for name in dropped_headers.split(",") if name.strip())
    assert upstream_address is not None
    assert listen_address is not None
    return Settings(
        upstream_address,
        listen_address,
        login,
        Path(data_directory),
        cluster,
        advertised_host,
        names,
        Path(journal) if journal is not None else None,
        expiry_seconds,
        merge_producers,
    )


def _host_and_port(text: str, option: str, problems: list[str]) -> tuple[str, int] | None:
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isdecimal() or not 0 < int(port) < 65536:
        problems.append(f"{option} {text!r}: HOST:PORT is wanted, with a port from 1 to 65535")
        return None
    return host, int(port)


def _seconds(text: str, option: str, problems: list[str]) -> int:
    if text.isascii() and text.isdecimal() and 0 < int(text) <= _SECONDS_MAX:
        return int(text)
    problems.append(f"{option} {text!r}: a whole number of seconds is wanted, from 1 to {_SECONDS_MAX}")
    return 0


def _redis(url: str, problems: list[str]) -> RedisAddress | None:
    try:
        return parse_redis_url(url)
    except ValueError as error:
        problems.append(f"--redis: {error}")
        return None

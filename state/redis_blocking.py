"""One blocking connection to Redis over redis-py, for the command line and the pipeline; the proxy never uses it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import redis
from redis.exceptions import RedisError

from .redis_facts import RedisAddress, parse_info

CONNECT_SECONDS_MAX = 5.0
REPLY_SECONDS_MAX = 30.0


class InspectionError(Exception):
    """Redis cannot be asked, or refuses; one sentence that says why, never with a password in it."""


def pool_of(address: RedisAddress, over_tls: Callable[[Any], Any] | None) -> redis.ConnectionPool:
    """Return a pool for one connection. ``over_tls``: takes a connected socket and returns it with TLS."""
    return redis.ConnectionPool(
        connection_class=_connection_class(address, over_tls),
        username=address.username,
        password=address.password,
        db=address.database,
        socket_connect_timeout=CONNECT_SECONDS_MAX,
        socket_timeout=REPLY_SECONDS_MAX,
        protocol=2,
        **_place_of(address),
    )


def connected(pool: redis.ConnectionPool) -> Any:
    """Return the pool's one connection, opened now: its login and settings hold for every call. ``Any``: redis-py's
    methods are only partly typed. Raises InspectionError."""
    with redis_errors_as_sentences():
        return redis.Redis(connection_pool=pool, single_connection_client=True)


def info_of(connection: Any, *sections: bytes) -> dict[str, str]:
    """Return the fields of these sections of INFO. Raises RedisError."""
    info: dict[str, str] = {}
    for section in sections:
        # Not ``info()``: redis-py turns an id of digits only into a number.
        info |= parse_info(connection.execute_command(b"INFO", section))
    return info


@contextmanager
def redis_errors_as_sentences() -> Iterator[None]:
    """Turn what redis-py raises into one sentence."""
    try:
        yield
    except RedisError as error:
        raise InspectionError(f"Redis: {error}") from None


def _place_of(address: RedisAddress) -> dict[str, Any]:
    if isinstance(address.address, str):
        return {"path": address.address}
    return {"host": address.address[0], "port": address.address[1]}


def _connection_class(address: RedisAddress, over_tls: Callable[[Any], Any] | None) -> type[Any]:
    if isinstance(address.address, str):
        return redis.UnixDomainSocketConnection
    if over_tls is None:
        return redis.Connection
    wrapped = over_tls

    class OverTls(redis.Connection):
        """redis-py's own class for TLS cannot check the certificate for another name than the host's."""

        def _connect(self) -> Any:
            return wrapped(super()._connect())  # type: ignore[no-untyped-call]

    return OverTls

"""What the proxy has to know of a Redis server: its URL, what INFO says, the data generation, the swap script.
Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import parse_qs, quote, unquote, urlsplit

from ..reactor import Address
from .names import NEWEST_AT

VERSION_MIN = (7, 0)
"""From this version on, scripts are not written to replicas and append-only files, where a later data generation would
read them."""
DATA_GENERATION_BYTES = 16
DEFAULT_PORT = 6379

NOT_REGISTERED = "NOMEMBER"
"""The code with which the swap script refuses a sender that is not registered, no longer, or with an earlier beat."""

_SWAP_SCRIPT = """-- idemproxy swap, generation {data_generation}
-- KEYS: the value's, the sender's registration; of a named producer also the name's record, the producer's index, the
-- partition's
-- ARGV: expected version (8 bytes, zero: absent), new value, time to live in ms (0: none, -1: as it is), the
-- value that the registration has to have: of the sender's newest heartbeat; the name's newest instance, and when the
-- value expires, in ms since 1970
-- 1: stored; else what is there, nil when absent; the record in a list when the name has another newest instance;
-- an error when the registration is gone, or is an earlier one: Redis's memory went back in time
if redis.call('GET', KEYS[2]) ~= ARGV[4] then
  return redis.error_reply('{not_registered} the registration of the sender is gone')
end
local fits
if ARGV[1] == '\\0\\0\\0\\0\\0\\0\\0\\0' then
  fits = redis.call('EXISTS', KEYS[1]) == 0
else
  fits = redis.call('GETRANGE', KEYS[1], 1, 8) == ARGV[1]
end
if not fits then return redis.call('GET', KEYS[1]) end
if KEYS[3] then
  if redis.call('GETRANGE', KEYS[3], {newest_from}, {newest_to}) ~= ARGV[5] then
    return {{redis.call('GET', KEYS[3])}}
  end
  if redis.call('SADD', KEYS[4], KEYS[1]) == 1 then redis.call('PEXPIRE', KEYS[4], ARGV[3]) end
  if redis.call('ZADD', KEYS[5], ARGV[6], KEYS[1]) == 1 then
    redis.call('ZREMRANGEBYSCORE', KEYS[5], '-inf', string.format('%.0f', ARGV[6] - ARGV[3]))
    redis.call('PEXPIRE', KEYS[5], ARGV[3])
  end
end
if ARGV[3] == '0' then
  redis.call('SET', KEYS[1], ARGV[2])
elseif ARGV[3] == '-1' then
  redis.call('SET', KEYS[1], ARGV[2], 'KEEPTTL')
else
  redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
end
return 1
"""


@dataclass(frozen=True, slots=True)
class RedisAddress:
    """Where the server is and how to log in. Neither ``repr`` nor ``str`` shows the password."""

    address: Address
    username: str | None = None
    password: str | None = None
    database: int = 0

    def __repr__(self) -> str:
        return f"RedisAddress({self.address!r}, database={self.database})"

    def __str__(self) -> str:
        """The URL for messages, with *** for a password."""
        login = f"{quote(self.username or '', safe='')}:***@" if self.password else ""
        if isinstance(self.address, str):
            return f"unix://{login}{quote(self.address)}" + (f"?db={self.database}" if self.database else "")
        host, port = self.address
        place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        return f"redis://{login}{place}" + (f"/{self.database}" if self.database else "")


def parse_redis_url(url: str) -> RedisAddress:
    """Return what a ``redis://[user:password@]host[:port][/database]`` or ``unix:///path[?db=n]`` URL says.

    Raises ValueError with a sentence for people, never with the password in it.
    """
    parts = urlsplit(url)
    if parts.scheme == "rediss":
        raise ValueError(
            "TLS to Redis is a setting of its own (redis.tls): a Redis URL begins with redis:// or unix://"
        )
    if parts.scheme not in ("redis", "unix"):
        raise ValueError("a Redis URL begins with redis:// or unix://")
    username = unquote(parts.username) if parts.username else None
    password = unquote(parts.password) if parts.password else None
    if username and not password:
        raise ValueError("the Redis URL has a user name without a password")
    options = parse_qs(parts.query, keep_blank_values=True)
    if unknown := set(options) - {"db"}:
        raise ValueError(f"the Redis URL has an unknown option: {', '.join(sorted(unknown))}")
    database = options.get("db", [""])[-1]
    if parts.scheme == "unix":
        if not parts.path.startswith("/"):
            raise ValueError("a unix:// Redis URL needs an absolute path: unix:///run/redis.sock")
        return RedisAddress(unquote(parts.path), username, password, _database(database))
    if not parts.hostname:
        raise ValueError("the Redis URL names no host")
    try:
        port = parts.port or DEFAULT_PORT
    except ValueError:
        raise ValueError("the port of the Redis URL is not a number from 1 to 65535") from None
    return RedisAddress(
        (unquote(parts.hostname), port), username, password, _database(database or parts.path.strip("/"))
    )


def _database(text: str) -> int:
    if not text:
        return 0
    if not (text.isascii() and text.isdigit() and len(text) <= 5):
        raise ValueError("the database of the Redis URL is not a number")
    return int(text)


def parse_info(text: bytes) -> dict[str, str]:
    """Return the fields of an INFO reply. Lines that are no fields are left out."""
    lines = text.decode("utf-8", "replace").splitlines()
    return {name: value for name, colon, value in (line.partition(":") for line in lines) if colon}


def version_of(info: Mapping[str, str]) -> tuple[int, ...]:
    """Return the version, (0,) if the server does not tell. Valkey tells the Redis version that it is compatible
    with."""
    numbers = info.get("redis_version", "").split(".")
    return tuple(int(n) for n in numbers) if all(n.isascii() and n.isdigit() for n in numbers) else (0,)


def shown_server(info: Mapping[str, str]) -> str:
    """Return the server's name and version, as people know them."""
    if "valkey_version" in info:
        return f"Valkey {info['valkey_version']}"
    return f"Redis {info.get('redis_version', 'of unknown version')}"


def identity_of(info: Mapping[str, str]) -> str | None:
    """Return which server this is, as which master: run_id, which every start changes, and master_replid, which every
    promotion changes. None if the server does not tell both."""
    run_id, replication_id = info.get("run_id", ""), info.get("master_replid", "")
    return f"{run_id} {replication_id}" if run_id and replication_id else None


def data_generation_of(info: Mapping[str, str], data_number: int) -> bytes | None:
    """Return the 16 bytes that name this data generation; None if the server does not tell. A digest of what
    ``identity_of`` tells and of the data number of its memory (``store.data_number_of``)."""
    identity = identity_of(info)
    if identity is None:
        return None
    return hashlib.blake2b(f"{identity} {data_number}".encode(), digest_size=DATA_GENERATION_BYTES).digest()


def refusal_of(info: Mapping[str, str]) -> str | None:
    """Return why this server must not be used, as a sentence that says what to change; None if it may be used. Checks
    only those memory settings that ``info`` has: the heartbeat asks for less than the first check.
    """
    if version_of(info) < VERSION_MIN:
        return f"{shown_server(info)} is too old: {VERSION_MIN[0]}.{VERSION_MIN[1]} or newer is needed"
    mode = info.get("server_mode") or info.get("redis_mode", "standalone")  # Valkey has it under the first name
    if mode != "standalone":
        return f"Redis runs in {mode} mode: the address of a single master is needed"
    role = info.get("role", "unknown")
    if role != "master":
        return f"Redis has the role {role}: the address of the master is needed"
    if identity_of(info) is None:
        return "Redis does not tell its run_id and master_replid in INFO, so lost writes could not be noticed"
    return None


def eviction_refusal_of(info: Mapping[str, str]) -> str | None:
    """Return why a server with this memory policy must not be used; None if it may be used."""
    policy = info.get("maxmemory_policy", "unknown")
    if policy != "noeviction":
        return f"Redis may drop data that is in use (maxmemory-policy {policy}): set it to noeviction"
    return None


def warnings_of(info: Mapping[str, str]) -> list[str]:
    """Return what makes losses likelier, as sentences."""
    if info.get("aof_enabled") == "1":
        return []
    return ["Redis keeps no append-only file: its restart loses state; set appendonly yes"]


def swap_script(data_generation: bytes) -> bytes:
    """Return the text of the compare-and-swap script of one data generation.

    The data generation is in the text, hence in its digest: a server with another data number does not know the script
    (NOSCRIPT). FLUSHALL does not change that data number, but deletes the registrations: a swap that was sent before it
    and is executed afterwards is refused by the script itself."""
    newest_from, newest_to = NEWEST_AT
    return _SWAP_SCRIPT.format(
        data_generation=data_generation.hex(),
        not_registered=NOT_REGISTERED,
        newest_from=newest_from,
        newest_to=newest_to,
    ).encode()


def script_sha(text: bytes) -> bytes:
    """Return the name by which EVALSHA calls a script: 40 hexadecimal digits."""
    return hashlib.sha1(text, usedforsecurity=False).hexdigest().encode()

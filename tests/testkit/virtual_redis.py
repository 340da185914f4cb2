"""A Redis server on the virtual network: the few commands that the proxy uses, and the ways in which they go wrong.

One thread, as in Redis: commands are executed one after the other in the order of their arrival. Owns data, expiry,
loaded scripts, restarts (with or without the loss of the last writes) and seeded faults. It runs no Lua: the swap
script is recognised by its marker comment and its documented meaning is carried out. A test compares its replies with
those of a real server.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from idemproxy.reactor import Address
from testkit.virtual_network import Network
from testkit.virtual_redis_connection import RedisConnection, RedisFault, Reply, ReplyError

SWAP_MARKER = b"idemproxy swap"
"""In a comment of the script that the shipped store loads."""
JOURNAL_WRITES_MAX = 1_000
"""So many writes can be taken back by a restart."""


@dataclass(frozen=True, slots=True)
class RedisFaultRates:
    """How often each fault hits a command that reads or writes a key; all else is spared."""

    lost_reply: float = 0.0
    lost_command: float = 0.0
    late: float = 0.0
    slow: float = 0.0
    refused: float = 0.0
    late_seconds: tuple[float, float] = (0.01, 3.0)
    slow_seconds: tuple[float, float] = (0.01, 0.5)


@dataclass(slots=True)
class Stored:
    """One value and the network time at which it ends; None: never."""

    value: bytes
    expires_at: float | None


FaultChoice = Callable[[int, bytes, Sequence[bytes]], RedisFault]
"""Number of the key command, its name, its arguments -> what happens to it."""


class VirtualRedis:
    """The server over all its lives."""

    def __init__(
        self, network: Network, address: Address, *, rates: RedisFaultRates | None = None, password: bytes | None = None
    ) -> None:
        self.network = network
        self.address = address
        self.rates = rates or RedisFaultRates()
        self.password = password
        self.choose_fault: FaultChoice = self._seeded_fault
        self.key_commands = 0
        self.faults_done: dict[RedisFault, int] = dict.fromkeys(RedisFault, 0)
        self.data: dict[bytes, Stored] = {}
        self.scripts: dict[bytes, bytes] = {}
        self.role = "master"
        self.version = "7.2.4"
        self.maxmemory_policy = "noeviction"
        self.run_id = ""
        self.replication_id = ""
        self.lives = 0
        self._journal: deque[tuple[bytes, Stored | None]] = deque(maxlen=JOURNAL_WRITES_MAX)
        self.host = network.host("redis")
        self._begin_life()

    def restart(self, *, lose_last_writes: int = 0, down_seconds: float = 0.05) -> None:
        """Kill it now and start it again after some time: new run id, no scripts, perhaps older data."""
        self.host.crash()
        self.scripts.clear()
        for _ in range(min(lose_last_writes, len(self._journal))):
            key, before = self._journal.pop()
            if before is None:
                self.data.pop(key, None)
            else:
                self.data[key] = before
        self._journal.clear()
        self.network.schedule(down_seconds, self._begin_life)

    def _begin_life(self) -> None:
        if self.host.alive and self.lives:
            return  # started meanwhile by another restart
        self.lives += 1
        self.run_id = f"{self.network.random.getrandbits(160):040x}"
        self.replication_id = f"{self.network.random.getrandbits(160):040x}"
        if self.lives > 1:
            self.host = self.network.host(f"redis-{self.lives}")
        self.network.listen(self.host, self.address, lambda: RedisConnection(self))

    # ------------------------------------------------------------------ data
    def get(self, key: bytes) -> bytes | None:
        """The value now, None when absent or expired."""
        stored = self.data.get(key)
        if stored is None:
            return None
        if stored.expires_at is not None and stored.expires_at <= self.network.now:
            del self.data[key]
            return None
        return stored.value

    def put(self, key: bytes, value: bytes | None, ttl_ms: int = 0) -> None:
        """Write or (None) delete, and remember what was there."""
        self.get(key)  # lets it expire
        self._journal.append((key, self.data.get(key)))
        if value is None:
            self.data.pop(key, None)
        else:
            self.data[key] = Stored(value, self.network.now + ttl_ms / 1000 if ttl_ms else None)

    # ------------------------------------------------------------------ commands
    def execute(self, arguments: Sequence[bytes]) -> Reply:
        """Carry out one command, but for those that belong to the connection."""
        name, rest = arguments[0].upper(), arguments[1:]
        handler = COMMANDS.get(name)
        if handler is None:
            return ReplyError(f"ERR unknown command '{arguments[0].decode(errors='replace')}'")
        try:
            return handler(self, rest)
        except (IndexError, ValueError):
            return ReplyError(f"ERR wrong arguments for '{name.decode().lower()}'")

    def ping(self, rest: Sequence[bytes]) -> Reply:
        """PONG, or what was given."""
        return rest[0] if rest else "PONG"

    def get_value(self, rest: Sequence[bytes]) -> Reply:
        """GET key."""
        (key,) = rest
        return self.get(key)

    def set_value(self, rest: Sequence[bytes]) -> Reply:
        """SET key value [NX] [PX ms | EX s]."""
        key, value, *options = rest
        ttl_ms, only_new = 0, False
        while options:
            option = options.pop(0).upper()
            if option == b"NX":
                only_new = True
            elif option in (b"PX", b"EX"):
                ttl_ms = int(options.pop(0)) * (1000 if option == b"EX" else 1)
                if ttl_ms <= 0:
                    return ReplyError("ERR invalid expire time in 'set' command")
            else:
                return ReplyError("ERR syntax error")
        if only_new and self.get(key) is not None:
            return None
        self.put(key, value, ttl_ms)
        return "OK"

    def exists(self, rest: Sequence[bytes]) -> Reply:
        """EXISTS key...: how many are there."""
        return sum(self.get(key) is not None for key in rest)

    def delete(self, rest: Sequence[bytes]) -> Reply:
        """DEL key...: how many were there."""
        count = 0
        for key in rest:
            if self.get(key) is not None:
                self.put(key, None)
                count += 1
        return count

    def time_to_live(self, rest: Sequence[bytes]) -> Reply:
        """PTTL key: milliseconds, -1 for ever, -2 absent."""
        (key,) = rest
        if self.get(key) is None:
            return -2
        expires_at = self.data[key].expires_at
        return -1 if expires_at is None else max(0, round((expires_at - self.network.now) * 1000))

    def info(self, rest: Sequence[bytes]) -> Reply:
        """INFO [section...]: what the proxy looks at."""
        sections = {
            b"server": f"# Server\r\nredis_version:{self.version}\r\nredis_mode:standalone\r\nrun_id:{self.run_id}\r\n",
            b"memory": f"# Memory\r\nmaxmemory:0\r\nmaxmemory_policy:{self.maxmemory_policy}\r\n",
            b"persistence": "# Persistence\r\nloading:0\r\naof_enabled:1\r\n",
            b"replication": (
                f"# Replication\r\nrole:{self.role}\r\nconnected_slaves:0\r\nmaster_replid:{self.replication_id}\r\n"
            ),
        }
        wanted = [name.lower() for name in rest] or list(sections)
        return "\r\n".join(sections[name] for name in wanted if name in sections).encode()

    def config(self, rest: Sequence[bytes]) -> Reply:
        """CONFIG GET name..."""
        known = {b"maxmemory-policy": self.maxmemory_policy.encode(), b"appendonly": b"yes"}
        if rest[0].upper() != b"GET":
            return ReplyError("ERR only CONFIG GET is known here")
        found: list[object] = []
        for name in rest[1:]:
            if name.lower() in known:
                found += [name.lower(), known[name.lower()]]
        return found

    def script(self, rest: Sequence[bytes]) -> Reply:
        """SCRIPT LOAD text, SCRIPT EXISTS digest..."""
        verb = rest[0].upper()
        if verb == b"LOAD":
            (text,) = rest[1:]
            digest = hashlib.sha1(text).hexdigest().encode()
            self.scripts[digest] = text
            return digest
        if verb == b"EXISTS":
            return [int(digest.lower() in self.scripts) for digest in rest[1:]]
        return ReplyError("ERR only SCRIPT LOAD and SCRIPT EXISTS are known here")

    def evalsha(self, rest: Sequence[bytes]) -> Reply:
        """EVALSHA of the swap script: digest, one key, version, value, ttl."""
        text = self.scripts.get(rest[0].lower())
        if text is None:
            return ReplyError("NOSCRIPT No matching script. Please use EVAL.")
        assert SWAP_MARKER in text, "a script that is not the swap script"
        keys = int(rest[1])
        assert keys == 1, f"the swap script takes one key, not {keys}"
        key, expected_version, value, ttl_ms = rest[2:]
        return self.swap(key, expected_version, value, int(ttl_ms))

    def swap(self, key: bytes, expected_version: bytes, value: bytes, ttl_ms: int) -> Reply:
        """What the swap script does: set if the version (bytes 1 to 9) is the expected one, else say what is there."""
        assert len(expected_version) == 8
        present = self.get(key)
        fits = present is None if expected_version == bytes(8) else (present or b"")[1:9] == expected_version
        if fits:
            self.put(key, value, ttl_ms)
            return 1
        return present

    # ------------------------------------------------------------------ faults
    def fault_of(self, arguments: Sequence[bytes]) -> RedisFault:
        """What happens to this command."""
        name = arguments[0].upper()
        if name not in (b"GET", b"SET", b"DEL", b"EVALSHA"):
            return RedisFault.NONE
        self.key_commands += 1
        fault = self.choose_fault(self.key_commands, name, arguments[1:])
        self.faults_done[fault] += 1
        return fault

    def _seeded_fault(self, number: int, name: bytes, arguments: Sequence[bytes]) -> RedisFault:
        rates, chance = self.rates, self.network.chance
        if chance(rates.lost_reply):
            return RedisFault.LOST_REPLY
        if chance(rates.lost_command):
            return RedisFault.LOST_COMMAND
        if chance(rates.late):
            return RedisFault.LATE
        if chance(rates.slow):
            return RedisFault.SLOW
        if chance(rates.refused):
            return RedisFault.REFUSED
        return RedisFault.NONE


COMMANDS: dict[bytes, Callable[[VirtualRedis, Sequence[bytes]], Reply]] = {
    b"PING": VirtualRedis.ping,
    b"GET": VirtualRedis.get_value,
    b"SET": VirtualRedis.set_value,
    b"EXISTS": VirtualRedis.exists,
    b"DEL": VirtualRedis.delete,
    b"PTTL": VirtualRedis.time_to_live,
    b"INFO": VirtualRedis.info,
    b"CONFIG": VirtualRedis.config,
    b"SCRIPT": VirtualRedis.script,
    b"EVALSHA": VirtualRedis.evalsha,
    b"SELECT": lambda redis, rest: "OK",
    b"CLIENT": lambda redis, rest: "OK",
}

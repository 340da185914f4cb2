"""One redis-server process on the virtual network: data, expiry, loaded scripts, the few commands that the proxy uses.

Owns what commands mean, also where no writes are taken (a replica, out of memory, a full disk, too few replicas). It
runs no Lua: the swap script is recognised by its first comment, and its documented meaning is carried out. A test
compares its replies with those of a real server. Restarts, failovers and faults of single commands are in
``redis``."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from testkit.virtual.network import Network, VirtualReactor
from testkit.virtual.redis_connection import Reply, ReplyError

SWAP_BATCH_MARKER = b"idemproxy swap"
"""In a comment of the script that the shipped store loads."""
JOURNAL_WRITES_MAX = 1_000
"""So many writes can be taken back by a restart or a failover."""
READONLY = "READONLY You can't write against a read only replica."
REFUSALS = {
    "OOM": "OOM command not allowed when used memory > 'maxmemory'.",
    "MISCONF": "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.",
    "NOREPLICAS": "NOREPLICAS Not enough good replicas to write.",
}
"""What a master says to writes that it does not take. A replica says ``READONLY``."""
SERVED_WHILE_LOADING = (b"INFO", b"AUTH", b"SELECT", b"CLIENT", b"CONFIG", b"SCRIPT")


@dataclass(slots=True)
class Stored:
    """One value and the network time at which it ends; None: never."""

    value: bytes
    expires_at: float | None


Undo = tuple[bytes, Stored | None]
"""A key, and what was stored there before it was written."""
Write = Callable[[bytes, bytes | None, int], None]


class RedisServer:
    """One process: one run id, one thread, its own copy of the data."""

    version = "7.2.4"

    def __init__(
        self, network: Network, host: VirtualReactor, data: dict[bytes, Stored], journal: Iterable[Undo], write: Write
    ) -> None:
        """``journal``: how to undo the last writes to ``data``. ``write``: called for every write; calls ``put``."""
        self.network = network
        self.host = host
        self.data = data
        self.scripts: dict[bytes, bytes] = {}
        self.role = "master"
        self.maxmemory_policy = "noeviction"
        self.run_id = f"{network.random.getrandbits(160):040x}"
        self.replication_id = f"{network.random.getrandbits(160):040x}"
        self.refuses: str | None = None
        """Why it takes no writes: a key of ``REFUSALS``."""
        self.loading_until = 0.0
        self.keeps: bytes | None = None
        """Once a key with this in its name is written, what was written up to then is never lost."""
        self.write = write
        self._journal: deque[Undo] = deque(journal, maxlen=JOURNAL_WRITES_MAX)

    def take_back(self, writes: int) -> None:
        """Undo the last writes: they were never on the disk, or never reached the replica."""
        for _ in range(min(writes, len(self._journal))):
            key, before = self._journal.pop()
            if before is None:
                self.data.pop(key, None)
            else:
                self.data[key] = before

    def copy(self, host: VirtualReactor) -> RedisServer:
        """Another process with the same data, of which it knows how to undo the same writes."""
        process = RedisServer(self.network, host, self.memory(), self._journal, self.write)
        process.keeps = self.keeps
        return process

    def memory(self) -> dict[bytes, Stored]:
        """A copy of the data as they are now."""
        return {key: Stored(stored.value, stored.expires_at) for key, stored in self.data.items()}

    def go_back_to(self, memory: dict[bytes, Stored]) -> None:
        """The machine is reverted: the data are what they were, run id, scripts and connections stay."""
        self.data = memory
        self.forget_journal()

    def forget_journal(self) -> None:
        """What was written up to now is safe."""
        self._journal.clear()

    def become_master_again(self) -> None:
        """A replica is promoted: a new data generation begins, though no new process."""
        self.role = "master"
        self.replication_id = f"{self.network.random.getrandbits(160):040x}"

    def refusal_of(self, command: bytes) -> str | None:
        """What it says to a write instead of executing it; None: it does."""
        if self.role != "master":
            return READONLY
        if self.refuses is None or (self.refuses == "OOM" and command == b"DEL"):
            return None
        return REFUSALS[self.refuses]

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
        if self.keeps is not None and self.keeps in key:
            self.forget_journal()

    # ------------------------------------------------------------------ commands
    def execute(self, arguments: Sequence[bytes]) -> Reply:
        """Carry out one command, but for those that belong to the connection."""
        name, rest = arguments[0].upper(), arguments[1:]
        if self.network.now < self.loading_until and name not in SERVED_WHILE_LOADING:
            return ReplyError("LOADING Redis is loading the dataset in memory")
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
        """SET key value [NX | XX] [PX ms | EX s]."""
        key, value, *options = rest
        ttl_ms, condition = 0, b""
        while options:
            option = options.pop(0).upper()
            if option in (b"NX", b"XX") and condition in (b"", option):
                condition = option
            elif option in (b"PX", b"EX"):
                ttl_ms = int(options.pop(0)) * (1000 if option == b"EX" else 1)
                if ttl_ms <= 0:
                    return ReplyError("ERR invalid expire time in 'set' command")
            else:
                return ReplyError("ERR syntax error")
        if (refusal := self.refusal_of(b"SET")) is not None:
            return ReplyError(refusal)
        if condition and (self.get(key) is None) is not (condition == b"NX"):
            return None
        self.write(key, value, ttl_ms)
        return "OK"

    def raise_value(self, rest: Sequence[bytes]) -> Reply:
        """INCRBY key amount: the new value."""
        key, amount = rest
        try:
            by, present = int(amount), int(self.get(key) or b"0")
        except ValueError:
            return ReplyError("ERR value is not an integer or out of range")
        if (refusal := self.refusal_of(b"INCRBY")) is not None:
            return ReplyError(refusal)
        self.write(key, b"%d" % (present + by), self._left_ms(key))
        return present + by

    def exists(self, rest: Sequence[bytes]) -> Reply:
        """EXISTS key...: how many are there."""
        return sum(self.get(key) is not None for key in rest)

    def delete(self, rest: Sequence[bytes]) -> Reply:
        """DEL key...: how many were there."""
        if (refusal := self.refusal_of(b"DEL")) is not None:
            return ReplyError(refusal)
        count = 0
        for key in rest:
            if self.get(key) is not None:
                self.write(key, None, 0)
                count += 1
        return count

    def flush(self, rest: Sequence[bytes] = ()) -> Reply:
        """FLUSHALL: everything is gone, the process lives on, scripts and all."""
        self.data.clear()
        self.forget_journal()
        return "OK"

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
        """EVALSHA of the swap script: digest, keys, version, value, ttl; of a named one its newest instance, too."""
        text = self.scripts.get(rest[0].lower())
        if text is None:
            return ReplyError("NOSCRIPT No matching script. Please use EVAL.")
        assert SWAP_BATCH_MARKER in text, "a script that is not the swap script"
        keys = int(rest[1])
        assert keys in (2, 5), f"the swap script takes two keys or five, not {keys}"
        (key, member_key, *named), values = rest[2 : 2 + keys], rest[2 + keys :]
        expected_version, value, ttl_ms, beat, *newest = values
        assert len(newest) == (2 if named else 0)
        return self.swap(key, member_key, expected_version, value, int(ttl_ms), beat, (*named, *newest))

    def swap(
        self,
        key: bytes,
        member_key: bytes,
        expected_version: bytes,
        value: bytes,
        ttl_ms: int,
        beat: bytes,
        name: Sequence[bytes] = (),
    ) -> Reply:
        """What the swap script does: set if the version (bytes 1 to 9) is the expected one, else say what is there;
        refuse who is not registered, or with another value than ``beat``, and a producer whose name (its record's key,
        both indexes, what is to be there, when the value expires) has another newest instance."""
        assert len(expected_version) == 8
        if self.get(member_key) != beat:
            return ReplyError("NOMEMBER the registration of the sender is gone")
        present = self.get(key)
        fits = present is None if expected_version == bytes(8) else (present or b"")[1:9] == expected_version
        if not fits:
            return present  # it only reads then, which a server that takes no writes does as well
        if name:
            record_key, index, partition_index, newest, until_ms = name
            record = self.get(record_key)
            if (record or b"")[9:19] != newest:
                return [record]
        if (refusal := self.refusal_of(b"SET")) is not None:
            return ReplyError(f"{refusal} script: {self.run_id}, on @user_script:14.")
        if ttl_ms < 0:
            expires_at = None if present is None else self.data[key].expires_at
            ttl_ms = 0 if expires_at is None else max(1, round((expires_at - self.network.now) * 1000))
        if name:
            self.add_member(index, key, ttl_ms)
            known = self._scores(partition_index)
            if key in known:
                self._write_scores(partition_index, {**known, key: float(until_ms)})
            else:
                now_ms = int(until_ms) - ttl_ms
                kept = {member: score for member, score in known.items() if score > now_ms}
                self._write_scores(partition_index, {**kept, key: float(until_ms)}, ttl_ms)
        self.write(key, value, ttl_ms)
        return 1

    def _left_ms(self, key: bytes) -> int:
        """What is left of its time to live; 0: it has none, or is absent."""
        return max(0, int(str(self.time_to_live([key]))))

    def add_member(self, key: bytes, member: bytes, ttl_ms: int) -> None:
        """What SADD does, and PEXPIRE where the member is new. A set is stored as its sorted members, one a line."""
        members = set((self.get(key) or b"").split(b"\n")) - {b""}
        if member not in members:
            self.write(key, b"\n".join(sorted(members | {member})), ttl_ms)

    def scan_members(self, rest: Sequence[bytes]) -> Reply:
        """SSCAN key 0 COUNT n: all at once, as Redis tells small sets."""
        key, cursor, *_ = rest
        assert cursor == b"0"
        return [b"0", [member for member in (self.get(key) or b"").split(b"\n") if member]]

    def scan_keys(self, rest: Sequence[bytes]) -> Reply:
        """SCAN n MATCH prefix* COUNT n: so many keys in the order of their names, the cursor is where it continues."""
        cursor, match, pattern, count_word, count = rest
        assert (match, count_word, pattern[-1:]) == (b"MATCH", b"COUNT", b"*")
        keys, begin = sorted(key for key in self.data if self.get(key) is not None), int(cursor)
        end = begin + int(count)
        found: list[object] = [key for key in keys[begin:end] if key.startswith(pattern[:-1])]
        return [b"%d" % end if end < len(keys) else b"0", found]

    # A sorted set is stored by score, one line for each member: its score, then the member.
    def _scores(self, key: bytes) -> dict[bytes, float]:
        lines = (line.split(b" ", 1) for line in (self.get(key) or b"").split(b"\n") if line)
        return {member: float(score) for score, member in lines}

    def _write_scores(self, key: bytes, scores: Mapping[bytes, float], ttl_ms: int | None = None) -> None:
        rows = sorted((score, member) for member, score in scores.items())
        self.write(
            key, b"\n".join(b"%r %b" % (score, member) for score, member in rows) or None, ttl_ms or self._left_ms(key)
        )

    def add_with_score(self, rest: Sequence[bytes]) -> Reply:
        """ZADD key [XX [LT]] score member: XX only one that is there, LT only to a lower score. How many are new."""
        key, *options, score, member = rest
        assert options in ([], [b"XX"], [b"XX", b"LT"])
        if (refusal := self.refusal_of(b"SET")) is not None:
            return ReplyError(refusal)
        known, new = self._scores(key), float(score)
        if member in known or not options:
            lowest = min(known[member], new) if b"LT" in options else new
            self._write_scores(key, {**known, member: lowest})
        return int(member not in known and not options)

    def count_members(self, rest: Sequence[bytes]) -> Reply:
        """ZCARD key."""
        (key,) = rest
        return len(self._scores(key))

    def scan_scores(self, rest: Sequence[bytes]) -> Reply:
        """ZSCAN key 0 COUNT n: all at once, as Redis tells small sets."""
        key, cursor, *_ = rest
        assert cursor == b"0"
        return [b"0", [part for member, score in self._scores(key).items() for part in (member, b"%r" % score)]]

    def remove_by_score(self, rest: Sequence[bytes]) -> Reply:
        """ZREMRANGEBYSCORE key -inf highest."""
        key, lowest, highest = rest
        assert lowest == b"-inf"
        if (refusal := self.refusal_of(b"SET")) is not None:
            return ReplyError(refusal)
        known = self._scores(key)
        kept = {member: score for member, score in known.items() if score > float(highest)}
        if kept != known:
            self._write_scores(key, kept)
        return len(known) - len(kept)

    def expire(self, rest: Sequence[bytes]) -> Reply:
        """PEXPIRE key ms [LT]: LT only if it would expire later, or never."""
        key, ttl_ms, *options = rest
        assert options in ([], [b"LT"])
        if (refusal := self.refusal_of(b"SET")) is not None:
            return ReplyError(refusal)
        if self.get(key) is None or (options and 0 < self._left_ms(key) <= int(ttl_ms)):
            return 0
        self.write(key, self.data[key].value, int(ttl_ms))
        return 1


COMMANDS: dict[bytes, Callable[[RedisServer, Sequence[bytes]], Reply]] = {
    b"PING": RedisServer.ping,
    b"GET": RedisServer.get_value,
    b"SET": RedisServer.set_value,
    b"INCRBY": RedisServer.raise_value,
    b"EXISTS": RedisServer.exists,
    b"DEL": RedisServer.delete,
    b"PTTL": RedisServer.time_to_live,
    b"INFO": RedisServer.info,
    b"CONFIG": RedisServer.config,
    b"SCRIPT": RedisServer.script,
    b"EVALSHA": RedisServer.evalsha,
    b"FLUSHALL": RedisServer.flush,
    b"SCAN": RedisServer.scan_keys,
    b"SSCAN": RedisServer.scan_members,
    b"PEXPIRE": RedisServer.expire,
    b"ZADD": RedisServer.add_with_score,
    b"ZCARD": RedisServer.count_members,
    b"ZSCAN": RedisServer.scan_scores,
    b"ZREMRANGEBYSCORE": RedisServer.remove_by_score,
    b"SELECT": lambda server, rest: "OK",
    b"CLIENT": lambda server, rest: "OK",
}

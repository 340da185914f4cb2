"""Redis as its clients see it: one address, its server over all restarts, and the ways in which it fails.

Owns restarts, failovers to a replica (with or without the loss of the last writes), demotions, and seeded faults of
single commands. What commands mean is in ``redis_server``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from idemproxy.reactor import Address
from idemproxy.state.store import KEY_KINDS, kind_of
from testkit.virtual.network import Network, VirtualReactor
from testkit.virtual.redis_connection import RedisConnection, RedisFault
from testkit.virtual.redis_server import RedisServer, Stored

KEY_COMMANDS = (b"GET", b"SET", b"DEL", b"INCRBY", b"EVALSHA")
LEASE, ENTRY, BLOCK, NAME, INDEX = b":member:", b":{", b":block:", b":name:", b"}:named"
"""By these the keys of registrations, those of producers' state, those of blocks of producer ids and those of names are
known."""


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


def _registers(name: bytes, arguments: Sequence[bytes]) -> bool:
    """Whether the command writes a registration, or renews it."""
    return LEASE in (arguments[1] if name == b"SET" else arguments[3] if name == b"EVALSHA" else b"")


FaultChoice = Callable[[int, bytes, Sequence[bytes]], RedisFault]
"""Number of the key command, its name, its arguments -> what happens to it."""


class VirtualRedis:
    """The address, and its server over all restarts."""

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
        self.leases_lost_until = 0.0
        """Until then no registration of a proxy is written: each breaks its connection."""
        self._spoiled: dict[bytes, bytes] = {}
        """Damaged value -> what it was."""
        self.lives = 1
        self.server = RedisServer(network, network.host("redis"), {}, (), self._write)
        self._listen()

    @property
    def host(self) -> VirtualReactor:
        """Where the present server runs."""
        return self.server.host

    @property
    def data(self) -> dict[bytes, Stored]:
        """What the present server holds."""
        return self.server.data

    @property
    def run_id(self) -> str:
        """Of the present server."""
        return self.server.run_id

    def get(self, key: bytes) -> bytes | None:
        """The value that the present server holds now."""
        return self.server.get(key)

    def put(self, key: bytes, value: bytes | None, ttl_ms: int = 0) -> None:
        """Write to the present server: only that one takes writes."""
        self.server.put(key, value, ttl_ms)

    def endless_keys(self, cluster: str) -> list[str]:
        """What the present server has for ever, though ``state/store.py`` does not declare that it is bounded."""
        data = self.server.data
        kinds = {key: kind_of(cluster, key) for key in list(data) if self.get(key) is not None}
        return [
            f"{key!r} ({kind})"
            for key, kind in kinds.items()
            if kind is None or (KEY_KINDS[kind].bound is None and data[key].expires_at is None)
        ]

    def _write(self, key: bytes, value: bytes | None, ttl_ms: int) -> None:
        self.put(key, value, ttl_ms)

    @property
    def maxmemory_policy(self) -> str:
        """Of the present server."""
        return self.server.maxmemory_policy

    @maxmemory_policy.setter
    def maxmemory_policy(self, policy: str) -> None:
        self.server.maxmemory_policy = policy

    # ------------------------------------------------------------------ lives
    def restart(self, *, lose_last_writes: int = 0, down_seconds: float = 0.05, loading_seconds: float = 0.0) -> None:
        """Kill it now and start it again after some time: new run id, no scripts, perhaps older data."""
        old, instance = self.server, self.lives
        old.host.crash()
        old.take_back(lose_last_writes)
        old.forget_journal()

        def start() -> None:
            if self.lives == instance:  # nobody else did meanwhile
                self._begin_life(old)
                self.server.loading_until = self.network.now + loading_seconds

        self.network.schedule(down_seconds, start)

    def fail_over(self, *, lose_last_writes: int = 0, old_lives_seconds: float | None = None) -> None:
        """A replica, which lacks the last writes, becomes the master and is found at the address from now on.

        The old master dies, or is a replica for so many seconds: connections to it stay, writes are refused.
        """
        old = self.server
        if not old.host.alive:
            return
        if old_lives_seconds is None:
            old.host.crash()
        else:
            old.role = "slave"
            self.network.schedule(old_lives_seconds, old.host.crash)
        self._begin_life(old)
        self.server.take_back(lose_last_writes)
        self.server.forget_journal()

    def demote(self, seconds: float, *, lose_last_writes: int = 0) -> None:
        """Make it a replica for so long: writes are refused, connections, run id and scripts stay. What it had written
        and its master had not is gone when it comes back."""
        server = self.server
        if not server.host.alive or server.role != "master":
            return
        server.role = "slave"

        def promote() -> None:
            server.take_back(lose_last_writes)
            server.forget_journal()
            server.become_master_again()

        self.network.schedule(seconds, promote)

    def damage(self, seconds: float) -> bool:
        """Spoil one stored state of a producer for so long, so that nobody can read it; True if there was one."""
        server, random = self.server, self.network.random
        entries = [key for key in server.data if ENTRY in key and not key.endswith(INDEX)]
        whole_ones = [key for key in entries if server.data[key].value not in self._spoiled]
        if not whole_ones:
            return False
        stored = server.data[random.choice(whole_ones)]
        spoiled = random.choice((stored.value[: random.randrange(1, len(stored.value))], b"\xff" + stored.value[1:]))
        self._spoiled[spoiled] = stored.value
        stored.value = spoiled
        self.network.schedule(seconds, self.fix)
        return True

    def fix(self) -> None:
        """Put back what was spoiled and is still there."""
        for stored in self.server.data.values():
            stored.value = self._spoiled.get(stored.value, stored.value)

    def end_leases(self) -> None:
        """Somebody deletes the registrations of all proxies."""
        for key in [key for key in self.server.data if LEASE in key]:
            self.server.put(key, None)

    def flush(self) -> None:
        """FLUSHALL by somebody else: everything is gone, the server lives on."""
        self.server.flush()

    def _begin_life(self, old: RedisServer) -> None:
        self.lives += 1
        self.server = old.copy(self.network.host(f"redis-{self.lives}"))
        self._listen()

    def _listen(self) -> None:
        server = self.server
        self.network.listen(server.host, self.address, lambda: RedisConnection(self, server))

    # ------------------------------------------------------------------ faults
    def fault_of(self, arguments: Sequence[bytes]) -> RedisFault:
        """What happens to this command."""
        name = arguments[0].upper()
        if name not in KEY_COMMANDS:
            return RedisFault.NONE
        self.key_commands += 1
        if self.network.now < self.leases_lost_until and _registers(name, arguments):
            self.faults_done[RedisFault.LOST_COMMAND] += 1
            return RedisFault.LOST_COMMAND
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
        if name != b"GET" and chance(rates.refused):
            return RedisFault.REFUSED
        return RedisFault.NONE

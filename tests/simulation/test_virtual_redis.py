"""The virtual Redis against a real server: same commands, same replies. Then its faults, which a real one has not."""

from __future__ import annotations

import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

import hiredis
import pytest

from idemproxy.reactor import Wire
from idemproxy.state.redis_facts import parse_info, refusal_of, script_sha, swap_script
from testkit.real.store.redis_process import server_binary
from testkit.virtual.network import Network, NetworkSettings
from testkit.virtual.redis import RedisFaultRates, VirtualRedis
from testkit.virtual.redis_connection import RedisFault

ADDRESS = ("redis", 6379)
SCRIPT = swap_script(bytes(16))
SHA = script_sha(SCRIPT)


def pack(*parts: bytes) -> bytes:
    """One command as RESP."""
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%b\r\n" % (len(part), part) for part in parts)


class Client:
    """An endpoint that keeps the replies."""

    def __init__(self) -> None:
        self.wire: Wire | None = None
        self.reader = hiredis.Reader()
        self.replies: list[object] = []
        self.reason: str | None = None

    def connected(self, wire: Wire) -> None:
        self.wire = wire

    def received(self, data: bytes) -> None:
        self.reader.feed(data)
        while (reply := self.reader.gets()) is not False:
            self.replies.append(reply)

    def lost(self, reason: str) -> None:
        self.reason = reason


class World:
    """A network with the server; connections are opened on demand."""

    def __init__(self, *, seed: int = 1, rates: RedisFaultRates | None = None, password: bytes | None = None) -> None:
        self.network = Network(seed, NetworkSettings(truncation_chance=0))
        self.redis = VirtualRedis(self.network, ADDRESS, rates=rates, password=password)
        self.host = self.network.host("client")

    def connect(self) -> Client:
        client = Client()
        self.host.connect(ADDRESS, client)
        assert self.network.run(1, lambda: client.wire is not None or client.reason is not None)
        return client

    def send(self, client: Client, *commands: Sequence[bytes]) -> None:
        assert client.wire is not None
        client.wire.send(*(pack(*command) for command in commands))

    def ask(self, client: Client, *commands: Sequence[bytes], seconds: float = 1.0) -> list[object]:
        """Send the commands together; the replies that came in that time."""
        before = len(client.replies)
        self.send(client, *commands)
        self.network.run(seconds, lambda: len(client.replies) >= before + len(commands))
        return client.replies[before:]


@pytest.fixture(scope="module")
def real_redis() -> Iterator[socket.socket]:
    """A connection to a redis-server of its own, on a unix socket."""
    with tempfile.TemporaryDirectory(prefix="vr") as folder:
        path = str(Path(folder) / "s")
        arguments = ["--port", "0", "--unixsocket", path, "--save", "", "--appendonly", "yes", "--dir", folder]
        server = subprocess.Popen([server_binary(), *arguments], stdout=subprocess.DEVNULL)
        connection = socket.socket(socket.AF_UNIX)
        try:
            for _ in range(200):
                try:
                    connection.connect(path)
                    break
                except OSError:
                    time.sleep(0.02)
            connection.settimeout(10)
            yield connection
        finally:
            connection.close()
            server.terminate()
            server.wait(10)


def ask_real(connection: socket.socket, commands: Sequence[Sequence[bytes]]) -> list[object]:
    """The real server's replies."""
    connection.sendall(b"".join(pack(*command) for command in commands))
    reader, replies = hiredis.Reader(), list[object]()
    while len(replies) < len(commands):
        reader.feed(connection.recv(65536))
        while (reply := reader.gets()) is not False:
            replies.append(reply)
    return replies


def comparable(reply: object) -> object:
    """Errors by their code only: the words after it differ between versions."""
    return str(reply).partition(" ")[0] if isinstance(reply, Exception) else reply


def value_of(version: int, random: Random) -> bytes:
    """A stored value as the proxy writes it: format, version, anything."""
    return b"\x01" + version.to_bytes(8, "big") + random.randbytes(random.randrange(20))


def random_command(random: Random, keys: Sequence[bytes]) -> tuple[bytes, ...]:
    """One command that the proxy might send."""
    key = random.choice(keys)
    value = value_of(random.randrange(1, 4), random)
    swap = (b"EVALSHA", SHA, b"2", key, random.choice(keys), random.randrange(4).to_bytes(8, "big"), value)
    return random.choice(
        [
            (b"GET", key),
            (b"EXISTS", key, random.choice(keys)),
            (b"DEL", key),
            (b"SET", key, value),
            (b"SET", key, value, b"PX", b"60000"),
            (b"SET", key, value, b"NX"),
            (b"SET", key, value, b"NX", b"PX", b"60000"),
            (b"SET", key, value, b"XX", b"PX", b"60000"),
            (b"SET", key, value, b"NX", b"XX"),
            (b"SET", key, value, b"PX", b"0"),
            (b"SET", key, b"short"),
            (*swap, b"0", b"1"),
            (*swap, b"60000", b"1"),
            (*swap, b"0", b"2"),
            (b"EVALSHA", b"0" * 40, b"2", key, key, bytes(8), value, b"0", b"1"),
            (b"INCRBY", key, b"1"),
            (b"INCRBY", key, b""),
            (b"SET", key, b"1"),
            (b"SET", key, b"1", b"NX"),
            (b"SCRIPT", b"LOAD", SCRIPT),
            (b"SCRIPT", b"EXISTS", SHA, b"0" * 40),
            (b"CONFIG", b"GET", b"maxmemory-policy"),
            (b"CONFIG", b"GET", b"appendonly"),
            (b"PING",),
            (b"SELECT", b"0"),
            (b"AUTH", b"password"),
            (b"NOSUCHCOMMAND", b"x"),
        ]
    )


@pytest.mark.parametrize("seed", range(6))
def test_the_virtual_server_answers_as_the_real_one(seed: int, real_redis: socket.socket) -> None:
    random = Random(seed)
    keys = [b"cross-%d-%d" % (seed, number) for number in range(4)]
    commands = [random_command(random, keys) for _ in range(300)]
    commands[:0] = [(b"SCRIPT", b"LOAD", SCRIPT)]
    world = World()
    virtual = world.ask(world.connect(), *commands)
    real = ask_real(real_redis, commands)
    for command, ours, theirs in zip(commands, virtual, real, strict=True):
        assert comparable(ours) == comparable(theirs), command


def test_time_to_live_is_the_same_as_on_the_real_server(real_redis: socket.socket) -> None:
    key, member = b"ttl-key", b"ttl-member"
    commands = [
        (b"SCRIPT", b"LOAD", SCRIPT),
        (b"EVALSHA", SHA, b"2", key, member, bytes(8), value_of(1, Random(1)), b"5000", b"1"),
        (b"PTTL", key),
        (b"EVALSHA", SHA, b"2", key, member, (1).to_bytes(8, "big"), value_of(2, Random(2)), b"0", b"1"),
        (b"PTTL", key),
        (b"PTTL", b"absent"),
    ]
    world = World()
    commands[:0] = [(b"SET", member, b"1", b"NX", b"PX", b"60000")]
    for replies in (world.ask(world.connect(), *commands), ask_real(real_redis, commands)):
        assert isinstance(replies[3], int)
        assert 4000 < replies[3] <= 5000
        assert replies[4:] == [1, -1, -2]


def test_without_registration_swaps_fail_and_renewals_do_not_register_on_both_servers(
    real_redis: socket.socket,
) -> None:
    key, member = b"idem:c:{t/0}:1", b"idem:c:member:1"
    first = (b"EVALSHA", SHA, b"2", key, member, bytes(8), value_of(1, Random(1)), b"0", b"1")
    second = (b"EVALSHA", SHA, b"2", key, member, (1).to_bytes(8, "big"), value_of(2, Random(2)), b"0", b"1")
    renewal = (b"SET", member, b"1", b"XX", b"PX", b"6000")
    commands: list[tuple[bytes, ...]] = [
        (b"SCRIPT", b"LOAD", SCRIPT), first, renewal, (b"EXISTS", member, key),
        (b"SET", member, b"1", b"NX", b"PX", b"6000"), renewal, first, second,
        (b"FLUSHALL",), first, renewal, first, second, (b"EXISTS", member, key),
    ]  # fmt: skip
    refusal = "NOMEMBER"
    expected = [SHA, refusal, None, 0, b"OK", b"OK", 1, 1, b"OK", refusal, None, refusal, refusal, 0]
    world = World()
    for replies in (world.ask(world.connect(), *commands), ask_real(real_redis, commands)):
        assert [comparable(reply) for reply in replies] == expected


def test_what_info_says_is_accepted_by_the_store_as_the_real_servers_is(real_redis: socket.socket) -> None:
    world = World()
    command = (b"INFO",)
    virtual = parse_info(bytes(world.ask(world.connect(), command)[0]))  # type: ignore[call-overload]
    real = parse_info(bytes(ask_real(real_redis, [command])[0]))  # type: ignore[call-overload]
    assert set(virtual) <= set(real) | {"redis_mode"}
    assert "standalone" in (real.get("redis_mode"), real.get("server_mode")), "Valkey's name for it"
    assert refusal_of(virtual) is None
    assert refusal_of(real) is None
    assert virtual["role"] == real["role"]
    assert len(virtual["run_id"]) == len(real["run_id"]) == 40


def test_a_value_expires_by_the_virtual_clock() -> None:
    world = World()
    client = world.connect()
    world.ask(client, (b"SET", b"k", b"v", b"PX", b"6000"))
    world.network.run(5.9)
    assert world.ask(client, (b"GET", b"k")) == [b"v"]
    world.network.run(0.2)
    assert world.ask(client, (b"GET", b"k")) == [None]


def test_a_restart_changes_the_run_id_and_forgets_scripts_and_the_last_writes() -> None:
    world = World()
    client = world.connect()
    world.ask(client, (b"SCRIPT", b"LOAD", SCRIPT))
    world.ask(client, (b"SET", b"a", b"1"), (b"SET", b"a", b"2"), (b"SET", b"b", b"3"), (b"DEL", b"a"))
    before = world.redis.run_id
    world.redis.restart(lose_last_writes=3)
    world.network.run(1)
    assert client.reason is not None
    assert world.redis.run_id != before
    again = world.connect()
    swap = (b"EVALSHA", SHA, b"2", b"a", b"m", bytes(8), b"v" * 9, b"0", b"1")
    replies = world.ask(again, (b"GET", b"a"), (b"GET", b"b"), swap)
    assert replies[:2] == [b"1", None]
    assert str(replies[2]).startswith("NOSCRIPT")


def test_what_is_written_up_to_a_key_that_is_kept_is_never_lost() -> None:
    world = World()
    world.redis.server.keeps = b":block:"
    client = world.connect()
    world.ask(client, (b"SET", b"before", b"1"), (b"SET", b"idem:c:block:1", b"2"), (b"SET", b"behind", b"3"))
    world.redis.fail_over(lose_last_writes=3)
    again = world.connect()
    assert world.ask(again, (b"GET", b"before"), (b"GET", b"idem:c:block:1"), (b"GET", b"behind")) == [b"1", b"2", None]
    world.ask(again, (b"SET", b"idem:c:block:2", b"4"))
    world.redis.restart(lose_last_writes=3)
    world.network.run(1)
    assert world.ask(world.connect(), (b"GET", b"idem:c:block:2")) == [b"4"], "the next life keeps it as well"


def with_fault(fault: RedisFault, number: int) -> World:
    """A world in which the command with that number meets the fault."""
    world = World(rates=RedisFaultRates(late_seconds=(2.0, 2.0), slow_seconds=(0.4, 0.4)))
    world.redis.choose_fault = lambda count, name, rest: fault if count == number else RedisFault.NONE
    return world


def test_a_lost_reply_means_executed_and_a_lost_command_means_not() -> None:
    for fault, stored in ((RedisFault.LOST_REPLY, b"v"), (RedisFault.LOST_COMMAND, None)):
        world = with_fault(fault, 1)
        client = world.connect()
        assert world.ask(client, (b"SET", b"k", b"v"), (b"SET", b"behind", b"v")) == []
        assert client.reason is not None
        assert world.redis.get(b"k") == stored
        assert world.redis.get(b"behind") is None


def test_a_late_command_is_executed_after_those_of_a_newer_connection() -> None:
    world = with_fault(RedisFault.LATE, 1)
    old = world.connect()
    world.ask(old, (b"SET", b"k", b"old"), (b"SET", b"j", b"old"))
    assert old.reason is not None
    new = world.connect()
    assert world.ask(new, (b"GET", b"k"), (b"SET", b"k", b"new")) == [None, b"OK"]
    world.network.run(2)
    assert world.ask(new, (b"GET", b"k"), (b"GET", b"j")) == [b"old", b"old"]


@pytest.mark.parametrize("seed", range(10))
def test_seeded_faults_break_connections_and_never_the_data(seed: int) -> None:
    rates = RedisFaultRates(lost_reply=0.05, lost_command=0.05, late=0.05, slow=0.05, refused=0.05)
    world = World(seed=seed, rates=rates)
    client, version = world.connect(), 0
    random = Random(seed)
    for _ in range(200):
        if client.reason is not None:
            client = world.connect()
        world.redis.put(b"m", b"1")
        world.ask(client, (b"SCRIPT", b"LOAD", SCRIPT))
        stored = world.redis.get(b"k")
        before = 0 if stored is None else int.from_bytes(stored[1:9], "big")
        assert before >= version, "a version never goes back"
        version = before
        swap = (b"EVALSHA", SHA, b"2", b"k", b"m", before.to_bytes(8, "big"), value_of(before + 1, random), b"0", b"1")
        world.ask(client, swap, seconds=0.6)
    assert version > 100
    assert sum(world.redis.faults_done.values()) == world.redis.key_commands

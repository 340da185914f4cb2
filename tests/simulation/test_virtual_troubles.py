"""The ways in which virtual networks, clocks and Redis servers fail: each does what it says, and nothing else.

What a refusing Redis says is compared with a real server.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from simulation.test_virtual_network import ADDRESS, Recorder, pair, wire_of
from simulation.test_virtual_redis import SCRIPT, SHA, World

from testkit.real.store.redis_process import RedisProcess
from testkit.virtual.connection import FramePart
from testkit.virtual.network import Network, NetworkSettings
from testkit.virtual.redis_server import READONLY, REFUSALS

KEYS = (b"2", b"idem:c:{t/0}:1", b"idem:c:member:1")
SWAP = (b"EVALSHA", SHA, *KEYS, bytes(8), b"\x01" + (1).to_bytes(8, "big"), b"0", b"1")
STALE_SWAP = (b"EVALSHA", SHA, *KEYS, (7).to_bytes(8, "big"), b"\x01" + bytes(8), b"0", b"1")
UNREGISTERED_SWAP = (b"EVALSHA", SHA, *KEYS[:2], b"idem:c:member:2", bytes(8), b"\x01" + bytes(8), b"0", b"1")


# ---------------------------------------------------------------------- network
@pytest.mark.parametrize(("silently", "seconds"), [(False, 0.1), (True, 6.0)])
def test_an_address_that_takes_no_connections_refuses_at_once_or_says_nothing(silently: bool, seconds: float) -> None:
    network = Network(1, NetworkSettings(user_timeout=5.0))
    host, server = network.host("a"), network.host("b")
    network.listen(server, ADDRESS, Recorder)
    network.take_no_connections(ADDRESS, 2.0, silently=silently)
    late, in_time = Recorder(), Recorder()
    host.connect(ADDRESS, late)
    network.run(seconds / 2)
    assert bool(late.reasons) is not silently
    network.run(seconds)
    assert late.wire is None
    assert len(late.reasons) == 1
    network.run(3.0)
    host.connect(ADDRESS, in_time)
    assert network.run(1.0, lambda: in_time.wire is not None)


@pytest.mark.parametrize(
    ("part", "least", "most"),
    [
        (FramePart.BEFORE, 0, 0),
        (FramePart.SIZE, 1, 3),
        (FramePart.HEADER, 4, 13),
        (FramePart.BODY, 14, 99),
        (FramePart.LAST_BYTE, 99, 99),
        (FramePart.BEHIND, 100, 100),
    ],
)
@pytest.mark.parametrize("seed", range(5))
def test_a_connection_breaks_in_the_part_of_the_frame_that_was_named(
    part: FramePart, least: int, most: int, seed: int
) -> None:
    network, _, _, near, far = pair(seed, NetworkSettings(split_chance=0.3, truncation_chance=0))
    wire_of(near).send(b"x" * 50)
    network.run(0.5)
    connection = next(iter(network.connections.values()))
    connection.cut_next_frame(0, part)
    network.run(0.5)
    assert len(far.data) == 50, "nothing breaks before something is written"
    wire_of(near).send(b"y" * 100)
    network.run(1.0)
    assert least <= far.data.count(b"y") <= most
    assert near.reasons
    assert far.reasons


@pytest.mark.parametrize("keeps_alive", [True, False])
def test_who_keeps_connections_alive_learns_of_a_silent_loss_of_those_that_he_opened(keeps_alive: bool) -> None:
    network, opener, server, near, far = pair(1, NetworkSettings(keepalive_seconds=20.0))
    opener.keeps_alive = keeps_alive
    server.keeps_alive = True
    next(iter(network.connections.values())).half_open()
    network.run(19.0)
    assert near.reasons == []
    network.run(100.0)
    assert near.reasons == (["connection timed out"] if keeps_alive else [])
    assert far.reasons == []


def test_a_fast_clock_calls_back_early_and_its_host_does_not_notice() -> None:
    network = Network(1)
    fast, slow = network.host("fast", clock_rate=1.01, clock_offset=500.0), network.host("slow", clock_rate=0.99)
    called: dict[str, tuple[float, float]] = {}
    for host in (fast, slow):
        host.later(100.0, lambda host=host: called.__setitem__(host.name, (network.now, host.now())))  # type: ignore[misc]
    network.run(200.0)
    assert called["fast"][0] == pytest.approx(99.0, abs=0.05)
    assert called["fast"][1] == pytest.approx(600.0, abs=0.01)
    assert called["slow"][0] == pytest.approx(101.0, abs=0.05)
    assert called["slow"][1] == pytest.approx(100.0, abs=0.01)


# ---------------------------------------------------------------------- a Redis that takes no writes
@pytest.fixture
def real(tmp_path: Path) -> Iterator[RedisProcess]:
    """A server that can be brought into each of these states."""
    (tmp_path / "folder").mkdir()
    with RedisProcess(tmp_path, "--dbfilename", "folder") as server:  # a snapshot cannot take the place of a folder
        yield server


def bring_into(server: RedisProcess, state: str) -> None:
    """Make a real server refuse writes for this reason."""
    if state == "OOM":
        assert server.call("CONFIG", "SET", "maxmemory", "1") == b"OK"
    elif state == "NOREPLICAS":
        assert server.call("CONFIG", "SET", "min-replicas-to-write", "1") == b"OK"
    elif state == "READONLY":
        assert server.call("REPLICAOF", "127.0.0.1", "1") == b"OK"
    else:
        server.call("CONFIG", "SET", "save", "3600 1")
        server.call("BGSAVE")
        while b"rdb_bgsave_in_progress:1" in server.call("INFO", "persistence"):
            pass


def codes_in(replies: list[object]) -> list[str]:
    """Which of the codes each reply mentions: versions differ in where in the text it stands."""
    known = (*REFUSALS, "READONLY", "NOMEMBER")
    return [
        next((code for code in known if isinstance(reply, Exception) and code in str(reply)), repr(reply))
        for reply in replies
    ]


@pytest.mark.parametrize("state", [*REFUSALS, "READONLY"])
def test_a_server_that_takes_no_writes_answers_as_real_redis_and_reads(state: str, real: RedisProcess) -> None:
    commands = [SWAP, STALE_SWAP, (b"SET", b"k", b"v"), (b"GET", b"k"), (b"EXISTS", b"k"), (b"DEL", b"k")]
    commands += [UNREGISTERED_SWAP, (b"SET", KEYS[2], b"1", b"XX"), (b"SET", b"k", b"v", b"XX")]
    before = ((b"SCRIPT", b"LOAD", SCRIPT), (b"SET", KEYS[2], b"1"))
    for command in before:
        real.call(*command)
    bring_into(real, state)
    world = World()
    client = world.connect()
    world.ask(client, *before)
    if state == "READONLY":
        world.redis.demote(100.0)
    else:
        world.redis.server.refuses = state
    ours = codes_in(world.ask(client, *commands))
    assert ours == codes_in([real.call(*command) for command in commands])
    assert ours[0] == ours[2] == state
    assert ours[3:5] == ["None", "0"]
    assert ours[6:] == ["NOMEMBER", state, state]


# ---------------------------------------------------------------------- lives of Redis
def test_a_failover_moves_the_address_and_the_old_master_only_reads() -> None:
    world = World()
    old = world.connect()
    world.ask(old, (b"SCRIPT", b"LOAD", SCRIPT), (b"SET", b"a", b"1"), (b"SET", b"b", b"2"))
    run_id = world.redis.run_id
    world.redis.fail_over(lose_last_writes=1, old_lives_seconds=5.0)
    new = world.connect()
    assert world.ask(new, (b"GET", b"a"), (b"GET", b"b"), (b"SCRIPT", b"EXISTS", SHA)) == [b"1", None, [0]]
    assert world.redis.run_id != run_id
    replies = world.ask(old, (b"GET", b"b"), (b"SET", b"a", b"9"))
    assert replies[0] == b"2"
    assert str(replies[1]) == READONLY
    assert world.ask(new, (b"GET", b"a")) == [b"1"]
    world.network.run(6.0)
    assert old.reason is not None
    assert new.reason is None


def test_a_demoted_master_keeps_run_id_and_scripts_and_gets_another_replid() -> None:
    world = World()
    client = world.connect()
    world.ask(client, (b"SCRIPT", b"LOAD", SCRIPT), (b"SET", b"a", b"1"), (b"SET", b"b", b"2"))
    before = world.redis.run_id, world.redis.server.replication_id
    world.redis.demote(3.0, lose_last_writes=1)
    assert b"role:slave" in bytes(world.ask(client, (b"INFO", b"replication"))[0])  # type: ignore[call-overload]
    world.network.run(4.0)
    assert client.reason is None
    assert world.redis.run_id == before[0]
    assert world.redis.server.replication_id != before[1]
    assert world.ask(client, (b"GET", b"a"), (b"GET", b"b"), (b"SCRIPT", b"EXISTS", SHA)) == [b"1", None, [1]]


def test_a_server_that_loads_its_data_says_so() -> None:
    world = World()
    world.redis.restart(down_seconds=0.1, loading_seconds=2.0)
    world.network.run(0.5)
    client = world.connect()
    assert str(world.ask(client, (b"GET", b"a"))[0]).startswith("LOADING")
    world.network.run(2.0)
    assert world.ask(client, (b"GET", b"a")) == [None]


def test_damaged_values_are_put_back_after_a_failover_unless_they_were_rewritten() -> None:
    world = World()
    client = world.connect()
    keys = [b"idem:c:{t/%d}:1" % number for number in range(2)]
    whole = [b"\x01" + bytes(8) + b"state %d" % number for number in range(2)]
    world.ask(client, *((b"SET", key, value) for key, value in zip(keys, whole, strict=True)))
    assert world.redis.damage(5.0)
    assert world.redis.damage(5.0)
    assert not world.redis.damage(5.0), "one that is spoiled is not spoiled again"
    assert all(world.redis.get(key) not in whole for key in keys)
    world.ask(client, (b"SET", keys[1], b"new"))
    world.redis.fail_over()
    world.network.run(6.0)
    assert [world.redis.get(key) for key in keys] == [whole[0], b"new"]


def test_a_flush_leaves_scripts_and_the_run_id_and_registrations_can_be_lost_alone() -> None:
    world = World()
    client = world.connect()
    entry, lease = b"idem:c:{t/0}:1", b"idem:c:member:1"
    world.ask(client, (b"SCRIPT", b"LOAD", SCRIPT), (b"SET", entry, b"x"), (b"SET", lease, b"1"))
    world.redis.end_leases()
    assert (world.redis.get(entry), world.redis.get(lease)) == (b"x", None)
    world.redis.leases_lost_until = world.network.now + 1.0
    assert world.ask(client, (b"SET", entry, b"y")) == [b"OK"]
    assert world.ask(client, (b"SET", lease, b"1")) == []
    assert client.reason is not None
    run_id = world.redis.run_id
    world.redis.flush()
    again = world.connect()
    assert world.ask(again, (b"GET", entry), (b"SCRIPT", b"EXISTS", SHA)) == [None, [1]]
    assert world.redis.run_id == run_id

"""The store against a real redis-server: swaps, keys set if absent, and what it makes of another data generation."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import hiredis
import pytest
import trio

from idemproxy.proxy.net.event_loop import TrioReactor
from idemproxy.state.redis_facts import script_sha, swap_script
from idemproxy.state.redis_store import RedisStore
from idemproxy.state.store import Conflict, StoreAway, StoreLost, StoreRefused, Swapped, member_key
from testkit.real.store.proxy_instance import CLUSTER, KEY, Proxy, value
from testkit.real.store.redis_process import RedisProcess, converse, reply_of
from testkit.stage.select_reactor import SelectReactor


def swap_command(data_generation: bytes, expected: int, new: bytes) -> bytes:
    """A swap as the first proxy instance sends it before its first heartbeat."""
    registered = value(1)
    keys = (b"2", KEY, member_key(CLUSTER, b"incarnat"))
    sha = script_sha(swap_script(data_generation))
    command: bytes = hiredis.pack_command((b"EVALSHA", sha, *keys, expected.to_bytes(8, "big"), new, b"0", registered))
    return command


# ---------------------------------------------------------------------- swap, read, set if absent
def test_an_absent_key_is_swapped_in_by_version_zero_and_read_back(proxy: Proxy) -> None:
    assert proxy.read() is None
    assert proxy.swap(0, value(1, b"first")) == Swapped()
    assert proxy.read() == value(1, b"first")


def test_a_conflict_brings_the_stored_value_along(proxy: Proxy) -> None:
    proxy.swap(0, value(1, b"theirs"))
    assert proxy.swap(0, value(1, b"ours")) == Conflict(value(1, b"theirs"))
    assert proxy.swap(7, value(8, b"ours")) == Conflict(value(1, b"theirs"))
    assert proxy.read() == value(1, b"theirs")


def test_a_swap_on_a_key_that_has_gone_is_a_conflict_with_nothing(proxy: Proxy) -> None:
    assert proxy.swap(3, value(4)) == Conflict(None)


def test_a_repeated_swap_whose_first_reply_was_lost_counts_as_swapped(proxy: Proxy) -> None:
    assert proxy.swap(0, value(1, b"same")) == Swapped()
    assert proxy.swap(0, value(1, b"same")) == Swapped()


def test_versions_compare_over_all_their_bytes(proxy: Proxy, server: RedisProcess) -> None:
    versions = [0, 1, 255, 256, 2**32, 0x0D0A0D0A, 2**63, 2**64 - 1]
    for before, after in pairwise(versions):
        assert proxy.swap(before, value(after)) == Swapped()
    assert server.call("GET", KEY) == value(2**64 - 1)


@pytest.mark.parametrize("damaged", [b"", b"\x01", b"\x01\x00\x00", bytes(9)])
def test_a_damaged_value_is_never_taken_for_an_absent_one(proxy: Proxy, server: RedisProcess, damaged: bytes) -> None:
    server.call("SET", KEY, damaged)
    assert proxy.swap(0, value(1)) == Conflict(damaged)
    assert server.call("GET", KEY) == damaged


def test_a_key_of_another_type_is_an_answer_and_no_end(proxy: Proxy, server: RedisProcess) -> None:
    server.call("RPUSH", KEY, "x")
    assert "WRONGTYPE" in proxy.swap(1, value(2)).reason
    assert "WRONGTYPE" in proxy.read().reason
    assert proxy.store.data_generation is not None


def test_a_swap_sets_the_time_to_live_and_one_without_takes_it_away(proxy: Proxy, server: RedisProcess) -> None:
    proxy.swap(0, value(1), ttl_ms=60_000)
    assert 50_000 < server.call("PTTL", KEY) <= 60_000
    proxy.swap(1, value(2))
    assert server.call("PTTL", KEY) == -1


def test_a_value_expires(proxy: Proxy) -> None:
    proxy.swap(0, value(1), ttl_ms=30)
    proxy.reactor.run_for(0.1)
    assert proxy.read() is None
    assert proxy.swap(1, value(2)) == Conflict(None)
    assert proxy.swap(0, value(1)) == Swapped()


def test_a_key_is_set_if_absent_only_once(proxy: Proxy, server: RedisProcess) -> None:
    assert proxy.claim(b"block", b"mine", ttl_ms=60_000) is True
    assert proxy.claim(b"block", b"yours", ttl_ms=60_000) is False
    assert server.call("GET", "block") == b"mine"
    assert 50_000 < server.call("PTTL", "block") <= 60_000
    assert proxy.claim(b"other", b"mine") is True
    assert server.call("PTTL", "other") == -1


def test_swaps_of_many_callers_agree_with_a_dictionary(proxy: Proxy) -> None:
    """Three keys, random versions, all pipelined: each answer is the one that a dictionary gives."""
    rng, model = random.Random(5), dict[bytes, bytes]()
    expected: list[Any] = []
    answers: list[Any] = []
    for step in range(2000):
        key = b"key%d" % rng.randrange(3)
        stored = model.get(key)
        version = int.from_bytes(stored[1:9], "big") if stored else 0
        tried = version if rng.random() < 0.6 else rng.randrange(5)
        new = value(tried + 1, b"%d" % step)
        if tried == version:
            model[key] = new
            expected.append(Swapped())
        else:
            expected.append(Conflict(stored))
        proxy.store.swap(key, tried, new, 0, answers.append)
    proxy.reactor.run_until(lambda: len(answers) == len(expected))
    assert answers == expected


def test_callers_of_one_pass_share_one_write(proxy: Proxy) -> None:
    (wire,) = proxy.reactor.wires

    def writes_of(first: int) -> int:
        before, answers = wire.writes, list[Any]()
        for number in range(first, first + 100):
            proxy.store.swap(b"k%d" % number, 0, value(1), 0, answers.append)
        proxy.reactor.run_until(lambda: len(answers) == 100)
        return wire.writes - before

    assert min(writes_of(first) for first in (0, 100, 200)) == 1, "a heartbeat may come between, and not each time"


@pytest.mark.promise("redis-late-command")
def test_a_command_that_arrives_late_through_an_old_socket_is_fenced_by_the_version(
    proxy: Proxy, server: RedisProcess
) -> None:
    proxy.swap(0, value(1))
    assert proxy.store.data_generation is not None
    late = swap_command(proxy.store.data_generation, 1, value(2, b"late reserve"))
    with server.open() as old_socket:
        old_socket.sendall(late[:-1])
        assert proxy.swap(1, value(2, b"release")) == Swapped()
        old_socket.sendall(late[-1:])
        assert reply_of(old_socket) == value(2, b"release")
    assert proxy.read() == value(2, b"release")


@pytest.mark.promise("redis-late-command")
@pytest.mark.parametrize(("expected", "again"), [(0, None), (1, value(1, b"written anew"))])
def test_a_command_that_arrives_late_after_a_flush_is_fenced_by_the_registration(
    proxy: Proxy, server: RedisProcess, expected: int, again: bytes | None
) -> None:
    """FLUSHALL leaves the script as it is, and a version may be there a second time."""
    data_generation = proxy.store.data_generation
    assert data_generation is not None
    late = swap_command(data_generation, expected, value(2, b"of long ago"))
    with server.open() as old_socket:
        old_socket.sendall(late[:-1])
        server.call("FLUSHALL")
        proxy.until_event(StoreLost)
        proxy.ready()
        if again is not None:
            assert proxy.swap(0, again) == Swapped()
        old_socket.sendall(late[-1:])
        assert "NOMEMBER" in str(reply_of(old_socket))
    assert proxy.read() == again
    assert len(proxy.data_generations) == 2


def test_before_the_first_connection_everything_is_away(reactor: SelectReactor, directory: Path) -> None:
    proxy = Proxy(reactor, os.fspath(directory / "nobody"))
    assert isinstance(proxy.swap(0, value(1)), StoreAway)
    assert isinstance(proxy.read(), StoreAway)
    assert isinstance(proxy.claim(b"b", b"v"), StoreAway)
    assert isinstance(proxy.alive(b"somebody"), StoreAway)
    assert proxy.data_generations == []


# ---------------------------------------------------------------------- data generations
@pytest.mark.promise("redis-new-data")
def test_a_killed_server_answers_everybody_with_away_and_its_next_life_is_reported_once(
    proxy: Proxy, server: RedisProcess
) -> None:
    first = proxy.store.data_generation
    proxy.swap(0, value(1, b"kept"))
    server.pause()
    answers: list[Any] = []
    for number in range(20):
        proxy.store.swap(b"k%d" % number, 0, value(1), 0, answers.append)
    proxy.store.read(KEY, answers.append)
    proxy.reactor.run_for(0.1)
    server.kill()
    proxy.reactor.run_until(lambda: len(answers) == 21)
    assert all(isinstance(answer, StoreAway) for answer in answers)
    assert proxy.store.data_generation is None
    server.start()
    proxy.ready()
    assert proxy.store.data_generation not in (None, first)
    assert proxy.data_generations == [first, proxy.store.data_generation]
    assert proxy.read() == value(1, b"kept")
    assert proxy.swap(1, value(2)) == Swapped()
    assert proxy.data_generations == [first, proxy.store.data_generation]


def test_a_restarted_server_does_not_know_the_script_of_its_earlier_life(proxy: Proxy, server: RedisProcess) -> None:
    """Also on 6.2, which writes SCRIPT LOAD to the append-only file."""
    assert proxy.store.data_generation is not None
    sha = script_sha(swap_script(proxy.store.data_generation))
    proxy.swap(0, value(1))
    assert server.call("SCRIPT", "EXISTS", sha) == [1]
    server.kill()
    server.start()
    assert server.call("GET", KEY) == value(1)
    assert str(server.call("EVALSHA", sha, 2, KEY, KEY, b"\0" * 7 + b"\1", value(2), 0, 1)).startswith("NOSCRIPT")


def test_an_unknown_script_ends_the_connection_and_is_loaded_only_on_the_next(
    proxy: Proxy, server: RedisProcess
) -> None:
    server.call("SCRIPT", "FLUSH")
    answers: list[Any] = []
    proxy.store.swap(KEY, 0, value(1), 0, answers.append)
    proxy.store.read(KEY, answers.append)
    assert "NOSCRIPT" in proxy.until_event(StoreLost).reason
    assert all(isinstance(answer, StoreAway) for answer in answers)
    proxy.ready()
    assert proxy.swap(0, value(1)) == Swapped()
    assert len(proxy.data_generations) == 1, "the data generation is the same"


@pytest.mark.promise("redis-new-data")
def test_a_master_demoted_and_promoted_again_is_a_new_data_generation(proxy: Proxy, server: RedisProcess) -> None:
    """Connection, run id and script cache survive that; only the heartbeat sees it."""
    first = proxy.store.data_generation
    server.call("REPLICAOF", "127.0.0.1", "1")
    server.call("REPLICAOF", "NO", "ONE")
    proxy.until_event(StoreLost)
    proxy.ready()
    assert proxy.data_generations == [first, proxy.store.data_generation]
    assert proxy.store.data_generation != first


def test_a_server_that_became_a_replica_is_left_at_the_first_write(proxy: Proxy, server: RedisProcess) -> None:
    proxy.swap(0, value(1))
    server.call("REPLICAOF", "127.0.0.1", "1")
    assert "READONLY" in proxy.swap(1, value(2)).reason
    assert proxy.store.data_generation is None
    assert "slave" in proxy.until_event(StoreRefused).reason
    server.call("REPLICAOF", "NO", "ONE")
    proxy.ready()
    assert len(proxy.data_generations) == 2
    assert proxy.swap(1, value(2)) == Swapped()


def test_a_server_that_hangs_is_left_and_its_late_work_is_recognised(proxy: Proxy, server: RedisProcess) -> None:
    proxy.swap(0, value(1))
    server.pause()
    started = proxy.reactor.now()
    answer = proxy.swap(1, value(2, b"reply lost"))
    assert isinstance(answer, StoreAway)
    assert 1.9 < proxy.reactor.now() - started < 10, "two seconds, and what a busy machine adds"
    server.go_on()
    proxy.ready()
    assert proxy.swap(1, value(2, b"reply lost")) == Swapped()
    assert len(proxy.data_generations) == 1


def test_a_server_without_memory_refuses_single_calls(proxy: Proxy, server: RedisProcess) -> None:
    server.call("CONFIG", "SET", "maxmemory", "1")
    answer = proxy.swap(0, value(1))
    assert isinstance(answer, StoreAway)
    assert "OOM" in answer.reason
    assert proxy.read() is None
    server.call("CONFIG", "SET", "maxmemory", "0")
    assert proxy.ready().swap(0, value(1)) == Swapped()
    assert len(proxy.data_generations) == 1


def test_a_server_that_cannot_save_refuses_writes_until_it_can(
    proxy: Proxy, server: RedisProcess, directory: Path
) -> None:
    (directory / "dump.rdb").mkdir()
    server.call("CONFIG", "SET", "save", "3600 1")
    server.call("SET", "dirty", "1")
    server.call("BGSAVE")
    proxy.reactor.run_until(lambda: b"rdb_last_bgsave_status:err" in server.call("INFO", "persistence"))
    answer = proxy.swap(0, value(1))
    assert isinstance(answer, StoreAway)
    assert "MISCONF" in answer.reason
    server.call("CONFIG", "SET", "stop-writes-on-bgsave-error", "no")
    assert proxy.ready().swap(0, value(1)) == Swapped()


def test_a_server_that_is_still_loading_its_data_is_waited_for(proxy: Proxy, server: RedisProcess) -> None:
    with server.open() as connection:
        for number in range(5_000):
            converse(connection, "SET", number, "x")
    server.kill()
    server.start("--key-load-delay", "400", loaded=False)
    event = proxy.until_event(StoreLost)
    while "load" not in event.reason.lower():
        event = proxy.until_event(StoreLost)
    proxy.ready(120)  # a sleep for each key, and a busy machine makes it longer
    assert proxy.read(b"4999") == b"x"
    assert len(proxy.data_generations) == 2


# ---------------------------------------------------------------------- the shipped reactor
def test_on_the_shipped_reactor_it_swaps_survives_a_restart_and_stops(server: RedisProcess) -> None:
    failures: list[object] = []
    data_generations: list[bytes] = []

    async def until(done: Callable[[], bool]) -> None:
        while not done():  # noqa: ASYNC110  (the answers come by callback)
            await trio.sleep(0.005)

    async def scenario() -> None:
        shipped = TrioReactor(lambda where, error: failures.append((where, error)))
        store = RedisStore(
            shipped,
            server.socket_path,
            cluster=CLUSTER,
            instance_id=b"incarnat",
            random_bytes=os.urandom,
            on_data_generation=data_generations.append,
            on_lease_lost=lambda: failures.append("lease"),
            report=lambda event: None,
        )
        answers: list[Any] = []
        async with trio.open_nursery() as nursery:
            await nursery.start(shipped.run)
            store.start()
            await until(lambda: store.data_generation is not None)
            for number in range(200):
                store.swap(b"k%d" % number, 0, value(1), 0, answers.append)
            shipped.end_pass()
            await until(lambda: len(answers) == 200)
            assert answers == [Swapped()] * 200
            server.kill()
            await until(lambda: store.data_generation is None)
            server.start()
            await until(lambda: store.data_generation is not None)
            store.swap(b"k0", 1, value(2), 0, answers.append)
            shipped.end_pass()
            await until(lambda: len(answers) == 201)
            assert answers[-1] == Swapped()
            stopped = trio.Event()
            store.stop(stopped.set)
            shipped.end_pass()
            await stopped.wait()
            nursery.cancel_scope.cancel()

    trio.run(scenario)
    assert failures == []
    assert len(set(data_generations)) == len(data_generations) == 2
    assert server.call("EXISTS", member_key(CLUSTER, b"incarnat")) == 0

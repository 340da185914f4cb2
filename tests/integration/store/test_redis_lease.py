"""The store against a real redis-server: heartbeat and lease, which servers are refused, log-in, neighbours."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

import pytest

from idemproxy.demo.ports import free_ports
from idemproxy.state.store import (
    Conflict,
    StoreAway,
    StoreLost,
    StoreReady,
    StoreRefused,
    StoreWarning,
    Swapped,
    member_key,
)
from testkit.real.store.proxy_instance import CLUSTER, KEY, Proxy, value
from testkit.real.store.redis_process import RedisProcess, converse
from testkit.stage.select_reactor import SelectReactor


# ---------------------------------------------------------------------- heartbeat and lease
def test_the_registration_lives_six_seconds_and_is_renewed(proxy: Proxy, server: RedisProcess) -> None:
    key = member_key(CLUSTER, b"incarnat")
    assert 3_000 < server.call("PTTL", key) <= 6_000
    first_end = proxy.store.lease.ends_at
    proxy.reactor.run_for(0.5)
    left = server.call("PTTL", key)
    proxy.reactor.run_until(lambda: server.call("PTTL", key) > left)  # it was renewed: less would be left otherwise
    proxy.reactor.run_until(lambda: proxy.store.lease.ends_at > first_end + 1.5)
    assert proxy.lease_losses == []
    assert len(proxy.data_generations) == 1


@pytest.mark.promise("no-lease-no-append")
def test_an_instance_that_slept_is_dead_for_others_and_learns_it_first(proxy: Proxy, server: RedisProcess) -> None:
    assert proxy.store.lease.may_send(proxy.reactor.now())
    with SelectReactor() as other_reactor:
        other = Proxy(other_reactor, server.socket_path, instance_id=b"neighbor").ready()
        assert other.alive(b"incarnat") is True
        other_reactor.run_for(6.2)  # meanwhile the first one is not run
        assert other.alive(b"incarnat") is False
        assert other.alive(b"neighbor") is True
    assert not proxy.store.lease.may_send(proxy.reactor.now())
    proxy.reactor.run_until(lambda: proxy.store.lease.may_send(proxy.reactor.now()))
    assert proxy.lease_losses == [False]
    assert server.call("EXISTS", member_key(CLUSTER, b"incarnat")) == 0
    assert server.call("EXISTS", member_key(CLUSTER, b"number01")) == 1


def test_a_registration_that_somebody_deleted_counts_as_a_lost_lease(proxy: Proxy, server: RedisProcess) -> None:
    server.call("FLUSHALL")
    proxy.reactor.run_until(lambda: bool(proxy.lease_losses))
    proxy.reactor.run_until(lambda: proxy.store.lease.may_send(proxy.reactor.now()))
    proxy.reactor.run_for(2.3)
    assert server.call("EXISTS", member_key(CLUSTER, b"incarnat")) == 0, "no renewal brings it back"
    assert server.call("EXISTS", member_key(CLUSTER, b"number01")) == 1
    assert proxy.lease_losses == [False]


def test_a_swap_without_registration_stores_nothing_and_a_new_instance_begins(
    proxy: Proxy, server: RedisProcess
) -> None:
    server.call("DEL", member_key(CLUSTER, b"incarnat"))
    started = proxy.reactor.now()
    assert "NOMEMBER" in proxy.swap(0, value(1)).reason
    assert server.call("GET", KEY) is None
    proxy.ready()
    proxy.reactor.run_until(lambda: proxy.store.lease.may_send(proxy.reactor.now()))
    assert proxy.reactor.now() - started < 1.5, "sooner than the next heartbeat"
    assert proxy.lease_losses == [False]
    assert proxy.swap(0, value(1)) == Swapped()


def test_the_lease_of_a_dead_earlier_life_can_be_ended(proxy: Proxy, server: RedisProcess) -> None:
    server.call("SET", member_key(CLUSTER, b"previous"), "1", "PX", 6000)
    assert proxy.alive(b"previous") is True
    assert proxy.result(lambda done: proxy.store.end_member(b"previous", done)) is True
    assert proxy.result(lambda done: proxy.store.end_member(b"previous", done)) is False
    assert proxy.alive(b"previous") is False


def test_stopping_gives_the_lease_back_and_answers_those_who_wait(proxy: Proxy, server: RedisProcess) -> None:
    answers: list[Any] = []
    proxy.store.swap(KEY, 0, value(1), 0, answers.append)
    proxy.result(lambda done: proxy.store.stop(lambda: done(None)))
    assert answers == [Swapped()]
    assert not proxy.store.lease.may_send(proxy.reactor.now())
    assert server.call("EXISTS", member_key(CLUSTER, b"incarnat")) == 0
    assert isinstance(proxy.read(), StoreAway)
    proxy.reactor.run_for(2.2)
    assert server.call("EXISTS", member_key(CLUSTER, b"incarnat")) == 0
    assert not proxy.reactor.wires
    assert proxy.lease_losses == []


def test_stopping_without_a_server_ends_too(reactor: SelectReactor, directory: Path) -> None:
    proxy = Proxy(reactor, os.fspath(directory / "nobody"))
    reactor.run_for(0.2)
    proxy.result(lambda done: proxy.store.stop(lambda: done(None)))
    reactor.run_for(1.2)
    assert not reactor.wires


# ---------------------------------------------------------------------- who may serve
def test_a_server_that_comes_later_is_found(reactor: SelectReactor, directory: Path) -> None:
    (port,) = free_ports(1)
    proxy = Proxy(reactor, ("127.0.0.1", port))
    assert isinstance(proxy.until_event(StoreLost), StoreLost)
    reactor.run_for(0.3)
    assert len(proxy.events) == 1, "one event for the whole time"
    with RedisProcess(directory, port=port):
        proxy.ready()
        assert isinstance(proxy.events[-1], StoreReady)


@pytest.mark.promise("redis-unsuitable")
def test_a_replica_is_refused_with_a_sentence(reactor: SelectReactor, server: RedisProcess) -> None:
    server.call("REPLICAOF", "127.0.0.1", "1")
    proxy = Proxy(reactor, server.socket_path)
    assert "slave" in proxy.until_event(StoreRefused).reason
    assert isinstance(proxy.swap(0, value(1)), StoreAway)
    assert proxy.data_generations == []


def test_a_node_of_a_cluster_is_refused_with_a_sentence(reactor: SelectReactor, directory: Path) -> None:
    """Redis and Valkey tell that under different names."""
    with RedisProcess(directory, "--cluster-enabled", "yes") as node:
        proxy = Proxy(reactor, node.socket_path)
        assert "cluster mode" in proxy.until_event(StoreRefused).reason


@pytest.mark.promise("redis-unsuitable")
def test_a_server_that_evicts_is_refused_until_that_is_changed(reactor: SelectReactor, server: RedisProcess) -> None:
    server.call("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    proxy = Proxy(reactor, server.socket_path)
    assert "noeviction" in proxy.until_event(StoreRefused).reason
    server.call("CONFIG", "SET", "maxmemory-policy", "noeviction")
    proxy.ready()


@pytest.mark.promise("redis-unsuitable")
def test_a_server_without_append_only_file_is_used_with_a_warning(reactor: SelectReactor, directory: Path) -> None:
    with RedisProcess(directory, "--appendonly", "no") as forgetful:
        proxy = Proxy(reactor, forgetful.socket_path).ready()
        assert [type(event) for event in proxy.events] == [StoreWarning, StoreReady]


@pytest.mark.parametrize("username", [None, "default"])
def test_the_right_password_opens_a_protected_server(
    reactor: SelectReactor, directory: Path, username: str | None
) -> None:
    with RedisProcess(directory, "--requirepass", "s3cret word") as protected:
        proxy = Proxy(reactor, protected.socket_path, username=username, password="s3cret word").ready()
        assert proxy.swap(0, value(1)) == Swapped()


@pytest.mark.parametrize("password", [None, "wrong"])
def test_without_the_right_password_the_server_is_refused_and_no_password_is_shown(
    reactor: SelectReactor, directory: Path, password: str | None
) -> None:
    with RedisProcess(directory, "--requirepass", "s3cret") as protected:
        proxy = Proxy(reactor, protected.socket_path, password=password)
        reason = proxy.until_event(StoreRefused).reason
        assert "login" in reason
        assert "s3cret" not in reason
        assert "wrong " not in reason
        assert "'wrong'" not in repr(vars(proxy.store))


def test_a_password_for_a_server_that_has_none_is_refused(reactor: SelectReactor, server: RedisProcess) -> None:
    proxy = Proxy(reactor, server.socket_path, password="needless")
    assert "no password" in proxy.until_event(StoreRefused).reason


def test_a_user_with_few_rights_is_enough(reactor: SelectReactor, server: RedisProcess) -> None:
    rights = "+auth +select +info +get +set +incrby +del +exists +getrange +eval +evalsha +script|load"
    server.call("ACL", "SETUSER", "proxy", "on", ">pass", "~idem:*", "-@all", *rights.split())
    proxy = Proxy(reactor, server.socket_path, username="proxy", password="pass", database=3).ready()
    assert proxy.swap(0, value(1)) == Swapped()
    assert proxy.swap(0, value(9)) == Conflict(value(1))
    assert "NOPERM" in proxy.claim(b"foreign", b"v").reason
    with server.open() as connection:
        converse(connection, "SELECT", 3)
        assert converse(connection, "GET", KEY) == value(1)


def test_a_database_that_does_not_exist_is_refused(reactor: SelectReactor, server: RedisProcess) -> None:
    proxy = Proxy(reactor, server.socket_path, database=99)
    assert "database" in proxy.until_event(StoreRefused).reason


def test_two_instance_ids_share_a_server_and_see_each_others_values(server: RedisProcess) -> None:
    with contextlib.ExitStack() as stack:
        first, second = (
            Proxy(stack.enter_context(SelectReactor()), server.socket_path, instance_id=name).ready()
            for name in (b"number-1", b"number-2")
        )
        assert first.store.data_generation == second.store.data_generation
        assert first.swap(0, value(1, b"first")) == Swapped()
        assert second.swap(0, value(1, b"second")) == Conflict(value(1, b"first"))
        assert second.swap(1, value(2, b"second")) == Swapped()
        assert first.swap(1, value(2, b"first")) == Conflict(value(2, b"second"))

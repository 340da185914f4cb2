"""What is read out of a Redis URL and out of INFO."""

import pytest

from idemproxy.state.redis_facts import (
    RedisAddress,
    data_generation_of,
    eviction_refusal_of,
    parse_info,
    parse_redis_url,
    refusal_of,
    script_sha,
    swap_script,
    version_of,
    warnings_of,
)

GOOD = {"redis_version": "7.0.15", "role": "master", "run_id": "a" * 40, "master_replid": "b" * 40}


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("redis://localhost", RedisAddress(("localhost", 6379))),
        ("redis://10.0.0.1:7000/3", RedisAddress(("10.0.0.1", 7000), database=3)),
        ("redis://[::1]:7000", RedisAddress(("::1", 7000))),
        ("redis://:secret@h", RedisAddress(("h", 6379), password="secret")),
        ("redis://me:p%40ss@h/0", RedisAddress(("h", 6379), "me", "p@ss")),
        ("redis://h?db=4", RedisAddress(("h", 6379), database=4)),
        ("unix:///run/r.sock", RedisAddress("/run/r.sock")),
        ("unix:///run/with%20space.sock?db=2", RedisAddress("/run/with space.sock", database=2)),
    ],
)
def test_urls_are_read(url: str, expected: RedisAddress) -> None:
    assert parse_redis_url(url) == expected


@pytest.mark.parametrize(
    ("url", "word"),
    [
        ("rediss://h", "TLS"),
        ("http://h", "redis://"),
        ("redis://", "host"),
        ("redis://h:99999", "port"),
        ("redis://h/first", "database"),
        ("redis://h?timeout=3", "timeout"),
        ("unix://relative.sock", "absolute"),
        ("redis://me@h", "password"),
    ],
)
def test_urls_that_cannot_be_used_are_refused_with_a_sentence(url: str, word: str) -> None:
    with pytest.raises(ValueError, match=word):
        parse_redis_url(url)


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("redis://localhost", "redis://localhost:6379"),
        ("redis://:secret@[::1]:7000/3", "redis://:***@[::1]:7000/3"),
        ("redis://me:secret@h", "redis://me:***@h:6379"),
        ("unix://me:secret@/run/with%20space.sock?db=2", "unix://me:***@/run/with%20space.sock?db=2"),
    ],
)
def test_an_address_is_shown_as_a_url_without_its_password(url: str, text: str) -> None:
    assert str(parse_redis_url(url)) == text


def test_no_message_and_no_repr_shows_the_password() -> None:
    assert "secret" not in repr(parse_redis_url("redis://me:secret@h"))
    with pytest.raises(ValueError, match="database") as caught:
        parse_redis_url("redis://me:secret@h/x")
    assert "secret" not in str(caught.value)


def test_info_is_read_line_by_line() -> None:
    text = b"# Server\r\nredis_version:7.0.15\r\n\r\n# Replication\r\nrole:master\r\nslave0:ip=1,port=2\r\n"
    assert parse_info(text) == {"redis_version": "7.0.15", "role": "master", "slave0": "ip=1,port=2"}


@pytest.mark.parametrize("version", ["", "seven", "7.x", "7..1", "-7.0"])
def test_a_version_that_cannot_be_read_is_lower_than_any(version: str) -> None:
    assert version_of({"redis_version": version}) == (0,)


def test_the_data_generation_changes_with_run_id_replication_id_and_data_number() -> None:
    data_generations = {
        data_generation_of(GOOD, 1),
        data_generation_of({**GOOD, "run_id": "c" * 40}, 1),
        data_generation_of({**GOOD, "master_replid": "c" * 40}, 1),
        data_generation_of(GOOD, 2),
    }
    assert len(data_generations) == 4
    assert all(data_generation is not None and len(data_generation) == 16 for data_generation in data_generations)


def test_a_server_that_hides_its_run_has_no_data_generation_and_is_refused() -> None:
    hidden = {**GOOD, "run_id": ""}
    assert data_generation_of(hidden, 1) is None
    assert "run_id" in str(refusal_of(hidden))


def test_a_good_master_is_accepted() -> None:
    assert refusal_of(GOOD) is None
    assert eviction_refusal_of({"maxmemory_policy": "noeviction"}) is None


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"redis_version": "6.2.14"}, "6.2.14"),
        ({"role": "slave"}, "slave"),
        ({"redis_mode": "cluster"}, "cluster"),
        ({"redis_mode": "sentinel"}, "sentinel"),
        ({"server_mode": "cluster"}, "cluster"),
        ({"server_mode": "cluster", "redis_mode": "standalone"}, "cluster"),
    ],
)
def test_a_server_that_must_not_be_used_is_refused_with_what_is_wrong(change: dict[str, str], word: str) -> None:
    assert word in str(refusal_of({**GOOD, **change}))


def test_a_server_that_evicts_is_refused() -> None:
    assert "allkeys-lru" in str(eviction_refusal_of({"maxmemory_policy": "allkeys-lru"}))
    assert "unknown" in str(eviction_refusal_of({}))


def test_a_server_without_append_only_file_is_warned_about() -> None:
    assert warnings_of({"aof_enabled": "1"}) == []
    assert "append-only" in warnings_of({"aof_enabled": "0"})[0]


def test_scripts_of_two_lives_have_different_names() -> None:
    first, second = swap_script(b"a" * 16), swap_script(b"b" * 16)
    assert script_sha(first) != script_sha(second)
    assert (b"a" * 16).hex().encode() in first

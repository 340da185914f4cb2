"""``idemproxy inspect`` on a real Redis that real proxies have filled, and that others have put anything into."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from idemproxy.demo.legacy_cluster import LegacyCluster
from idemproxy.proxy.commands.inspection.views import INTENTS_SHOWN_MAX
from idemproxy.proxy.limits import LEASE_SECONDS, NAME_EXPIRY_SECONDS
from idemproxy.state.entry import Entry, Intent, IntentBatch, pack, unpack
from idemproxy.state.store import block_key, cluster_key, entry_key, member_key
from testkit.real.clients.raw_client import RawClient, batch
from testkit.real.proxies.proxy_process import ProxyProcess, wait_until
from testkit.real.store.inspecting import (
    COMMAND_SECONDS_MAX,
    Place,
    begin,
    idemproxy,
    insist,
    lines_of,
    member_names,
    objects_of,
    send,
    stored,
    tls_in_front_of,
)
from testkit.real.store.two_proxies_redis import ExternalRedis
from testkit.real.tls.certificates import Authority

MANY = 40_000


# ---------------------------------------------------------------------- looking
def test_the_overview_counts_producers_and_names_the_data(
    producer: RawClient, redis: ExternalRedis, url: str, place: Place
) -> None:
    begin(producer, redis, place)
    (seen,) = objects_of("--redis", url)
    entries = redis.call("KEYS", "idem:default:{*")
    assert seen["entries"] == len(entries) == sum(seen["states"].values())
    assert seen["entry_bytes"] == sum(len(redis.call("GET", key)) for key in entries)
    assert seen["states"]["quiet"] >= 1
    assert list(seen["data_generations"]) == [seen["redis"]["data_generation"]]
    text = "\n".join(lines_of("--redis", url))
    assert f"producers on partitions: {seen['entries']}" in text
    assert seen["redis"]["data_generation"] in text


def test_a_producer_is_shown_with_the_window_that_the_proxy_keeps(
    producer: RawClient, redis: ExternalRedis, url: str, place: Place
) -> None:
    producer_id = begin(producer, redis, place, batches=7)
    entry = stored(redis, producer_id, place)
    (seen,) = objects_of("producer", producer_id, "--redis", url)
    assert seen["producer_id"] == str(producer_id)
    assert (seen["topic"], seen["partition"], seen["state"]) == (*place, "quiet")
    assert [(b["base_sequence"], b["record_count"], b["base_offset"]) for b in seen["window"]] == [
        (number, 2, number) for number in (4, 6, 8, 10, 12)
    ]
    assert (seen["next_sequence"], seen["end_offset"], seen["version"]) == (14, 14, entry.version)
    assert seen["is_present_data_generation"]
    assert 0 < seen["expires_in_seconds"] <= 24 * 3600
    text = "\n".join(lines_of("producer", hex(producer_id), "--redis", url))
    assert f"{place[0]}/{place[1]}: quiet" in text
    assert "in the log: sequences 12 to 13 at offset 12" in text
    assert idemproxy("inspect", "producer", 7, "--redis", url).returncode == 1


def test_a_topic_and_one_partition_of_it_are_shown_alone(producer: RawClient, redis: ExternalRedis, url: str) -> None:
    first, second = (begin(producer, redis, ("small", partition)) for partition in (2, 3))
    assert {row["producer_id"] for row in objects_of("topic", "small", "--redis", url)} >= {str(first), str(second)}
    assert [row["producer_id"] for row in objects_of("topic", "small", "--partition", 3, "--redis", url)] == [
        str(second)
    ]
    title, row, _ = lines_of("topic", "small", "--partition", 2, "--redis", url)
    assert title.split()[:3] == ["TOPIC", "PARTITION", "PRODUCER"]
    assert row.split()[:3] == ["small", "2", str(first)]
    none = idemproxy("inspect", "topic", "smal?", "--redis", url)
    assert (none.returncode, none.stdout) == (1, ""), "a name is no pattern"
    assert none.stderr.startswith(
        "idemproxy: no producer of topic 'smal?' is stored under the cluster name 'default'; "
    )
    assert "did you mean small?" in none.stderr


def test_an_open_intent_is_shown_with_its_owner_and_time_untouched(
    legacy_broker: LegacyCluster, producer: RawClient, redis: ExternalRedis, url: str, place: Place
) -> None:
    producer_id = begin(producer, redis, place)
    legacy_broker.pause_broker(0)
    try:
        producer.send_produce([(*place, batch([b"6", b"7"], producer_id=producer_id, sequence=6))])
        wait_until(lambda: stored(redis, producer_id, place).has_open_intent, "the intent is written")
        (row,) = objects_of("producer", producer_id, "--redis", url)
        text = lines_of("intents", "--redis", url)
        refused = idemproxy("forget", "producer", producer_id, "--yes", "--redis", url)
    finally:
        legacy_broker.resume_broker(0)
    assert producer.produce_answer()[0].error_code == 0
    assert (row["state"], row["intent"]["owner"]) == ("open", member_names(redis)[0])
    assert row["intent"]["is_owner_alive"]
    assert row["intent"]["batches"] == [
        {"base_sequence": 6, "record_count": 2, "digest": row["intent"]["batches"][0]["digest"]}
    ]
    assert row["expires_in_seconds"] > NAME_EXPIRY_SECONDS
    assert 0 <= row["untouched_seconds"] <= 20
    assert [line.split()[:4] for line in text[1:-1]] == [[*map(str, place), str(producer_id), "open"]]
    assert refused.returncode == 1
    assert "is alive and may be writing it now" in refused.stdout
    assert producer.values(*place) == [b"%d" % number for number in range(8)]


def test_who_looks_is_not_taken_for_the_last_use(
    legacy_broker: LegacyCluster, producer: RawClient, redis: ExternalRedis, url: str, place: Place
) -> None:
    producer_id = begin(producer, redis, place)
    begun = time.monotonic()
    seen, passed = [], 0.0
    while passed < 3.5:
        time.sleep(0.5)
        passed = time.monotonic() - begun
        (row,) = objects_of("producer", producer_id, "--redis", url)
        seen.append(row["untouched_seconds"])
    assert seen == sorted(seen), "each look made it newer"
    assert seen[-1] >= passed - 2.5, seen


def test_what_a_dead_proxy_left_open_is_shown_as_abandoned_and_may_be_forgotten(
    legacy_broker: LegacyCluster, url: str, redis: ExternalRedis, tmp_path: Path, place: Place
) -> None:
    options = ("--redis", url, "--cluster-name", "other")
    with ProxyProcess(tmp_path, legacy_broker.address(0), options=options) as dying:
        with RawClient(dying.address) as client:
            producer_id = client.new_producer_id()
            assert send(client, place, producer_id, 0) == (0, 0)
            legacy_broker.pause_broker(0)
            try:
                client.send_produce([(*place, batch([b"2", b"3"], producer_id=producer_id, sequence=2))])
                key = entry_key("other", producer_id, *place)
                wait_until(lambda: unpack(redis.call("GET", key)).has_open_intent, "the intent is written")
                dying.kill()
            finally:
                legacy_broker.resume_broker(0)
        where = ("--redis", url, "--cluster-name", "other")
        wait_until(lambda: redis.call("KEYS", "idem:other:member:*") == [], "its lease is over", LEASE_SECONDS + 2)
        (row,) = objects_of("producer", producer_id, *where)
        assert (row["state"], row["intent"]["is_owner_alive"]) == ("abandoned", False)
        assert lines_of("intents", *where)[1].split()[3:5] == ["abandoned", row["intent"]["owner"]]
        assert idemproxy("forget", "producer", producer_id, "--yes", *where).returncode == 0
        assert redis.call("PTTL", key) > 0, "what was open did not expire; what is forgotten does"
        dying.start()
        with RawClient(dying.address) as client:
            offset = insist(client, place, producer_id, 2)
            assert offset == 2
            assert client.values(*place) == [b"0", b"1", b"2", b"3"]


def test_a_private_redis_is_found_through_its_data_directory(
    shared_proxy: ProxyProcess, client: RawClient, place: Place, tmp_path: Path
) -> None:
    producer_id = client.new_producer_id()
    assert send(client, place, producer_id, 0) == (0, 0)
    directory = os.fspath(shared_proxy.data_directory)
    (row,) = objects_of("producer", producer_id, "--data-directory", directory)
    assert (row["topic"], row["partition"]) == place
    assert re.match(r"(Redis|Valkey) \d+\.\d", lines_of("--data-directory", directory)[0])
    missing = idemproxy("inspect", "--data-directory", os.fspath(tmp_path))
    assert missing.returncode == 2
    assert missing.stderr.startswith("idemproxy: no private Redis in ")
    assert len(missing.stderr.splitlines()) == 1


# ---------------------------------------------------------------------- anything may be there
@pytest.fixture
def other_redis() -> Iterator[ExternalRedis]:
    with ExternalRedis() as running:
        yield running


def _url(server: ExternalRedis) -> str:
    return f"redis://{server.address[0]}:{server.address[1]}"


def test_keys_and_values_of_any_kind_are_shown_and_obeyed_by_no_terminal(other_redis: ExternalRedis) -> None:
    good = pack(Entry(1, bytes(16), bytes(8), 0, 0))
    for key, value in (
        (entry_key("default", 1, "a\x1b[2Jb", 0), good),
        (entry_key("default", 2, "slash/in/it", 3), good),
        (entry_key("default", 3, "empty", 0), b""),
        (entry_key("default", 4, "newer", 0), b"\x09" + good[1:]),
        (block_key("default", 5), b"no block"),
        (member_key("default", b"12345678"), b"1"),
        (b"idem:default:what", b"is this"),
        (b"idem:default:{\xff/0}:0000000000000006", good),
    ):
        assert other_redis.call("SET", key, value) == b"OK"
    assert other_redis.call("RPUSH", entry_key("default", 7, "list", 0), b"x") == 1
    url = _url(other_redis)
    shown = "\n".join(lines_of("producers", "--redis", url))
    assert all(character.isprintable() or character == "\n" for character in shown)
    (overview,) = objects_of("--redis", url)
    assert (overview["states"]["damaged"], overview["states"]["unverified"]) == (3, 2)
    assert overview["unknown_keys"] == 2
    assert {row["producer_id"]: row["state"] for row in objects_of("producers", "--redis", url)} == {
        **{"1": "unverified", "2": "unverified"},
        **{"3": "damaged", "4": "damaged", "7": "damaged"},
    }
    assert "a\\x1b[2Jb" in "\n".join(lines_of("producers", "--redis", url))
    assert lines_of("--redis", url, "--cluster-name", "none")[-1].endswith("cluster names in this Redis: default")
    assert other_redis.call("SET", cluster_key("default"), b"clus\x1bter") == b"OK"
    lines = lines_of("--redis", url)
    for line in (
        "the brokers' own cluster id: clus\\x1bter",
        "keys that this version does not know: 2",
        "producers by data generation: 2 of 00000000",
    ):
        assert line in lines


def test_of_many_intents_the_first_are_shown_and_the_rest_is_counted(other_redis: ExternalRedis) -> None:
    intent = Intent(b"12345678", 0, (IntentBatch(0, 1, b"digest-1"),), 0, bytes(8), bytes(8), 0)
    value = pack(Entry(1, bytes(16), bytes(8), 0, 0, intent=intent))
    for number in range(INTENTS_SHOWN_MAX + 3):
        assert other_redis.call("SET", entry_key("default", number, "t", 0), value) == b"OK"
    url = _url(other_redis)
    (overview,) = objects_of("--redis", url)
    assert len(overview["intents"]) == INTENTS_SHOWN_MAX
    assert overview["open_intents"] == INTENTS_SHOWN_MAX + 3
    assert lines_of("--redis", url)[-1] == "... and 3 more: idemproxy inspect intents"


def test_hundreds_of_thousands_of_producers_are_streamed_in_little_memory(other_redis: ExternalRedis) -> None:
    data_generation = bytes(16)
    with other_redis.open() as connection, connection.makefile("rb") as replies:
        for start in range(0, MANY, 1000):
            connection.sendall(
                b"".join(
                    _set(
                        entry_key("default", number, "many", number % 50),
                        pack(Entry(1, data_generation, bytes(8), 0, 0)),
                    )
                    for number in range(start, start + 1000)
                )
            )
            assert all(replies.readline() == b"+OK\r\n" for _ in range(1000))
    url = _url(other_redis)
    few_bytes = _peak_bytes("inspect", "producer", "1", "--redis", url)
    many_bytes = _peak_bytes("inspect", "producers", "--json", "--redis", url)
    assert many_bytes < few_bytes + 24 * 1024 * 1024
    (overview,) = objects_of("--redis", url)
    assert overview["entries"] == MANY
    commands = other_redis.call("INFO", "commandstats").decode()
    assert "cmdstat_scan:" in commands
    assert "cmdstat_keys:" not in commands


def _set(key: bytes, value: bytes) -> bytes:
    return b"*3\r\n$3\r\nSET\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n" % (len(key), key, len(value), value)


def _peak_bytes(*arguments: str) -> int:
    """Return the most memory that a run of the command had, whose output nobody keeps."""
    script = (
        "import resource, subprocess, sys;"
        "subprocess.run([sys.executable, '-m', 'idemproxy', *sys.argv[1:]], stdout=subprocess.DEVNULL, check=True);"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    )
    done = subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=True)
    return int(done.stdout) * 1024


def test_a_reader_that_has_read_enough_ends_it_without_a_complaint(url: str) -> None:
    pipe = subprocess.run(
        ["bash", "-c", f"'{sys.executable}' -m idemproxy inspect producers --redis {url} | head -1"],
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS_MAX,
    )
    assert pipe.stdout.startswith("TOPIC")
    assert pipe.stderr == ""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--redis", "redis://:sesame@127.0.0.1:1"), "Redis: "),
        (("--redis", "http://somewhere"), "redis:// or unix://"),
        (("--redis", "redis://h", "--data-directory", "x"), "name two servers"),
        (("--redis", "redis://h", "--cluster-name", "a b"), "letters, digits"),
    ],
)
def test_what_cannot_be_done_is_one_sentence_without_the_password(arguments: tuple[str, ...], said: str) -> None:
    failed = idemproxy("inspect", *arguments)
    assert (failed.returncode, failed.stdout) == (2, "")
    assert said in failed.stderr
    assert "sesame" not in failed.stderr
    assert len(failed.stderr.splitlines()) == 1


# ---------------------------------------------------------------------- where the server is said to be
def test_the_proxys_own_file_and_environment_name_the_server(
    redis: ExternalRedis, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert redis.call("SET", entry_key("filed", 5, "t", 0), pack(Entry(1, bytes(16), bytes(8), 0, 0))) == b"OK"
    file = tmp_path / "idemproxy.yaml"
    file.write_text(f"upstream: {{bootstrap: ['h:1']}}\nredis: {{url: '{url}'}}\ncluster_name: filed\n")
    assert [row["producer_id"] for row in objects_of("producers", "--config", os.fspath(file))] == ["5"]
    other = idemproxy("inspect", "producers", "--config", os.fspath(file), "--cluster-name", "none")
    assert (other.returncode, other.stdout) == (1, "")
    assert "nothing of this kind is stored under the cluster name 'none'" in other.stderr
    monkeypatch.setenv("IDEMPROXY_REDIS__URL", url)
    monkeypatch.setenv("IDEMPROXY_CLUSTER_NAME", "filed")
    assert [row["producer_id"] for row in objects_of("producers")] == ["5"]


def test_a_redis_over_tls_is_asked_and_its_name_is_checked(redis: ExternalRedis, tmp_path: Path) -> None:
    assert redis.call("SET", entry_key("guarded", 5, "t", 0), pack(Entry(1, bytes(16), bytes(8), 0, 0))) == b"OK"
    authority = Authority(tmp_path)
    files = authority.issue("redis", "redis.example")
    file = tmp_path / "idemproxy.yaml"
    with tls_in_front_of(redis.address, files.cert, files.key) as port:
        redis_text = f"redis: {{url: 'redis://127.0.0.1:{port}', tls: {{ca_file: '{authority.ca_file}', server_name: "
        text = f"upstream: {{bootstrap: ['h:1']}}\ncluster_name: guarded\n{redis_text}"
        file.write_text(f"{text}redis.example}}}}\n")
        assert [row["producer_id"] for row in objects_of("producers", "--config", os.fspath(file))] == ["5"]
        file.write_text(f"{text}other.example}}}}\n")
        refused = idemproxy("inspect", "--config", os.fspath(file))
    assert refused.returncode == 2
    assert "Hostname mismatch" in refused.stderr

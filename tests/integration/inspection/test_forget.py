"""``idemproxy forget``: it asks, spares what a living proxy has open, and no duplicate follows."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from idemproxy.state.commit import fresh
from idemproxy.state.conditional import begun, ended_at, is_fenced
from idemproxy.state.entry import NO_PRINCIPAL, Entry, Intent, IntentBatch, pack
from idemproxy.state.producer_ids import CONDITIONAL_ID
from idemproxy.state.store import entry_key
from testkit.real.clients.raw_client import RawClient, batch
from testkit.real.proxies.proxy_process import wait_until
from testkit.real.store.inspecting import (
    Place,
    begin,
    idemproxy,
    insist,
    lines_of,
    member_names,
    objects_of,
    send,
    stored,
)
from testkit.real.store.two_proxies_redis import ExternalRedis


def is_quiet(redis: ExternalRedis, producer_id: int, place: Place) -> bool:
    """Is everything committed?"""
    return stored(redis, producer_id, place).intent is None


def test_forgetting_asks_first_and_says_what_it_costs(
    producer: RawClient, redis: ExternalRedis, url: str, place: Place
) -> None:
    producer_id = begin(producer, redis, place)
    before = stored(redis, producer_id, place)
    for typed in ("", "\n", "yes\n", f"{producer_id + 1}\n"):
        refused = idemproxy("forget", "producer", producer_id, "--redis", url, typed=typed)
        assert refused.returncode == 1
        assert "perhaps from its start" in refused.stdout
        assert "nothing was forgotten" in refused.stdout
    assert stored(redis, producer_id, place) == before
    done = idemproxy("forget", "producer", producer_id, "--redis", url, typed=f"{producer_id}\n")
    assert done.returncode == 0, done.stdout
    assert done.stdout.endswith("forgotten on 1 of 1 partition\n")
    (row,) = objects_of("producer", producer_id, "--redis", url)
    assert (row["state"], row["window"], row["version"]) == ("unverified", [], before.version + 1)


def test_a_forgotten_producer_continues_and_its_retries_find_their_first_copy(
    producer: RawClient, redis: ExternalRedis, url: str, place: Place
) -> None:
    producer_id = begin(producer, redis, place)
    assert idemproxy("forget", "producer", producer_id, "--yes", "--redis", url).returncode == 0
    assert insist(producer, place, producer_id, 4) == 4, "a retry is answered with the offset of the one copy"
    assert insist(producer, place, producer_id, 6) == 6
    assert send(producer, place, producer_id, 20)[0] == 45
    assert producer.values(*place) == [b"%d" % number for number in range(8)]
    (row,) = objects_of("producer", producer_id, "--redis", url)
    assert row["is_present_data_generation"]


def test_forgetting_one_partition_leaves_the_others(producer: RawClient, redis: ExternalRedis, url: str) -> None:
    places = [("compacted", 5), ("compacted", 6)]
    producer_id = producer.new_producer_id()
    for place in places:
        records = batch([b"v"], producer_id=producer_id, sequence=0, key=b"k")
        assert producer.produce_one(*place, records).error_code == 0
        wait_until(partial(is_quiet, redis, producer_id, place), "it is committed")
    arguments = ("forget", "producer", producer_id, "--topic", "compacted", "--partition", 6, "--yes", "--redis", url)
    assert idemproxy(*arguments).returncode == 0
    states = {row["partition"]: row["state"] for row in objects_of("producer", producer_id, "--redis", url)}
    assert states == {5: "quiet", 6: "unverified"}
    unclear = idemproxy("forget", "producer", producer_id, "--partition", 6, "--yes", "--redis", url)
    assert (unclear.returncode, unclear.stdout) == (2, "")
    assert "--topic" in unclear.stderr


def test_a_damaged_value_is_shown_and_fixed_by_forgetting_it(
    producer: RawClient, redis: ExternalRedis, url: str, place: Place
) -> None:
    producer_id = begin(producer, redis, place)
    key = entry_key("default", producer_id, *place)
    assert redis.call("SET", key, b"\x01damage") == b"OK"
    assert send(producer, place, producer_id, 6)[0] == 7
    (row,) = objects_of("producer", producer_id, "--redis", url)
    assert (row["state"], row["value_hex"]) == ("damaged", b"\x01damage".hex())
    assert "cut short" in row["reason"]
    (overview,) = objects_of("--redis", url)
    assert overview["states"]["damaged"] == 1
    assert any("cannot be read" in line for line in lines_of("producer", producer_id, "--redis", url))
    assert idemproxy("forget", "producer", producer_id, "--yes", "--redis", url).returncode == 0
    assert insist(producer, place, producer_id, 6) == 6
    assert producer.values(*place) == [b"%d" % number for number in range(8)]


def test_with_force_what_a_living_proxy_has_open_is_forgotten_too(
    producer: RawClient, redis: ExternalRedis, url: str, place: Place
) -> None:
    producer_id = begin(producer, redis, place)
    entry = stored(redis, producer_id, place)
    owner = bytes.fromhex(member_names(redis)[0])
    open_entry = _with_intent_of(entry, owner)
    key = entry_key("default", producer_id, *place)
    assert redis.call("SET", key, pack(open_entry)) == b"OK"
    assert idemproxy("forget", "producer", producer_id, "--yes", "--redis", url).returncode == 1
    assert stored(redis, producer_id, place) == open_entry
    forced = idemproxy("forget", "producer", producer_id, "--yes", "--force", "--redis", url)
    assert forced.returncode == 0
    assert "it is there" in forced.stdout
    assert not stored(redis, producer_id, place).has_open_intent


def _with_intent_of(entry: Entry, owner: bytes) -> Entry:
    intent = Intent(owner, 0, (IntentBatch(6, 2, b"digest-1"),), entry.end_offset, entry.anchor, bytes(8), 0)
    return replace(entry, version=entry.version + 1, intent=intent)


def test_a_fence_that_is_lifted_does_not_come_back(redis: ExternalRedis, url: str) -> None:
    """The entry of a conditional partition does not expire, before or after: a proxy that knew the fence would take
    that for a loss."""
    place = ("wal", 0)
    entry = begun(fresh(bytes(16), NO_PRINCIPAL, 0, 0), bytes(16), 3)
    key = entry_key("default", CONDITIONAL_ID, *place)
    assert redis.call("SET", key, pack(ended_at(entry, 4))) == b"OK"
    arguments = ("forget", "producer", CONDITIONAL_ID, "--topic", "wal", "--partition", 0, "--yes", "--redis", url)
    assert idemproxy(*arguments).returncode == 0
    assert not is_fenced(stored(redis, CONDITIONAL_ID, place))
    assert redis.call("PTTL", key) == -1

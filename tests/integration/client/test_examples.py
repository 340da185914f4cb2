"""The programs of examples/ at two proxies before a real 0.10.2.2: killed at each step, and at random together
with the proxies, each leaves what it promises. (examples/mirror.py has two clusters of its own: test_mirror.py.)"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest

from idemproxy.client import Client, Record, coordinates
from idemproxy.demo.legacy_cluster import LegacyCluster
from testkit.real.brokers.kafka_cluster import stored_values
from testkit.real.brokers.retention import DELETES_SOON, assert_retention_takes_nothing
from testkit.real.proxies.proxy_process import wait_until
from testkit.real.proxies.two_proxies import TwoProxies
from testkit.real.scenes.example_lives import Lives, RandomKills

pytestmark = pytest.mark.long

TOPICS = {
    "lines": 1, "clicks": 2, "views": 1, "merge-log": 1, "merged": 1, "counts": 2, "by-key": 3, "pristine": 3
}  # fmt: skip
ENDING = ("--until-end",)
KILLS = 2
ABOVE_ONE_FETCH = 1200
"""Records of a step's life: some batches of 500."""


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoProxies]:
    directory = tmp_path_factory.mktemp("examples")
    with LegacyCluster(directory / "kafka", auto_create_topics=False, broker_settings=DELETES_SOON) as cluster:
        for topic, partitions in TOPICS.items():
            config = {"cleanup.policy": "compact"} if topic == "counts" else {}
            cluster.create_topic(topic, partitions, config=config)
        with TwoProxies(directory, cluster) as running:
            yield running
            assert running.errors_of_ours() == []


@pytest.fixture(scope="module")
def bootstrap(pair: TwoProxies) -> str:
    return ",".join(f"{host}:{port}" for host, port in pair.addresses)


@pytest.fixture(scope="module")
def feed(bootstrap: str) -> Iterator[Callable[[str, int, int], None]]:
    """Append numbered records to a partition; keys come again and again, some are missing."""
    dice = random.Random(4)
    numbers: Counter[tuple[str, int]] = Counter()
    with Client(bootstrap) as client, client.producer(client.init_producer_id()) as producer:

        def more(topic: str, partition: int, count: int) -> None:
            first = numbers[topic, partition]
            numbers[topic, partition] += count
            keys = [dice.choice((None, b"key %d" % dice.randrange(40))) for _ in range(count)]
            values = [f"{topic} {partition} {first + number}".encode() for number in range(count)]
            records = [Record(value, key) for value, key in zip(values, keys, strict=True)]
            for at in range(0, count, 300):
                producer.send(topic, partition, records[at : at + 300])
            producer.flush()

        yield more


def killed_at_random(lives: Lives, pair: TwoProxies, again: Callable[[], None], seed: int) -> None:
    """Let it live while it and the proxies are killed, and something comes to its input."""

    def kill_proxy(index: int) -> None:
        pair.proxies[index].kill()
        pair.proxies[index].start()

    kills = RandomKills(seed)
    lives.keep_alive()
    for index in range(KILLS):
        again()
        kills.at_once(1.0, lives.kill, partial(kill_proxy, index % 2))
    lives.stop()


@pytest.mark.promise("copies")
def test_an_exclusive_producer_has_each_line_in_the_log_once(pair: TwoProxies, bootstrap: str, tmp_path: Path) -> None:
    file, written = tmp_path / "lines.txt", 0

    def grow() -> None:
        nonlocal written
        with file.open("a") as lines:
            lines.writelines(f"line {number}\n" for number in range(written, written + ABOVE_ONE_FETCH))
        written += ABOVE_ONE_FETCH

    given = [bootstrap, "exclusive", "lines", "0"]
    steps = [("before send", 1), ("behind send", 1), ("behind send", 3), ("before send", 3)]
    with Lives("exclusive_producer", ["run", *given, str(file)], tmp_path / "out") as lives:
        assert lives.run_into("behind init_producer_id", 1, "begin", *given)
        lives.run("begin", *given)
        for step, number in steps:
            grow()
            assert lives.run_into(step, number), step
        killed_at_random(lives, pair, grow, seed=1)
        with file.open("a") as lines:
            lines.write("this line has no end ye")
        lives.run_until_it_ends_well()
        assert_retention_takes_nothing(pair.cluster, "lines")
        assert [value.decode() for _, value in stored_values(pair.cluster, ("lines", 0))] == [
            f"line {number}" for number in range(written)
        ]
        with Client(bootstrap) as client, client.producer(client.init_producer_id()) as foreign:
            foreign.publish("lines", 0, [Record(b"foreign")])
        grow()
        with pytest.raises(AssertionError, match=r"line \d+ is at offset|OUT_OF_ORDER"):
            lives.run()


@pytest.mark.promise("copies")
def test_a_merge_is_what_its_log_says(
    pair: TwoProxies, bootstrap: str, feed: Callable[[str, int, int], None], tmp_path: Path
) -> None:
    inputs = [("clicks", 0), ("clicks", 1), ("views", 0)]

    def more() -> None:
        for place in inputs:
            feed(*place, ABOVE_ONE_FETCH // 2)

    given = [bootstrap, "merge", "merge-log", "merged", "clicks", "views"]
    steps = [
        ("behind init_producer_id", 1), ("behind publish", 1), ("before publish", 2), ("behind publish", 2),
        ("before publish", 3), ("behind publish", 3), ("behind publish", 4),
    ]  # fmt: skip
    with Lives("merge_log", ["run", *given], tmp_path / "out", ending=ENDING) as lives:
        assert lives.run_into("before publish", 1, "begin", *given)
        lives.run("begin", *given)
        more()
        for step, number in steps:
            more()
            assert lives.run_into(step, number), step
        killed_at_random(lives, pair, more, seed=2)
        lives.run_until_it_ends_well()
        assert len(assert_it_is_what_its_log_says(pair.cluster, inputs)) == 1
        pair.redis.call("FLUSHALL")
        more()
        lives.run_until_it_ends_well()
        for step, number in (("behind publish", 2), ("before publish", 3)):
            more()
            assert lives.run_into(step, number), step
        lives.run_until_it_ends_well()
        assert_retention_takes_nothing(pair.cluster, "merge-log", "merged")
        assert len(assert_it_is_what_its_log_says(pair.cluster, inputs)) == 2


def assert_it_is_what_its_log_says(cluster: LegacyCluster, inputs: Sequence[tuple[str, int]]) -> list[int]:
    """Return the producer ids that the output has had."""
    merged = [value for _, value in stored_values(cluster, ("merged", 0))]
    given_values = {place: [value for _, value in stored_values(cluster, place)] for place in inputs}
    assert Counter(merged) == Counter(value for values in given_values.values() for value in values)
    assert max(Counter(merged).values()) == 1
    ordered: list[bytes] = []
    ids: list[int] = []
    for _, entry in stored_values(cluster, ("merge-log", 0)):
        one = json.loads(entry)
        ids += [one["id"]] if "id" in one else []
        if "to" in one:
            ordered += given_values[one["topic"], one["partition"]][one["from"] : one["to"]]
    assert merged == ordered
    return ids


@pytest.mark.promise("copies")
def test_a_changelog_has_counted_each_record_once(
    pair: TwoProxies, bootstrap: str, feed: Callable[[str, int, int], None], tmp_path: Path
) -> None:
    given = [bootstrap, "counting", "clicks", "1", "counts", str(tmp_path / "counts.json")]
    steps = [
        ("behind init_producer_id", 1), ("before publish", 1), ("behind publish", 1), ("before publish", 2),
        ("behind publish", 2), ("behind publish", 3),
    ]  # fmt: skip
    more = partial(feed, "clicks", 1, ABOVE_ONE_FETCH)
    with Lives("changelog", given, tmp_path / "out", ending=ENDING) as lives:
        for number, (step, count) in enumerate(steps):
            more()
            if number % 2:
                (tmp_path / "counts.json").unlink(missing_ok=True)
            assert lives.run_into(step, count), step
        killed_at_random(lives, pair, more, seed=3)
        lives.run_until_it_ends_well()
    assert_retention_takes_nothing(pair.cluster, "clicks")
    with Client(bootstrap) as client, client.reader("clicks", 1) as source, client.reader("counts", 1) as changelog:
        wanted = Counter(one.key or b"" for one in source.read_to_end())
        latest = {one.key: one.value for one in changelog.read_to_end()}
    assert int(latest.pop(b"position") or b"") == wanted.total()
    assert latest.pop(b"life") is not None
    assert {(key or b"").removeprefix(b"count "): int(value or b"") for key, value in latest.items()} == wanted


@pytest.mark.promise("copies")
def test_records_repeated_after_a_crash_are_identified_by_their_source_coordinates(
    pair: TwoProxies, bootstrap: str, feed: Callable[[str, int, int], None], tmp_path: Path
) -> None:
    def more() -> None:
        for partition in range(2):
            feed("clicks", partition, ABOVE_ONE_FETCH)

    given = [bootstrap, "by-key", "clicks", "by-key"]
    with Lives("repartition", given, tmp_path / "spread", ending=ENDING) as lives:
        for step, number in (("behind init_producer_id", 1), ("behind send", 2), ("behind receipt", 2),
                             ("before commit_offsets", 1), ("behind commit_offsets", 1)):  # fmt: skip
            more()
            assert lives.run_into(step, number), step
        killed_at_random(lives, pair, more, seed=4)
        lives.run_until_it_ends_well()
    places = [("by-key", partition) for partition in range(3)]
    repeated = [coordinates.from_value(value) for place in places for _, value in stored_values(pair.cluster, place)]
    given_values = [value for part in range(2) for _, value in stored_values(pair.cluster, ("clicks", part))]
    assert {value for _, value in repeated} == set(given_values)
    assert len(repeated) > len(given_values), "no crash has brought a copy: nothing is shown"

    cleaned = [bootstrap, "clean", "by-key", "pristine"]
    with Lives("pristine", ["run", *cleaned], tmp_path / "clean", ending=ENDING) as lives:
        assert lives.run_into("behind init_producer_id", 1, "begin", *cleaned)
        lives.run("begin", *cleaned)
        for step, number in (("behind commit_offsets", 1), ("before send", 2), ("behind send", 4),
                             ("behind receipt", 1), ("before commit_offsets", 3)):  # fmt: skip
            assert lives.run_into(step, number), step
        lives.run_until_it_ends_well()
    assert_retention_takes_nothing(pair.cluster, "by-key", "pristine")
    found = [[value for _, value in stored_values(pair.cluster, ("pristine", part))] for part in range(3)]
    assert Counter(value for values in found for value in values) == Counter(given_values)
    for values in found:
        names = [tuple(map(int, value.decode().split()[1:])) for value in values]
        for source in range(2):
            offsets = [number for partition, number in names if partition == source]
            assert offsets == sorted(set(offsets))


@pytest.mark.promise("copies")
def test_a_second_instance_fences_the_first_where_a_name_says_so(
    pair: TwoProxies, bootstrap: str, feed: Callable[[str, int, int], None], tmp_path: Path
) -> None:
    given = [bootstrap, "two", "clicks", "0", "counts", str(tmp_path / "counts.json")]
    with Lives("changelog", given, tmp_path / "one") as one, Lives("changelog", given, tmp_path / "other") as other:
        feed("clicks", 0, 10)
        end_of_input = stored_values(pair.cluster, ("clicks", 0))[-1][0] + 1
        one.keep_alive()
        wait_until(
            lambda: [value for _, value in stored_values(pair.cluster, ("counts", 0))][-1:] == [b"%d" % end_of_input],
            "the first one has counted all: from here on it only reads",
            120,
        )
        other.run(*given, *ENDING)
        feed("clicks", 0, 10)
        wait_until(lambda: any("fenced" in said for said in one.failed), "the first one is fenced", 120)

"""Who reads thousands of topics with long names (a mirror) has large requests with few partitions: they are served."""

from __future__ import annotations

import time

import pytest

from idemproxy.proxy.bridge.base import RequestRefused

from .both_sides import ask, bridge_for, tell

NAMES = [f"mirrored.of.some.department.and.some.team.topic-number-{number:06}" for number in range(5_000)]


@pytest.mark.parametrize(("version", "release"), [(2, "0.10.1"), (3, "0.9.0")])
def test_offsets_of_5000_topics_are_asked(version: int, release: str) -> None:
    topics = [{"name": name, "partition_indexes": [0]} for name in NAMES]
    assert not isinstance(ask(bridge_for(9, version, release), 9, version, group_id="g", topics=topics), RequestRefused)


@pytest.mark.parametrize(("version", "count"), [(4, 10_000), (5, 13_000)])
def test_a_fetch_of_many_topics_is_passed_on(version: int, count: int) -> None:
    topics = [{"topic": f"{'n' * 60}{number}", "partitions": [{"partition": 0}]} for number in range(count)]
    assert not isinstance(
        ask(bridge_for(1, version, "0.10.1"), 1, version, replica_id=-1, topics=topics), RequestRefused
    )


def test_what_an_answer_of_offsets_takes() -> None:
    parts = [{"partition_index": 0, "committed_offset": 1, "metadata": "", "error_code": 0}]
    began = time.perf_counter()
    tell(bridge_for(9, 2, "0.10.1"), 9, 2, topics=[{"name": name, "partitions": parts} for name in NAMES])
    print(time.perf_counter() - began)

"""A rebuild of a producer of which the log's beginning was deleted looks for all records of what waits: what that takes
(rule R10)."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest
from mutants.scenes import LATER, foreign

from idemproxy.codecs.steps import STEP_RECORDS
from idemproxy.proxy.flow.outcome import Outcome
from idemproxy.proxy.partition_log.log_chunk import LogChunk
from idemproxy.proxy.partition_log.log_search import LogSearch
from testkit.stage.sequencer import Client, Stage

FOREIGN = 20
NOT_ENOUGH_REPLICAS = 19


def a_new_life() -> Stage:
    """The producer id is of before, and has sent nothing here; retention has deleted the beginning of the log."""
    stage = Stage()
    foreign(stage, *[b"foreign %d" % number for number in range(FOREIGN)])
    stage.log.retain(5)
    stage.earliest = 5
    stage.begin_era()
    return stage


def bytes_of(one: Any) -> int:
    inner = sum(map(bytes_of, one)) if isinstance(one, tuple | frozenset) else 0
    return sys.getsizeof(one) + inner


def test_the_records_that_were_looked_for_are_not_kept() -> None:
    stage = a_new_life()
    request = stage.send(Client(), 0, *[b"%08d" % number for number in range(4 * STEP_RECORDS)])
    stage.run(60)
    assert request.code == 0
    assert stage.stream.looked_for is not None
    assert stage.stream.looked_for.looked
    assert bytes_of(stage.stream.looked_for.looked) < 2000


def test_they_are_compared_with_what_a_piece_of_the_log_has_and_not_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else each piece, however short, takes one step as long as all that waits."""
    compare, offsets_of, lookups, largest = LogSearch._compare, LogChunk.offsets_of, 0, 0

    def counted(chunk: LogChunk, content: bytes) -> Iterator[int]:
        nonlocal lookups
        lookups += 1
        return offsets_of(chunk, content)

    def one_step(search: LogSearch, chunk: LogChunk, start: int, log_end: int) -> None:
        nonlocal lookups, largest
        lookups = 0
        compare(search, chunk, start, log_end)
        largest = max(largest, lookups)

    monkeypatch.setattr(LogChunk, "offsets_of", counted)
    monkeypatch.setattr(LogSearch, "_compare", one_step)
    stage, client = a_new_life(), Client()
    requests = [
        stage.send(client, 1000 * number, *[b"%d" % (1000 * number + n) for n in range(1000)]) for number in range(5)
    ]
    stage.run(60)
    assert [request.code for request in requests] == [0] * 5
    assert largest <= FOREIGN


def test_a_record_that_lies_there_is_found_by_them() -> None:
    """Any of them, and though the piece of the log has fewer."""
    stage = a_new_life()
    foreign(stage, b"1700")
    request = stage.send(Client(), 0, *[b"%d" % number for number in range(2000)])
    stage.run(60)
    assert request.code == 87


def test_a_name_is_not_kept_for_each_try_of_a_client_that_makes_its_batch_anew() -> None:
    """The broker refuses for some minutes."""
    stage = Stage()
    for sequence in range(3):
        stage.send(Client(), sequence)
        stage.run(1)
    foreign(stage, b"of a producer without id")
    stage.begin_era()
    stage.run(10)

    def judge(effect: Any) -> Outcome:
        stage.outcomes.append(judge)
        return stage.refuses(NOT_ENOUGH_REPLICAS)(effect)

    stage.outcomes.append(judge)
    for number in range(20):
        request = stage.send(Client(), 3, timestamp=LATER + number)
        stage.run(30)
        assert request.code == NOT_ENOUGH_REPLICAS
    assert stage.stream.looked_for is not None
    assert len(stage.stream.looked_for.names) == 1

"""Ranges that are read where fetches bring nothing for a while: hidden ranges, quotas, connections that end."""

from __future__ import annotations

from typing import Any

import pytest

from idemproxy.client import limits
from idemproxy.codecs.message_set import encode_message
from idemproxy.pipeline.audit.plan import Plan
from idemproxy.pipeline.audit.read import read_range
from idemproxy.pipeline.audit.rows import Kind
from idemproxy.pipeline.reading.broker import Access, BrokerProblem, Cluster
from idemproxy.pipeline.reading.places import Place, Range
from idemproxy.pipeline.rebuild import work
from idemproxy.pipeline.source import tasks
from idemproxy.pipeline.source.options import Rows
from idemproxy.pipeline.source.planning import Range as SourceRange
from idemproxy.pipeline.source.planning import ReadTask
from testkit.stage.reading_server import ReadingServer

LARGE_BYTES = 600_000
"""Of partitions with hidden ranges a fetch brings 1 MiB: one of these."""


def stored(offset: int, size: int = LARGE_BYTES) -> bytes:
    return encode_message(b"k", b"v" * size, magic=1, offset=offset, timestamp=7)


LOG = [stored(offset) for offset in range(12)]
ACCESS = Access("test")


def offsets_read(server: ReadingServer, end: int = 12, start: int = 0, rows: Rows = Rows.RECORDS) -> list[int]:
    wanted = SourceRange("t", 0, start, end)
    task = ReadTask((server.address,), ACCESS, wanted, rows, False, True, 4 << 20)
    name = "offset" if rows is Rows.RECORDS else "baseOffset"
    return [offset for found in tasks.read(task) for offset in found.column(name).to_pylist()]


def without(*named: int) -> list[int]:
    return [offset for offset in range(len(LOG)) if offset not in named]


@pytest.mark.parametrize("rows", list(Rows))
def test_a_task_continues_after_one_large_message_that_is_left_out(rows: Rows) -> None:
    with ReadingServer(LOG, [5]) as server:
        assert offsets_read(server, rows=rows) == without(5)


def test_a_task_continues_after_many_fetches_of_which_all_is_left_out() -> None:
    with ReadingServer(LOG, range(2, 10)) as server:
        assert offsets_read(server) == [0, 1, 10, 11]


def test_a_range_of_which_all_is_left_out_ends() -> None:
    with ReadingServer(LOG, range(2, 12)) as server:
        assert offsets_read(server) == [0, 1]


@pytest.mark.parametrize("faults", [{"ends_at": (8,)}, {"fails_at": (8,)}, {"ends_at": (6, 9), "fails_at": (12,)}])
def test_what_ends_between_two_fetches_makes_the_proxy_begin_at_the_old_offset(
    faults: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "READING_PAUSES_SECONDS", (0.01,) * 5)
    with ReadingServer(LOG, range(2, 11), **faults) as server:
        assert offsets_read(server) == [0, 1, 11]


def test_an_audit_reads_on_too() -> None:
    with ReadingServer(LOG, [*range(2, 6), 8]) as server:
        plan = Plan((Place("t", 0, 0, 12),), (Range(0, 0, 12),), (server.address,))
        found = [row for batch in read_range(plan, plan.ranges[0]) for row in batch.to_pylist()]
    read = [row["offset"] for row in found if row["kind"] == Kind.RECORD]
    assert read == without(2, 3, 4, 5, 8)


def test_a_rebuild_reads_on_too() -> None:
    with ReadingServer(LOG, range(2, 6)) as server, Cluster((server.address,), ACCESS) as cluster:
        read = work.read_range(cluster, 0, Place("t", 0, 0, 12), 0, 12)
    assert read.found.problem == ""
    assert read.found.last[0] == 11


def test_a_rebuild_ends_where_the_last_messages_were_compacted_away() -> None:
    log = [*LOG[:3], None, None]
    with ReadingServer(log) as server, Cluster((server.address,), ACCESS) as cluster:
        read = work.read_range(cluster, 0, Place("t", 0, 0, 5), 0, 5)
        beyond = work.read_range(cluster, 0, Place("t", 0, 0, 6), 0, 6)
    assert (read.found.problem, read.found.last[0]) == ("", 2)
    assert beyond.found.problem == "its log shows 5, below what it had shown"


@pytest.mark.parametrize(("versions", "fetches_max"), [((0, 3), 4), ((4, 12), 4), ((0, 5), 50)])
def test_a_tail_that_was_compacted_away_ends_the_range(versions: tuple[int, int], fetches_max: int) -> None:
    """Before brokers that no proxy with hidden ranges offers, soon."""
    log = [*LOG[:3], *[None] * 20]
    with ReadingServer(log, fetch_versions=versions) as server:
        assert offsets_read(server, len(log)) == [0, 1, 2]
        assert server.fetches <= fetches_max


def test_a_reader_without_quota_waits_and_fetches_again() -> None:
    with ReadingServer(LOG, throttled=(1, 2, 4)) as server:
        assert offsets_read(server) == without()


def test_a_fetch_that_is_above_the_quota_asks_for_less_from_then_on() -> None:
    """Else it would be throttled each time."""
    with ReadingServer(LOG, quota_bytes=600_000) as server:
        assert offsets_read(server) == without()
        assert server.fetches == 3 + len(LOG)


def test_a_quota_that_lasts_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "THROTTLED_FETCH_SECONDS_MAX", 0.1)
    with (
        ReadingServer(LOG, throttled=range(1000)) as server,
        pytest.raises(BrokerProblem, match=r"t-0: .*quota.*'test'"),
    ):
        offsets_read(server)

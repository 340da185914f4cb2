"""Sorts and pages what is stored. Pure. Without a sort order rows pass through as they come, so that a million of them
take no memory; with one, only the rows up to the end of the page are kept."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any

from ....state.redis_inspection import EntryRow

_NEVER_SECONDS = 2**62


def _used(row: EntryRow) -> tuple[int, str, int]:
    """Most recently used first; rows whose idle time the server does not tell come last."""
    seconds = _NEVER_SECONDS if row.untouched_seconds is None else row.untouched_seconds
    return seconds, row.place.topic, row.place.partition


_KEYS: Mapping[str, Callable[[EntryRow], Any]] = {
    "topic": lambda row: (row.place.topic, row.place.partition, row.place.producer_id),
    "producer": lambda row: (row.place.producer_id, row.place.topic, row.place.partition),
    "used": _used,
}


def page_of(rows: Iterator[EntryRow], sort: str | None, limit: int | None, page: int) -> Iterator[EntryRow]:
    """Return one page. ``sort``: one of ``SORTS``, None: as they come; ``limit``: rows of a page, None: all are one
    page; ``page``: from 1 on."""
    if limit is None:
        if page > 1:
            return iter(())
        return rows if sort is None else iter(sorted(rows, key=_KEYS[sort]))
    if sort is None and page == 1:
        return islice(rows, limit)
    upto = heapq.nsmallest(limit * page, rows, key=_KEYS[sort or "topic"])
    return iter(upto[limit * (page - 1) :])

"""``idemproxy forget producer`` and ``forget name``: say what it costs, ask, and forget. Never drops an entry that a
living proxy may be writing (but with ``--force``), and never one that has changed since it was shown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TextIO

from ....state.entry import Entry
from ....state.inspection import owner_of
from ....state.redis_inspection import EntryRow, NameRow, NotForgotten, RedisInspection
from .render import ENTRY_TITLES, NAME_TITLES, entry_cells, name_cells
from .table import printable, table_lines

ROWS_SHOWN_MAX = 20
"""Partitions that are listed before the question; their number is said first."""
COST = """\
Forgetting drops the epoch, the last five batches and any intent of this producer. Its next batch on each partition
waits until a proxy has read that partition's log, perhaps from its start, and found what the producer has there;
meanwhile it gets retriable errors. A batch that retention has deleted from the log is not recognised when it comes
again."""
FORCED = """\
A living proxy may be sending a batch of it at this moment: if that arrives after the log was read, it is there
twice."""


def forget_producer(
    inspection: RedisInspection,
    rows: Iterable[EntryRow],
    *,
    ask: Callable[[], str] | None,
    force: bool,
    expiry_ms: int,
    out: TextIO,
) -> int:
    """Forget ``rows``, all of one producer; return the exit status: 0, or 1 if something was not forgotten. ``ask``
    returns what was typed; None: no question is asked. ``expiry_ms``: of idle producers."""
    found = list(rows)
    if not found:
        print("nothing is stored of this producer", file=out)
        return 1
    print(f"producer {found[0].place.producer_id} is stored on {_partitions(len(found))}", file=out)
    for line in table_lines(ENTRY_TITLES, map(entry_cells, found[:ROWS_SHOWN_MAX])):
        print(line, file=out)
    if len(found) > ROWS_SHOWN_MAX:
        print(f"... and {len(found) - ROWS_SHOWN_MAX} more: idemproxy inspect producer shows all", file=out)
    in_use = [row for row in found if row.is_owner_alive]
    if in_use and not force:
        _name_owners(in_use, out)
        print("nothing was forgotten; wait, stop that proxy, or use --force", file=out)
        return 1
    print(f"\n{COST}", file=out)
    if in_use:
        print(FORCED, file=out)
    if ask is not None and not _is_meant(ask, found, out):
        return 1
    failed = 0
    for row in found:
        result = inspection.forget(row, expiry_ms=expiry_ms, although_owner_lives=force)
        if isinstance(result, NotForgotten):
            failed += 1
            print(f"{_where(row)}: not forgotten: {result.reason}", file=out)
    print(f"forgotten on {len(found) - failed} of {_partitions(len(found))}", file=out)
    return 1 if failed else 0


COST_OF_NAME = """\
Forgetting a name fences every instance of it, at once and for good: what they send is refused with 47. The next one
that begins under this name has another producer id, and that instance has the name. What the log has stays; what
is known of the present producer id expires."""


def forget_name(
    inspection: RedisInspection,
    rows: Iterable[NameRow],
    *,
    ask: Callable[[], str] | None,
    expiry_ms: int,
    out: TextIO,
) -> int:
    """Forget the one name in ``rows``; return the exit status: 0, or 1 if it was not forgotten. ``ask`` returns what
    was typed; None: no question is asked."""
    row = next(iter(rows), None)
    if row is None:
        print("nothing is stored of this name", file=out)
        return 1
    for line in table_lines(NAME_TITLES, [name_cells(row, None)]):
        print(line, file=out)
    print(f"\n{COST_OF_NAME}", file=out)
    if ask is not None:
        print("\nType the name to forget it: ", end="", file=out, flush=True)
        if ask().rstrip("\n") != row.name:
            print("that is not the name: nothing was forgotten", file=out)
            return 1
    result = inspection.forget_name(row, expiry_ms=expiry_ms)
    if isinstance(result, NotForgotten):
        print(f"not forgotten: {result.reason}", file=out)
        return 1
    print("forgotten", file=out)
    return 0


def _name_owners(in_use: Iterable[EntryRow], out: TextIO) -> None:
    for row in in_use:
        assert isinstance(row.entry, Entry)
        owner = owner_of(row.entry)
        assert owner is not None
        print(f"{_where(row)}: proxy {owner.hex()} is alive and may be writing it now", file=out)


def _is_meant(ask: Callable[[], str], found: Sequence[EntryRow], out: TextIO) -> bool:
    print(f"\nType the producer id to forget it ({_partitions(len(found))}): ", end="", file=out, flush=True)
    if ask().strip() == str(found[0].place.producer_id):
        return True
    print("that is not its id: nothing was forgotten", file=out)
    return False


def _partitions(count: int) -> str:
    return f"{count} partition{'' if count == 1 else 's'}"


def _where(row: EntryRow) -> str:
    return f"{printable(row.place.topic)}/{row.place.partition}"

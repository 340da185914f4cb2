"""What an audit writes for ``idemproxy hide add``, and how that reads it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from idemproxy.pipeline.audit import findings
from idemproxy.pipeline.audit.duplicates import duplicates_of
from idemproxy.pipeline.audit.findings import finding_rows
from idemproxy.pipeline.audit.job import Audited
from idemproxy.pipeline.audit.kinds import Finding
from idemproxy.pipeline.audit.outputs import write_summary
from idemproxy.pipeline.audit.plan import Plan
from idemproxy.pipeline.reading.places import Place
from idemproxy.proxy.commands.inspection.found_duplicates import found_by_audit


def audited(
    *found: tuple[Finding, int, int, int, int], counted: int | None = None, was_compared: bool = True
) -> Audited:
    """An audit of orders/0 and orders/1 with these (kind, place, offset, offset of the first copy, producer id)."""
    rows = [
        finding_rows(kind, 1, place=place, offset=offset, last_offset=offset, other_offset=other, producer_id=producer,
                     epoch=0, sequence=other, compared=int(was_compared))
        for kind, place, offset, other, producer in found
    ]  # fmt: skip
    places = tuple(Place("orders", number, 0, 100) for number in range(2))
    count = sum(kind is Finding.DUPLICATE for kind, *_ in found) if counted is None else counted
    plan = Plan(places=places, ranges=(), bootstrap=(("kafka", 9092),))
    empty: Any = {}
    return Audited(
        plan, empty, {(Finding.DUPLICATE, 0): count}, findings.joined(rows), (), (), 0, 1, empty, 0, 0, 1.0, empty
    )


def ranges(data: dict[str, Any]) -> list[tuple[int, int, int, int, int]]:
    names = ("partition", "first", "last", "first_copy", "producer_id")
    return [tuple(one[name] for name in names) for one in data["duplicates"]]


def test_neighbours_are_one_range_and_only_certain_ones_are_in_it(tmp_path: Path) -> None:
    certain, suspected = Finding.DUPLICATE, Finding.SUSPECTED_DUPLICATE
    data = duplicates_of(
        audited(
            *((certain, 0, 30 + n, 10 + n, 5) for n in range(3)),
            (certain, 0, 33, 20, 5),
            (certain, 0, 34, 21, 6),
            (certain, 1, 35, 22, 6),
            (suspected, 0, 60, 1, -1),
            (Finding.SEQUENCE_REUSED, 0, 61, 2, 5),
        ),
        "kafka:9092",
    )
    assert ranges(data) == [(0, 30, 32, 10, 5), (0, 33, 33, 20, 5), (0, 34, 34, 21, 6), (1, 35, 35, 22, 6)]
    assert (data["is_whole"], data["source"]) == (True, "kafka:9092")
    write_summary(data, tmp_path / "duplicates.json")
    found = found_by_audit(tmp_path)
    assert [(one.place.partition, one.place.first, one.place.end - 1, one.first_copy) for one in found.copies] == [
        one[:4] for one in ranges(data)
    ]
    assert found.notes == []


def test_without_duplicates_there_is_no_range() -> None:
    data = duplicates_of(audited((Finding.GAP, 0, 60, 1, 5)), "segment files")
    assert (data["duplicates"], data["is_whole"]) == ([], True)


def test_what_could_not_be_compared_is_in_no_range() -> None:
    """One of the two is gone, and the other may be the only one that is left."""
    data = duplicates_of(audited((Finding.DUPLICATE, 0, 30, 10, 5), was_compared=False), "kafka:9092")
    assert (data["duplicates"], data["is_whole"]) == ([], False)


def test_a_list_that_lacks_some_of_the_duplicates_is_not_whole() -> None:
    data = duplicates_of(audited((Finding.DUPLICATE, 0, 30, 10, 5), counted=2_000_000), "kafka:9092")
    assert (len(data["duplicates"]), data["is_whole"]) == (1, False)

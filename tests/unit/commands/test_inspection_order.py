"""Sorting and paging of what is stored."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from idemproxy.proxy.commands.inspection.order import page_of
from idemproxy.state.inspection import Damaged, EntryPlace
from idemproxy.state.redis_inspection import EntryRow


def row(topic: str, partition: int, producer_id: int, used: int | None) -> EntryRow:
    return EntryRow(EntryPlace(topic, partition, producer_id), Damaged("x"), "damaged", False, None, used, b"")


ROWS = [row("b", 0, 3, 5), row("a", 1, 1, None), row("b", 0, 1, 0), row("a", 0, 2, 60)]


@pytest.mark.parametrize(
    ("sort", "limit", "page", "order"),
    [
        (None, None, 1, [0, 1, 2, 3]),
        (None, 2, 1, [0, 1]),
        ("topic", None, 1, [3, 1, 2, 0]),
        ("producer", None, 1, [1, 2, 3, 0]),
        ("used", None, 1, [2, 0, 3, 1]),
        ("used", 3, 1, [2, 0, 3]),
        ("used", 3, 2, [1]),
        (None, 3, 2, [0]),
        ("topic", 3, 3, []),
        ("topic", None, 2, []),
    ],
)
def test_a_page_has_its_rows_in_order(sort: str | None, limit: int | None, page: int, order: list[int]) -> None:
    assert list(page_of(iter(ROWS), sort, limit, page)) == [ROWS[index] for index in order]


def test_without_an_order_no_more_is_read_than_is_shown() -> None:
    taken = 0

    def rows() -> Iterator[EntryRow]:
        nonlocal taken
        for one in ROWS:
            taken += 1
            yield one

    assert len(list(page_of(rows(), None, 1, 1))) == 1
    assert taken == 1

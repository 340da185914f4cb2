"""docs/PERFORMANCE.md shows what the last run of ``make bench-proxy`` found, and its picture too."""

import xml.etree.ElementTree as ElementTree

from bench_proxy import BROKERS, CASES
from performance_page import PAGE, PICTURE, last_line, picture, tables, with_tables


def test_the_page_shows_the_last_line_of_results() -> None:
    page = PAGE.read_text()
    assert page == with_tables(page, tables(last_line(), CASES)), "python benchmarks/performance_page.py writes it"


def test_the_picture_shows_it_too() -> None:
    assert PICTURE.read_text() == picture(last_line(), CASES), "python benchmarks/performance_page.py draws it"
    ElementTree.parse(PICTURE)


def test_every_case_is_on_both_brokers() -> None:
    found = {(broker, row["case"]) for broker, rows in last_line()["on"].items() for row in rows}
    assert found == {(broker, case) for broker in BROKERS for case in CASES}

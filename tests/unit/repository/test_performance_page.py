"""The table of costs on the page of performance is made of the last line of benchmarks/results/proxy.jsonl."""

from __future__ import annotations

import performance_page
from bench_proxy import CASES


def test_the_table_of_costs_is_that_of_the_last_run() -> None:
    page = performance_page.PAGE.read_text()
    assert performance_page.with_table(page, performance_page.cost(performance_page.last_line(), CASES)) == page

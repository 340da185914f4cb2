"""What docs/COMPATIBILITY.md says of the clients' own suites: every failing test has a reason, and where it passes."""

from __future__ import annotations

from typing import Any

from runs.compatibility_page import lines
from runs.suite_kinds import SUITES
from runs.suite_reasons import REASONS, reason_of
from runs.suites_page import suites_section


def line(way: str, through_proxy: bool, passed: int, skipped: list[str], failed: Any) -> dict[str, Any]:
    names = {"suite": "some-client", "suite_release": "1.2", "way": way, "through_proxy": through_proxy}
    return {**names, "date": "d", "commit": "c", "passed": passed, "skipped": skipped, "failed": failed}


def test_every_test_that_fails_through_the_proxy_has_a_reason_and_every_reason_a_test() -> None:
    failing = [
        (one["suite"], test, why)
        for one in lines("suites")
        if one["through_proxy"]
        for test, why in one["failed"].items()
    ]
    assert len(failing) > 20
    assert [(suite, test) for suite, test, why in failing if not why] == []
    for suite in SUITES:
        tests = [test for of, test, _ in failing if of == suite.name]
        used = {reason_of(suite.name, test) for test in tests}
        assert set(REASONS[suite.name].values()) == used, "a reason that no test needs"


def test_each_suite_that_runs_by_itself_has_a_result_for_each_way() -> None:
    found = {(one["suite"], one["suite_release"], one["way"]) for one in lines("suites")}
    assert {(suite.name, suite.release, way.name) for suite in SUITES for way in suite.ways} <= found


def test_the_page_tells_what_fails_where_and_what_the_proxy_makes_pass() -> None:
    direct = line("at the broker", False, 5, ["test_new"], ["test_both", "test_gained"])
    proxy = line("through the proxy", True, 6, [], {"test_both": "old", "test_lost": "it is so", "test_new": "old"})
    text = "\n".join(suites_section([direct, proxy]))
    assert "| some-client 1.2 | at the broker | 5 | 2 | 1 |" in text
    assert "| some-client 1.2 | through the proxy | 6 | 3 | 0 |" in text
    assert "- some-client, `test_both`, `test_new`: old.\n" in text
    assert "- some-client, `test_lost`: it is so. At the broker, told its release, it passes.\n" in text
    assert "- some-client: `test_gained`\n" in text
    assert "Run on d at commit c." in text

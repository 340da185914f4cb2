"""docs/COMPATIBILITY.md is what the results of the runs say, and the results are of what is run today."""

from __future__ import annotations

from runs.compatibility_page import PAGE, lines, page
from runs.kafka_tools import VERSIONS
from runs.matrix import BROKERS
from testkit.real.client_runs import IDEMPOTENT_CLIENTS
from testkit.real.kafka_tools import ROWS


def test_the_page_is_made_of_the_results() -> None:
    made = page(lines("matrix"), lines("kafka_tools"))
    assert PAGE.read_text() == made, "PYTHONPATH=tests python -m runs.compatibility_page writes it"


def test_the_results_name_no_client_broker_or_subcommand_that_is_not_run_any_more() -> None:
    assert {line["client"] for line in lines("matrix")} <= set(IDEMPOTENT_CLIENTS)
    assert {line["broker"] for line in lines("matrix")} <= {broker.name for broker in BROKERS}
    assert {line["command"] for line in lines("kafka_tools")} == {row.command for row in ROWS}
    assert {line["tools"] for line in lines("kafka_tools")} == set(VERSIONS)


def test_a_cell_is_marked_only_without_a_complaint_and_a_missing_one_is_said_so() -> None:
    common = {"broker": "0.10.2.2", "serves": "proxy", "duplicates": 0, "losses": 0, "reorders": 0, "records": 10}
    common |= {"date": "d", "commit": "c", "seed": 1, "faults_client_side": {}, "faults_broker_side": {"cut": 2}}
    good, bad = {**common, "client": "a", "complaints": []}, {**common, "client": "b", "complaints": ["it lost\none"]}
    other = {**good, "broker": "3.9.1", "serves": "native"}
    text = page([{**good, "duplicates": 7, "complaints": ["before"]}, good, bad, other], [])
    assert "| client | 0.10.2.2 (proxy) | 3.9.1 (native) |" in text
    assert "| a | ✓ 0 / 0 / 0 | ✓ 0 / 0 / 0 |" in text
    assert "| b | 0 / 0 / 0 | not run |" in text
    assert "- **b at 0.10.2.2**: it lost one" in text
    assert "before" not in text.partition("seed of the faults")[2].partition("## ")[0]
    assert "in all: 6." in text

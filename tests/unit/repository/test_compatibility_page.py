"""docs/COMPATIBILITY.md is what the results of the runs say, and the results are of what is run today."""

from __future__ import annotations

import pytest

from runs.compatibility_page import DIFFERENCES, PAGE, WHY, lines, page, reason_of, with_failing_tools
from runs.kafka_tools import VERSIONS
from runs.matrix_brokers import BROKERS
from testkit.real.clients.client_runs import ALL_IDEMPOTENT_CLIENTS
from testkit.real.clients.kafka_tools import ROWS


def test_the_page_is_made_of_the_results() -> None:
    made = page(lines("matrix"), lines("kafka_tools"), lines("suites"), lines("cluster_changes"))
    assert PAGE.read_text() == made, "PYTHONPATH=tests python -m runs.compatibility_page writes it"


def test_the_differences_name_the_tools_that_fail_and_why() -> None:
    tools, text = lines("kafka_tools"), DIFFERENCES.read_text()
    assert text == with_failing_tools(text, tools), "PYTHONPATH=tests python -m runs.compatibility_page writes it"
    failing = {line["command"] for line in tools} - {line["command"] for line in tools if line["works"]}
    assert len(failing) > 5
    for command in failing:
        assert f"- `{command}`:" in text.replace("\n ", ""), command
    assert {start for start in WHY if not any(row.command.startswith(start) for row in ROWS)} == set()
    with pytest.raises(KeyError, match="say in WHY"):
        reason_of("kafka-new-tool --list")


def test_the_results_name_no_client_broker_or_subcommand_that_is_not_run_any_more() -> None:
    assert {line["client"] for line in lines("matrix")} <= set(ALL_IDEMPOTENT_CLIENTS)
    assert {line["broker"] for line in lines("matrix")} <= {broker.name for broker in BROKERS}
    assert {line["command"] for line in lines("kafka_tools")} == {row.command for row in ROWS}
    assert {line["tools"] for line in lines("kafka_tools")} == set(VERSIONS)


def test_a_cell_is_marked_only_without_a_complaint_and_a_missing_one_is_said_so() -> None:
    java, python, broker = "java-4.3.1", "kafka-python", "0.10.2.2"
    common = {"broker": broker, "duplicates": 0, "losses": 0, "reorders": 0, "records": 10, "date": "d", "commit": "c"}
    common |= {"seed": 1, "faults_client_side": {}, "faults_broker_side": {"cut": 2}, "complaints": []}
    before = {**common, "client": java, "duplicates": 7, "complaints": ["it stored\nthem twice"]}
    not_had = {"client": "sarama", "broker": broker, "not_run": "Go failed", "complaints": []}
    text = page([before, {**common, "client": java}, {**before, "client": python}, not_had], [])
    column = [one.name for one in BROKERS].index(broker) + 1
    rows = {
        row.split(" | ")[0].removeprefix("| "): row.split(" | ") for row in text.splitlines() if row.startswith("| ")
    }
    assert rows[java][column] == "✓ 0 / 0 / 0"
    assert rows[python][column] == "7 / 0 / 0"
    assert rows["aiokafka"][column] == "not run"
    assert rows["sarama"][column] == "not run: Go failed"
    assert f"- {java} at {broker} (run again since): it stored them twice" in text
    assert f"- {python} at {broker}: it stored them twice" in text
    assert "in all: 4." in text


def test_what_went_wrong_again_and_again_is_said_once_with_its_cause_where_that_is_known() -> None:
    common = {"broker": "0.10.2.2", "client": "platformatic", "duplicates": 0, "losses": 0, "reorders": 0, "records": 1}
    common |= {"date": "d", "commit": "c", "seed": 1, "serves": "proxy"}
    ended = {**common, "complaints": ["reading in a group: Unsupported compression algorithm with bitmask 7"]}
    waits = {**common, "complaints": ["reading in a group: platformatic platformatic-in-group still ran after 120 s:"]}
    natively = {**waits, "broker": "3.9.1", "serves": "native"}
    text = page([ended, waits, natively], [])
    assert text.count("- platformatic at 0.10.2.2: its producer did all right") == text.count("of format v2") == 1
    assert "- platformatic at 3.9.1: reading in a group: platformatic platformatic-in-group still ran" in text

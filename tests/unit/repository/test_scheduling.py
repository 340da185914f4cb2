"""The order in which ``make test`` runs the files: written from a report, about files that are there."""

from __future__ import annotations

from pathlib import Path
from xml.etree.ElementTree import fromstring

from runs.file_seconds import seconds_of
from testkit.scheduling import ON_SPARK, file_seconds

ROOT = Path(__file__).resolve().parents[3]
REPORT = """<testsuites><testsuite>
  <testcase classname="tests.unit.repository.test_scheduling" name="first" time="3.25"/>
  <testcase classname="tests.unit.repository.test_scheduling.TestClass" name="second" time="4"/>
  <testcase classname="tests.conftest" name="short" time="1"/>
</testsuite></testsuites>"""


def test_every_file_of_which_seconds_are_noted_is_there() -> None:
    assert [file for file in file_seconds() if not (ROOT / file).is_file()] == []


def test_the_files_on_spark_count_as_one() -> None:
    assert file_seconds()[ON_SPARK[0]] > max(file_seconds()[file] for file in ON_SPARK[1:])


def test_seconds_of_a_files_tests_are_added_up_and_short_files_are_left_out() -> None:
    assert seconds_of(fromstring(REPORT).iter("testcase")) == {"tests/unit/repository/test_scheduling.py": 7}

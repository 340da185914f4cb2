"""The demo says in one sentence why it cannot begin, and begins nothing then."""

import argparse
import sys

import pytest

from idemproxy.demo.command import missing_of_extra, run_demo
from idemproxy.proxy.main import main


def options(records: int = 1_000) -> argparse.Namespace:
    return argparse.Namespace(json=False, records=records, seed=1)


def test_nothing_of_the_extra_is_missing_here() -> None:
    assert missing_of_extra() == []


def test_a_missing_extra_is_one_sentence_with_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for module in ("confluent_kafka", "rich"):
        monkeypatch.setitem(sys.modules, module, None)
    assert run_demo(options()) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == (
        "idemproxy demo: the demo needs confluent-kafka, rich: pip install '.[demo]' in a checkout of idemproxy\n"
    )


@pytest.mark.parametrize("records", [-1, 0, 999, 10_000_001])
def test_a_number_of_records_that_makes_no_sense_is_one_sentence(
    records: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["demo", "--records", str(records)]) == 1
    said = capsys.readouterr().err
    assert (f"--records {records}:" in said, said.count("\n")) == (True, 1)


def test_jars_that_can_not_be_had_are_one_sentence(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("IDEMPROXY_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
    monkeypatch.setenv("IDEMPROXY_MAVEN_REPOSITORY", "http://127.0.0.1:9")
    monkeypatch.setattr("tempfile.tempdir", str(directory := tmp_path_factory.mktemp("temporary")))
    assert run_demo(options()) == 1
    (sentence,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("idemproxy demo: ")]
    assert "kafka_2.11:0.10.2.2 can not be had" in sentence
    assert list(directory.iterdir()) == [], "nothing is left behind"

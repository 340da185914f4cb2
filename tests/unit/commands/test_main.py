"""The command line: what starts fast stays fast, exit statuses, where texts go."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from idemproxy import __version__
from idemproxy.proxy.main import main
from idemproxy.proxy.settings.load import schema

pytestmark = pytest.mark.usefixtures("logging_as_it_was")


def ended(arguments: list[str]) -> int:
    """The exit status of a command that argparse ends."""
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert isinstance(caught.value.code, int)
    return caught.value.code


def test_the_version_is_printed_without_loading_what_only_configurations_need() -> None:
    program = (
        "import sys\nfrom idemproxy.proxy.main import main\n"
        "try: main(['--version'])\n"
        "finally: print([name for name in ('pydantic', 'pydantic_settings', 'yaml', 'pythonjsonlogger') "
        "if name in sys.modules])"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=240)
    assert said.stdout.splitlines() == [f"idemproxy {__version__}", "[]"]


def test_a_command_that_there_is_not_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert ended([]) == 2
    assert ended(["fly"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert "begin with:" in lines, "without a word there is help"
    commands = "run, check, schema, probe, inspect, forget, hide, journal, audit"
    jobs = "rebuild, copy, merge, repartition, clean"
    start = f"idemproxy: COMMAND: unknown: fly; there are {commands}, {jobs}, demo, completion"
    assert lines[-2:] == [start, "what there is: idemproxy --help"]


@pytest.mark.parametrize("words", ["forget producer 7", "forget name n", "hide add t 0 1 2", "hide remove t 0 1 2"])
def test_what_prints_no_objects_does_not_take_the_option_for_them(
    words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ended([*words.split(), "--json"]) == 2
    assert "unknown option --json" in capsys.readouterr().err


def test_the_help_names_every_option_with_its_default(capsys: pytest.CaptureFixture[str]) -> None:
    assert ended(["run", "--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    for part in ("--config FILE", "(default: 127.0.0.1:9092)", "(default: 86400)", "(default: 600)", "(default: data)"):
        assert part in text


def test_run_says_every_mistake_on_a_line_of_its_own_and_ends_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--upstream", "nowhere", "--cluster-name", "a b", "--redis", "http://h", "--log-level", "loud"]
    assert main(["run", *arguments]) == 78
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.splitlines() == [
        "idemproxy: --upstream: expected HOST:PORT, with a port from 1 to 65535, not 'nowhere'",
        "idemproxy: --redis: a Redis URL begins with redis:// or unix://",
        "idemproxy: --cluster-name: expected letters, digits, dots, underscores and hyphens, at most 64",
        "idemproxy: --log-level: expected debug, info, warning or error, not 'loud'",
    ]


@pytest.mark.parametrize(
    "arguments", [["run", "--upstream", "kafka:9092"], ["check"], ["inspect"], ["forget", "producer", "1", "--yes"]]
)
def test_the_file_may_be_named_by_a_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("nonsense: 1\n")
    monkeypatch.setenv("IDEMPROXY_CONFIG", os.fspath(path))
    assert main(arguments) == (78 if arguments[0] == "run" else 2)
    assert f"{path}:1: nonsense: unknown key" in capsys.readouterr().err


def test_a_given_file_overrides_the_variable_and_an_empty_variable_names_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("upstream: {bootstrap: [kafka:9092]}\n")
    monkeypatch.setenv("IDEMPROXY_CONFIG", "/nowhere")
    assert main(["check", os.fspath(path)]) == 0
    monkeypatch.setenv("IDEMPROXY_CONFIG", "")
    monkeypatch.setenv("IDEMPROXY_UPSTREAM__BOOTSTRAP", "kafka:1")
    capsys.readouterr()
    assert main(["check", "--effective"]) == 0
    assert yaml.safe_load(capsys.readouterr().out)["upstream"]["bootstrap"] == ["kafka:1"]


def test_a_journal_that_cannot_be_written_stops_the_start(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(["run", "--upstream", "127.0.0.1:9", "--data-directory", f"{tmp_path}/d", "--journal", f"{tmp_path}"]) == 2
    )
    assert capsys.readouterr().err == f"idemproxy: journal {tmp_path}: Is a directory\n"


def test_check_prints_yaml_that_can_be_read_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("upstream: {bootstrap: [kafka:9092]}\nlisteners: [{bind: '[::]:1', advertised: 'ö{id}:{port}'}]\n")
    assert main(["check", os.fspath(path), "--effective"]) == 0
    first = capsys.readouterr().out
    path.write_text(first)
    assert main(["check", os.fspath(path), "--effective"]) == 0
    assert capsys.readouterr().out == first
    assert yaml.safe_load(first)["listeners"][0]["advertised"] == "ö{id}:{port}"


def test_check_tells_a_certificate_that_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(f"upstream: {{bootstrap: [kafka:9092], tls: {{ca_file: {path}}}}}\n")
    assert main(["check", os.fspath(path)]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith(f"idemproxy: {path}:1: upstream.tls: ca_file ")


def test_schema_prints_the_json_schema(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema"]) == 0
    assert json.loads(capsys.readouterr().out) == schema()

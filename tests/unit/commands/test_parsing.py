"""The frame of the command line: what help says of every option, what a misspelt word is answered, and completion."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from idemproxy.proxy.commands.colours import coloured
from idemproxy.proxy.commands.parsing import SHELLS, completion_script
from idemproxy.proxy.main import _parser, main


def parsers(parser: argparse.ArgumentParser, name: str = "") -> Iterator[tuple[str, argparse.ArgumentParser]]:
    yield name, parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for word, below in action.choices.items():
                yield from parsers(below, f"{name} {word}".strip())


def options() -> Iterator[tuple[str, argparse.Action]]:
    for name, parser in parsers(_parser()):
        for action in parser._actions:
            if not isinstance(action, argparse._HelpAction | argparse._VersionAction | argparse._SubParsersAction):
                yield name, action


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    return capsys.readouterr().err.splitlines()


def test_every_option_has_a_sentence_and_one_that_takes_a_value_has_an_example() -> None:
    found = 0
    for name, action in options():
        where = f"{name} {action.option_strings or action.dest}"
        text = action.help or ""
        assert text[:1].isupper() or text[:4] in ("YAML", "text"), where
        assert ". Example: " in text or action.nargs == 0 or action.choices is not None, where
        found += 1
    assert found > 60


def test_the_options_of_run_are_in_groups(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["run", "--help"])
    lines = capsys.readouterr().out.splitlines()
    headings = [line for line in lines if line.endswith(":") and not line.startswith(" ")]
    assert headings == [
        "options:",
        "the configuration file:",
        "brokers and clients:",
        "state:",
        "producers:",
        "operation:",
    ]


def test_the_options_of_audit_are_in_groups(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["audit", "--help"])
    lines = capsys.readouterr().out.splitlines()
    headings = [line for line in lines if line.endswith(":") and not line.startswith(" ")]
    assert headings == ["options:", "what is read:", "what is reported:", "Spark:"]


def test_the_options_of_journal_cat_are_in_groups(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["journal", "cat", "--help"])
    lines = capsys.readouterr().out.splitlines()
    headings = [line for line in lines if line.endswith(":") and not line.startswith(" ")]
    assert headings == ["positional arguments:", "options:", "which lines:", "how they are shown:"]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["rnu"], "idemproxy: COMMAND: unknown: rnu; did you mean run?"),
        (["run", "--upstrem", "k:1"], "idemproxy: unknown option --upstrem; did you mean --upstream?"),
        (["run", "--upstrem=k:1"], "idemproxy: unknown option --upstrem=k:1; did you mean --upstream?"),
        (["run", "--up", "k:1"], "idemproxy: unknown option --up; did you mean --upstream?"),
        (["run", "upstream"], "idemproxy: 'upstream' is one word too many"),
        (["inspect", "producer", "1", "--tpic", "t"], "idemproxy: unknown option --tpic; did you mean --topic?"),
        (["inspect", "topic", "t", "--sort", "topics"], "idemproxy: --sort: unknown: topics; did you mean topic?"),
        (
            ["inspect", "producer", "x"],
            "idemproxy: ID: 'x' is no producer id: a number, or one in hexadecimal after 0x",
        ),
    ],
)
def test_a_misspelt_word_is_one_line_with_what_was_meant(
    capsys: pytest.CaptureFixture[str], arguments: list[str], line: str
) -> None:
    said = refusal(capsys, *arguments)
    assert said[0] == line
    assert said[1].startswith("what there is: idemproxy")
    assert said[1].endswith("--help")
    assert len(said) == 2


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("idemproxy ru", {"run"}),
        ("idemproxy run --log-f", {"--log-format"}),
        ("idemproxy run --log-level ", {"debug", "info", "warning", "error"}),
        ("idemproxy inspect topic orders --sort ", {"topic", "producer", "used"}),
        ("idemproxy journal c", {"cat"}),
        ("idemproxy journal cat j --event re", {"resolved"}),
        ("idemproxy run --upstream ", set()),
    ],
)
def test_a_shell_is_offered_commands_options_and_choices_and_no_files_for_an_address(
    tmp_path: Path, typed: str, offered: set[str]
) -> None:
    answer = tmp_path / "answer"
    environment = {
        **os.environ,
        "_ARGCOMPLETE": "1",
        "_ARGCOMPLETE_STDOUT_FILENAME": os.fspath(answer),
        "_ARGCOMPLETE_SUPPRESS_SPACE": "1",
        "COMP_LINE": typed,
        "COMP_POINT": str(len(typed)),
    }
    subprocess.run([sys.executable, "-m", "idemproxy"], env=environment, timeout=60, check=False)
    assert {word.strip() for word in answer.read_text().split("\v") if word.strip()} == offered


@pytest.mark.parametrize("shell", SHELLS)
def test_every_shell_gets_a_script_that_names_the_program(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    assert capsys.readouterr().out == completion_script(shell) + "\n"
    assert "idemproxy" in completion_script(shell)


class Terminal:
    def isatty(self) -> bool:
        return True


def test_colours_are_for_terminals_and_for_those_who_want_them(monkeypatch: pytest.MonkeyPatch) -> None:
    out = Terminal()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert coloured("x", "green", out) == "\x1b[32mx\x1b[0m"  # type: ignore[arg-type]
    assert coloured("x", "green", sys.stdin) == "x"
    monkeypatch.setenv("NO_COLOR", "1")
    assert coloured("x", "green", out) == "x"  # type: ignore[arg-type]

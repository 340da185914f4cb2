"""A command whose reader goes away, as ``head`` does, ends without a word."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize("words", [["completion", "bash"], ["check", "--upstream", "k:1", "--json"], ["run", "--help"]])
def test_a_command_whose_reader_has_gone_ends_quietly(words: list[str]) -> None:
    command = [sys.executable, "-m", "idemproxy", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(60) == 0

"""The options of ``idemproxy copy`` and its sisters that are refused before a Spark is started."""

from __future__ import annotations

import pytest

from idemproxy.proxy.main import main

COPY = ("copy", "--from", "nobody:1", "--out", "out", "--checkpoint", "none", "--topic", "orders")


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


def test_a_second_topic_is_for_a_merge_only(capsys: pytest.CaptureFixture[str]) -> None:
    line = refusal(capsys, *COPY, "--topic", "payments")
    assert line == "idemproxy copy: --topic: copy reads one topic; merge reads several"

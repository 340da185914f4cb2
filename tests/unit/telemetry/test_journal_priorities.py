"""Lines for systemd's journal begin with their priority; lines for anything else do not."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = """
import logging, sys
from idemproxy.proxy.telemetry.logs import set_up
set_up("debug", sys.argv[1])
log = logging.getLogger("x")
log.debug("d"), log.info("i"), log.warning("w"), log.error("first\\nsecond")
"""


def lines_of(form: str, stream: str | None) -> list[str]:
    """What a process logs. ``stream``: what JOURNAL_STREAM says, {} is where its standard error leads."""
    ours, theirs = os.pipe()
    status = os.fstat(theirs)
    environment = dict(os.environ)
    if stream is not None:
        environment["JOURNAL_STREAM"] = stream.format(f"{status.st_dev}:{status.st_ino}")
    subprocess.run([sys.executable, "-c", PROGRAM, form], stderr=theirs, env=environment, check=True, timeout=60)
    os.close(theirs)
    with os.fdopen(ours) as log:
        return log.read().splitlines()


def test_each_line_has_the_priority_of_its_level() -> None:
    lines = lines_of("text", "{}")
    assert [line[:3] for line in lines] == ["<7>", "<6>", "<4>", "<3>", "<3>"]
    assert lines[-1] == "<3>second"
    assert [line[:4] for line in lines_of("json", "{}")] == ["<7>{", "<6>{", "<4>{", "<3>{"]


@pytest.mark.parametrize("stream", [None, "1:2"])
def test_lines_that_go_elsewhere_have_none(stream: str | None) -> None:
    assert not any(line.startswith("<") for line in lines_of("text", stream))

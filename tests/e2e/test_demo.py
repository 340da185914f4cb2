"""``idemproxy demo`` as a user runs it, small: real broker, real producers, real kills. Takes half a minute."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from testkit.real.proxies.proxy_process import wait_until

RECORDS = 5_000
COMMAND = [sys.executable, "-m", "idemproxy", "demo", "--json", "--records", str(RECORDS)]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """No program can be found by its name, and what is left over can be seen."""
    for name in ("no-programs", "temporary"):
        (tmp_path / name).mkdir()
    return os.environ | {"PATH": str(tmp_path / "no-programs"), "TMPDIR": str(tmp_path / "temporary")}


def processes_of(directory: Path) -> list[str]:
    """Return the command lines of all processes that name something in this directory."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(directory) in command:
            found.append(command)
    return found


@pytest.mark.promise("stored-once")
@pytest.mark.timeout(600)
def test_the_load_has_duplicates_without_the_proxy_and_none_through_it(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    ended = subprocess.run(COMMAND, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=500)
    assert ended.returncode == 0, f"{ended.stderr}\n{ended.stdout}"
    result = json.loads(ended.stdout)
    direct, proxied = result["runs"]
    assert direct["acknowledged"] >= RECORDS
    assert direct["duplicates"] > 0
    assert proxied["acknowledged"] == proxied["stored"] >= RECORDS
    assert [proxied[name] for name in ("duplicates", "losses", "reorders", "failed", "foreign")] == [0] * 5
    assert proxied["readers_agree"]
    assert min(sum(kinds.values()) for kinds in proxied["faults"].values()) > 0
    facts = proxied["proxy"]
    assert facts["kills"] == 2
    assert (
        min(facts[name] for name in ("unknown_outcomes_found", "unknown_outcomes_not_found", "duplicates_answered")) > 0
    )
    assert (facts["unknown_outcomes_unrecoverable"], facts["errors"]) == (0, [])
    assert {"OUT_OF_ORDER_SEQUENCE_NUMBER", "DUPLICATE_SEQUENCE_NUMBER"} <= {step["answer"] for step in result["scene"]}
    assert list((tmp_path / "temporary").iterdir()) == []
    wait_until(lambda: processes_of(tmp_path / "temporary") == [], "no process is left")


@pytest.mark.timeout(300)
def test_a_demo_that_is_terminated_leaves_no_process_and_no_file(tmp_path: Path, environment: dict[str, str]) -> None:
    with subprocess.Popen(COMMAND, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True) as demo:
        assert demo.stderr is not None
        said = []
        for line in demo.stderr:
            said.append(line)
            if "SIGKILL" in line:  # broker, proxy and Redis are there, and a proxy is just coming up
                demo.send_signal(signal.SIGTERM)
                break
        said += demo.stderr.readlines()
        assert demo.wait(60) == 130, "".join(said)
    assert "interrupted" in said[-1]
    assert list((tmp_path / "temporary").iterdir()) == []
    wait_until(lambda: processes_of(tmp_path / "temporary") == [], "no process is left")

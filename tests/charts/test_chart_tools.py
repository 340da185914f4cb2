"""The chart's own suites, run by helm-unittest, and its page of values, made by helm-docs."""

import shutil
import subprocess
from pathlib import Path

import pytest
from charts.go_tools import MissingToolError, built
from charts.rendering import CHART

UNITTEST = "github.com/helm-unittest/helm-unittest/cmd/helm-unittest"
DOCS = "github.com/norwoodj/helm-docs/cmd/helm-docs"


def tool(folder: str, package: str) -> Path:
    try:
        return built(folder, package)
    except MissingToolError as problem:
        pytest.fail(str(problem), pytrace=False)


@pytest.mark.timeout(600)
def test_the_charts_own_suites_pass() -> None:
    command = [tool("helm-unittest", UNITTEST), "--strict", str(CHART)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    suites = len(list((CHART / "tests").glob("*_test.yaml")))
    assert f"Test Suites: {suites} passed, {suites} total" in done.stdout


@pytest.mark.timeout(600)
def test_the_page_of_values_is_the_one_that_helm_docs_makes_and_describes_each(tmp_path: Path) -> None:
    chart = tmp_path / "idemproxy"
    shutil.copytree(CHART, chart)
    (chart / "README.md").unlink()
    command = [tool("helm-docs", DOCS), "--sort-values-order", "file", "--log-level", "warning"]
    done = subprocess.run(command, cwd=chart, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    made = (chart / "README.md").read_text()
    assert made == (CHART / "README.md").read_text()
    assert [line for line in made.splitlines() if line.endswith("|  |")] == []

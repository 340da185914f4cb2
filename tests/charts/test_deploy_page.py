"""The how-to pages of Helm, systemd and Compose keep their word: their values are rendered and taken by the product,
their helm commands work, and the objects and values that they name are there."""

import json
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from charts.node import PROXY
from charts.rendering import CHART, ROOT, configuration_of, render, run_helm

HELM = (ROOT / "docs/how-to/helm.md").read_text()
WITHOUT_CHART = (ROOT / "docs/how-to/systemd-and-compose.md").read_text()
CHART_VALUES = ("outside.yaml", "production.yaml")
BLOCKS = dict(re.findall(r"```yaml\n# (\S+)\n(.*?)```", HELM, re.DOTALL))
HELM_COMMANDS = [
    line.strip()
    for block in re.findall(r"```console\n(.*?)```", HELM, re.DOTALL)
    for line in block.replace("\\\n", " ").splitlines()
    if re.match(r"helm (install|upgrade)", line)
]


@pytest.mark.parametrize("name", CHART_VALUES)
def test_the_values_on_the_page_render(helm: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(BLOCKS[name])
    assert len(render(helm, tmp_path / name)) > 5


def test_the_advertised_port_for_outside_is_open_at_the_load_balancer(helm: Path, tmp_path: Path) -> None:
    (tmp_path / "outside.yaml").write_text(BLOCKS["outside.yaml"])
    manifests = render(helm, tmp_path / "outside.yaml")
    (outside,) = (one for one in configuration_of(manifests)["listeners"] if one["name"] == "outside")
    (service,) = (one for one in manifests if one["kind"] == "Service" and one["spec"].get("type") == "LoadBalancer")
    assert str(service["spec"]["ports"][0]["port"]) == outside["advertised"].rpartition(":")[2]


@pytest.mark.parametrize("command", HELM_COMMANDS)
def test_the_helm_commands_on_the_page_work(helm: Path, tmp_path: Path, command: str) -> None:
    for name in CHART_VALUES:
        (tmp_path / name).write_text(BLOCKS[name])
    _, _, *words = shlex.split(command)
    here = [str(ROOT / word) if word.startswith("charts/") else word for word in words]
    done = run_helm(helm, "template", *[str(tmp_path / word) if word in CHART_VALUES else word for word in here])
    assert (done.returncode, done.stderr) == (0, "")
    workloads = {item["metadata"]["name"] for item in yaml.safe_load_all(done.stdout) if item["kind"] == "StatefulSet"}
    assert set(re.findall(r"statefulset/(\S+)", HELM)) == workloads


def test_the_configuration_for_the_image_is_taken_and_opens_the_ports_that_are_published(tmp_path: Path) -> None:
    text = WITHOUT_CHART
    (found,) = re.findall(r"```yaml\n# idemproxy\.yaml\n(.*?)```", text, re.DOTALL)
    configuration: dict[str, Any] = yaml.safe_load(found)
    file = tmp_path / "idemproxy.yaml"
    file.write_text(found)
    done = subprocess.run([*PROXY, "check", str(file)], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    first = int(configuration["listeners"][0]["bind"].rpartition(":")[2])
    assert f"--publish {first}-{first + 3}:{first}-{first + 3}" in text
    image = (ROOT / "Dockerfile").read_text()
    assert configuration["admin"]["bind"] in image
    assert f"VOLUME {configuration['data_directory']}" in image
    assert json.loads(re.findall(r"^CMD (\[.*\])", image, re.MULTILINE)[-1])[-1] == "/etc/idemproxy/idemproxy.yaml"
    assert ":/etc/idemproxy/idemproxy.yaml:ro" in text


def test_the_page_names_only_values_that_the_chart_has() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    roots = "redis|upstream|persistence|networkPolicy|prometheusRule|serviceMonitor|dashboard|autoscaling|tracing|test"
    paths = re.findall(rf"`((?:{roots})(?:\.[a-zA-Z]+)+)\b(?!_)", HELM)
    assert len(paths) > 10
    for path in paths:
        at: Any = values
        for key in path.split("."):
            at = at[key]

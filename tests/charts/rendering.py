"""The chart as helm renders it: manifests of a release ``proxy`` in the namespace ``streams``, and helm's refusals.

Knows no test; what is rendered is plain data, as YAML has it.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "charts/idemproxy"
CI_FILES = sorted((CHART / "ci").glob("*.yaml"))
KUBERNETES_VERSIONS = ("1.25", "1.27", "1.29", "1.31", "1.33", "1.35", "1.37")
NEWEST = KUBERNETES_VERSIONS[-1]
MINIMAL = {"upstream__bootstrap": ["kafka:9092"], "redis__url": "redis://redis:6379/0"}

Manifest = dict[str, Any]


def run_helm(
    helm: Path, command: str, *arguments: str | Path, kubernetes: str = NEWEST
) -> subprocess.CompletedProcess[str]:
    """Run helm for one version of Kubernetes: without a cluster, each build of helm assumes another one."""
    version = ["--kube-version", kubernetes] if command in {"template", "lint"} else []
    return subprocess.run([helm, command, *version, *arguments], capture_output=True, text=True, timeout=240)


def arguments_of(values: dict[str, Any]) -> list[str]:
    """Return helm's arguments for values by their paths; dots are written ``__``, those inside a key stay dots."""
    words: list[str] = []
    for key, value in values.items():
        words += ["--set-json", f"{key.replace('.', chr(92) + '.').replace('__', '.')}={json.dumps(value)}"]
    return words


def render(helm: Path, *files: Path, kubernetes: str = NEWEST, **values: Any) -> list[Manifest]:
    """Return the manifests. A warning of helm's is an error here."""
    arguments: list[str | Path] = ["proxy", CHART, "--namespace", "streams"]
    for file in files:
        arguments += ["--values", file]
    done = run_helm(helm, "template", *arguments, *arguments_of(values), kubernetes=kubernetes)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return [manifest for manifest in yaml.safe_load_all(done.stdout) if manifest]


def render_minimal(helm: Path, **values: Any) -> list[Manifest]:
    """Return the manifests with the fewest values there can be, and those given."""
    return render(helm, **(MINIMAL | values))


def refusal(helm: Path, **values: Any) -> str:
    """Return what helm says to values that it must not accept."""
    done = run_helm(helm, "template", "proxy", CHART, *arguments_of(values))
    assert done.returncode != 0, done.stdout
    return done.stderr


def one(manifests: list[Manifest], kind: str, name: str = "proxy-idemproxy") -> Manifest:
    """Return the one manifest of this kind and name."""
    (found,) = (item for item in manifests if item["kind"] == kind and item["metadata"]["name"] == name)
    return found


def pod_of(manifests: list[Manifest], name: str = "proxy-idemproxy") -> Manifest:
    """Return the specification of a StatefulSet's pods."""
    pod: Manifest = one(manifests, "StatefulSet", name)["spec"]["template"]["spec"]
    return pod


def container_of(manifests: list[Manifest]) -> Manifest:
    """Return the proxy's container."""
    (container,) = (item for item in pod_of(manifests)["containers"] if item["name"] == "proxy")
    return dict(container)


def configuration_of(manifests: list[Manifest]) -> Manifest:
    """Return what stands in the rendered configuration file."""
    configuration: Manifest = yaml.safe_load(one(manifests, "ConfigMap")["data"]["idemproxy.yaml"])
    return configuration

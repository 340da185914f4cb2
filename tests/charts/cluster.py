"""The chart in the hands of other people's programs: ``make cluster``, or ``python -m charts.cluster`` with tests on
the path. All of them are built with Go from pinned modules (minutes, once).

helm-unittest runs the chart's own suites, helm-docs makes its page of values again. Then kube-apiserver and etcd are
started on loopback, with the kinds of cert-manager, of the Prometheus operator and of the Gateway API defined. Every
example of the chart is sent there object by object with strict field validation, in a namespace that enforces the
restricted Pod Security level; its pods are created as a controller would; and helm installs, upgrades and removes it. A
warning counts as a failure. Nothing runs in the pods: an API server has no nodes.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import yaml

from idemproxy.demo.ports import free_ports

from .api_server import ApiServer, Refused
from .conftest import find_helm
from .go_tools import built, folder_of
from .rendering import CHART, CI_FILES, Manifest, render

VERSION = "1.34.4"
API_SERVER = "k8s.io/kubernetes/cmd/kube-apiserver"
LINKER_FLAGS = f"-X k8s.io/component-base/version.gitVersion=v{VERSION}"
ETCD = "go.etcd.io/etcd/server/v3"
GENERATOR = "sigs.k8s.io/controller-tools/cmd/controller-gen"
OTHER_PEOPLES_KINDS = (
    "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1",
    "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1",
)
PRIORITY = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": "high"},
    "value": 1000,
}
"""That one of the examples names; a cluster has its own."""
GATEWAY_API = "sigs.k8s.io/gateway-api/apis/v1"
UNITTEST = "github.com/helm-unittest/helm-unittest/cmd/helm-unittest"
DOCS = "github.com/norwoodj/helm-docs/cmd/helm-docs"
WANTED = ("certificates", "prometheusrules", "servicemonitors")


def definitions(folder: Path) -> list[Manifest]:
    """Return the CustomResourceDefinitions of what the chart renders for other people's operators."""
    generator = built("crds", GENERATOR)
    paths = [f"paths={package}" for package in OTHER_PEOPLES_KINDS]
    options = ["crd:crdVersions=v1,allowDangerousTypes=true,maxDescLen=0", *paths, f"output:crd:dir={folder}"]
    subprocess.run([generator, *options], cwd=Path(__file__).parent / "tools/crds", check=True, timeout=300)
    found = [yaml.safe_load(file.read_text()) for file in sorted(folder.glob("*.yaml"))]
    wanted = [item for item in found if item["spec"]["names"]["plural"] in WANTED]
    assert len(wanted) == len(WANTED)
    for item in wanted:
        # Names of this group are guarded; the note says where the definition comes from.
        item["metadata"].setdefault("annotations", {})["api-approved.kubernetes.io"] = "unapproved, made for a test"
    gateway = folder_of("gateway", GATEWAY_API).parents[1] / "config/crd/standard"
    return [*wanted, yaml.safe_load((gateway / "gateway.networking.k8s.io_tlsroutes.yaml").read_text())]


def apply_strictly(server: ApiServer, manifests: list[Manifest], namespace: str) -> int:
    """Send every object, and the pods that a controller would make of the workloads. Returns how many there were."""
    sent = 0
    for manifest in sorted(manifests, key=lambda item: item["kind"] != "ServiceAccount"):
        server.create(manifest, namespace)
        sent += 1
        if manifest["kind"] == "StatefulSet":
            template = manifest["spec"]["template"]
            pod = {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": template["metadata"] | {"name": manifest["metadata"]["name"] + "-0"},
                "spec": with_claims(template["spec"], manifest["spec"].get("volumeClaimTemplates", [])),
            }
            server.create(pod, namespace)
            sent += 1
    return sent


def with_claims(pod: Manifest, claims: list[Manifest]) -> Manifest:
    """Return the pod with the volumes that its StatefulSet would give it."""
    names = [claim["metadata"]["name"] for claim in claims]
    more = [{"name": name, "persistentVolumeClaim": {"claimName": f"{name}-0"}} for name in names]
    return pod | {"volumes": pod.get("volumes", []) + more}


def helm_through_a_life(helm: Path, kubeconfig: Path, file: Path, namespace: str) -> list[str]:
    """Install, upgrade with another configuration, and remove a release. Returns what helm complained of."""
    common = ["--namespace", namespace, "--kubeconfig", str(kubeconfig)]
    steps: list[list[str]] = [
        ["install", "proxy", str(CHART), "--values", str(file), *common],
        ["upgrade", "proxy", str(CHART), "--values", str(file), "--set", "producers.expirySeconds=7200", *common],
        ["uninstall", "proxy", *common],
    ]
    complaints: list[str] = []
    for step in steps:
        done = subprocess.run([helm, *step], capture_output=True, text=True, timeout=120)
        if done.returncode != 0 or done.stderr.strip():
            complaints.append(f"helm {step[0]}: {done.stderr.strip() or done.stdout.strip()}")
    return complaints


def suites_and_page(folder: Path) -> list[str]:
    """Run the chart's own suites and make its page of values again. Returns what is wrong."""
    failures: list[str] = []
    suites = len(list((CHART / "tests").glob("*_test.yaml")))
    command: list[str | Path] = [built("helm-unittest", UNITTEST), "--strict", str(CHART)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if done.returncode != 0 or f"Test Suites: {suites} passed, {suites} total" not in done.stdout:
        failures.append(f"helm-unittest: {done.stdout}{done.stderr}")
    print(f"helm-unittest: {suites} suites", flush=True)
    chart = folder / "idemproxy"
    shutil.copytree(CHART, chart)
    (chart / "README.md").unlink()
    command = [built("helm-docs", DOCS), "--sort-values-order", "file", "--log-level", "warning"]
    done = subprocess.run(command, cwd=chart, capture_output=True, text=True, timeout=300)
    if done.returncode != 0 or (chart / "README.md").read_text() != (CHART / "README.md").read_text():
        failures.append(f"charts/idemproxy/README.md is not what helm-docs makes of values.yaml {done.stderr}")
        shutil.copy(chart / "README.md", CHART / "README.md")
    return failures


def main() -> int:
    """Return the exit status: 0 if every example was accepted without a warning."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="idemproxy-chart-") as made:
        failures = suites_and_page(Path(made))
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="idemproxy-cluster-")))
        (folder / "definitions").mkdir()
        programs = built("cluster", ETCD), built("cluster", API_SERVER, linker_flags=LINKER_FLAGS, timeout_seconds=3000)
        server = stack.enter_context(ApiServer(folder, *programs, ports=free_ports(3)))
        for definition in definitions(folder / "definitions"):
            server.create(definition)
        server.wait_for_definitions()
        server.create(PRIORITY)
        helm = find_helm()
        for file in CI_FILES:
            name = file.stem.removesuffix("-values")
            server.create_namespace(name)
            server.create_namespace(f"{name}-helm")
            # First, since what is removed again leaves the ports of the nodes free.
            failures += [f"{name}: {it}" for it in helm_through_a_life(helm, server.kubeconfig, file, f"{name}-helm")]
            try:
                # Rendered for the namespace "streams": each goes into a namespace of its own here.
                manifests = [in_namespace(item, name) for item in render(helm, file, kubernetes=VERSION)]
                sent = apply_strictly(server, manifests, name)
                print(f"{name}: {sent} objects accepted by Kubernetes {server.version}", flush=True)
            except Refused as refusal:
                failures.append(f"{name}: {refusal}")
        failures += [f"warning: {warning}" for warning in server.warnings]
        refused = must_be_refused(server)
        failures += [] if refused else ["a pod that may become root was accepted: nothing was really checked"]
    for failure in failures:
        print(f"FAILED {failure}", flush=True)
    seconds = time.monotonic() - started
    print(json.dumps({"examples": len(CI_FILES), "failures": len(failures), "seconds": round(seconds, 1)}), flush=True)
    return 1 if failures else 0


def in_namespace(manifest: Manifest, namespace: str) -> Manifest:
    return manifest | {"metadata": manifest["metadata"] | {"namespace": namespace}}


def must_be_refused(server: ApiServer) -> bool:
    """A server that accepts this looks at nothing."""
    container: dict[str, Any] = {"name": "one", "image": "one:1", "securityContext": {"runAsUser": 0}}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "root"}, "spec": {"containers": [container]}}
    namespace = CI_FILES[0].stem.removesuffix("-values")
    try:
        server.create(pod, namespace)
    except Refused as refusal:
        return "PodSecurity" in str(refusal)
    return False


if __name__ == "__main__":
    assert shutil.which("go"), "Go is needed to build kube-apiserver"
    assert folder_of("crds", OTHER_PEOPLES_KINDS[0]).is_dir()
    sys.exit(main())

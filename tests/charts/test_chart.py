"""The chart, rendered by helm itself: what it accepts, what it refuses and with which words, and what comes out.

Rendered manifests are checked against the schemas of Kubernetes, and the numbers in them against the proxy's own.
Nothing here needs a cluster.
"""

import json
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from idemproxy.proxy import limits

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "charts/idemproxy"
CI_FILES = sorted((CHART / "ci").glob("*.yaml"))
MINIMAL = {"upstream": "kafka:9092", "redis.url": "redis://redis:6379/0"}
KUBERNETES_VERSIONS = ("1.25", "1.33")

Manifest = dict[str, Any]


def run_helm(helm: Path, command: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run helm for one version of Kubernetes: without a cluster, each build of helm assumes another one."""
    version = ["--kube-version", KUBERNETES_VERSIONS[-1]] if command in {"template", "lint"} else []
    return subprocess.run([helm, command, *version, *arguments], capture_output=True, text=True, timeout=60)


def render(helm: Path, *files: Path, **values: Any) -> list[Manifest]:
    """Return the manifests of a release ``proxy`` in the namespace ``streams``; dots in keys are written ``__``."""
    arguments: list[str | Path] = ["proxy", CHART, "--namespace", "streams"]
    for file in files:
        arguments += ["--values", file]
    for key, value in values.items():
        arguments += ["--set-json", f"{key.replace('__', '.')}={json.dumps(value)}"]
    done = run_helm(helm, "template", *arguments)
    assert done.returncode == 0, done.stderr
    return [manifest for manifest in yaml.safe_load_all(done.stdout) if manifest]


def render_minimal(helm: Path, **values: Any) -> list[Manifest]:
    minimal = {key.replace(".", "__"): value for key, value in MINIMAL.items()}
    return render(helm, **(minimal | values))


def refusal(helm: Path, **values: Any) -> str:
    """Return what helm says to values that it must not accept."""
    arguments: list[str | Path] = ["proxy", CHART]
    for key, value in values.items():
        arguments += ["--set-json", f"{key.replace('__', '.')}={json.dumps(value)}"]
    done = run_helm(helm, "template", *arguments)
    assert done.returncode != 0, done.stdout
    return done.stderr


def one(manifests: list[Manifest], kind: str, name: str = "proxy-idemproxy") -> Manifest:
    (found,) = (item for item in manifests if item["kind"] == kind and item["metadata"]["name"] == name)
    return found


def pod_of(manifests: list[Manifest]) -> Manifest:
    pod: Manifest = one(manifests, "StatefulSet")["spec"]["template"]["spec"]
    return pod


def container_of(manifests: list[Manifest]) -> Manifest:
    (container,) = pod_of(manifests)["containers"]
    return dict(container)


def test_helm_is_there(helm: Path) -> None:
    assert re.match(r"v[34]\.", run_helm(helm, "version", "--short").stdout)


@pytest.mark.parametrize("file", CI_FILES, ids=lambda file: file.stem)
def test_every_example_passes_the_strict_linter(helm: Path, file: Path) -> None:
    done = run_helm(helm, "lint", "--strict", CHART, "--values", file)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("version", KUBERNETES_VERSIONS)
@pytest.mark.parametrize("file", CI_FILES, ids=lambda file: file.stem)
def test_every_example_renders_what_kubernetes_accepts(helm: Path, file: Path, version: str) -> None:
    manifests = render(helm, file)
    assert {"StatefulSet", "Service"} <= {manifest["kind"] for manifest in manifests}
    for manifest in manifests:
        kubernetes_validate.validate(manifest, version, strict=True)


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("replica", "replica"),
        ("redis__embeded", "embeded"),
        ("service__port", "port"),
        ("image__name", "name"),
        ("persistence__storageClassName", "storageClassName"),
        ("probes__liveness__path", "path"),
    ],
)
def test_a_misspelt_key_is_refused_by_its_name(helm: Path, key: str, name: str) -> None:
    assert f"'{name}' not allowed" in refusal(helm, upstream="kafka:9092", **{key: "x"})


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"redis__url": "redis://r"}, "upstream"),
        ({"upstream": "kafka", "redis__url": "redis://r"}, "upstream"),
        ({"upstream": "kafka:9092"}, "set redis.url or redis.existingSecret.name"),
        ({"upstream": "kafka:9092", "redis__url": "http://r"}, "/redis/url"),
        ({"upstream": "kafka:9092", "redis__url": "redis://r", "redis__embedded": True}, "only one of"),
        ({"upstream": "kafka:9092", "redis__embedded": True, "replicas": 2}, "serves one pod only"),
        ({"upstream": "kafka:9092", "redis__embedded": True, "persistence__enabled": False}, "lost with the pod"),
        ({"upstream": "kafka:9092", "redis__url": "redis://r", "brokerIds": []}, "brokerIds"),
        ({"upstream": "kafka:9092", "redis__url": "redis://r", "brokerIds": [1, 1]}, "brokerIds"),
        ({"upstream": "kafka:9092", "redis__url": "redis://r", "brokerIds": [60000]}, "above 65535"),
        ({"upstream": "kafka:9092", "redis__url": "redis://r", "service__type": "NodePort"}, "/service/type"),
        ({"upstream": "kafka:9092", "redis__url": "redis://r", "terminationGracePeriodSeconds": 10}, "minimum"),
        ({"upstream": "kafka:9092", "redis__url": "redis://r", "replicas": "2"}, "/replicas"),
    ],
)
def test_what_cannot_work_is_refused_with_words(helm: Path, values: dict[str, Any], words: str) -> None:
    assert words in refusal(helm, **values)


def test_every_key_of_the_values_is_in_the_schema_and_has_a_comment() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert set(schema["properties"]) - {"global"} == set(values)
    closed = [name for name, entry in schema["properties"].items() if "properties" in entry]
    for name in closed:
        assert schema["properties"][name]["additionalProperties"] is False, name
        assert set(values[name]) <= set(schema["properties"][name]["properties"]), name
    lines = (CHART / "values.yaml").read_text().splitlines()
    top = [number for number, line in enumerate(lines) if re.match(r"(replicas|upstream|brokerIds|cluster)\b", line)]
    assert all(lines[number - 1].startswith("# ") for number in top)


def test_the_pods_meet_the_restricted_pod_security_level(helm: Path) -> None:
    pod = pod_of(render_minimal(helm))
    container = container_of(render_minimal(helm))
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["automountServiceAccountToken"] is False
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert "limits" in container["resources"]
    assert all("hostPath" not in volume for volume in pod["volumes"])


def test_user_and_data_directory_are_those_of_the_image(helm: Path) -> None:
    dockerfile = (ROOT / "Dockerfile").read_text()
    manifests = render_minimal(helm)
    user = pod_of(manifests)["securityContext"]["runAsUser"]
    assert f"USER {user}:{user}" in dockerfile
    (data,) = (mount for mount in container_of(manifests)["volumeMounts"] if mount["name"] == "data")
    assert f"VOLUME {data['mountPath']}" in dockerfile
    assert f"--data-dir={data['mountPath']}" in container_of(manifests)["args"]


def test_the_ports_are_the_bootstrap_port_and_one_for_each_broker_id(helm: Path) -> None:
    manifests = render_minimal(helm, brokerIds=[0, 7, 1001], service__bootstrapPort=19092)
    expected = {"bootstrap": 19092, "broker-0": 19093, "broker-7": 19100, "broker-1001": 20094}
    assert {port["name"]: port["containerPort"] for port in container_of(manifests)["ports"]} == expected
    for name in ("proxy-idemproxy", "proxy-idemproxy-headless"):
        ports = one(manifests, "Service", name)["spec"]["ports"]
        assert {port["name"]: port["port"] for port in ports} == expected
        assert all(port["targetPort"] == port["name"] for port in ports)
    assert "--listen=0.0.0.0:19092" in container_of(manifests)["args"]
    assert all(len(name) <= 15 for name in expected)


def test_clients_are_told_the_services_name_or_the_one_that_was_set(helm: Path) -> None:
    inside = container_of(render_minimal(helm))["args"]
    assert "--advertise=proxy-idemproxy.streams.svc.cluster.local" in inside
    outside = container_of(render_minimal(helm, advertisedHost="kafka.example.com"))["args"]
    assert "--advertise=kafka.example.com" in outside


def test_the_services_select_the_pods(helm: Path) -> None:
    manifests = render_minimal(helm)
    labels = one(manifests, "StatefulSet")["spec"]["template"]["metadata"]["labels"]
    for name in ("proxy-idemproxy", "proxy-idemproxy-headless"):
        assert one(manifests, "Service", name)["spec"]["selector"].items() <= labels.items()
    assert one(manifests, "StatefulSet")["spec"]["serviceName"] == "proxy-idemproxy-headless"


def test_the_proxy_has_time_to_finish_before_it_is_killed(helm: Path) -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    least = schema["properties"]["terminationGracePeriodSeconds"]["minimum"]
    needed = limits.DRAIN_SECONDS + limits.ASK_SECONDS_MAX
    assert pod_of(render_minimal(helm))["terminationGracePeriodSeconds"] > least >= needed + 5


def test_the_probes_look_at_the_bootstrap_port(helm: Path) -> None:
    container = container_of(render_minimal(helm))
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[probe]["tcpSocket"] == {"port": "bootstrap"}


def test_the_redis_url_comes_from_a_secret_of_ours_or_of_the_user(helm: Path) -> None:
    ours = render_minimal(helm)
    (variable,) = container_of(ours)["env"]
    reference = variable["valueFrom"]["secretKeyRef"]
    assert one(ours, "Secret", reference["name"])["stringData"] == {reference["key"]: MINIMAL["redis.url"]}
    values = {"redis__url": "", "redis__existingSecret": {"name": "mine", "key": "address"}}
    theirs = render_minimal(helm, **values)
    (variable,) = container_of(theirs)["env"]
    assert variable["valueFrom"]["secretKeyRef"] == {"name": "mine", "key": "address"}
    assert [manifest for manifest in theirs if manifest["kind"] == "Secret"] == []


def test_an_embedded_redis_gets_no_url_and_a_volume(helm: Path) -> None:
    manifests = render_minimal(helm, redis__url="", redis__embedded=True)
    assert "env" not in container_of(manifests)
    assert not [argument for argument in container_of(manifests)["args"] if argument.startswith("--redis")]
    (claim,) = one(manifests, "StatefulSet")["spec"]["volumeClaimTemplates"]
    assert claim["metadata"]["name"] == "data"


def test_several_pods_are_not_all_taken_away_at_once(helm: Path) -> None:
    kinds = [manifest["kind"] for manifest in render_minimal(helm, replicas=1)]
    assert "PodDisruptionBudget" not in kinds
    budget = one(render_minimal(helm, replicas=3), "PodDisruptionBudget")
    assert budget["spec"]["maxUnavailable"] == 1


def test_two_releases_in_one_namespace_share_no_name(helm: Path) -> None:
    names: list[tuple[str, str]] = []
    for release in ("left", "right"):
        done = run_helm(helm, "template", release, CHART, "--values", CI_FILES[0])
        names += [(item["kind"], item["metadata"]["name"]) for item in yaml.safe_load_all(done.stdout) if item]
    assert len(names) == len(set(names)) > 2


def test_the_chart_installs_the_version_of_the_project() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert chart["name"] == project["name"]
    assert chart["appVersion"] == __import__("idemproxy").__version__


def test_the_notes_name_the_address_that_producers_need(helm: Path, tmp_path: Path) -> None:
    chart = tmp_path / "idemproxy"
    shutil.copytree(CHART, chart)
    # Only an installation prints the notes, so they are rendered as a template of their own.
    notes = (chart / "templates/NOTES.txt").read_text()
    wrapped = '{{ define "notes" }}' + notes + '{{ end }}\nkind: Notes\ntext: {{ include "notes" . | toJson }}\n'
    (chart / "templates/notes.yaml").write_text(wrapped)
    done = run_helm(helm, "template", "proxy", chart, "--values", CHART / "ci/replicas-values.yaml")
    assert done.returncode == 0, done.stderr
    (text,) = (item["text"] for item in yaml.safe_load_all(done.stdout) if item and item["kind"] == "Notes")
    assert "bootstrap.servers=kafka.example.com:19092" in text
    assert "broker 1003: 20096" in text

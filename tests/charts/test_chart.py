"""The chart in helm's own hands: what it accepts, what it refuses and with which words, and that its documents agree.
Nothing here needs a cluster."""

import json
import re
import shutil
import tomllib
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from charts.rendering import (
    CHART,
    CI_FILES,
    KUBERNETES_VERSIONS,
    MINIMAL,
    ROOT,
    Manifest,
    refusal,
    render,
    run_helm,
)

import idemproxy

OTHER_PEOPLES_KINDS = {"Certificate", "PrometheusRule", "ServiceMonitor", "TLSRoute"}
"""Of operators, not of Kubernetes; tests/charts/cluster.py applies them to a real API server."""


def test_helm_is_there(helm: Path) -> None:
    assert re.match(r"v[34]\.", run_helm(helm, "version", "--short").stdout)


@pytest.mark.parametrize("file", CI_FILES, ids=lambda file: file.stem)
def test_every_example_passes_the_strict_linter_without_a_warning(helm: Path, file: Path) -> None:
    done = run_helm(helm, "lint", "--strict", CHART, "--values", file)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    assert "WARNING" not in done.stdout


@pytest.mark.parametrize("version", KUBERNETES_VERSIONS)
@pytest.mark.parametrize("file", CI_FILES, ids=lambda file: file.stem)
def test_every_example_renders_what_kubernetes_accepts(helm: Path, file: Path, version: str) -> None:
    manifests = render(helm, file, kubernetes=version)
    kinds = {manifest["kind"] for manifest in manifests}
    assert {"StatefulSet", "Service", "ConfigMap"} <= kinds
    for manifest in manifests:
        if manifest["kind"] not in OTHER_PEOPLES_KINDS:
            kubernetes_validate.validate(manifest, version, strict=True)


def test_the_examples_render_every_kind_that_the_chart_has(helm: Path) -> None:
    templates = "".join(file.read_text() for file in (CHART / "templates").rglob("*.yaml"))
    kinds = set(re.findall(r"^kind: (\w+)", templates, re.MULTILINE))
    rendered = {manifest["kind"] for file in CI_FILES for manifest in render(helm, file)}
    assert kinds == rendered


# ---------------------------------------------------------------------- what is refused
@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("replica", "replica"),
        ("upstream__brokers", "brokers"),
        ("upstream__tls__ca", "ca"),
        ("redis__embeded", "embeded"),
        ("redis__bundled__size", "size"),
        ("listeners__clients__portt", "portt"),
        ("listeners__clients__tls__certManager__issuer", "issuer"),
        ("listeners__other__service__nodePort", "nodePort"),
        ("producers__owner", "owner"),
        ("limits__connections", "connections"),
        ("image__name", "name"),
        ("autoscaling__min", "min"),
        ("persistence__storageClassName", "storageClassName"),
        ("probes__liveness__path", "path"),
        ("networkPolicy__egress__to", "to"),
        ("prometheusRule__threshold", "threshold"),
        ("tracing__url", "url"),
        ("extraConfig__listener", "listener"),
        ("securityContext__readOnly", "readOnly"),
        ("podSecurityContext__privileged", "privileged"),
    ],
)
def test_a_misspelt_key_is_refused_by_its_name(helm: Path, key: str, name: str) -> None:
    assert f"'{name}' not allowed" in refusal(helm, **(MINIMAL | {key: "x"}))


SNI_LISTENER = {"listeners__clients__routing": "sni", "listeners__clients__tls": {"enabled": True, "secretName": "s"}}
CERT_MANAGER = {"enabled": True, "issuerRef": {"name": ""}}


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"upstream__bootstrap": []}, "upstream.bootstrap"),
        ({"upstream__bootstrap": ["kafka"]}, "/upstream/bootstrap/0"),
        ({"upstream__brokerIds": []}, "/upstream/brokerIds"),
        ({"upstream__brokerIds": [1, 1]}, "/upstream/brokerIds"),
        ({"replicas": "2"}, "/replicas"),
        ({"redis__url": ""}, "redis: set redis.url or redis.existingSecret.name"),
        ({"redis__url": "http://r"}, "/redis/url"),
        ({"redis__embedded": True}, "redis: set only one of"),
        ({"redis__url": "", "redis__embedded": True, "replicas": 2}, "redis.embedded: a private Redis serves one pod"),
        ({"redis__url": "", "redis__embedded": True, "autoscaling__enabled": True}, "redis.embedded: a private Redis"),
        ({"redis__url": "", "redis__embedded": True, "persistence__enabled": False}, "redis.embedded: without persist"),
        ({"redis__url": "", "redis__embedded": True, "persistence__whenDeleted": "Delete"}, "persistence.whenDeleted"),
        ({"redis__url": "", "redis__embedded": True, "redis__tls__enabled": True}, "no redis.passwordSecret and no"),
        ({"redis__url": "", "redis__bundled__enabled": True}, "redis.passwordSecret.name: redis.bundled needs"),
        (
            {"redis__url": "redis://:p@r", "redis__passwordSecret__name": "s"},
            "redis.passwordSecret.name: redis.url has",
        ),
        ({"redis__username": "u"}, "redis.username: it goes with redis.url or redis.existingSecret, and its password"),
        (
            {"upstream__sasl": {"mechanism": "PLAIN", "username": "u"}},
            "upstream.sasl: PLAIN needs username and password",
        ),
        ({"upstream__sasl__mechanism": "OAUTHBEARER"}, "upstream.sasl.tokenSecret.name: OAUTHBEARER needs"),
        ({"upstream__sasl__mechanism": "GSSAPI"}, "/upstream/sasl/mechanism"),
        ({"upstream__tls": {"enabled": True, "clientSecret": "s"}}, "listeners.clients.tls.clientAuth: its clients"),
        (
            {"listeners__clients__authentication": "pass_through"},
            "listeners.clients.authentication: pass_through needs",
        ),
        ({"listeners__clients__tls__clientCrlSecret__name": "s"}, "listeners.clients.tls.clientCrlSecret: without"),
        ({"listeners__clients__enabled": False}, "listeners: at least one way in"),
        ({"listeners__clients__port": 65535}, "listeners.clients.port: 1 brokers would get ports up to 65536"),
        ({"listeners__other": {"port": 9093}}, "listeners.other.port: port 9093 is that of listeners.clients"),
        ({"listeners__other": {"routing": "port"}}, "listeners.other.port: set it"),
        ({"admin__port": 9093}, "listeners.clients.port: port 9093 is that of admin.port already"),
        ({"listeners__clients__advertised": "kafka.example.com"}, "/listeners/clients/advertised"),
        ({"listeners__clients__tls__enabled": True}, "listeners.clients.tls.secretName: set a secret"),
        ({"listeners__clients__tls": {"enabled": True, "certManager": CERT_MANAGER}}, "issuerRef.name: set the issuer"),
        ({"listeners__clients__routing": "sni"}, "listeners.clients.routing: sni needs tls.enabled"),
        (
            SNI_LISTENER | {"listeners__clients__advertised": "k.example:9"},
            "listeners.clients.advertised: sni needs {id}",
        ),
        (SNI_LISTENER | {"listeners__clients__advertised": "k-{id}.example:9"}, "listeners.clients.bootstrapName: sni"),
        ({"listeners__clients__service__type": "NodePort"}, "listeners.clients.service.nodePortOffset: the nodes'"),
        ({"listeners__clients__service__port": 443}, "listeners.clients.service.port: with routing by port"),
        ({"listeners__clients__service__type": "ExternalName"}, "/listeners/clients/service/type"),
        ({"terminationGracePeriodSeconds": 30}, "terminationGracePeriodSeconds: 55 are needed"),
        ({"limits__drainSeconds": 60, "terminationGracePeriodSeconds": 75}, "terminationGracePeriodSeconds: 90 are"),
        ({"limits__drainSeconds": None}, "'drainSeconds'"),
        ({"admin__port": None}, "'port'"),
        ({"limits__connectionsMax": 0}, "/limits/connectionsMax"),
        ({"producers__clientRetrySecondsMax": 60}, "/producers/clientRetrySecondsMax"),
        ({"producers__appendReservations": "yes"}, "/producers/appendReservations"),
        ({"autoscaling": {"enabled": True, "minReplicas": 9}}, "autoscaling.minReplicas: more than"),
        (
            {"autoscaling__enabled": True, "resources__requests": {"cpu": None}},
            "autoscaling.enabled: resources.requests",
        ),
        ({"serviceMonitor__enabled": True}, "networkPolicy.adminFrom: with serviceMonitor.enabled"),
        ({"prometheusRule__enabled": True}, "prometheusRule.selector: without serviceMonitor.enabled"),
        ({"prometheusRule__selector": {"a-b": "c"}}, "/prometheusRule/selector"),
        ({"networkPolicy__egress__enabled": True}, "networkPolicy.egress.rules: with egress.enabled name the brokers"),
        (
            {"extraConfig": {"limits": {"drain_seconds": 60}}, "terminationGracePeriodSeconds": 80},
            "terminationGracePeriodSeconds: 90 are",
        ),
        (
            {"extraEnv": [{"name": "IDEMPROXY_LIMITS__DRAIN_SECONDS", "value": "60"}]},
            "extraEnv: IDEMPROXY_LIMITS__DRAIN_SECONDS takes precedence over limits.drainSeconds",
        ),
        ({"podLabels": {"app.kubernetes.io/name": "x"}}, "podLabels: app.kubernetes.io/name is a label of the chart's"),
        ({"podLabels": {"app.kubernetes.io/component": "x"}}, "podLabels: app.kubernetes.io/component is a label of"),
        ({"probes__liveness__successThreshold": 2}, "/probes/liveness/successThreshold"),
        ({"probes__startup__successThreshold": 2}, "/probes/startup/successThreshold"),
        ({"resources__limits": {"mem": "1Gi"}}, "/resources/limits"),
        ({"redis__bundled__maxmemory": "0"}, "/redis/bundled/maxmemory"),
        ({"tracing__sampleRatio": 2}, "/tracing/sampleRatio"),
        ({"image__digest": "sha256:1"}, "/image/digest"),
        (
            {"listeners__clients__gateway__parentRefs": [{"name": "g"}]},
            "listeners.clients.gateway.parentRefs: a TLSRoute",
        ),
        ({"listeners__clients__gateway__parentRefs": [{"section": "g"}]}, "/listeners/clients/gateway/parentRefs"),
        (
            SNI_LISTENER | {"listeners__clients__gateway__parentRefs": [{"name": "g"}]},
            "listeners.clients.gateway.parentRefs: a TLSRoute needs routing sni, and in advertised",
        ),
    ],
)
def test_what_cannot_work_is_refused_by_its_name(helm: Path, values: dict[str, Any], words: str) -> None:
    assert words in refusal(helm, **(MINIMAL | values))


def test_the_chart_as_it_is_passes_helms_linter(helm: Path) -> None:
    done = run_helm(helm, "lint", CHART)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_brokers_have_to_be_said(helm: Path) -> None:
    assert "upstream" in refusal(helm, redis__embedded=True)


# ---------------------------------------------------------------------- values and documentation
def test_the_values_and_their_schema_have_the_same_keys() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())

    def resolved(entry: Manifest) -> Manifest:
        return schema["$defs"][entry["$ref"].rpartition("/")[2]] if "$ref" in entry else entry

    def compare(entry: Manifest, value: Any, path: str) -> None:
        entry = resolved(entry)
        if path == ".listeners":
            compare(entry["additionalProperties"], value["clients"], path + ".clients")
        elif "properties" in entry:
            assert entry["additionalProperties"] is False, path
            optional = {"pullSecrets", "claims", "requests", "limits", "global"} if path != "" else {"global"}
            if not path.startswith((".probes.", ".extraConfig", ".securityContext", ".podSecurityContext")):
                assert set(entry["properties"]) - set(value) <= optional, path
            for name, one_value in value.items():
                if entry["properties"][name] is not True:
                    compare(entry["properties"][name], one_value, f"{path}.{name}")

    compare(schema, values, "")


def test_the_chart_installs_the_version_of_the_project() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert chart["name"] == project["name"]
    assert chart["appVersion"] == idemproxy.__version__


def test_the_notes_name_the_addresses_that_producers_need(helm: Path, tmp_path: Path) -> None:
    chart = tmp_path / "idemproxy"
    shutil.copytree(CHART, chart)
    # Only an installation prints the notes, so they are rendered as a template of their own.
    notes = (chart / "templates/NOTES.txt").read_text()
    wrapped = '{{ define "notes" }}' + notes + '{{ end }}\nkind: Notes\ntext: {{ include "notes" . | toJson }}\n'
    (chart / "templates/notes.yaml").write_text(wrapped)
    text = ""
    for example in ("replicas", "sni", "everything"):
        done = run_helm(helm, "template", "proxy", chart, "--values", CHART / f"ci/{example}-values.yaml")
        assert done.returncode == 0, done.stderr
        text += next(item["text"] for item in yaml.safe_load_all(done.stdout) if item and item["kind"] == "Notes")
    assert "bootstrap.servers=kafka.example.com:19092" in text
    assert "broker 1003: kafka.example.com:19095" in text
    assert "bootstrap.servers=kafka.example.com:443 (TLS)" in text
    assert "broker 3: broker-3.kafka.example.com:443" in text
    assert "bootstrap.servers=nodes.example.com:30092" in text
    assert "broker 2: nodes.example.com:30095" in text
    assert "{" not in text
    assert text.count("are off, for all") == 2
    assert "Clients of outside may arrive with the addresses of nodes" in text
    assert "Clients of nodes may arrive" in text

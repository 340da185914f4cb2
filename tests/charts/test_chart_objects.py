"""What the chart renders: its pods, and the Services, policies and certificates around them."""

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from charts.go_tools import folder_of
from charts.rendering import (
    CHART,
    MINIMAL,
    ROOT,
    Manifest,
    configuration_of,
    container_of,
    one,
    pod_of,
    render,
    render_minimal,
    run_helm,
)

from idemproxy.proxy import limits
from idemproxy.proxy.admin.health import CHECKS
from idemproxy.proxy.telemetry.otel import wants
from idemproxy.state.redis_server import WAIT_SECONDS_MAX

EVERYTHING = CHART / "ci/everything-values.yaml"
SNI = CHART / "ci/sni-values.yaml"


@pytest.mark.parametrize("file", [CHART / "ci/embedded-values.yaml", SNI, EVERYTHING], ids=lambda file: file.stem)
def test_every_pod_meets_the_restricted_pod_security_level(helm: Path, file: Path) -> None:
    manifests = render(helm, file)
    pods = [manifest["spec"]["template"]["spec"] for manifest in manifests if manifest["kind"] == "StatefulSet"]
    pods += [manifest["spec"] for manifest in manifests if manifest["kind"] == "Pod"]
    assert len(pods) >= 2
    for pod in pods:
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["runAsUser"] > 0
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod["automountServiceAccountToken"] is False
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod)
        assert all({"configMap", "emptyDir", "secret"} & set(volume) for volume in pod.get("volumes", []))
        for container in pod["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
                "readOnlyRootFilesystem": True,
            }
            assert "limits" in container["resources"]


def test_user_and_data_directory_are_those_of_the_image(helm: Path) -> None:
    dockerfile = (ROOT / "Dockerfile").read_text()
    manifests = render_minimal(helm)
    user = pod_of(manifests)["securityContext"]["runAsUser"]
    assert f"USER {user}:{user}" in dockerfile
    (data,) = (mount for mount in container_of(manifests)["volumeMounts"] if mount["name"] == "data")
    assert f"VOLUME {data['mountPath']}" in dockerfile
    assert configuration_of(manifests)["data_directory"] == data["mountPath"]
    # What is run by hand in a pod finds the configuration where the image has it: docs/how-to/run-book.md does so.
    (default,) = re.findall(r'^CMD \["run", "--config", "(\S+)"\]', dockerfile, re.MULTILINE)
    assert container_of(manifests)["args"] == ["run", f"--config={default}"]


def test_the_pods_are_replaced_when_the_configuration_or_the_redis_url_changes(helm: Path) -> None:
    def annotations(**values: Any) -> Manifest:
        found: Manifest = one(render_minimal(helm, **values), "StatefulSet")["spec"]["template"]["metadata"]
        return dict(found["annotations"])

    assert annotations() == annotations(replicas=2)
    assert annotations()["checksum/config"] != annotations(producers__appendReservations=False)["checksum/config"]
    assert annotations()["checksum/redis"] != annotations(redis__url="redis://other")["checksum/redis"]


@pytest.mark.promise("compared-6")
def test_the_proxy_has_time_to_finish_before_it_is_killed(helm: Path) -> None:
    pod = pod_of(render_minimal(helm, limits__drainSeconds=100, preStopSeconds=7))
    assert pod["terminationGracePeriodSeconds"] == 132 >= 7 + 100 + limits.ASK_SECONDS_MAX + 5 + 5 + 5
    (container,) = pod["containers"]
    assert container["lifecycle"]["preStop"]["exec"]["command"][-1] == "import time; time.sleep(7)"
    assert pod_of(render_minimal(helm, terminationGracePeriodSeconds=300))["terminationGracePeriodSeconds"] == 300
    assert configuration_of(render_minimal(helm))["limits"]["drain_seconds"] == limits.DRAIN_SECONDS
    private = pod_of(render_minimal(helm, redis__url="", redis__embedded=True))
    assert (
        private["terminationGracePeriodSeconds"]
        == 5 + 25 + 45
        >= 5 + 25 + limits.ASK_SECONDS_MAX + 10 + WAIT_SECONDS_MAX
    )


def test_the_probes_ask_the_admin_port(helm: Path) -> None:
    container = container_of(render_minimal(helm, admin__port=9999))
    paths = {"startupProbe": "/livez", "readinessProbe": "/readyz?exclude=redis", "livenessProbe": "/livez"}
    for probe, path in paths.items():
        assert container[probe]["httpGet"] == {"path": path, "port": "admin"}
    assert set(re.findall(r"exclude=(\w+)", "".join(paths.values()))) <= set(CHECKS)
    assert container["ports"][0] == {"name": "admin", "containerPort": 9999}
    assert configuration_of(render_minimal(helm, admin__port=9999))["admin"] == {"bind": "0.0.0.0:9999"}


def test_what_the_proxy_holds_at_most_fits_into_the_pods_memory(helm: Path) -> None:
    """What performance.md adds up, with the figures that it has for the process and for one producer."""
    memory = container_of(render_minimal(helm))["resources"]["limits"]["memory"]
    rows = (ROOT / "docs/explanation/performance.md").read_text()
    (process,) = re.findall(r"^\| the process, with admin port \| (\d+) MB \|$", rows, re.MULTILINE)
    (producer,) = re.findall(r"^\| each producer on a partition.*\| ([\d,]+) bytes \|$", rows, re.MULTILINE)
    (connections,) = re.findall(r"^\| 10,000 idle and 1,000 slow connections \| (\d+) MB \|$", rows, re.MULTILINE)
    (converted,) = re.findall(r"^\| one batch while it is converted \| (\d+) MiB \|$", rows, re.MULTILINE)
    held = 1.2 * (limits.REQUEST_BYTES_TOTAL_MAX + limits.RESPONSE_BYTES_TOTAL_MAX) + int(converted) * 2**20
    known = limits.SEQUENCERS_MAX * int(producer.replace(",", "")) + int(connections) * 10**6
    assert limits.CONNECTIONS_MAX == 10_000
    assert held + known + int(process) * 10**6 < int(memory.removesuffix("Mi")) * 2**20


def test_an_embedded_redis_gets_no_url_and_a_volume_that_stays(helm: Path) -> None:
    manifests = render_minimal(helm, redis__url="", redis__embedded=True)
    assert "env" not in container_of(manifests)
    assert "redis" not in configuration_of(manifests)
    workload = one(manifests, "StatefulSet")["spec"]
    assert [claim["metadata"]["name"] for claim in workload["volumeClaimTemplates"]] == ["data"]
    assert workload["persistentVolumeClaimRetentionPolicy"] == {"whenDeleted": "Retain", "whenScaled": "Retain"}


def test_the_redis_url_comes_from_a_secret_of_ours_or_of_the_user(helm: Path) -> None:
    ours = render_minimal(helm)
    (variable,) = container_of(ours)["env"]
    assert variable["name"] == "IDEMPROXY_REDIS__URL"
    reference = variable["valueFrom"]["secretKeyRef"]
    assert one(ours, "Secret", reference["name"])["stringData"] == {reference["key"]: MINIMAL["redis__url"]}
    theirs = render_minimal(helm, redis__url="", redis__existingSecret={"name": "mine", "key": "address"})
    (variable,) = container_of(theirs)["env"]
    assert variable["valueFrom"]["secretKeyRef"] == {"name": "mine", "key": "address"}
    assert [manifest for manifest in theirs if manifest["kind"] == "Secret"] == []


def test_no_secret_stands_in_the_configuration(helm: Path) -> None:
    manifests = render_minimal(helm, redis__url="redis://user:hush@redis:6379/0")
    assert "hush" not in json.dumps([item for item in manifests if item["kind"] != "Secret"])


def test_secrets_are_mounted_where_the_configuration_looks_for_them(helm: Path) -> None:
    manifests = render(helm, SNI)
    pod = pod_of(manifests)
    mounts = {mount["name"]: mount["mountPath"] for mount in container_of(manifests)["volumeMounts"]}
    files = {
        f"{mounts[volume['name']]}/{item['path']}"
        for volume in pod["volumes"]
        if "secret" in volume
        for item in volume["secret"]["items"]
    }

    def paths(value: Any) -> set[str]:
        if isinstance(value, dict):
            return {path for one_value in value.values() for path in paths(one_value)}
        if isinstance(value, list):
            return {path for one_value in value for path in paths(one_value)}
        return {value} if isinstance(value, str) and value.startswith("/etc/") else set()

    assert paths(configuration_of(manifests)) == files
    assert len(files) == 13


def test_what_a_user_adds_reaches_the_pod(helm: Path) -> None:
    manifests = render(helm, CHART / "ci/url-values.yaml")
    pod, container = pod_of(manifests), container_of(manifests)
    assert container["env"][-1] == {"name": "MALLOC_ARENA_MAX", "value": "2"}
    assert container["envFrom"] == [{"configMapRef": {"name": "proxies"}}]
    assert container["volumeMounts"][-1] == {"name": "journal", "mountPath": "/var/log/idemproxy"}
    assert [item["name"] for item in pod["containers"]] == ["proxy", "shipper"]
    assert [item["name"] for item in pod["initContainers"]] == ["wait"]
    assert "journal" in {volume["name"] for volume in pod["volumes"]}
    assert (pod["serviceAccountName"], pod["priorityClassName"]) == ("proxies", "high")
    assert [manifest for manifest in manifests if manifest["kind"] == "ServiceAccount"] == []
    assert container["image"].endswith("@sha256:" + 64 * "0")


def test_the_pods_are_spread_unless_the_user_says_how(helm: Path) -> None:
    keys = [item["topologyKey"] for item in pod_of(render_minimal(helm))["topologySpreadConstraints"]]
    assert keys == ["kubernetes.io/hostname", "topology.kubernetes.io/zone"]
    (own,) = pod_of(render(helm, CHART / "ci/replicas-values.yaml"))["topologySpreadConstraints"]
    assert own["whenUnsatisfiable"] == "DoNotSchedule"


def test_tracing_is_asked_for_by_the_standard_variables(helm: Path) -> None:
    container = container_of(render(helm, CHART / "ci/url-values.yaml"))
    variables = {variable["name"]: variable.get("value") for variable in container["env"]}
    assert variables["OTEL_EXPORTER_OTLP_ENDPOINT"] == "http://collector.monitoring:4317"
    assert variables["OTEL_EXPORTER_OTLP_PROTOCOL"] == "grpc"
    assert variables["OTEL_TRACES_SAMPLER_ARG"] == "0.5"
    assert wants("traces", variables)
    assert not wants("metrics", variables), "an endpoint for spans need not take metrics"
    both = container_of(render_minimal(helm, tracing={"endpoint": "http://c:4318", "metrics": True}))["env"]
    assert wants("metrics", {variable["name"]: str(variable.get("value")) for variable in both})
    assert not [name for name in str(container_of(render_minimal(helm)).get("env")).split() if "OTEL" in name]


# ---------------------------------------------------------------------- Services and other kinds
def test_the_ports_are_for_bootstrap_and_each_broker_id_in_its_order(helm: Path) -> None:
    manifests = render_minimal(helm, upstream__brokerIds=[0, 7, 1001], listeners__clients__port=19092)
    expected = {"bootstrap": 19092, "broker-0": 19093, "broker-7": 19094, "broker-1001": 19095}
    ports = one(manifests, "Service", "proxy-idemproxy-clients")["spec"]["ports"]
    assert {port["name"]: port["port"] for port in ports} == expected
    assert all(port["targetPort"] == port["port"] for port in ports)
    opened = {port["containerPort"] for port in container_of(manifests)["ports"]}
    assert opened == {*expected.values(), 9644}


def test_with_sni_there_is_one_port_and_a_name_for_each_broker(helm: Path) -> None:
    manifests = render(helm, SNI)
    inside = [item for item in manifests if item["kind"] == "Service" and "inside" in item["metadata"]["name"]]
    assert [item["metadata"]["name"].removeprefix("proxy-idemproxy-inside") for item in inside] == [
        "",
        "-broker-1",
        "-broker-2",
        "-broker-3",
    ]
    assert {port["port"] for item in inside for port in item["spec"]["ports"]} == {9093}
    outside = [item for item in manifests if item["kind"] == "Service" and "outside" in item["metadata"]["name"]]
    assert [item["spec"]["type"] for item in outside] == ["LoadBalancer"]
    assert outside[0]["spec"]["ports"] == [{"name": "bootstrap", "port": 443, "targetPort": 9094}]


def test_with_sni_the_port_of_a_service_is_the_advertised_one(helm: Path) -> None:
    listener = {"routing": "sni", "tls": {"enabled": True, "secretName": "s"}, "service": {"port": 443}}
    manifests = render_minimal(helm, listeners__clients=listener, upstream__brokerIds=[4])
    services = [item for item in manifests if item["kind"] == "Service" and "clients" in item["metadata"]["name"]]
    assert [(port["port"], port["targetPort"]) for item in services for port in item["spec"]["ports"]] == [
        (443, 9092)
    ] * 2
    told = configuration_of(manifests)["listeners"][0]
    assert (told["bind"], told["advertised"].rpartition(":")[2]) == ("0.0.0.0:9092", "443")
    (tested,) = (item for item in manifests if item["kind"] == "Pod")
    assert tested["spec"]["containers"][0]["args"][-1] == "proxy-idemproxy-clients:443:tls"


@pytest.mark.promise("compared-14")
def test_the_ports_of_the_nodes_are_the_advertised_ones(helm: Path) -> None:
    manifests = render(helm, EVERYTHING)
    ports = one(manifests, "Service", "proxy-idemproxy-nodes")["spec"]["ports"]
    assert [port["nodePort"] for port in ports] == [30092, 30093, 30094, 30095]
    told = configuration_of(manifests)["listeners"][1]["advertised"]
    assert told == "nodes.example.com:{port+11000}"


def test_the_services_select_the_proxys_pods_and_not_redis(helm: Path) -> None:
    manifests = render(helm, EVERYTHING)
    proxies = one(manifests, "StatefulSet")["spec"]["template"]["metadata"]["labels"]
    redis = one(manifests, "StatefulSet", "proxy-idemproxy-redis")["spec"]["template"]["metadata"]["labels"]
    for service in (item for item in manifests if item["kind"] == "Service"):
        selector = service["spec"]["selector"].items()
        is_redis = service["metadata"]["name"].endswith("-redis")
        assert (selector <= redis.items(), selector <= proxies.items()) == (is_redis, not is_redis)
    assert one(manifests, "StatefulSet")["spec"]["serviceName"] == "proxy-idemproxy-pods"


def test_several_pods_are_not_all_taken_away_at_once(helm: Path) -> None:
    kinds = [manifest["kind"] for manifest in render_minimal(helm, replicas=1)]
    assert "PodDisruptionBudget" not in kinds
    for several in ({"replicas": 3}, {"autoscaling__enabled": True}):
        budget = one(render_minimal(helm, **several), "PodDisruptionBudget")["spec"]
        assert (budget["maxUnavailable"], budget["unhealthyPodEvictionPolicy"]) == (1, "AlwaysAllow")
    # Here all pods may be unready and serve consumers.
    strict = render_minimal(helm, replicas=3, probes__readinessNeedsRedis=True)
    assert one(strict, "PodDisruptionBudget")["spec"]["unhealthyPodEvictionPolicy"] == "IfHealthyBudget"


@pytest.mark.parametrize(("version", "kind"), [("1.25", "resource"), ("1.33", "containerResource")])
def test_autoscaling_looks_at_the_cpu_and_leaves_the_replicas_alone(helm: Path, version: str, kind: str) -> None:
    manifests = render(helm, EVERYTHING, kubernetes=version)
    assert "replicas" not in one(manifests, "StatefulSet")["spec"]
    scaler = one(manifests, "HorizontalPodAutoscaler")["spec"]
    assert scaler["scaleTargetRef"] == {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "proxy-idemproxy"}
    (metric,) = scaler["metrics"]
    assert metric[kind]["name"] == "cpu"


def test_the_network_policy_admits_clients_to_their_ports_and_prometheus_to_admin(helm: Path) -> None:
    policy = one(render(helm, EVERYTHING), "NetworkPolicy")["spec"]
    clients, admin = policy["ingress"]
    opened = [*range(9092, 9096), *range(19092, 19096)]
    assert clients == {"ports": [{"port": port} for port in opened]}, "some network plug-ins pass over endPort"
    assert admin["ports"] == [{"port": 9644}]
    assert admin["from"][-1]["podSelector"]["matchLabels"] == {"app.kubernetes.io/name": "prometheus"}
    closed = one(render(helm, SNI), "NetworkPolicy")["spec"]
    assert closed["ingress"][0]["ports"] == [{"port": 9093}, {"port": 9094}]
    assert "producers" in json.dumps(closed["ingress"][0]["from"])
    assert closed["policyTypes"] == ["Ingress", "Egress"]
    assert {port["port"] for rule in closed["egress"] for port in rule["ports"]} == {53, 9093, 6380}


def test_certificates_have_the_advertised_names(helm: Path) -> None:
    manifests = render(helm, SNI)
    certificate = one(manifests, "Certificate", "proxy-idemproxy-inside")["spec"]
    host = "proxy-idemproxy-inside"
    names = [host, f"{host}-broker-1", f"{host}-broker-2", f"{host}-broker-3"]
    assert certificate["dnsNames"] == [f"{name}.streams.svc.cluster.local" for name in names]
    assert certificate["issuerRef"] == {"name": "inside", "kind": "ClusterIssuer", "group": "cert-manager.io"}
    mounted = {volume["secret"]["secretName"] for volume in pod_of(manifests)["volumes"] if "secret" in volume}
    assert {certificate["secretName"], "kafka-example-com"} <= mounted
    listener = configuration_of(manifests)["listeners"][0]
    assert listener["bootstrap_name"] == certificate["dnsNames"][0]


def test_two_releases_in_one_namespace_share_no_name(helm: Path) -> None:
    names: list[tuple[str, str]] = []
    for release in ("left", "right"):
        done = run_helm(helm, "template", release, CHART, "--values", EVERYTHING)
        names += [(item["kind"], item["metadata"]["name"]) for item in yaml.safe_load_all(done.stdout) if item]
    assert len(names) == len(set(names)) > 2


def test_long_names_are_cut_to_what_kubernetes_takes_and_stay_different(helm: Path, tmp_path: Path) -> None:
    values = yaml.safe_load(SNI.read_text())
    values["upstream"]["brokerIds"] = [2147483647]
    values["listeners"]["fifteen-letters"] = values["listeners"].pop("inside")
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(values))
    names: list[tuple[str, str]] = []
    for release in (
        "a-release-with-fifty-three-letters-is-the-longest-one",
        "a-release-with-fifty-three-letters-is-the-longest-two",
    ):
        done = run_helm(helm, "template", release, CHART, "--values", tmp_path / "values.yaml")
        names += [(item["kind"], item["metadata"]["name"]) for item in yaml.safe_load_all(done.stdout) if item]
    assert len(names) == len(set(names)) > 10
    assert 55 < max(len(name) for _, name in names) <= 63


def test_pods_are_not_replaced_by_a_new_chart_that_changes_nothing_of_theirs(helm: Path) -> None:
    for file in (CHART / "ci/embedded-values.yaml", EVERYTHING):
        for item in render(helm, file):
            if item["kind"] == "StatefulSet":
                labels = item["spec"]["template"]["metadata"]["labels"]
                assert "helm.sh/chart" not in labels
                assert item["spec"]["selector"]["matchLabels"].items() <= labels.items()


def test_labels_registry_aliases_dns_and_objects_of_the_user_are_taken(helm: Path) -> None:
    more = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "more-{{ .Release.Name }}"}}
    manifests = render_minimal(
        helm,
        commonLabels={"team": "streams"},
        global__imageRegistry="registry.example",
        hostAliases=[{"ip": "10.0.0.1", "hostnames": ["kafka"]}],
        dnsConfig={"options": [{"name": "ndots", "value": "2"}]},
        extraObjects=[more],
    )
    own = [item for item in manifests if item["metadata"]["name"] != "more-proxy"]
    assert len(own) == len(manifests) - 1, "the object of the user is there, filled in"
    assert {item["metadata"]["labels"]["team"] for item in own} == {"streams"}
    pod = pod_of(manifests)
    assert pod["hostAliases"] == [{"ip": "10.0.0.1", "hostnames": ["kafka"]}]
    assert pod["dnsConfig"]["options"][0]["name"] == "ndots"
    assert container_of(manifests)["image"].startswith("registry.example/idemproxy:")


def test_common_annotations_are_on_every_object_and_its_own_ones_override(helm: Path) -> None:
    manifests = render(helm, EVERYTHING, commonAnnotations={"team": "streams", "grafana_folder": "All"})
    assert {manifest["metadata"]["annotations"]["team"] for manifest in manifests} == {"streams"}
    folders = {item["metadata"]["name"]: item["metadata"]["annotations"]["grafana_folder"] for item in manifests}
    assert folders.pop("proxy-idemproxy-dashboard") == "Kafka"
    assert set(folders.values()) == {"All"}
    template = one(manifests, "StatefulSet")["spec"]["template"]["metadata"]
    assert "team" not in template["annotations"], "the pods would be replaced by an annotation"
    (hook,) = (item for item in manifests if item["kind"] == "Pod")
    assert hook["metadata"]["annotations"]["helm.sh/hook"] == "test"


# ---------------------------------------------------------------------- Gateway API
GATEWAY = CHART / "ci/gateway-values.yaml"


def tls_routes(manifests: list[Manifest]) -> list[Manifest]:
    return [item for item in manifests if item["kind"] == "TLSRoute"]


def test_a_gateway_routes_the_advertised_names(helm: Path) -> None:
    manifests = render(helm, GATEWAY)
    (route,) = tls_routes(manifests)
    host = "kafka.example.com"
    assert route["spec"]["hostnames"] == [host, *(f"broker-{number}.{host}" for number in (1, 2, 3))]
    assert route["spec"]["parentRefs"] == [{"name": "edge", "namespace": "gateways", "sectionName": "kafka"}]
    ((backend,),) = (rule["backendRefs"] for rule in route["spec"]["rules"])
    service = one(manifests, "Service", backend["name"])
    assert backend["port"] in {port["port"] for port in service["spec"]["ports"]}
    (certificate,) = (item for item in manifests if item["kind"] == "Certificate")
    assert certificate["spec"]["dnsNames"] == route["spec"]["hostnames"]
    assert configuration_of(manifests)["limits"]["connections_per_ip_max"] == 0, "all come with the gateway's address"


def test_more_names_than_a_route_takes_are_several_routes(helm: Path) -> None:
    routes = tls_routes(render(helm, GATEWAY, upstream__brokerIds=list(range(40))))
    names = [name for route in routes for name in route["spec"]["hostnames"]]
    assert [len(route["spec"]["hostnames"]) for route in routes] == [16, 16, 9]
    assert len(set(names)) == 41
    assert len({route["metadata"]["name"] for route in routes}) == 3


def test_the_routes_are_of_the_newest_version_that_kubernetes_has(helm: Path) -> None:
    def version(*has: str) -> str:
        asked = [word for one_version in has for word in ("--api-versions", f"{group}/{one_version}/TLSRoute")]
        done = run_helm(helm, "template", "proxy", CHART, "--values", GATEWAY, *asked)
        (route,) = tls_routes([item for item in yaml.safe_load_all(done.stdout) if item])
        return str(route["apiVersion"]).removeprefix(f"{group}/")

    group = "gateway.networking.k8s.io"
    assert version() == "v1"
    assert version("v1alpha2") == "v1alpha2"
    assert version("v1alpha2", "v1alpha3") == "v1alpha3"
    assert version("v1alpha2", "v1") == "v1"
    (route,) = tls_routes(render(helm, GATEWAY, listeners__outside__gateway__apiVersion=f"{group}/v1alpha3"))
    assert route["apiVersion"] == f"{group}/v1alpha3"


def test_the_route_has_the_fields_that_the_gateway_api_has(helm: Path) -> None:
    folder = folder_of("gateway", "sigs.k8s.io/gateway-api/apis/v1").parents[1] / "config/crd/standard"
    definition = yaml.safe_load((folder / "gateway.networking.k8s.io_tlsroutes.yaml").read_text())
    (schema,) = (
        version["schema"]["openAPIV3Schema"] for version in definition["spec"]["versions"] if version["name"] == "v1"
    )
    validator = jsonschema.Draft202012Validator(schema)
    for route in tls_routes(render(helm, GATEWAY, upstream__brokerIds=list(range(40)))):
        assert [error.message for error in validator.iter_errors(route)] == []
        assert set(route["spec"]) <= set(schema["properties"]["spec"]["properties"])
    assert list(validator.iter_errors(route | {"spec": {"hostnames": []}})) != []

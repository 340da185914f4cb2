"""Alerts and dashboard: every expression parses, every metric and label in it is one of the product's, and the alerts
say what they shall to series that promtool plays to them."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser as promql
import pytest
import yaml
from charts.rendering import CHART, ROOT, one, render, render_minimal

from idemproxy.proxy.telemetry.metric_names import METRICS
from testkit.real.machine.prometheus import Prometheus
from testkit.real.proxies.proxy_process import wait_until

EVERYTHING = CHART / "ci/everything-values.yaml"
SERIES = 'namespace="streams",job="proxy-idemproxy-pods"'
VARIABLES = {"$__rate_interval": "5m", "$__range": "6h", "$namespace": "n", "$job": "j", "$instance": "i"}
OF_PROMETHEUS = {"namespace", "job", "pod", "instance"}


def labels_of_series() -> dict[str, set[str]]:
    """Return the labels that each series on /metrics has."""
    found: dict[str, set[str]] = {"up": OF_PROMETHEUS}
    for metric in METRICS:
        labels = set(metric.labels) | OF_PROMETHEUS
        if metric.kind == "histogram":
            found |= {f"{metric.prometheus_name}_{part}": labels | {"le"} for part in ("bucket", "sum", "count")}
        else:
            found[metric.prometheus_name] = labels
    return found


def rules(helm: Path) -> list[dict[str, Any]]:
    (group,) = one(render(helm, EVERYTHING, prometheusRule__disabled=[]), "PrometheusRule")["spec"]["groups"]
    return list(group["rules"])


def panels() -> list[dict[str, Any]]:
    dashboard = json.loads((CHART / "files/dashboard.json").read_text())
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def expressions(helm: Path) -> Iterator[tuple[str, str]]:
    """All that Prometheus is asked: where it stands, and the text."""
    for rule in rules(helm):
        yield rule["alert"], rule["expr"]
    for panel in panels():
        for target in panel["targets"]:
            yield panel["title"], as_prometheus_gets_it(target["expr"])


def as_prometheus_gets_it(text: str) -> str:
    """Return an expression of the dashboard with a value for each of Grafana's variables."""
    for variable, value in VARIABLES.items():
        text = text.replace(variable, value)
    return text


def nodes(tree: Any) -> Iterator[Any]:
    yield tree
    for name in ("lhs", "rhs", "expr", "vector_selector", "param"):
        if getattr(tree, name, None) is not None:
            yield from nodes(getattr(tree, name))
    for argument in getattr(tree, "args", None) or []:
        yield from nodes(argument)


def test_alerts_and_dashboard_ask_only_for_metrics_and_labels_that_the_product_has(helm: Path) -> None:
    series = labels_of_series()
    problems: list[str] = []
    for place, text in expressions(helm):
        selected: set[str] = set()
        grouped: set[str] = set()
        for node in nodes(promql.parse(text)):
            if isinstance(node, promql.VectorSelector):
                name = node.name or "a series without a name"
                unknown = {matcher.name for matcher in node.matchers.matchers} - series.get(name, set())
                problems += [f"{place}: {name} has no label {label}" for label in unknown if name in series]
                problems += [f"{place}: there is no {name}"] * (name not in series)
                selected |= series.get(name, set())
            elif isinstance(node, promql.AggregateExpr) and node.modifier is not None:
                grouped |= set(node.modifier.labels)
        problems += [f"{place}: nothing has the label {label}" for label in grouped - selected]
    assert problems == []


def test_every_metric_of_the_product_is_on_the_dashboard_or_in_an_alert(helm: Path) -> None:
    asked = " ".join(text for _, text in expressions(helm))
    missing = [metric.prometheus_name for metric in METRICS if metric.prometheus_name not in asked]
    assert missing == []


def test_every_selector_is_bound_to_the_release(helm: Path) -> None:
    for place, text in expressions(helm):
        for node in nodes(promql.parse(text)):
            if isinstance(node, promql.VectorSelector):
                assert {"namespace", "job"} <= {matcher.name for matcher in node.matchers.matchers}, place


def test_no_panel_draws_the_same_series_twice() -> None:
    for panel in panels():
        asked = [target["expr"] for target in panel["targets"]]
        assert len(asked) == len(set(asked)), panel["title"]


def test_the_dashboard_works_where_series_have_no_namespace_and_chooses_single_instances() -> None:
    """Off Kubernetes the label namespace is missing, which only a pattern that fits nothing as well selects."""
    variables = json.loads((CHART / "files/dashboard.json").read_text())["templating"]["list"]
    chosen = {one["name"]: one for one in variables if one["type"] == "query"}
    assert list(chosen) == ["namespace", "job", "instance"]
    assert all(one["includeAll"] and one["allValue"] == ".*" for one in chosen.values())
    for panel in panels():
        for target in panel["targets"]:
            for name in chosen:
                assert target["expr"].count(f'{name}=~"${name}"') == target["expr"].count("{"), panel["title"]
            assert "{{pod}}" not in target["legendFormat"], panel["title"]


def test_single_numbers_are_those_of_the_end_of_the_chosen_time() -> None:
    """The last number in a range may be hours old: of pods that are gone it would say that they serve."""
    numbers = [panel for panel in panels() if panel["type"] == "stat"]
    assert len(numbers) == 8
    for panel in numbers:
        assert all(target["instant"] and not target["range"] for target in panel["targets"]), panel["title"]


def test_no_data_has_not_the_colour_of_good_news() -> None:
    """But for the proxies that serve: there, none is bad news."""
    coloured = [panel for panel in panels() if panel.get("options", {}).get("colorMode") == "background"]
    assert {panel["type"] for panel in coloured} == {"stat"}
    for panel in coloured:
        defaults = panel["fieldConfig"]["defaults"]
        colours = [one["options"]["result"]["color"] for one in defaults.get("mappings", [])]
        assert colours == ["gray"] or defaults["thresholds"]["steps"][0]["color"] == "red", panel["title"]


def test_what_is_drawn_together_has_one_unit() -> None:
    """Bytes, seconds and numbers of things each have panels of their own."""
    units = {"_bytes": {"Bps", "percentunit"}, "_seconds": {"s"}, "_seconds_bucket": {"s"}}
    for panel in panels():
        for target in panel["targets"]:
            for node in nodes(promql.parse(as_prometheus_gets_it(target["expr"]))):
                if isinstance(node, promql.VectorSelector) and node.name is not None:
                    ending = re.search(r"_bytes|_seconds(_bucket)?$", node.name)
                    wanted = units.get(ending.group()) if ending else None
                    unit = panel["fieldConfig"]["defaults"]["unit"]
                    assert wanted is None or unit in wanted, f"{panel['title']}: {node.name} as {unit}"


def test_refused_connections_are_drawn_by_their_reason() -> None:
    asked = [target["expr"] for panel in panels() for target in panel["targets"]]
    assert any("by (reason) (rate(idemproxy_connections_refused_total" in text for text in asked)


def test_legends_and_texts_name_only_labels_that_the_expression_leaves(helm: Path) -> None:
    for rule in rules(helm):
        used = set(re.findall(r"\$labels\.(\w+)", json.dumps(rule["annotations"])))
        tree = promql.parse(rule["expr"])
        sums = [node.modifier for node in nodes(tree) if isinstance(node, promql.AggregateExpr)]
        left = OF_PROMETHEUS if not sums else set() if sums[0] is None else set(sums[0].labels)
        assert used <= left, rule["alert"]
    for panel in panels():
        for target in panel["targets"]:
            used = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            named = re.findall(r" by \(([^)]*)\)", target["expr"])
            assert used <= {name.strip() for group in named for name in group.split(",")}, panel["title"]


def test_the_panels_do_not_overlap_and_have_a_description() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in json.loads((CHART / "files/dashboard.json").read_text())["panels"]:
        place = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not cells & taken, panel["title"]
        assert all(x < 24 for x, _ in cells)
        taken |= cells
        assert panel["type"] == "row" or panel["description"].endswith("."), panel["title"]
    numbers = [panel["id"] for panel in json.loads((CHART / "files/dashboard.json").read_text())["panels"]]
    assert len(numbers) == len(set(numbers))


def test_the_dashboard_reaches_grafanas_sidecar_unchanged(helm: Path) -> None:
    config = one(render(helm, EVERYTHING), "ConfigMap", "proxy-idemproxy-dashboard")
    assert config["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert config["metadata"]["annotations"] == {"grafana_folder": "Kafka"}
    assert json.loads(config["data"]["idemproxy.json"]) == json.loads((CHART / "files/dashboard.json").read_text())


def test_prometheus_finds_the_admin_port_of_every_pod(helm: Path) -> None:
    manifests = render(helm, EVERYTHING)
    monitor = one(manifests, "ServiceMonitor")
    chosen = monitor["spec"]["selector"]["matchLabels"].items()
    services = [
        item for item in manifests if item["kind"] == "Service" and chosen <= item["metadata"]["labels"].items()
    ]
    assert [service["metadata"]["name"] for service in services] == ["proxy-idemproxy-pods"]
    (endpoint,) = monitor["spec"]["endpoints"]
    assert endpoint["port"] in {port["name"] for port in services[0]["spec"]["ports"]}
    # The job that the alerts look for is the Service's name.
    assert f'job="{services[0]["metadata"]["name"]}"' in rules(helm)[0]["expr"]
    assert monitor["metadata"]["labels"]["release"] == "prometheus"


def test_alerts_can_be_left_out_and_bear_the_users_labels(helm: Path) -> None:
    (group,) = one(render(helm, EVERYTHING), "PrometheusRule")["spec"]["groups"]
    left = {rule["alert"] for rule in rules(helm)} - {rule["alert"] for rule in group["rules"]}
    assert left == {"IdemproxySlow"}
    assert {rule["labels"]["team"] for rule in group["rules"]} == {"streams"}
    assert {rule["labels"]["severity"] for rule in group["rules"]} == {"critical", "warning"}


def test_the_alerts_go_by_the_labels_and_the_number_of_pods_that_were_said(helm: Path) -> None:
    def missing(**values: Any) -> dict[str, Any]:
        values |= {"prometheusRule__enabled": True, "networkPolicy__adminFrom": [{"podSelector": {}}]}
        (group,) = one(render_minimal(helm, **values), "PrometheusRule")["spec"]["groups"]
        (rule,) = (rule for rule in group["rules"] if rule["alert"] == "IdemproxyPodMissing")
        return dict(rule)

    named = missing(prometheusRule__selector={"job": "kafka/proxy", "team": "streams"}, replicas=3)
    assert named["expr"] == 'count(up{job="kafka/proxy",team="streams"} == 1) < 3'
    assert "of 3 pod(s)" in named["annotations"]["description"]
    own = missing(serviceMonitor__enabled=True, autoscaling={"enabled": True, "minReplicas": 4})
    assert own["expr"].endswith("== 1) < 4")


def test_without_being_asked_for_nothing_of_other_peoples_operators_is_rendered(helm: Path) -> None:
    assert [item["kind"] for item in render_minimal(helm) if "monitoring" in item["apiVersion"]] == []


def test_the_alerts_say_what_they_shall(helm: Path, promtool: Path, tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": [{"name": "all", "rules": rules(helm)}]}))
    cases = (ROOT / "tests/charts/alerts_test.yaml").read_text()
    (tmp_path / "cases.yaml").write_text(cases.replace("SERIES", SERIES))
    checked = subprocess.run([promtool, "check", "rules", "rules.yaml"], cwd=tmp_path, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    done = subprocess.run([promtool, "test", "rules", "cases.yaml"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_real_prometheus_takes_every_expression(helm: Path, tmp_path: Path) -> None:
    """The parser that the other tests have is another program than Prometheus."""
    groups = {"groups": [{"name": "all", "rules": rules(helm)}]}
    with Prometheus(tmp_path, {"global": {"evaluation_interval": "1s"}}, groups) as prometheus:
        refused = []
        for place, text in expressions(helm):
            try:
                prometheus.query(text)
            except ValueError as error:
                refused.append(f"{place}: {error}")
        wait_until(lambda: {rule["health"] for rule in told_of(prometheus)} == {"ok"}, "every alert is evaluated")
        assert refused == []
        assert {rule["name"] for rule in told_of(prometheus)} == {rule["alert"] for rule in rules(helm)}
        with pytest.raises(ValueError, match="parse error"):
            prometheus.query("sum by (le (up)")


def told_of(prometheus: Prometheus) -> list[dict[str, Any]]:
    """What Prometheus says of the alerts that it was given."""
    return [rule for group in prometheus.ask("rules")["data"]["groups"] for rule in group["rules"]]


def test_every_alert_that_is_more_than_a_quotient_is_played_to() -> None:
    names = {item["alert"] for item in yaml.safe_load((CHART / "files/alerts.yaml").read_text())}
    played = set(re.findall(r"Idemproxy\w+", (ROOT / "tests/charts/alerts_test.yaml").read_text()))
    plain = {"MemoryNearLimit", "Slow"}
    assert names - played == {f"Idemproxy{name}" for name in plain}


@pytest.mark.parametrize("level", ["critical", "warning"])
def test_every_alert_says_what_it_means_in_sentences(level: str) -> None:
    for item in yaml.safe_load((CHART / "files/alerts.yaml").read_text()):
        if item["severity"] == level:
            assert re.fullmatch(r"[A-Z].*[^.]", item["summary"])
            assert item["description"].strip().endswith(".")

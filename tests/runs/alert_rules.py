"""Writes the alerts of the chart as a rule file for a Prometheus without Kubernetes, whose series have no pod and no
namespace, but the instance that was scraped. ``make alert-rules``."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
ALERTS = ROOT / "charts/idemproxy/files/alerts.yaml"
RULES = ROOT / "deploy/prometheus/idemproxy.rules.yaml"
LEFT_OUT = ("IdemproxyPodMissing",)
"""Nobody says there how many there should be."""
_BEGINNING = """\
# Alerts of idemproxy for Prometheus (rule_files), made from those of the chart. The scrape job is named idemproxy:
#   scrape_configs: [{job_name: idemproxy, static_configs: [{targets: ['proxy-1.example:9644']}]}]
"""
_VALUES = {"SELECTOR": 'job="idemproxy"', "UNKNOWN_OUTCOME_AGE_SECONDS": "60", "CERTIFICATE_SECONDS": str(7 * 86_400)}


def rules_text() -> str:
    """Return the content of the file."""
    rules = [_rule(one) for one in yaml.safe_load(ALERTS.read_text()) if one["alert"] not in LEFT_OUT]
    groups = {"groups": [{"name": "idemproxy", "rules": rules}]}
    return _BEGINNING + yaml.safe_dump(groups, sort_keys=False, width=120)


def _rule(one: dict[str, Any]) -> dict[str, Any]:
    rule = {"alert": one["alert"], "expr": _plain(one["expr"])}
    if "for" in one:
        rule["for"] = one["for"]
    texts = {name: _plain(one[name]) for name in ("summary", "description")}
    return rule | {"labels": {"severity": one["severity"]}, "annotations": texts}


def _plain(text: str) -> str:
    for name, value in _VALUES.items():
        text = text.replace(name, value)
    text = text.replace("namespace, pod", "instance").replace("$labels.pod", "$labels.instance")
    text = text.replace("(namespace", "(job").replace(" of this release", "")
    return re.sub(r"\bpods\b", "proxies", re.sub(r"\bpod\b", "proxy", re.sub(r"\bA pod\b", "A proxy", text))).strip()


if __name__ == "__main__":
    RULES.parent.mkdir(exist_ok=True)
    RULES.write_text(rules_text())

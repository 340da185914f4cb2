"""The generated parts of the reference have everything that the code has: docs/site/references.py."""

from __future__ import annotations

import re
from pathlib import Path

import references
from idemproxy import client
from idemproxy.proxy import limits
from idemproxy.proxy.settings.load import schema
from idemproxy.proxy.telemetry.metric_names import METRICS, SUPERVISOR_METRICS
from testkit.real.clients.old_configurations import CONFIGURATIONS
from testkit.style import anchors_of

PAGES = Path(__file__).resolve().parents[3] / "docs/reference"
CLIENT_SECTIONS = ("One client connection", "TLS", "SASL")
"""Of limits.py: a limit that is added there is added to the page."""
INNER = {
    "BACKLOG_BYTES",
    "BACKLOG_LOOK_SECONDS",
    "PAUSED_LOOK_SECONDS",
    "REST_LOOK_SECONDS",
    "SEARCHED_REQUEST_BYTES_MAX",
    "IDLE_LOOK_SECONDS",
    "QUIET_LOOK_SECONDS",
    "TURNED_AWAY_SHARE",
    "DESCRIPTORS_PER_CLIENT",
    "DESCRIPTORS_PER_OLD_CLIENT",
    "HOSTS_RESOLVED_MAX",
    "RESOLVE_SECONDS_MAX",
    "STANDSTILL_LOOK_SECONDS",
    "STANDSTILL_SECONDS",
    "CERTIFICATE_LOOK_SECONDS",
    "CERTIFICATE_WARN_DAYS",
    "SASL_BACKOFF_SECONDS_MIN",
    "SASL_BACKOFF_SECONDS_MAX",
}
"""No limit to a client, but a pace of the proxy's own."""


def built(name: str) -> str:
    """A page of the reference as the site has it."""
    return references.with_references((PAGES / name).read_text())


def test_every_setting_has_a_heading_with_its_text() -> None:
    text, anchors = built("settings.md"), anchors_of(built("settings.md"))
    for section in schema()["$defs"].values():
        for name, about in section["properties"].items():
            assert any(anchor.endswith(name.replace(".", "")) for anchor in anchors), name
            if "description" in about:
                assert about["description"].replace("\n", " ") in text, name
    assert "upstreambootstrap" in anchors
    assert "Type: `text`, `json`; default: `text`; variable: `IDEMPROXY_LOG__FORMAT`; taken over by a reload." in text


def test_every_command_is_shown_with_its_help() -> None:
    anchors = anchors_of(built("command-line.md"))
    assert {"idemproxy-run", "idemproxy-check", "idemproxy-hide-add", "idemproxy-audit", "idemproxy-demo"} <= anchors


def test_every_metric_has_a_row() -> None:
    rows = re.findall(r"^\| `(idemproxy_\w+)` \| (.*) \*(\w+)\b.*\.\* \|$", built("metrics.md"), re.MULTILINE)
    expected = [(one.prometheus_name, one.help, one.kind.capitalize()) for one in (*METRICS, *SUPERVISOR_METRICS)]
    assert rows == expected


def test_every_value_of_the_chart_has_a_row() -> None:
    text = built("helm-values.md")
    values = (references.ROOT / "charts/idemproxy/README.md").read_text().partition("\n## Values\n")[2]
    assert text.count("\n| `") == values.count("\n| ") - 1 > 100


def test_every_public_name_of_the_client_has_a_heading() -> None:
    text = built("client-api.md")
    for name in client.__all__:
        assert re.search(rf"^### {name}$", text, re.MULTILINE), name
    assert "#### Client.init_producer_id" in text


def test_every_limit_of_clients_is_on_the_page_with_its_value_and_setting() -> None:
    source = Path(limits.__file__ or "").read_text()
    page = (PAGES / "limits.md").read_text()
    named = re.findall(r"\{([A-Z_]+)\}", page)
    assert len(named) == len(set(named)), "each once"
    for title in CLIENT_SECTIONS:
        section = re.split(r"\n# ", source.partition(f"\n# {title}\n")[2])[0]
        assert set(re.findall(r"^([A-Z_]+): Final", section, re.MULTILINE)) - INNER - set(named) == set()
    assert "| client connections | 10,000 (`limits.connections_max`) |" in built("limits.md")
    settings = set(re.findall(r"\(`([\w.]+)`\)", built("limits.md")))
    fields = {f"limits.{field}" for field in schema()["$defs"]["LimitsSection"]["properties"]}
    assert fields - settings == {"limits.drain_seconds"}, "every setting stands next to the limit that is its default"


def test_every_old_client_is_shown_as_its_last_run_came_out() -> None:
    shown = {row.split(" | ")[0].removeprefix("| "): row for row in references.old_clients().splitlines()[2:]}
    assert shown.keys() == CONFIGURATIONS.keys()
    for name, configuration in CONFIGURATIONS.items():
        _, produces, reads, _ = (cell.strip() for cell in shown[name].strip("| ").split(" | "))
        assert set(produces.split(", ")) == set(configuration.codecs), name
        wanted = {"group": "in a group", "simple": "alone", "times": "by time"}
        assert reads == (", ".join(wanted[one] for one in configuration.readings) or "–"), name
    page = (PAGES.parent / "how-to" / "old-clients.md").read_text()
    assert references.old_clients() in references.with_references(page)

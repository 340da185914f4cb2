"""The configuration file that the chart renders, in the product's own hands: `idemproxy check` takes every example, and
each value of the chart has the name, the bounds and the default of the setting that it becomes."""

import json
import os
import re
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import trustme
import yaml
from charts.node import PROXY, NodePod
from charts.rendering import CHART, CI_FILES, ROOT, configuration_of, pod_of, render, render_minimal

SECTIONS = ("producers", "topics", "old_clients", "hidden_ranges", "limits", "log")
TAKEN_OTHERWISE = {
    "upstream": set(),
    "upstream.sasl": {"password", "password_file", "token_file"},
    "upstream.tls": {"ca_file", "cert_file", "key_file", "key_password", "key_password_file", "security_level"},
    "redis": {"password", "password_file"},
    "listeners": {"name", "bind", "first_broker_port", "broker_ids"},
    "listeners.tls": {
        "cert_file",
        "key_file",
        "key_password",
        "key_password_file",
        "client_ca_file",
        "client_crl_file",
    },
}
"""Of the settings: what the chart makes itself, has in another form, or leaves to ``extraConfig``."""
OWN_DEFAULTS = {"log.format"}
"""Values whose default is another one in the chart, on purpose."""


def camel_case(name: str) -> str:
    return re.sub(r"_(\w)", lambda letter: letter[1].upper(), name)


@cache
def product_schema() -> dict[str, Any]:
    schema: dict[str, Any] = json.loads((ROOT / "docs/configuration.schema.json").read_text())
    return schema


def fields(section: str) -> dict[str, Any]:
    properties: dict[str, Any] = resolved(product_schema()["properties"][section])["properties"]
    return properties


def resolved(entry: dict[str, Any]) -> dict[str, Any]:
    """Return the object that a property of the schema is, or a list of."""
    for several in ("anyOf", "allOf"):
        if several in entry:
            (entry,) = (one for one in entry[several] if one.get("type") != "null")
    entry = entry.get("items", entry)
    reference = entry.get("$ref")
    found: dict[str, Any] = product_schema()["$defs"][reference.rpartition("/")[2]] if reference else entry
    return found


@cache
def values() -> dict[str, Any]:
    whole: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
    return whole


class Anything(dict[str, str]):
    """A secret that has every key: a certificate for those that want one, else a word."""

    def __init__(self) -> None:
        super().__init__()
        authority = trustme.CA()
        issued = authority.issue_cert("localhost")
        self._texts = {
            "tls.crt": b"".join(blob.bytes() for blob in issued.cert_chain_pems).decode(),
            "tls.key": issued.private_key_pem.bytes().decode(),
        }
        self._authority = authority.cert_pem.bytes().decode()

    def __missing__(self, key: str) -> str:
        if key == "address":
            return "redis://redis.example:6379/0"
        return self._texts.get(key, "word" if key in ("password", "token") else self._authority)


class EverySecret(dict[str, Anything]):
    def __missing__(self, name: str) -> Anything:
        self[name] = Anything()
        return self[name]


@pytest.mark.parametrize("file", CI_FILES, ids=lambda file: file.stem)
def test_the_product_takes_the_configuration_of_every_example(helm: Path, file: Path, tmp_path: Path) -> None:
    manifests = render(helm, file)
    pod = NodePod(tmp_path, manifests, pod_of(manifests), EverySecret())
    command: list[str | Path] = [
        *PROXY,
        "check",
        pod.fill_volumes()["/etc/idemproxy"] / "idemproxy.yaml",
        "--effective",
    ]
    environment = os.environ | pod.environment()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "word" not in re.sub("password", "", done.stdout)


@pytest.mark.parametrize("lines", [None, 0, 500])
def test_how_many_lines_clients_may_cause_stands_there_if_it_was_said(helm: Path, lines: int | None) -> None:
    log = configuration_of(render_minimal(helm, log__linesPerMinuteMax=lines))["log"]
    assert log.get("lines_per_minute_max") == lines


@pytest.mark.parametrize("section", SECTIONS)
def test_every_setting_of_a_section_is_a_value_with_the_same_bounds(section: str) -> None:
    chart = json.loads((CHART / "values.schema.json").read_text())["properties"][camel_case(section)]["properties"]
    product = fields(section)
    assert set(chart) == {camel_case(name) for name in product}
    for name, field in product.items():
        entry = chart[camel_case(name)]
        for bound in ("minimum", "maximum", "enum"):
            if bound in field:
                assert entry.get(bound) == field[bound], f"{section}.{name}: {bound}"
    for name, value in values()[camel_case(section)].items():
        setting = next(field for field in product if camel_case(field) == name)
        if value not in (None, []) and f"{section}.{setting}" not in OWN_DEFAULTS:
            assert value == product[setting]["default"], f"{section}.{name}"


@pytest.mark.parametrize("path", TAKEN_OTHERWISE)
def test_settings_of_longer_sections_are_values_or_made_by_the_chart(path: str) -> None:
    section: dict[str, Any] = {"properties": product_schema()["properties"]}
    at: Any = values() | {"listeners": values()["listeners"]["clients"]}
    for name in path.split("."):
        section = resolved(section["properties"][name])
        at = at[name]
    missing = {name for name in section["properties"] if camel_case(name) not in at}
    assert missing == TAKEN_OTHERWISE[path]


def test_every_section_is_a_value_too_or_made_by_the_chart() -> None:
    top = set(product_schema()["properties"])
    made_or_rare = {"data_directory", "workers"}  # more pods are more workers; extraConfig takes both
    assert {name for name in top if camel_case(name) not in values()} == made_or_rare


def test_values_become_the_settings_of_their_name(helm: Path) -> None:
    configuration = configuration_of(render(helm, CHART / "ci/url-values.yaml"))
    assert configuration["producers"] == {
        "expiry_seconds": 86400,
        "client_retry_seconds_max": 1200,
        "append_reservations": True,
        "dropped_headers": ["trace-*"],
        "names": ["orders-*"],
        "upstream_idempotence": ["kafka-go-*"],
    }
    assert configuration["limits"] == {"connections_max": 5000, "drain_seconds": 60}
    assert configuration["hidden_ranges"] == {"topic": "second-copies"}
    assert configuration["old_clients"] == {"translate": "always", "fetch": "committed", "timestamps": "missing"}
    assert configuration["log"] == {"level": "debug", "format": "text"}
    assert configuration["journal"] == "/var/log/idemproxy/journal.jsonl"
    assert configuration["listeners"][0]["bind"] == "[::]:9092"
    assert configuration["admin"] == {"bind": "[::]:9644"}


def test_a_journal_is_a_path_or_has_its_settings(helm: Path) -> None:
    path = "/var/log/idemproxy/journal.jsonl"
    journal = {"path": path, "rotateBytes": 1 << 31, "keepFiles": 0, "fsyncSeconds": 0.5, "required": True}
    assert configuration_of(render_minimal(helm, journal=journal))["journal"] == {
        "path": path,
        "rotate_bytes": 1 << 31,
        "keep_files": 0,
        "fsync_seconds": 0.5,
        "required": True,
    }
    assert configuration_of(render_minimal(helm, journal={"path": path}))["journal"] == {"path": path}
    assert "journal" not in configuration_of(render_minimal(helm, journal=""))


def test_large_numbers_stay_numbers(helm: Path) -> None:
    configuration = configuration_of(render_minimal(helm, limits__requestBytesTotalMax=1073741824))
    assert configuration["limits"]["request_bytes_total_max"] == 1073741824


def test_what_the_user_adds_to_the_configuration_goes_before_what_the_chart_writes(helm: Path) -> None:
    more = {"log": {"level": "warning"}, "limits": {"producers_max": 5}}
    configuration = configuration_of(render_minimal(helm, extraConfig=more))
    assert configuration["log"] == {"level": "warning", "format": "json"}
    assert configuration["limits"]["producers_max"] == 5
    assert configuration["limits"]["drain_seconds"] == 25


def test_weak_brokers_are_a_matter_of_what_the_user_adds(helm: Path) -> None:
    weak = {"security_level": 0, "minimum_version": "1.0"}
    more = {"upstream": {"tls": weak}}
    configuration = configuration_of(render_minimal(helm, upstream__tls__enabled=True, extraConfig=more))
    assert configuration["upstream"]["tls"] == weak
    assert configuration["upstream"]["bootstrap"]


# ---------------------------------------------------------------------- the page of values
def leaves(value: Any, path: str = "") -> dict[str, Any]:
    """Return what is set where: the ends of the values, and empty objects and lists."""
    if isinstance(value, dict) and value:
        return {key: end for name, inner in value.items() for key, end in leaves(inner, f"{path}.{name}").items()}
    return {path.lstrip("."): value}


def test_the_page_of_values_has_every_one_with_its_default_and_a_description() -> None:
    """The page is made by helm-docs (`make cluster` compares); this sees at once that it was forgotten."""
    rows = re.findall(r"^\| (\S+) \| \w+ \| `(.*?)` \| (.*) \|$", (CHART / "README.md").read_text(), re.MULTILINE)
    page = {key: json.loads("null" if default == "nil" else default) for key, default, _ in rows}
    ends = leaves(values())
    assert [key for key, _, description in rows if not description.strip()] == []
    for key, default in page.items():
        at: Any = values()
        for name in key.split("."):
            at = at[name]
        assert at == default, key
    for key in ends:
        assert any(key == row or key.startswith(f"{row}.") for row in page), key

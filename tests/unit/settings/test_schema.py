"""The JSON schema that editors check a configuration with: what the pages show is taken, what is wrong is named."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from idemproxy.proxy.settings.load import schema

ROOT = Path(__file__).resolve().parents[3]
_VALIDATOR: Any = importlib.import_module("jsonschema").Draft202012Validator  # comes with kubernetes-validate
UPSTREAM = {"upstream": {"bootstrap": ["kafka:9092"]}}


def refused(configuration: Any) -> list[str]:
    """What the schema says, each with the place."""
    return [f"{error.json_path}: {error.message}" for error in _VALIDATOR(schema()).iter_errors(configuration)]


def documented() -> list[tuple[str, Any]]:
    """Every configuration of the proxy on a page, with the page's name; those of the chart and of others left out."""
    found = []
    for page in [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md"]:
        for text in re.findall(r"^```yaml[^\n]*\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL):
            data = yaml.safe_load(text)
            if isinstance(data, dict) and set(data) <= set(schema()["properties"]):
                found.append((page.name, data))
    return found


def test_it_is_a_schema() -> None:
    _VALIDATOR.check_schema(schema())


def test_it_takes_every_configuration_on_the_pages() -> None:
    examples = documented()
    assert len(examples) >= 12
    assert {name for name, _ in examples} >= {
        "settings.md",
        "sasl.md",
        "tls.md",
        "two-proxies.md",
        "several-proxies.md",
    }
    for name, data in examples:
        assert refused(UPSTREAM | data) == [], name


@pytest.mark.parametrize("ids", ["0-2,1001", "7", 0, 1001])
def test_it_takes_broker_ids_as_the_product_does(ids: Any) -> None:
    assert refused(UPSTREAM | {"listeners": [{"broker_ids": ids}]}) == []


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"upstreams": {}}, "'upstreams' was unexpected"),
        ({"upstream": {"bootstrap": []}}, "$.upstream.bootstrap"),
        ({"upstream": {}}, "'bootstrap' is a required property"),
        ({"listeners": [{"binds": "x:1"}]}, "'binds' was unexpected"),
        ({"listeners": [{"routing": "host"}]}, "$.listeners[0].routing"),
        ({"limits": {"connections_max": 0}}, "$.limits.connections_max"),
        ({"log": {"format": "xml"}}, "$.log.format"),
        ({"producers": {"client_retry_seconds_max": 5}}, "$.producers.client_retry_seconds_max"),
    ],
)
def test_it_refuses_what_is_wrong_by_its_name(wrong: dict[str, Any], words: str) -> None:
    assert words in " ".join(refused(UPSTREAM | wrong))

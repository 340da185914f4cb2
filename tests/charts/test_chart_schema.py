"""values.schema.json where it repeats what others define: Kubernetes' own fields, and the sections of the product's
configuration."""

import json
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
from charts.rendering import CHART, NEWEST, ROOT, container_of, render_minimal

FIELDS = {"podSecurityContext": "PodSecurityContext", "securityContext": "SecurityContext"}


def properties() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text())["properties"]
    return found


@pytest.mark.parametrize(("value", "kind"), FIELDS.items())
def test_a_security_context_has_the_fields_that_kubernetes_has(value: str, kind: str) -> None:
    schemas = Path(kubernetes_validate.__file__).parent / "kubernetes-json-schema"
    (file,) = schemas.glob(f"v{NEWEST}.*-local/_definitions.json")
    definition = json.loads(file.read_text())["$defs"][f"io.k8s.api.core.v1.{kind}"]
    assert set(properties()[value]["properties"]) == set(definition["properties"])
    assert properties()[value]["additionalProperties"] is False


def test_more_configuration_has_the_sections_that_the_product_has() -> None:
    product = json.loads((ROOT / "docs/configuration.schema.json").read_text())["properties"]
    assert set(properties()["extraConfig"]["properties"]) == set(product)


@pytest.mark.parametrize("name", ["cpu", "memory", "ephemeral-storage", "hugepages-2Mi", "example.com/gpu"])
def test_resources_that_kubernetes_knows_are_taken(helm: Path, name: str) -> None:
    container = container_of(render_minimal(helm, resources__limits={name: "1"}))
    assert container["resources"]["limits"][name] == "1"


def test_a_probe_that_asks_twice_is_taken_where_kubernetes_takes_it(helm: Path) -> None:
    container = container_of(render_minimal(helm, probes__readiness__successThreshold=2))
    assert container["readinessProbe"]["successThreshold"] == 2

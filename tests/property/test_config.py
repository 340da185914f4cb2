"""Whatever stands in a configuration file: settings, or sentences; never another error, never a secret."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from idemproxy.proxy.settings.addresses import parse_advertised, parse_broker_ids, parse_host_and_port
from idemproxy.proxy.settings.config import ConfigError, Settings
from idemproxy.proxy.settings.load import load, schema

SECRET = "hunter2hunter2"
_DEFINITIONS: dict[str, Any] = schema()["$defs"]
NAMES = sorted({name for one in [schema(), *_DEFINITIONS.values()] for name in one["properties"]})

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=20),
    st.sampled_from(
        ["127.0.0.1:9092", "[::]:1", "{host}:{port}", "0-2", "sni", "required", "redis://u:p@h", "/dev/null"]
    ),
)
keys = st.one_of(st.sampled_from(NAMES), st.text(max_size=5), st.integers(), st.none(), st.booleans())
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=12,
)
files = st.dictionaries(st.sampled_from(sorted(schema()["properties"])), values, max_size=5)
quick = settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])


def sentences_of(path: Path, options: dict[str, Any]) -> list[str]:
    """What is wrong; nothing when it is a configuration."""
    try:
        assert isinstance(load(path, options), Settings)
    except ConfigError as error:
        return list(error.problems) or ["nothing was said"]
    return []


@quick
@given(data=st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_any_bytes_are_a_configuration_or_an_error_message(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "c.yaml"
    path.write_bytes(data)
    assert all(sentences_of(path, {"upstream": "h:1"}) or ["fine"])


@quick
@given(data=files)
def test_any_yaml_is_a_configuration_or_an_error_with_its_place(tmp_path: Path, data: dict[str, Any]) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(yaml.safe_dump(data, allow_unicode=True))
    for sentence in sentences_of(path, {}):
        assert sentence.startswith((f"{path}:", "upstream: is missing")), sentence
        assert "\n" not in sentence.replace(f"{path}", ""), sentence


@quick
@given(junk=values, where=st.sampled_from(["password", "key_password", "url"]))
def test_no_sentence_shows_a_secret(tmp_path: Path, junk: Any, where: str) -> None:
    path = tmp_path / "c.yaml"
    url = f"redis://:{SECRET}@h" if where == "url" else "redis://h"
    section: dict[str, Any] = {"url": url, "username": junk, "tls": {"key_password": SECRET, "ca_file": junk}}
    if where == "password":
        section["password"] = [SECRET, junk]
    path.write_text(yaml.safe_dump({"upstream": {"bootstrap": ["h:1"]}, "redis": section, "listeners": junk}))
    assert not any(SECRET in sentence for sentence in sentences_of(path, {}))


@quick
@given(text=st.text(alphabet="{}idporthost+-0123456789:[],. ab", max_size=30))
def test_addresses_templates_and_ids_are_parsed_or_refused_with_a_sentence(text: str) -> None:
    for parse in (parse_host_and_port, parse_advertised, parse_broker_ids):
        try:
            parsed: Any = parse(text)
        except ValueError:
            continue
        if parse is parse_advertised:
            for broker_id in (0, 7, 2**31 - 1):
                host, port = parsed.place(broker_id, 9093, "127.0.0.1")
                assert isinstance(port, int)
                assert host
            assert parse_advertised(str(parsed)) == parsed


def test_the_names_are_those_of_the_file() -> None:
    assert {"bootstrap", "cert_file", "connections_max"} <= set(NAMES)
    with pytest.raises(KeyError):
        schema()["properties"]["cert_file"]

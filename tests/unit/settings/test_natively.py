"""Settings that have no effect in a mode are known, and refused where that mode is set."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from idemproxy.proxy.settings.addresses import Listener
from idemproxy.proxy.settings.config import (
    Caps,
    ConfigError,
    JournalSettings,
    OldClientSettings,
    Settings,
    TopicDefaults,
)
from idemproxy.proxy.settings.load import load
from idemproxy.proxy.settings.natively import without_effect, without_effect_by_proxy

OF_LIMITS = (
    *("connections_max", "connections_per_ip_max", "connection_creation_rate_max", "unauthenticated_max"),
    *("unauthenticated_per_ip_max", "request_bytes_max", "requests_in_flight_max"),
    *("client_response_bytes_max", "request_bytes_total_max", "response_bytes_total_max", "idle_seconds"),
    "drain_seconds",
)
HAVE_EFFECT = frozenset(
    (
        *("upstream", "listeners", "redis", "data_directory", "cluster", "upstream_tls", "upstream_sasl"),
        *(
            "idempotence",
            "allows_duplicates_in_flight",
            "allow_unauthenticated_clients",
            "redis_tls",
            "log_lines_per_minute_max",
            "admin",
        ),
        *("log_level", "log_format", "workers", "upstream_idempotence", "conditional_topics", "engine_topics"),
        *("old_clients.translate", "old_clients.fetch", "old_clients.timestamps"),
        *(f"limits.{name}" for name in OF_LIMITS),
    )
)
"""``redis`` and ``cluster`` tell who gives idempotence, where that is chosen (auto)."""
WITH_VALUES = ("upstream_idempotence", "conditional_topics", "engine_topics")
DEFAULT = Settings(upstream=(("h", 1),), listeners=())
OTHER: dict[type, Any] = {int: 7, tuple: ("x",), type(None): "x"}


def every_setting() -> dict[str, Settings]:
    """Settings that differ from the default in one value, by its name; those that have an effect do not differ."""
    found: dict[str, Settings] = {}
    for one in fields(Settings):
        value: Any = getattr(DEFAULT, one.name)
        change: dict[str, Any] = {}
        if one.name == "journal":
            change = {one.name: JournalSettings(Path("j"))}
        elif isinstance(value, Caps | TopicDefaults | OldClientSettings):
            for below in fields(value):
                part: dict[str, Any] = {below.name: 7}
                whole: dict[str, Any] = {one.name: replace(value, **part)}
                found[f"{one.name}.{below.name}"] = replace(DEFAULT, **whole)
            continue
        elif one.name not in HAVE_EFFECT or one.name in WITH_VALUES:
            change = {one.name: not value if isinstance(value, bool) else OTHER[type(value)]}
        found[one.name] = replace(DEFAULT, **change)
    return found


@pytest.mark.parametrize("name", every_setting())
def test_a_setting_has_an_effect_or_is_named(name: str) -> None:
    """A new setting has to be put into one of the two lists."""
    found = without_effect(every_setting()[name])
    assert len(found) == (name not in HAVE_EFFECT), name


@pytest.mark.parametrize("name", every_setting())
def test_where_the_proxy_gives_idempotence_what_needs_newer_brokers_is_named(name: str) -> None:
    named = [one.name for one in without_effect_by_proxy(every_setting()[name])]
    in_file = {"upstream_idempotence": "producers.upstream_idempotence", "engine_topics": "topics.engine"}
    has_none = name.startswith("old_clients.") or name in in_file
    assert named == ([in_file.get(name, name)] if has_none else [])


def test_with_engine_topics_only_what_concerns_other_topics_has_no_effect() -> None:
    for topics in ({"engine_topics": ("a",)}, {"conditional_topics": ("b",)}):
        names = {
            name
            for name, one in every_setting().items()
            if without_effect(replace(one, **topics))  # type: ignore[arg-type]
        }
        assert names == {
            "topics.default_partitions",
            "topics.default_replication_factor",
            "hidden_ranges_topic",
            "upstream_idempotence",
        }
    own_login = Listener("clients", "h", 1, 2, authentication="pass_through")
    (found,) = without_effect(replace(DEFAULT, listeners=(own_login,), engine_topics=("a",)))
    assert found.name == "listeners.0.authentication"
    assert without_effect(replace(DEFAULT, listeners=(own_login,))) == []


WRITTEN = """\
upstream: {bootstrap: ["h:1"], idempotence: IDEMPOTENCE}
producers:
  names: ["orders-*"]
  expiry_seconds: 86400
topics:
  default_partitions: 3
hidden_ranges: {topic: copies}
journal: j.jsonl
limits: {producers_max: 5, connections_max: 9}
"""


def test_where_native_is_said_all_of_them_are_refused_with_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "idemproxy.yaml"
    for said in ("auto", "proxy"):
        path.write_text(WRITTEN.replace("IDEMPOTENCE", said))
        assert load(path, {}).topics.default_partitions == 3
    path.write_text(WRITTEN.replace("IDEMPOTENCE", "native"))
    with pytest.raises(ConfigError) as raised:
        load(path, {})
    assert [":".join(one.removeprefix(f"{path}:").split(": ")[:2]) for one in raised.value.problems] == [
        "3:producers.names",
        "6:topics.default_partitions",
        "7:hidden_ranges.topic",
        "8:journal",
        "9:limits.producers_max",
    ]


def test_where_proxy_is_said_what_old_clients_get_is_refused_with_its_lines(tmp_path: Path) -> None:
    path = tmp_path / "idemproxy.yaml"
    written = """\
upstream: {bootstrap: ["h:1"], idempotence: IDEMPOTENCE}
old_clients:
  translate: always
  fetch: uncommitted
  timestamps: missing
producers: {upstream_idempotence: [kafka-go*, "rskafka"]}
"""
    for said in ("auto", "native"):
        path.write_text(written.replace("IDEMPOTENCE", said))
        assert load(path, {}).old_clients == OldClientSettings("always", "uncommitted", "missing")
        assert load(path, {}).upstream_idempotence == ("kafka-go*", "rskafka")
    path.write_text(written.replace("IDEMPOTENCE", "proxy"))
    with pytest.raises(ConfigError) as raised:
        load(path, {})
    why = "has no effect where the proxy gives idempotence: its brokers serve old clients themselves"
    assert list(raised.value.problems) == [
        f"{path}:3: old_clients.translate: {why}",
        f"{path}:5: old_clients.timestamps: {why}",
        f"{path}:6: producers.upstream_idempotence: has no effect where the proxy gives idempotence: Kafka 0.10 knows "
        "no producer ids",
    ]


def test_an_option_is_named_as_it_was_given() -> None:
    options = {"upstream": "h:1", "journal": "j.jsonl"}
    assert load(None, options).journal is not None
    (found,) = without_effect(load(None, options))
    assert str(found).startswith("journal.path: where brokers give idempotence themselves, no batch has a line")

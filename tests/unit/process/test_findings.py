"""What is found in a configuration and around it: each fact alone, and none where nothing is wrong."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from idemproxy.proxy.net.tls import OwnCertificate, own_certificate
from idemproxy.proxy.process.findings import Facts, Finding, all_findings, is_name_of
from idemproxy.proxy.settings.addresses import Listener, parse_advertised
from idemproxy.proxy.settings.config import Caps, OldClientSettings, Settings
from testkit.real.tls.certificates import Authority, old_style

NOW = 1_800_000_000.0
DAY = 86_400.0
GOOD = OwnCertificate("CN=proxy", NOW + 100 * DAY, ("*.kafka.test", "kafka.test", "10.0.0.1"))


def facts(*, settings: dict[str, Any] | None = None, listener: dict[str, Any] | None = None, **known: Any) -> Facts:
    """Facts of which nothing is wrong but what is given."""
    one = Listener("clients", "0.0.0.0", 9092, 9093)
    given = {"advertised": parse_advertised((listener or {}).pop("advertised"))} if listener else {}
    one = replace(one, **{**(listener or {}), **given})
    given_settings = {"upstream": (("kafka", 9092),), **(settings or {})}
    made = Settings(listeners=(one,), limits=Caps(connections_max=100), **given_settings)
    return replace(Facts(made, NOW, 200, broker_ids=(0, 1, 2)), **known)


def test_nothing_is_found_where_nothing_is_wrong() -> None:
    told: dict[str, Any] = {"cluster_id": "abc", "kept_cluster_id": b"abc", "free_bytes": 10, "wanted_bytes": 10}
    assert all_findings(facts(certificates={"listeners[0].tls": GOOD}, **told)) == []
    assert all_findings(facts(kept_cluster_id=None, cluster_id="abc")) == []
    assert all_findings(facts(kept_cluster_id=b"abc", cluster_id=None)) == []


@pytest.mark.parametrize(
    ("known", "sign", "what", "words"),
    [
        ({"descriptors": 199}, "warning", "file descriptors", "199 descriptors are too few for limits.connections_max"),
        ({"settings": {"producer_expiry_seconds": 899}}, "warning", "producers.expiry_seconds",
         "may append a late retry"),
        ({"settings": {"old_clients": OldClientSettings("always")}, "gives_idempotence": True}, "warning",
         "old_clients.translate", "has no effect where the proxy gives idempotence"),
        ({"settings": {"upstream_idempotence": ("*",)}, "gives_idempotence": True}, "warning",
         "producers.upstream_idempotence", "has no effect where the proxy gives idempotence"),
        ({"free_bytes": 9, "wanted_bytes": 10}, "problem", "data directory data", "No space left on device: 9 bytes"),
        ({"kept_cluster_id": b"a", "cluster_id": "b"}, "problem", "redis", "the state of the cluster with the id a"),
        ({"certificates": {"upstream.tls": replace(GOOD, expires_at=NOW - DAY)}}, "problem", "upstream.tls",
         "expired on 2027-01-14 08:00 UTC: peers refuse it. Renew cert_file"),
        ({"certificates": {"upstream.tls": replace(GOOD, expires_at=NOW + DAY)}}, "warning", "upstream.tls",
         "expires in 1.0 days, on 2027-01-16 08:00 UTC: peers will refuse it then. Renew cert_file"),
        ({"listener": {"advertised": "{host}:{port}", "broker_ids": (0, 1)}}, "problem", "listener 'clients'",
         "no port for broker 2: it is none of 2 broker_ids. Clients cannot reach"),
        ({"broker_ids": (0, 60_000)}, "problem", "listener 'clients'",
         "no port for broker 60000: there is no such port"),
        ({"listener": {"advertised": "{host}:{port}", "port": 9999}, "settings": {"upstream": (("localhost", 9999),)}},
         "problem", "upstream localhost:9999", "this is the proxy's own listener 'clients'. Name a broker here"),
        ({"listener": {"advertised": "kafka.test:9092"}}, "problem", "listener 'clients'",
         "clients get the same address for several of 3 brokers (advertised: kafka.test:9092)"),
        ({"listener": {"advertised": "kafka.test:9092", "broker_ids": (0, 1)}, "broker_ids": ()}, "problem",
         "listener 'clients'", "clients get the same address for several of 2 brokers"),
        ({"listener": {"advertised": "b{id}.kafka.test:9092"}, "unresolved": ("b1.kafka.test",)}, "note",
         "listener 'clients'", "b1.kafka.test (advertised) does not resolve here"),
        ({"listener": {"advertised": "b{id}.other.test:9092"}, "certificates": {"listeners[0].tls": GOOD}}, "warning",
         "listener 'clients'", "has no name b0.other.test, b1.other.test, b2.other.test, which clients get"),
    ],
)  # fmt: skip
def test_each_fact_makes_one_finding(known: dict[str, Any], sign: str, what: str, words: str) -> None:
    (found,) = all_findings(facts(**known))
    assert (found.sign, found.what) == (sign, what)
    assert words in found.text


def test_one_broker_may_have_a_constant_address_and_several_a_host_in_common() -> None:
    assert all_findings(facts(listener={"advertised": "kafka.test:9092"}, broker_ids=(7,))) == []
    assert all_findings(facts(listener={"advertised": "kafka.test:{port}"})) == []
    assert all_findings(facts(listener={"advertised": "b{id}.kafka.test:9092"})) == []


def test_a_host_that_follows_from_the_clients_connection_is_not_compared_with_the_certificate() -> None:
    assert all_findings(facts(certificates={"listeners[0].tls": replace(GOOD, names=())})) == []


def test_the_bootstrap_name_is_compared_as_well() -> None:
    by_name = {"advertised": "b{id}.kafka.test:9092", "routing": "sni", "bootstrap_name": "other.test"}
    (found,) = all_findings(facts(listener=by_name, certificates={"listeners[0].tls": GOOD}))
    assert "has no name other.test, which" in found.text


@pytest.mark.parametrize(
    ("name", "host", "is_so"),
    [
        ("kafka.test", "KAFKA.test.", True),
        ("*.kafka.test", "b0.kafka.test", True),
        ("*.kafka.test", "kafka.test", False),
        ("*.kafka.test", "a.b.kafka.test", False),
        ("10.0.0.1", "10.0.0.1", True),
        ("::1", "0:0:0:0:0:0:0:1", True),
        ("10.0.0.1", "10.0.0.2", False),
        ("10.0.0.1", "kafka.test", False),
    ],
)
def test_a_name_of_a_certificate_means_a_host(name: str, host: str, is_so: bool) -> None:
    assert is_name_of(name, host) is is_so


def test_names_are_read_from_a_certificate_and_from_the_subject_of_one_without(tmp_path: Path) -> None:
    made = own_certificate(Authority(tmp_path).issue("own", "*.kafka.test", "10.0.0.1").cert)
    assert made is not None
    assert set(made.names) == {"*.kafka.test", "10.0.0.1"}
    old = own_certificate(old_style(tmp_path, "kafka.test").cert)
    assert old is not None
    assert old.names == ("kafka.test",)


def test_a_finding_is_hashable_and_so_logged_once() -> None:
    assert len({Finding("note", "a", "b"), Finding("note", "a", "b")}) == 1

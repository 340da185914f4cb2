"""What may be written about the principal towards the brokers, and whom it may be lent to."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from idemproxy.proxy.settings.config import ConfigError
from idemproxy.proxy.settings.load import load, load_configuration
from idemproxy.proxy.settings.reload import changes
from idemproxy.proxy.settings.sasl import SaslClient

SCRAM = {"mechanism": "SCRAM-SHA-256", "username": "idemproxy", "password": "pencil"}


def file(directory: Path, upstream: dict[str, Any], listeners: list[dict[str, Any]] | None = None) -> Path:
    data = {"upstream": {"bootstrap": ["kafka:9093"], **upstream}}
    path = directory / "c.yaml"
    path.write_text(yaml.safe_dump(data if listeners is None else data | {"listeners": listeners}))
    return path


def problems(path: Path) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(path, {})
    return list(caught.value.problems)


def test_the_password_may_stand_in_a_file_or_in_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("from a file\n")
    said = {"mechanism": "PLAIN", "username": "idemproxy"}
    found = load(
        file(tmp_path, {"allow_unauthenticated_clients": True, "sasl": said | {"password_file": str(secret)}}), {}
    )
    assert found.upstream_sasl == SaslClient("PLAIN", "idemproxy", "from a file")
    monkeypatch.setenv("IDEMPROXY_UPSTREAM__SASL__PASSWORD", "from the environment")
    found = load(file(tmp_path, {"allow_unauthenticated_clients": True, "sasl": said}), {})
    assert found.upstream_sasl == SaslClient("PLAIN", "idemproxy", "from the environment")


@pytest.mark.parametrize(
    ("sasl", "said"),
    [
        ({"mechanism": "SCRAM-SHA-512", "username": "a"}, "needs username and one of password and password_file"),
        ({"mechanism": "PLAIN", "password": "pencil"}, "needs username and one of password and password_file"),
        (SCRAM | {"password_file": "c.yaml"}, "needs username and one of password and password_file"),
        (SCRAM | {"token_file": "c.yaml"}, "no token_file"),
        (SCRAM | {"username": ""}, "username"),
        (SCRAM | {"username": "a\0b"}, "username"),
        (SCRAM | {"password": ""}, "password is empty"),
        (SCRAM | {"password": "crayon\0stub"}, "password is empty or has a zero byte"),
        (SCRAM | {"mechanism": "GSSAPI"}, "mechanism"),
        ({"mechanism": "OAUTHBEARER"}, "OAUTHBEARER needs token_file"),
        ({"mechanism": "OAUTHBEARER", "token_file": "c.yaml", "username": "a"}, "OAUTHBEARER needs token_file"),
        ({"mechanism": "OAUTHBEARER", "token_file": "/nowhere"}, "/nowhere cannot be read"),
        ({}, "mechanism: is missing"),
    ],
)
def test_contradictory_sasl_settings_are_reported_without_the_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sasl: dict[str, Any], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (found,) = problems(file(tmp_path, {"allow_unauthenticated_clients": True, "sasl": sasl}))
    assert "upstream.sasl" in found
    assert said in found
    assert "pencil" not in found
    assert "crayon" not in found


def test_what_is_shown_has_no_password(tmp_path: Path) -> None:
    path = file(tmp_path, {"allow_unauthenticated_clients": True, "sasl": SCRAM})
    assert "pencil" not in str(load_configuration(path, {}).model_dump(mode="json"))
    assert "pencil" not in repr(load(path, {}))


@pytest.mark.parametrize("principal", ["sasl", "certificate"])
def test_our_principal_is_lent_only_to_who_shows_a_certificate_or_is_trusted(tmp_path: Path, principal: str) -> None:
    some = tmp_path / "some.pem"
    some.write_text("PEM")
    own = {"cert_file": str(some), "key_file": str(some)}
    upstream: dict[str, Any] = {"sasl": SCRAM} if principal == "sasl" else {"tls": own}
    strict = {"name": "strict", "tls": own | {"client_ca_file": str(some), "client_auth": "required"}}
    lax = {
        "name": "lax",
        "bind": "127.0.0.1:9192",
        "tls": own | {"client_ca_file": str(some), "client_auth": "optional"},
    }
    (found,) = problems(file(tmp_path, upstream))
    assert "listeners: any client that connects to 'clients' would act at the brokers with the rights of the" in found
    (found,) = problems(file(tmp_path, upstream, [strict | {"broker_ids": "0"}, lax | {"broker_ids": "0"}]))
    assert "any client that connects to 'lax' would act" in found
    assert not load(file(tmp_path, upstream, [strict]), {}).allow_unauthenticated_clients
    assert load(file(tmp_path, upstream | {"allow_unauthenticated_clients": True}), {}).allow_unauthenticated_clients
    assert load(file(tmp_path, {"tls": {"ca_file": str(some)}}), {}).upstream_tls is not None


def test_pass_through_needs_the_proxys_own_principal_and_has_no_unauthenticated_clients(
    tmp_path: Path,
) -> None:
    listener = {"name": "brokers", "authentication": "pass_through"}
    (found,) = problems(file(tmp_path, {}, [listener]))
    assert "listeners: authentication pass_through needs upstream.sasl" in found
    (found,) = problems(file(tmp_path, {"sasl": SCRAM}, [listener | {"authentication": "passthrough"}]))
    assert "authentication" in found
    settings = load(file(tmp_path, {"sasl": SCRAM}, [listener]), {})
    assert settings.listeners[0].authentication == "pass_through"
    assert not settings.allow_unauthenticated_clients
    assert changes(
        settings,
        load(file(tmp_path, {"sasl": SCRAM, "allow_unauthenticated_clients": True}, [{"name": "brokers"}]), {}),
    ).refused


def test_credentials_may_change_while_it_runs_but_not_whether_there_are_any(tmp_path: Path) -> None:
    old = load(file(tmp_path, {"allow_unauthenticated_clients": True, "sasl": SCRAM}), {})
    new = replace(old, upstream_sasl=SaslClient("SCRAM-SHA-512", "idemproxy", "other"))
    assert changes(old, new).taken == ("upstream.sasl.mechanism", "upstream.sasl.password")
    assert changes(old, new).refused == ()
    assert changes(old, replace(old, upstream_sasl=None)).refused == ("upstream.sasl",)
    assert changes(old, replace(old, allow_unauthenticated_clients=False)).refused == (
        "upstream.allow_unauthenticated_clients",
    )

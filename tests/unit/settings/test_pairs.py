"""Settings that need or exclude each other: each pair is reported in one sentence, with its place, no secret."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from idemproxy.proxy.settings.config import ConfigError
from idemproxy.proxy.settings.load import load

FILE = "some.pem"
OWN = {"cert_file": FILE, "key_file": FILE}


def problems(directory: Path, listener: dict[str, Any], upstream: dict[str, Any], redis: dict[str, Any]) -> list[str]:
    """What is wrong with such sections, without the name of the file."""
    path = directory / "c.yaml"
    data = {"upstream": {"bootstrap": ["kafka:9092"], **upstream}, "listeners": [listener], "redis": redis}
    path.write_text(yaml.safe_dump(data, sort_keys=False))
    try:
        load(path, {})
    except ConfigError as error:
        return [line.removeprefix(f"{path}:").partition(": ")[2] for line in error.problems]
    return []


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / FILE).write_text("pencil\n")
    return tmp_path


@pytest.mark.parametrize(
    ("redis", "said"),
    [
        ({"username": "me"}, "username without a url: the private Redis needs none"),
        ({"password": "pencil", "tls": {}}, "password, tls without a url: the private Redis needs none"),
        ({"password_file": FILE}, "password_file without a url: the private Redis needs none"),
        ({"tls": {"ca_file": FILE}}, "tls without a url: the private Redis needs none"),
        ({"url": "redis://me:pencil@h", "username": "me"}, "the user name is said twice: in url and in username"),
        ({"url": "redis://h", "username": "me"}, "username without a password"),
        (
            {"url": "redis://:pencil@h", "password_file": FILE},
            "the password is said twice: in url, password or password_file",
        ),
        ({"url": "redis://me:pencil@h", "tls": {}}, None),
        ({"url": "redis://:pencil@h", "username": "me"}, None),
        ({"url": "redis://h", "username": "me", "password_file": FILE}, None),
    ],
)
def test_a_login_of_redis_is_whole_and_said_once(directory: Path, redis: dict[str, Any], said: str | None) -> None:
    found = problems(directory, {}, {}, redis)
    assert found == ([] if said is None else [f"redis: {said}"])


@pytest.mark.parametrize(
    ("tls", "said"),
    [
        ({"cert_file": FILE}, "cert_file and key_file belong together"),
        ({"key_file": FILE}, "cert_file and key_file belong together"),
        ({**OWN, "key_password": "pencil", "key_password_file": FILE}, "key_password or key_password_file, not both"),
        ({**OWN, "key_password_file": FILE}, None),
        ({"ca_file": FILE}, None),
    ],
)
def test_a_certificate_of_ours_has_its_key_and_one_password(
    directory: Path, tls: dict[str, Any], said: str | None
) -> None:
    upstream = problems(directory, {}, {"tls": tls, "allow_unauthenticated_clients": True}, {})
    redis = problems(directory, {}, {}, {"url": "redis://h", "tls": tls})
    assert (upstream, redis) == (([], []) if said is None else ([f"upstream.tls: {said}"], [f"redis.tls: {said}"]))


@pytest.mark.parametrize(
    ("tls", "said"),
    [
        ({"client_auth": "required"}, "client_ca_file is needed for client_auth optional or required"),
        ({"client_auth": "optional"}, "client_ca_file is needed for client_auth optional or required"),
        (
            {"client_ca_file": FILE},
            "client_ca_file is needed for client_auth optional or required, and for nothing else",
        ),
        ({"client_crl_file": FILE}, "client_crl_file without client_ca_file has no meaning"),
        ({"key_password": "pencil", "key_password_file": FILE}, "key_password or key_password_file, not both"),
        ({"client_auth": "required", "client_ca_file": FILE, "client_crl_file": FILE}, None),
        ({"client_auth": "optional", "client_ca_file": FILE}, None),
    ],
)
def test_a_listener_that_asks_for_certificates_has_their_authority(
    directory: Path, tls: dict[str, Any], said: str | None
) -> None:
    found = problems(directory, {"tls": {**OWN, **tls}}, {}, {})
    if said is None:
        assert found == []
    else:
        assert len(found) == 1
        assert found[0].startswith(f"listeners[0].tls: {said}")


SNI = {"routing": "sni", "tls": OWN, "advertised": "b{id}.example:9092", "bootstrap_name": "all.example"}


@pytest.mark.parametrize(
    ("without", "more", "said"),
    [
        ("", {}, None),
        ("tls", {}, "routing sni needs tls"),
        ("advertised", {}, "routing sni needs {id} in the host of advertised, one name per broker"),
        ("bootstrap_name", {}, "routing sni needs bootstrap_name"),
        ("", {"first_broker_port": 9093}, "routing sni has one port: first_broker_port has no meaning"),
        ("", {"routing": "port"}, "bootstrap_name is for routing sni"),
    ],
)
def test_routing_by_name_has_all_that_it_needs_and_nothing_else(
    directory: Path, without: str, more: dict[str, Any], said: str | None
) -> None:
    listener = {name: value for name, value in SNI.items() if name != without} | more
    found = problems(directory, listener, {}, {})
    assert found == ([] if said is None else [f"listeners[0]: {said}"])


# ---------------------------------------------------------------------- how a value is shown
def test_a_long_value_is_not_repeated(directory: Path) -> None:
    (short,) = problems(directory, {"first_broker_port": "a" * 58}, {}, {})
    (long,) = problems(directory, {"first_broker_port": "a" * 59}, {}, {})
    assert short.endswith(f", not {'a' * 58!r}")
    assert "aaa" not in long


def test_a_terminal_control_sequence_in_a_name_is_shown_as_an_escape(directory: Path) -> None:
    (found,) = problems(directory, {}, {"\x1b[2J": 1}, {})
    assert found.startswith(r"upstream.'\x1b[2J': unknown key")


def test_a_password_of_digits_without_quotes_is_not_repeated(directory: Path) -> None:
    number = 73_551_608
    sasl = {"mechanism": "PLAIN", "username": number, "password": number}
    found = problems(
        directory,
        {"tls": {**OWN, "key_password": number}},
        {"sasl": sasl, "allow_unauthenticated_clients": True},
        {"url": number, "password": number},
    )
    assert found == [
        "upstream.sasl.username: expected a valid string, not 73551608",
        "upstream.sasl.password: expected a valid string",
        "listeners[0].tls.key_password: expected a valid string",
        "redis.url: expected a valid string",
        "redis.password: expected a valid string",
    ]

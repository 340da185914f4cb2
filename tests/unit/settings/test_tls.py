"""What may be written about TLS towards old brokers, and only there."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from idemproxy.proxy.settings.config import ConfigError
from idemproxy.proxy.settings.load import load
from idemproxy.proxy.settings.reload import changes
from idemproxy.proxy.settings.tls import TlsClient


def file(directory: Path, tls: dict[str, Any], **more: Any) -> Path:
    path = directory / "c.yaml"
    path.write_text(yaml.safe_dump({"upstream": {"bootstrap": ["kafka:9093"], "tls": tls}, **more}))
    return path


def problems(path: Path) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(path, {})
    return list(caught.value.problems)


def test_brokers_may_be_weak_where_that_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert load(file(tmp_path, {}), {}).upstream_tls == TlsClient()
    assert load(file(tmp_path, {"security_level": 1}), {}).upstream_tls == TlsClient(security_level=1)
    oldest = {"security_level": 0, "minimum_version": "1.0"}
    assert load(file(tmp_path, oldest), {}).upstream_tls == TlsClient(minimum_version="1.0", security_level=0)
    monkeypatch.setenv("IDEMPROXY_UPSTREAM__TLS__SECURITY_LEVEL", "0")
    assert load(file(tmp_path, {}), {}).upstream_tls == TlsClient(security_level=0)


@pytest.mark.parametrize("level", [{}, {"security_level": 1}, {"security_level": 5}])
@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_an_old_version_without_level_0_is_refused_with_the_reason(
    tmp_path: Path, version: str, level: dict[str, int]
) -> None:
    (line,) = problems(file(tmp_path, {"minimum_version": version, **level}))
    assert f"upstream.tls: minimum_version {version} needs security_level: 0: OpenSSL speaks TLS 1.0" in line


@pytest.mark.parametrize("level", [-1, 6, "low"])
def test_there_are_six_levels(tmp_path: Path, level: object) -> None:
    (line,) = problems(file(tmp_path, {"security_level": level}))
    assert "upstream.tls.security_level" in line


def test_clients_and_redis_may_not_be_weak(tmp_path: Path) -> None:
    weak = {"security_level": 0, "minimum_version": "1.0"}
    own = {"cert_file": "/dev/null", "key_file": "/dev/null"}
    listeners = [{"tls": {**own, **weak}}]
    found = problems(file(tmp_path, {}, redis={"url": "redis://redis", "tls": weak}, listeners=listeners))
    for place in ("redis.tls", "listeners[0].tls"):
        about = [line for line in found if place in line]
        assert len(about) == 2
        assert any("security_level: unknown key" in line for line in about)
        assert any("minimum_version" in line for line in about)


def test_only_a_restart_changes_it(tmp_path: Path) -> None:
    before = load(file(tmp_path, {}), {})
    assert changes(before, load(file(tmp_path, {"security_level": 0}), {})).refused == ("upstream.tls.security_level",)

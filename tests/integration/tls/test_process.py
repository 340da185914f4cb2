"""TLS of a proxy as it is run: what it says of brokers and files that do not fit, and new certificates on SIGHUP."""

import signal
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from testkit.real.brokers.secure_cluster import SecureCluster
from testkit.real.proxies.configured_proxy import ConfiguredProxy
from testkit.real.tls.certificates import Authority, Files
from testkit.real.tls.settings import client_tls, listener_tls


@dataclass(frozen=True)
class World:
    authority: Authority
    other_authority: Authority
    cluster: SecureCluster

    @property
    def tls_broker(self) -> str:
        return f"localhost:{self.cluster.tls_address(0)[1]}"

    @property
    def plain_broker(self) -> str:
        return f"localhost:{self.cluster.address(0)[1]}"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    directory = tmp_path_factory.mktemp("tls-process")
    authority, other = Authority(directory / "ours"), Authority(directory / "others", "other")
    with SecureCluster(directory / "kafka", authority, authority.issue("broker"), client_auth="required") as cluster:
        yield World(authority, other, cluster)


def common_name(line: ssl.SSLSocket) -> str:
    """Whose certificate the peer showed."""
    encoded = line.getpeercert(binary_form=True)
    assert encoded is not None
    subject = x509.load_der_x509_certificate(encoded).subject
    return str(subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)[0].value)


@contextmanager
def launched(directory: Path, upstream: dict[str, Any], listener: dict[str, Any]) -> Iterator[ConfiguredProxy]:
    """A proxy that may never serve anybody."""
    proxy = ConfiguredProxy(directory, {"upstream": upstream}, listener=listener)
    try:
        proxy.launch()
        yield proxy
    finally:
        proxy.__exit__()


@pytest.mark.promise("compared-15")
def test_new_certificates_are_shown_on_sighup_and_open_connections_are_unaffected(world: World, tmp_path: Path) -> None:
    own = world.authority.issue("own", common_name="first")
    tls = client_tls(world.authority, world.authority.issue("upstream"))
    upstream = {"bootstrap": [world.tls_broker], "tls": tls, "allow_unauthenticated_clients": True}
    trusted = ssl.create_default_context(cafile=str(world.authority.ca_file))
    proxy = ConfiguredProxy(tmp_path / "proxy", {"upstream": upstream}, listener={"tls": listener_tls(own)})

    def line() -> ssl.SSLSocket:
        return trusted.wrap_socket(socket.create_connection(proxy.address, 10), server_hostname="localhost")

    with proxy, line() as old:
        assert common_name(old) == "first"
        world.authority.issue("own", common_name="second", into=own)
        proxy.signal(signal.SIGHUP)
        proxy.wait_for_log(r"listeners\[0\]\.tls: certificates were read again.*CN=second")
        with line() as new:
            assert common_name(new) == "second"
        own.cert.write_text("broken")
        proxy.signal(signal.SIGHUP)
        proxy.wait_for_log(r"new certificates are not used, the old ones stay: listeners\[0\]\.tls: cert_file ")
        with line() as new:
            assert common_name(new) == "second"
        old.sendall(bytes.fromhex("0000000a00120000000000010000"))  # ApiVersions 0
        assert old.recv(8)[4:] == bytes.fromhex("00000001")


@pytest.mark.parametrize(
    ("tls", "said"),
    [
        ("another authority", "the peer's certificate is not accepted: "),
        ("no certificate", "TLS handshake: .*a certificate of ours"),
        ("another name", "the peer's certificate is not accepted: .*kafka.example"),
    ],
)
def test_a_broker_that_does_not_fit_is_away_for_that_reason(world: World, tmp_path: Path, tls: str, said: str) -> None:
    ours = world.authority.issue("upstream")
    settings = {
        "another authority": client_tls(world.other_authority, ours),
        "no certificate": client_tls(world.authority),
        "another name": {**client_tls(world.authority, ours), "server_name": "kafka.example"},
    }[tls]
    upstream = {"bootstrap": [world.tls_broker], "tls": settings, "allow_unauthenticated_clients": True}
    with launched(tmp_path / "proxy", upstream, {}) as proxy:
        proxy.wait_for_log(f"is away: .*({said})", 30)


def test_a_broker_that_speaks_no_tls_here_is_away_for_that_reason(world: World, tmp_path: Path) -> None:
    upstream = {"bootstrap": [world.plain_broker], "tls": client_tls(world.authority)}
    with launched(tmp_path / "proxy", upstream, {}) as proxy:
        proxy.wait_for_log("is away: .*does it speak TLS on this port", 30)


def test_a_broker_that_speaks_only_tls_here_is_away_and_not_guessed_at(world: World, tmp_path: Path) -> None:
    with launched(tmp_path / "proxy", {"bootstrap": [world.tls_broker]}, {}) as proxy:
        proxy.wait_for_log("is away: ", 30)
        assert "cannot be served" not in proxy.log


def test_files_that_do_not_fit_end_the_start_with_a_sentence_each(world: World, tmp_path: Path) -> None:
    own, other = world.authority.issue("own"), world.authority.issue("another")
    tls = client_tls(world.authority, Files(own.cert, other.key))
    upstream = {"bootstrap": [world.tls_broker], "tls": tls, "allow_unauthenticated_clients": True}
    with launched(tmp_path / "proxy", upstream, {"tls": listener_tls(Files(other.cert, own.key))}) as proxy:
        assert proxy.wait() == 2
        for place, cert, key in (("upstream", own.cert, other.key), (r"listeners\[0\]", other.cert, own.key)):
            proxy.wait_for_log(rf"\.yaml:\d+: {place}.tls: the key in {key} is not that of the certificate in {cert}")

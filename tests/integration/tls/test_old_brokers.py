"""TLS towards brokers of 2016: keys of 1024 bits, signatures of SHA-1, TLS 1.0. Refused, unless the settings allow
it."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from idemproxy.proxy.events import OperatorMessage
from idemproxy.proxy.net.tls import DEFAULT_SECURITY_LEVEL, TlsError, client_context, problems, weakness
from idemproxy.proxy.settings.tls import TlsClient
from testkit.real.brokers.secure_cluster import SecureCluster
from testkit.real.clients.raw_client import RawClient, batch
from testkit.real.proxies.configured_proxy import ConfiguredProxy
from testkit.real.tls.certificates import Files
from testkit.real.tls.old_certificates import OldAuthority, old_server
from testkit.real.tls.scene import Recorder, Scene, TlsKit, play, until

TOPIC = "old"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> OldAuthority:
    return OldAuthority(tmp_path_factory.mktemp("old"))


@pytest.fixture(scope="module")
def kit(tmp_path_factory: pytest.TempPathFactory) -> TlsKit:
    return TlsKit(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def weak_key(authority: OldAuthority) -> Files:
    return authority.issue_old("weak-key")


def outcome(kit: TlsKit, settings: TlsClient, server: tuple[str, int]) -> tuple[str, list[OperatorMessage]]:
    """Return the version of TLS by which bytes went there and back, or why they did not; and what was warned of."""
    found = ["nothing"]
    warned: list[OperatorMessage] = []

    async def act(scene: Scene) -> None:
        far = Recorder(lambda wire: wire.send(b"there and back"))
        side = scene.certificates.side(settings, "upstream.tls")
        scene.reactor.over_tls(side).connect(server, far)
        await until(lambda: far.reasons or far.data == b"there and back")
        tls = getattr(far.wire, "_tls", None)
        found[0] = far.reasons[0] if far.reasons or tls is None else tls.version()
        warned.extend(event for event in scene.events if isinstance(event, OperatorMessage))

    play(kit.server, act)
    return found[0], warned


# ---------------------------------------------------------------------- real connections
def test_a_key_of_1024_bits_is_refused_and_the_setting_is_named(
    kit: TlsKit, authority: OldAuthority, weak_key: Files
) -> None:
    with old_server(weak_key) as server:
        said, warned = outcome(kit, TlsClient(authority.ca_file), server)
    assert "EE certificate key too weak" in said
    assert "upstream.tls.security_level" in said
    assert warned == []


@pytest.mark.parametrize("level", [0, 1])
def test_a_key_of_1024_bits_passes_a_lower_level_with_a_warning(
    kit: TlsKit, authority: OldAuthority, weak_key: Files, level: int
) -> None:
    with old_server(weak_key) as server:
        version, (warned,) = outcome(kit, TlsClient(authority.ca_file, security_level=level), server)
    assert version == "TLSv1.2"
    assert warned.level == "warning"
    assert warned.what.startswith(f"upstream.tls: security_level {level} (OpenSSL's own is {DEFAULT_SECURITY_LEVEL})")


def test_a_signature_of_sha1_is_taken_at_level_0_alone(kit: TlsKit, authority: OldAuthority) -> None:
    with old_server(authority.issue_old("sha1", key_bits=2048, with_sha1=True)) as server:
        for level in (None, 1):
            said, _ = outcome(kit, TlsClient(authority.ca_file, security_level=level), server)
            assert "CA signature digest algorithm too weak" in said
            assert "upstream.tls.security_level" in said
        assert outcome(kit, TlsClient(authority.ca_file, security_level=0), server)[0] == "TLSv1.2"


@pytest.mark.parametrize(
    ("newest", "spoken"), [(ssl.TLSVersion.TLSv1, "TLSv1"), (ssl.TLSVersion.TLSv1_1, "TLSv1.1")], ids=["1.0", "1.1"]
)
def test_a_server_of_old_versions_is_spoken_to_if_its_version_is_allowed(
    kit: TlsKit, authority: OldAuthority, weak_key: Files, newest: ssl.TLSVersion, spoken: str
) -> None:
    with old_server(weak_key, newest) as server:
        said, _ = outcome(kit, TlsClient(authority.ca_file, security_level=0), server)
        assert "versions of TLS" in said
        version = "1.0" if spoken == "TLSv1" else "1.1"
        allowed = TlsClient(authority.ca_file, minimum_version=version, security_level=0)
        found, (warned,) = outcome(kit, allowed, server)
    assert found == spoken
    assert f"minimum_version {version}" in warned.what


def test_chain_and_name_are_checked_at_every_level(kit: TlsKit, authority: OldAuthority, weak_key: Files) -> None:
    with old_server(weak_key) as server:
        said, _ = outcome(kit, TlsClient(kit.authority.ca_file, security_level=0), server)
        assert "the peer's certificate is not accepted" in said
        said, _ = outcome(kit, TlsClient(authority.ca_file, server_name="kafka.example", security_level=0), server)
        assert "'kafka.example'" in said


# ---------------------------------------------------------------------- contexts
def test_without_the_setting_nothing_changes() -> None:
    plain, ours = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), client_context(TlsClient())
    assert ours.get_ciphers() == plain.get_ciphers()
    assert (ours.security_level, ours.minimum_version) == (plain.security_level, ssl.TLSVersion.TLSv1_2)


def test_a_level_that_is_not_lower_adds_no_cipher() -> None:
    own = {cipher["name"] for cipher in client_context(TlsClient()).get_ciphers()}
    for level in range(DEFAULT_SECURITY_LEVEL, 6):
        context = client_context(TlsClient(security_level=level))
        assert context.security_level == level
        assert {cipher["name"] for cipher in context.get_ciphers()} == own
        assert weakness(TlsClient(security_level=level)) is None


def test_no_level_takes_a_cipher_without_certificate_or_encryption() -> None:
    for level in range(DEFAULT_SECURITY_LEVEL):
        context = client_context(TlsClient(security_level=level))
        assert context.security_level == level
        described = [cipher["description"] for cipher in context.get_ciphers()]
        assert any(" SSLv3 " in one or " TLSv1 " in one for one in described), "what TLS 1.0 can use"
        bad = ("Au=None", "Enc=None", "Au=PSK", "Kx=SRP", "Enc=RC4", "Enc=DES", "Enc=3DES")
        assert [one for one in described if any(word in one for word in bad)] == []


def test_our_own_certificate_may_be_as_weak(authority: OldAuthority, weak_key: Files) -> None:
    with pytest.raises(TlsError, match="ee key too small"):
        client_context(TlsClient(authority.ca_file, weak_key.cert, weak_key.key))
    client_context(TlsClient(authority.ca_file, weak_key.cert, weak_key.key, security_level=1))


@pytest.mark.parametrize("version", ["1.0", "1.1"])
@pytest.mark.parametrize("level", [None, 1, 2])
def test_an_old_version_at_another_level_than_0_is_a_problem(version: str, level: int | None) -> None:
    settings = TlsClient(minimum_version=version, security_level=level)
    assert problems(settings, "here") == [f"here.minimum_version {version} needs security_level: 0"]


# ---------------------------------------------------------------------- a real old broker
@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, authority: OldAuthority) -> Iterator[SecureCluster]:
    directory = tmp_path_factory.mktemp("old-broker")
    own = authority.issue_old("broker", with_sha1=True)
    with SecureCluster(directory, authority, own) as started:
        started.create_topic(TOPIC)
        yield started


def test_a_real_broker_with_such_a_certificate_is_served(
    cluster: SecureCluster, authority: OldAuthority, tmp_path: Path
) -> None:
    tls = {"ca_file": str(authority.ca_file), "security_level": 0, "server_name": "localhost"}
    upstream = {"bootstrap": [f"localhost:{cluster.tls_address(0)[1]}"], "tls": tls}
    with (
        ConfiguredProxy(tmp_path / "proxy", {"upstream": upstream}, listener={}) as proxy,
        RawClient(proxy.address) as client,
    ):
        producer_id = client.new_producer_id()
        for sequence in (0, 1, 1):
            answer = client.produce_one(TOPIC, 0, batch([b"%d" % sequence], producer_id=producer_id, sequence=sequence))
            assert (answer.error_code, answer.base_offset) == (0, sequence)
        assert client.values(TOPIC, 0) == [b"0", b"1"]
        proxy.wait_for_log(r"WARNING.*upstream\.tls: security_level 0 .*somebody between here and there may read")

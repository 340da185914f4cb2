"""Certificates are read again without a restart: when their files change or on demand; bad ones change nothing."""

import ssl
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from idemproxy.proxy import limits
from idemproxy.proxy.events import CertificateLoaded, OperatorMessage
from idemproxy.proxy.net.tls import Certificates, TlsError, TlsSide, problems
from idemproxy.proxy.settings.tls import TlsClient, TlsServer
from testkit.real.tls.certificates import PASSWORD, Authority, Files

DAY_SECONDS = 86_400.0


class Timers:
    """A reactor's ``later`` whose time passes when the test says so."""

    def __init__(self) -> None:
        self.waiting: list[tuple[float, Callable[[], None]]] = []

    def later(self, seconds: float, callback: Callable[[], None]) -> Any:
        self.waiting.append((seconds, callback))

    def ring(self) -> None:
        """All that waits becomes due."""
        due, self.waiting = self.waiting, []
        for seconds, callback in due:
            assert seconds == limits.CERTIFICATE_LOOK_SECONDS
            callback()


class Scene:
    """The certificates of one listener, whose files the test changes."""

    def __init__(self, directory: Path) -> None:
        self.authority = Authority(directory)
        self.files = self.authority.issue("own", common_name="first")
        self.told: list[Any] = []
        self.timers = Timers()
        self.seconds_ahead = 0.0
        self.certificates = Certificates(self.told.append, self.timers.later, self.wall_clock)
        self.side = self.certificates.side(TlsServer(self.files.cert, self.files.key), "listeners[0].tls")
        self.certificates.watch()

    def wall_clock(self) -> float:
        return time.time() + self.seconds_ahead

    def renew(self, common_name: str, **options: Any) -> None:
        """Write another certificate over the files."""
        self.authority.issue("own", common_name=common_name, into=self.files, **options)

    def said(self, level: str) -> list[str]:
        """What was said at this level."""
        return [event.what for event in self.told if isinstance(event, OperatorMessage) and event.level == level]

    @property
    def shown(self) -> str:
        """The common name of the certificate that a client would see now."""
        return common_name_of(self.side)


def common_name_of(side: TlsSide) -> str:
    """Do a handshake between two ends in memory."""
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = trusting.wrap_bio(to_client, to_server)
    server = side.context.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(3):
        for end in (client, server):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    encoded = client.getpeercert(binary_form=True)
    assert encoded is not None
    subject = x509.load_der_x509_certificate(encoded).subject
    return str(subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)[0].value)


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


# ---------------------------------------------------------------------- new files
def test_a_renewed_certificate_is_shown_to_those_who_come_after_it_was_seen(scene: Scene) -> None:
    old = scene.side.context
    scene.timers.ring()
    assert scene.side.context is old, "nothing has changed"
    scene.renew("second")
    assert scene.shown == "first"
    scene.timers.ring()
    assert scene.shown == "second"
    assert "certificates were read again" in scene.said("info")[-1]
    assert "CN=second" in scene.said("info")[-1]


@pytest.mark.promise("compared-15")
def test_a_certificate_that_is_reached_by_links_is_seen_when_the_folder_is_swapped(tmp_path: Path) -> None:
    """As Kubernetes does it with a secret: the files are links through one link to a folder."""
    authority = Authority(tmp_path / "authority")
    places = []
    for name in ("first", "second"):
        place = tmp_path / name
        place.mkdir()
        authority.issue(name, common_name=name, into=Files(place / "tls.crt", place / "tls.key"))
        places.append(place)
    current = tmp_path / "..data"
    current.symlink_to(places[0])
    timers = Timers()
    certificates = Certificates(lambda _event: None, timers.later)
    side = certificates.side(TlsServer(current / "tls.crt", current / "tls.key"), "listeners[0].tls")
    certificates.watch()
    fresh = tmp_path / "..new"
    fresh.symlink_to(places[1])
    fresh.replace(current)
    timers.ring()
    assert common_name_of(side) == "second"


@pytest.mark.promise("compared-15")
@pytest.mark.parametrize("broken", ["no PEM", "another key", "gone", "half"])
def test_a_broken_renewal_keeps_what_was_there_and_is_reported_once(scene: Scene, broken: str) -> None:
    if broken == "no PEM":
        scene.files.cert.write_text("not a certificate")
    elif broken == "another key":
        other = scene.authority.issue("other")
        scene.files.key.write_bytes(other.key.read_bytes())
    elif broken == "gone":
        scene.files.cert.unlink()
    else:
        scene.files.cert.write_bytes(scene.files.cert.read_bytes()[:400])
    scene.timers.ring()
    scene.timers.ring()
    assert scene.shown == "first"
    (said,) = scene.said("error")
    assert "the old ones stay: listeners[0].tls: " in said
    assert str(scene.files.key if broken == "another key" else scene.files.cert) in said
    scene.renew("second")
    scene.timers.ring()
    assert scene.shown == "second", "a good one after a broken one is taken"


def test_a_renewal_that_has_expired_does_not_replace_one_that_has_not(scene: Scene) -> None:
    scene.renew("second", expires_in=timedelta(hours=-1))
    scene.timers.ring()
    assert scene.shown == "first"
    assert "expired on" in scene.said("error")[0]


def test_a_reload_on_demand_takes_all_or_nothing(scene: Scene) -> None:
    second = scene.authority.issue("second", common_name="first")
    other = scene.certificates.side(TlsServer(second.cert, second.key), "listeners[1].tls")
    scene.renew("renewed")
    second.cert.write_text("broken")
    (problem,) = scene.certificates.reload()
    assert problem.startswith("listeners[1].tls: ")
    assert (scene.shown, common_name_of(other)) == ("first", "first")
    scene.authority.issue("second", common_name="renewed", into=second)
    assert scene.certificates.reload() == []
    assert (scene.shown, common_name_of(other)) == ("renewed", "renewed")


def test_a_reload_reads_a_key_with_its_new_password_and_keeps_it(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    own = scene.authority.issue("locked", common_name="first")
    key = scene.authority.encrypted_key(own, "old")
    side = scene.certificates.side(TlsServer(own.cert, key, "old"), "listeners[1].tls")
    scene.authority.issue("locked", common_name="second", into=own)
    scene.authority.encrypted_key(own, "new")
    assert scene.certificates.reload()
    assert common_name_of(side) == "first"
    assert scene.certificates.reload({"listeners[1].tls": TlsServer(own.cert, key, "new")}) == []
    assert common_name_of(side) == "second"
    assert scene.certificates.reload() == []


def test_the_next_look_takes_a_good_certificate_of_a_failed_reload(scene: Scene) -> None:
    second = scene.authority.issue("second", common_name="first")
    other = scene.certificates.side(TlsServer(second.cert, second.key), "listeners[1].tls")
    scene.renew("renewed")
    second.cert.write_text("broken")
    assert scene.certificates.reload()
    scene.timers.ring()
    assert (scene.shown, common_name_of(other)) == ("renewed", "first")
    scene.timers.ring()
    assert len(scene.said("error")) == 1, "the broken one is complained of once"
    scene.authority.issue("second", common_name="renewed", into=second)
    scene.timers.ring()
    assert common_name_of(other) == "renewed"


def test_a_new_list_of_revoked_certificates_is_taken_like_a_new_certificate(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    own = authority.issue("own")
    listed = authority.revoke()
    timers = Timers()
    certificates = Certificates(lambda _event: None, timers.later)
    settings = TlsServer(
        own.cert, own.key, client_ca_file=authority.ca_file, client_auth="required", client_crl_file=listed
    )
    side = certificates.side(settings, "listeners[0].tls")
    certificates.watch()
    before = side.context
    authority.revoke(own)
    timers.ring()
    assert side.context is not before
    assert side.context.cert_store_stats()["crl"] == 1


# ---------------------------------------------------------------------- the end of a certificate
def test_a_certificate_that_ends_soon_is_reported_once_a_day(scene: Scene) -> None:
    loaded = [event for event in scene.told if isinstance(event, CertificateLoaded)]
    assert [(event.place, event.subject.split(",")[0]) for event in loaded] == [("listeners[0].tls", "CN=first")]
    assert loaded[0].expires_at == pytest.approx(scene.wall_clock() + 365 * DAY_SECONDS, abs=60)
    scene.timers.ring()
    assert scene.said("warning") == []
    scene.seconds_ahead = 352 * DAY_SECONDS
    scene.timers.ring()
    scene.timers.ring()
    (warned,) = scene.said("warning")
    assert "listeners[0].tls: the certificate CN=first" in warned
    assert "expires in 13.0 days" in warned
    scene.seconds_ahead = 354 * DAY_SECONDS
    scene.timers.ring()
    assert len(scene.said("warning")) == 2
    scene.seconds_ahead = 366 * DAY_SECONDS
    scene.timers.ring()
    assert "expired on" in scene.said("error")[-1]


# ---------------------------------------------------------------------- what is wrong with settings
def test_problems_name_the_place_and_the_file(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    own, other = authority.issue("own"), authority.issue("other")
    empty = tmp_path / "empty.pem"
    empty.write_text("")
    none = tmp_path / "none.pem"
    assert problems(TlsServer(own.cert, own.key), "here") == []
    assert problems(TlsClient(), "here") == []
    for settings, expected in (
        (TlsServer(none, own.key), f"here: cert_file {none}: No such file or directory"),
        (TlsServer(own.cert, other.key), f"here: the key in {other.key} is not that of the certificate in {own.cert}"),
        (
            TlsServer(own.cert, own.key, client_auth="required"),
            "here.client_ca_file is missing: client_auth is required",
        ),
        (TlsClient(empty), f"here: ca_file {empty} cannot be used: "),
        (TlsClient(none), f"here: ca_file {none}: No such file or directory"),
        (TlsClient(None, own.cert), "here.key_file is missing: a certificate and its key come together"),
    ):
        (found,) = problems(settings, "here")
        assert found.startswith(expected)


def test_a_key_under_a_password_is_read_with_it_and_never_asked_for(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    own = authority.issue("own", common_name="own")
    key = authority.encrypted_key(own)
    assert common_name_of(TlsSide(TlsServer(own.cert, key, PASSWORD), "here")) == "own"
    for password in (None, "wrong"):
        with pytest.raises(TlsError, match="password"):
            TlsSide(TlsServer(own.cert, key, password), "here")

"""TLS contexts, and what certificates say: who a peer is, when ours expire.

Owns the files: checks them again at intervals and on demand, and uses new ones for new connections, but only when all
of them are good. Never touches a socket (``tls_wire.py`` does), and knows no insecure mode.
"""

from __future__ import annotations

import ssl
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from ...reactor import Timer
from .. import limits
from ..events import CertificateLoaded, OperatorMessage, Report
from ..settings.tls import OLD_VERSIONS, TlsClient, TlsServer

Later = Callable[[float, Callable[[], None]], Timer]
Stamp = tuple[tuple[int, int, int] | None, ...]
_VERSIONS = {
    "1.0": ssl.TLSVersion.TLSv1,
    "1.1": ssl.TLSVersion.TLSv1_1,
    "1.2": ssl.TLSVersion.TLSv1_2,
    "1.3": ssl.TLSVersion.TLSv1_3,
}
DEFAULT_SECURITY_LEVEL = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).security_level
"""OpenSSL's own, where none is configured: 2 nearly everywhere."""
_OLD_CIPHERS = "DEFAULT:!aNULL:!eNULL:!PSK:!SRP"
"""With CBC and SHA-1, and also without forward secrecy: what servers of 2016 have."""
_ASKED = {"none": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
_DAY_SECONDS = 86_400


class TlsError(Exception):
    """Certificates or keys cannot be used: one sentence that says why."""


def problems(settings: TlsServer | TlsClient, where: str) -> list[str]:
    """Return what is wrong with these settings and their files, a sentence each, with the place."""
    found = []
    if isinstance(settings, TlsServer):
        if settings.client_auth != "none" and settings.client_ca_file is None:
            found.append(f"{where}.client_ca_file is missing: client_auth is {settings.client_auth}")
    elif settings.minimum_version in OLD_VERSIONS and settings.security_level != 0:
        found.append(f"{where}.minimum_version {settings.minimum_version} needs security_level: 0")
    elif (settings.cert_file is None) != (settings.key_file is None):
        missing = "cert_file" if settings.cert_file is None else "key_file"
        found.append(f"{where}.{missing} is missing: a certificate and its key come together")
    if not found:
        try:
            TlsSide(settings, where)
        except TlsError as error:
            found.append(f"{where}: {error}")
    return found


def server_context(settings: TlsServer) -> ssl.SSLContext:
    """Read the files of a listener. Raises TlsError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS[settings.minimum_version]
    # No tickets: they would outlive the check of the client's certificate. They are meant for reconnects after a
    # restart, when their keys are gone anyway.
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_TICKET | ssl.OP_CIPHER_SERVER_PREFERENCE
    context.num_tickets = 0
    _load_own(context, settings.cert_file, settings.key_file, settings.key_password)
    if settings.client_ca_file is not None and settings.client_auth != "none":
        _load_trusted(context, settings.client_ca_file, "client_ca_file")
        if settings.client_crl_file is not None:
            _load_trusted(context, settings.client_crl_file, "client_crl_file")
            context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    context.verify_mode = _ASKED[settings.client_auth]
    context.sslobject_class = TlsObject
    context.sni_callback = _note_name
    return context


def client_context(settings: TlsClient) -> ssl.SSLContext:
    """Read the files for connections to servers, whose chain and name are always checked. Raises TlsError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of 1.0 and 1.1: an operator who asks for them knows that
        context.minimum_version = _VERSIONS[settings.minimum_version]
    if settings.security_level is not None:
        _set_level(context, settings.security_level)  # first: it judges our own certificate as well
    context.options |= ssl.OP_NO_RENEGOTIATION
    if settings.ca_file is None:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    else:
        _load_trusted(context, settings.ca_file, "ca_file")
    if settings.cert_file is not None and settings.key_file is not None:
        _load_own(context, settings.cert_file, settings.key_file, settings.key_password)
    context.sslobject_class = TlsObject
    return context


def _set_level(context: ssl.SSLContext, level: int) -> None:
    """Python's own choice of ciphers has none of TLS before 1.2. It is replaced only where a lower level is
    configured."""
    if level < DEFAULT_SECURITY_LEVEL:
        ciphers = _OLD_CIPHERS
    else:
        ciphers = ":".join(cipher["name"] for cipher in context.get_ciphers())
    context.set_ciphers(f"{ciphers}:@SECLEVEL={level}")


def weakness(settings: TlsClient) -> str | None:
    """Return what these settings give up in security, one sentence; None if nothing."""
    level = settings.security_level
    if level is None or level >= DEFAULT_SECURITY_LEVEL:
        return None
    forged = "signatures of SHA-1 and RSA keys below 1024 bits" if level == 0 else "RSA keys of 1024 bits"
    what = f"security_level {level} (OpenSSL's own is {DEFAULT_SECURITY_LEVEL}) takes {forged}"
    if settings.minimum_version in OLD_VERSIONS:
        what += f", minimum_version {settings.minimum_version} a version of TLS that is broken"
    return f"{what}: somebody between here and there may read and change what is sent"


class TlsObject(ssl.SSLObject):
    """One TLS connection without its socket. ``asked_name``: the server name that a client asked for (SNI)."""

    asked_name: str | None = None


def _note_name(connection: ssl.SSLObject, name: str | None, _context: ssl.SSLContext) -> None:
    assert isinstance(connection, TlsObject)
    connection.asked_name = name.lower() if name is not None else None


def principal_of(connection: ssl.SSLObject) -> str | None:
    """Return the subject of the peer's certificate as Kafka writes it (``CN=orders,O=Example``), None without one."""
    encoded = connection.getpeercert(binary_form=True)
    if encoded is None:
        return None
    from cryptography import x509

    return x509.load_der_x509_certificate(encoded).subject.rfc4514_string()


def explain(error: ssl.SSLError) -> str:
    """Return what went wrong with a handshake, for an operator."""
    if isinstance(error, ssl.SSLCertVerificationError):
        hint = _HINTS.get(error.verify_code, "")
        return f"the peer's certificate is not accepted: {error.verify_message}{hint}"
    known = _REASONS.get(error.reason or "")
    name = (error.reason or str(error)).lower().replace("_", " ")
    return f"{known} ({name})" if known is not None else name


_UNKNOWN_ISSUER = (18, 19, 20, 21)
"""OpenSSL's: a certificate that signed itself, alone or at the end of a chain, and an issuer that is not known."""
_TOO_WEAK = (66, 67, 68)
"""OpenSSL's: the key of the certificate, of its authority, the digest of a signature."""
_HINTS = {
    **dict.fromkeys(_UNKNOWN_ISSUER, " (tls.ca_file, of a listener tls.client_ca_file, names whom to trust)"),
    **dict.fromkeys(_TOO_WEAK, " (towards a broker upstream.tls.security_level decides)"),
}
_REASONS = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the client shows no certificate",
    "TLSV1_ALERT_UNKNOWN_CA": "the peer does not trust our certificate's issuer",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the peer does not accept our certificate",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "the peer does not accept our certificate",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "the peer says that our certificate has expired",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "the peer asks for a certificate of ours",
    # Brokers of 0.10 answer an empty certificate with their whole unsent buffer.
    "UNEXPECTED_MESSAGE": "the peer broke the handshake off: it may ask for a certificate of ours",
    "UNSUPPORTED_PROTOCOL": "the peer speaks only older versions of TLS",
    "TLSV1_ALERT_PROTOCOL_VERSION": "the peer speaks other versions of TLS",
    "NO_SHARED_CIPHER": "the peer has no cipher that we have",
    "WRONG_VERSION_NUMBER": "the peer does not speak TLS here",
}


# ---------------------------------------------------------------------- the files
class TlsSide:
    """A context that is in use, and its settings. ``context`` is replaced by a reload."""

    def __init__(self, settings: TlsServer | TlsClient, place: str) -> None:
        """Read the files. Raises TlsError."""
        self.settings = settings
        self.place = place
        self.stamp = _stamp(settings)
        self.context = server_context(settings) if isinstance(settings, TlsServer) else client_context(settings)
        self.certificate = own_certificate(settings.cert_file)

    def server_name(self, host: str) -> str:
        """The name that the certificate of this host is checked for."""
        assert isinstance(self.settings, TlsClient)
        return self.settings.server_name or host.rstrip(".")

    def has_changed(self) -> bool:
        """Have the files changed since they were checked last, whether or not they were good?"""
        return _stamp(self.settings) != self.stamp


@dataclass(frozen=True, slots=True)
class OwnCertificate:
    """What our own certificate says. ``expires_at``: unix seconds. ``names``: the host names and addresses that it is
    for; of one without, the common name, which clients before Java 11 and OpenSSL 1.1 still take."""

    subject: str
    expires_at: float
    names: tuple[str, ...] = ()


def own_certificate(cert_file: Path | None) -> OwnCertificate | None:
    """Return what the first certificate of a PEM file says. Raises TlsError."""
    if cert_file is None:
        return None
    from cryptography import x509

    try:
        first = x509.load_pem_x509_certificates(cert_file.read_bytes())[0]
    except (OSError, ValueError) as error:
        raise TlsError(f"cert_file {cert_file}: {error}") from None
    try:
        said = first.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):  # ValueError: OpenSSL takes what is not quite DER
        names = [str(one.value) for one in first.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)]
    else:
        names = [*said.get_values_for_type(x509.DNSName), *map(str, said.get_values_for_type(x509.IPAddress))]
    subject = first.subject.rfc4514_string() or "(no subject)"
    return OwnCertificate(subject, first.not_valid_after_utc.timestamp(), tuple(names))


class Expiry(NamedTuple):
    """The end of a certificate that is near or ``is_over``."""

    is_over: bool
    text: str


def expiry_of(certificate: OwnCertificate, now: float) -> Expiry | None:
    """Return what an operator should know of its end. ``now``: unix seconds."""
    left = certificate.expires_at - now
    if left > limits.CERTIFICATE_WARN_DAYS * _DAY_SECONDS:
        return None
    when = f"expires in {left / _DAY_SECONDS:.1f} days, on" if left > 0 else "expired on"
    effect = "peers will refuse it then" if left > 0 else "peers refuse it"
    text = f"the certificate {certificate.subject} {when} {_date(certificate)}: {effect}. Renew cert_file"
    return Expiry(left <= 0, f"{text}; the proxy reads new files by itself")


class Certificates:
    """All TLS contexts of one process. New files are used for new connections; bad ones change nothing."""

    def __init__(self, report: Report, later: Later, wall_clock: Callable[[], float] = time.time) -> None:
        """``later``: the reactor's timer, for ``watch``."""
        self._report = report
        self._later = later
        self._wall_clock = wall_clock
        self._sides: list[TlsSide] = []
        self._warned_at: dict[str, float] = {}

    def side(self, settings: TlsServer | TlsClient, place: str) -> TlsSide:
        """Read the files of one listener, or of one kind of server. Raises TlsError."""
        side = TlsSide(settings, place)
        self._sides.append(side)
        if isinstance(settings, TlsClient) and (given_up := weakness(settings)):
            self._report(OperatorMessage("warning", f"{place}: {given_up}"))
        self._tell(side)
        self._warn(side)
        return side

    def watch(self) -> None:
        """Check the files every few seconds from now on."""
        self._later(limits.CERTIFICATE_LOOK_SECONDS, self._look)

    def reload(self, said: Mapping[str, TlsServer | TlsClient] | None = None) -> list[str]:
        """Read all files again. ``said``: the settings now, by place; they name the same files, but the password of a
        key may differ. Returns the problems; with any, everything that was in use stays in use."""
        return self._read_again(self._sides, said or {})

    def _look(self) -> None:
        self._later(limits.CERTIFICATE_LOOK_SECONDS, self._look)
        for side in self._sides:
            if side.has_changed():
                self._read_again([side], {})
            self._warn(side)

    def _read_again(self, sides: list[TlsSide], said: Mapping[str, TlsServer | TlsClient]) -> list[str]:
        problems: list[str] = []
        read: list[tuple[TlsSide, TlsSide]] = []
        for side in sides:
            stamp = _stamp(side.settings)
            try:
                new = TlsSide(said.get(side.place, side.settings), side.place)
                self._refuse_expired(side, new)
            except TlsError as error:
                problems.append(f"{side.place}: {error}")
                side.stamp = stamp  # bad files are reported once; good ones left out here are read again
            else:
                read.append((side, new))
        if problems:
            for problem in problems:
                self._report(OperatorMessage("error", f"new certificates are not used, the old ones stay: {problem}"))
            return problems
        for side, new in read:
            side.settings, side.stamp = new.settings, new.stamp
            side.context, side.certificate = new.context, new.certificate
            self._warned_at.pop(side.place, None)
            self._report(
                OperatorMessage("info", f"{side.place}: certificates were read again, for new connections{_what(side)}")
            )
            self._tell(side)
            self._warn(side)
        return []

    def _refuse_expired(self, side: TlsSide, new: TlsSide) -> None:
        now = self._wall_clock()
        if new.certificate is None or new.certificate.expires_at > now:
            return
        if side.certificate is not None and side.certificate.expires_at > now:
            raise TlsError(f"the certificate {new.certificate.subject} expired on {_date(new.certificate)}")

    def _tell(self, side: TlsSide) -> None:
        if side.certificate is not None:
            self._report(CertificateLoaded(side.place, side.certificate.subject, side.certificate.expires_at))

    def _warn(self, side: TlsSide) -> None:
        """Warn once a day when the end is near."""
        if side.certificate is None:
            return
        now = self._wall_clock()
        end = expiry_of(side.certificate, now)
        if end is not None and now >= self._warned_at.get(side.place, 0) + _DAY_SECONDS:
            self._warned_at[side.place] = now
            self._report(OperatorMessage("error" if end.is_over else "warning", f"{side.place}: {end.text}"))


def _what(side: TlsSide) -> str:
    found = side.certificate
    return "" if found is None else f" ({found.subject}, good until {_date(found)})"


def _date(certificate: OwnCertificate) -> str:
    return datetime.fromtimestamp(certificate.expires_at, UTC).strftime("%Y-%m-%d %H:%M UTC")


def _load_own(context: ssl.SSLContext, cert_file: Path, key_file: Path, password: str | None) -> None:
    for name, path in (("cert_file", cert_file), ("key_file", key_file)):
        _readable(path, name)
    try:
        # Never None: OpenSSL would ask for the password at the terminal.
        context.load_cert_chain(cert_file, key_file, password or "")
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise TlsError(f"the key in {key_file} is not that of the certificate in {cert_file}") from None
        raise TlsError(f"cert_file {cert_file} and key_file {key_file} cannot be used: {_why(error)}") from None


def _load_trusted(context: ssl.SSLContext, path: Path, name: str) -> None:
    _readable(path, name)
    try:
        context.load_verify_locations(path)
    except ssl.SSLError as error:
        raise TlsError(f"{name} {path} cannot be used: {_why(error)}") from None


def _why(error: ssl.SSLError) -> str:
    if error.reason is None:
        return "no PEM, or the key's password is wrong"
    return error.reason.lower().replace("_", " ")


def _readable(path: Path, name: str) -> None:
    try:
        path.open("rb").close()
    except OSError as error:
        raise TlsError(f"{name} {path}: {error.strerror}") from None


def _files(settings: TlsServer | TlsClient) -> tuple[Path, ...]:
    named = [settings.cert_file, settings.key_file]
    if isinstance(settings, TlsServer):
        named += [settings.client_ca_file, settings.client_crl_file]
    else:
        named.append(settings.ca_file)
    return tuple(path for path in named if path is not None)


def _stamp(settings: TlsServer | TlsClient) -> Stamp:
    """Return what changes when the files change. Links are followed: Kubernetes swaps the folder that they lead to."""
    stamps: list[tuple[int, int, int] | None] = []
    for path in _files(settings):
        try:
            status = path.stat()
        except OSError:
            stamps.append(None)
        else:
            stamps.append((status.st_mtime_ns, status.st_ino, status.st_size))
    return tuple(stamps)

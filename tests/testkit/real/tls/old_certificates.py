"""Certificates as clusters of 2016 have them: RSA keys of 1024 bits, signatures of SHA-1, TLS before 1.2."""

from __future__ import annotations

import socket
import ssl
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from .certificates import Authority, Files

_SHA256_WITH_RSA, _SHA1_WITH_RSA = (bytes.fromhex(f"06092a864886f70d0101{last}") for last in ("0b", "05"))
_SECONDS_MAX = 10.0


class OldAuthority(Authority):
    """One with an RSA key. ``issue_old`` takes the place of ``issue``."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.ca_file = directory / "old-authority.pem"
        self._key = rsa.generate_private_key(65537, 2048)
        self._name = _name("old authority")
        own = self._builder(self._name, self._key.public_key())
        made = own.add_extension(x509.BasicConstraints(True, None), True).sign(self._key, hashes.SHA256())
        self.ca_file.write_bytes(made.public_bytes(Encoding.PEM))

    def issue_old(self, name: str, *, key_bits: int = 1024, with_sha1: bool = False) -> Files:
        """Write a certificate for localhost."""
        key = rsa.generate_private_key(65537, key_bits)
        names = x509.SubjectAlternativeName([x509.DNSName("localhost")])
        builder = self._builder(_name(name), key.public_key()).add_extension(names, False)
        made = builder.sign(self._key, hashes.SHA256())
        files = Files(self.directory / f"{name}.pem", self.directory / f"{name}.key")
        encoded = made.public_bytes(Encoding.DER)
        if with_sha1:
            encoded = self._signed_with_sha1(made)
        files.cert.write_text(ssl.DER_cert_to_PEM_cert(encoded))
        files.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        return files

    def _builder(self, name: x509.Name, key: rsa.RSAPublicKey) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        builder = x509.CertificateBuilder().subject_name(name).issuer_name(self._name).public_key(key)
        builder = builder.serial_number(x509.random_serial_number()).not_valid_before(now - timedelta(days=1))
        return builder.not_valid_after(now + timedelta(days=30))

    def _signed_with_sha1(self, made: x509.Certificate) -> bytes:
        """The library signs nothing with SHA-1 any more. Names of algorithms, and signatures, have equal lengths."""
        body = made.tbs_certificate_bytes.replace(_SHA256_WITH_RSA, _SHA1_WITH_RSA)
        signature = self._key.sign(body, padding.PKCS1v15(), hashes.SHA1())
        encoded = made.public_bytes(Encoding.DER).replace(_SHA256_WITH_RSA, _SHA1_WITH_RSA)
        return encoded[: -len(signature)] + signature


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, common_name)])


@contextmanager
def old_server(own: Files, newest: ssl.TLSVersion = ssl.TLSVersion.TLSv1_2) -> Iterator[tuple[str, int]]:
    """Yield the address of a server that takes everything which is weak, and sends back what it reads. It speaks no
    TLS above ``newest``."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version, context.maximum_version = ssl.TLSVersion.TLSv1, newest
    context.load_cert_chain(own.cert, own.key)

    def serve(listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                line, _ = listener.accept()
                line.settimeout(_SECONDS_MAX)
                with suppress(OSError), context.wrap_socket(line, server_side=True) as client:
                    while data := client.recv(65536):
                        client.sendall(data)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(_SECONDS_MAX)
        thread = threading.Thread(target=serve, args=(listener,), daemon=True)
        thread.start()
        try:
            yield "localhost", listener.getsockname()[1]
        finally:
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            thread.join(_SECONDS_MAX)

"""Certificates for tests: an authority of our own, files for the proxy, stores for old brokers. Nothing is trusted by
anybody else."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
    pkcs12,
)

PASSWORD = "changeit"
HOST_NAMES = ("localhost", "127.0.0.1")


@dataclass(frozen=True)
class Files:
    """One certificate with its key, as PEM files."""

    cert: Path
    key: Path


class Authority:
    """One that signs certificates. Its own is in ``ca_file``."""

    def __init__(self, directory: Path, name: str = "authority") -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.ca_file = directory / f"{name}.pem"
        self._authority = trustme.CA(organization_name=f"{name} of the tests")
        self._authority.cert_pem.write_to_path(self.ca_file)

    def issue(
        self,
        name: str,
        *names: str,
        common_name: str | None = None,
        unit: str | None = None,
        expires_in: timedelta = timedelta(days=365),
        into: Files | None = None,
    ) -> Files:
        """Write a certificate for these host names and addresses. ``into``: over these files, as a renewal does.
        Without a ``unit`` every subject is another one."""
        expires = datetime.now(UTC) + expires_in
        made = self._authority.issue_cert(
            *(names or HOST_NAMES), common_name=common_name, organization_name="Example", not_after=expires,
            organization_unit_name=unit,
            not_before=expires - timedelta(days=800),
        )  # fmt: skip
        files = into or Files(self.directory / f"{name}.pem", self.directory / f"{name}.key")
        files.cert.write_bytes(b"".join(blob.bytes() for blob in made.cert_chain_pems))
        files.key.write_bytes(made.private_key_pem.bytes())
        return files

    def revoke(self, *revoked: Files, next_in: timedelta = timedelta(days=1)) -> Path:
        """Write the list of revoked certificates again. ``next_in``: when the next list is due."""
        (issuer,) = x509.load_pem_x509_certificates(self.ca_file.read_bytes())
        now = datetime.now(UTC)
        builder = x509.CertificateRevocationListBuilder().issuer_name(issuer.subject)
        builder = builder.last_update(now - timedelta(days=2)).next_update(now + next_in)
        for files in revoked:
            number = x509.load_pem_x509_certificates(files.cert.read_bytes())[0].serial_number
            one = x509.RevokedCertificateBuilder().serial_number(number).revocation_date(now).build()
            builder = builder.add_revoked_certificate(one)
        key = load_pem_private_key(self._authority.private_key_pem.bytes(), None)
        signed = builder.sign(key, hashes.SHA256())  # type: ignore[arg-type]
        path = self.ca_file.with_suffix(".crl")
        path.write_bytes(signed.public_bytes(Encoding.PEM))
        return path

    def encrypted_key(self, files: Files, password: str = PASSWORD) -> Path:
        """Write the key of these files once more, under the password."""
        key = load_pem_private_key(files.key.read_bytes(), None)
        path = files.key.with_suffix(".encrypted")
        protection = BestAvailableEncryption(password.encode())
        path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, protection))
        return path

    def key_store(self, files: Files) -> Path:
        """Write certificate and key for Java (PKCS12, with the password)."""
        chain = x509.load_pem_x509_certificates(files.cert.read_bytes())
        key = load_pem_private_key(files.key.read_bytes(), None)
        path = files.cert.with_suffix(".p12")
        protection = BestAvailableEncryption(PASSWORD.encode())
        # trustme's keys are of the kinds that a PKCS12 file takes
        path.write_bytes(
            pkcs12.serialize_key_and_certificates(b"own", key, chain[0], chain[1:], protection)  # type: ignore[arg-type]
        )
        return path

    def trust_store(self) -> Path:
        """Write the authority's certificate for Java (PKCS12, with the password)."""
        (certificate,) = x509.load_pem_x509_certificates(self.ca_file.read_bytes())
        trusted = [pkcs12.PKCS12Certificate(certificate, b"authority")]
        path = self.ca_file.with_suffix(".trust.p12")
        path.write_bytes(pkcs12.serialize_java_truststore(trusted, BestAvailableEncryption(PASSWORD.encode())))
        return path


def old_style(directory: Path, common_name: str) -> Files:
    """Write a certificate as old key stores have it: RSA, signed by itself, the host's name in the subject only."""
    key = rsa.generate_private_key(65537, 2048)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, common_name)])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    files = Files(directory / "old-style.pem", directory / "old-style.key")
    files.cert.write_bytes(made.public_bytes(Encoding.PEM))
    files.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return files

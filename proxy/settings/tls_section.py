"""The parts of the configuration about TLS, as pydantic models; their docstrings are the texts of the JSON schema."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, SecretStr, model_validator

from .fields import ReadableFile, SecretFile, Section, secret_of
from .tls import OLD_VERSIONS, TlsClient, TlsServer


class _Passworded(Section):
    key_file: ReadableFile | None = None
    """Private key of `cert_file`, PEM."""
    key_password: SecretStr | None = None
    """Password of the private key. Better in a file or in the environment."""
    key_password_file: SecretFile | None = None
    """File that holds the password of the private key."""

    @model_validator(mode="after")
    def _one_password(self) -> Self:
        if self.key_password is not None and self.key_password_file is not None:
            raise ValueError("key_password or key_password_file, not both")
        return self

    def _password(self) -> str | None:
        return secret_of(self.key_password, self.key_password_file)


class _TowardsServer(_Passworded):
    ca_file: ReadableFile | None = None
    """Authorities that the server's certificate may come from, PEM. Default: those of the system."""
    cert_file: ReadableFile | None = None
    """Our certificate for servers that want one, PEM, with the chain."""
    server_name: str | None = None
    """Name that the server's certificate has to bear. Default: the host that is connected to."""

    @model_validator(mode="after")
    def _pair(self) -> Self:
        if (self.cert_file is None) != (self.key_file is None):
            raise ValueError("cert_file and key_file belong together")
        return self

    def _plain(self, minimum_version: str, security_level: int | None = None) -> TlsClient:
        return TlsClient(
            self.ca_file,
            self.cert_file,
            self.key_file,
            self._password(),
            self.server_name,
            minimum_version,
            security_level,
        )


class ClientTlsSection(_TowardsServer):
    """TLS towards a server; `{}` turns it on with the authorities of the system."""

    minimum_version: Literal["1.2", "1.3"] = "1.2"
    """The oldest version of TLS that is spoken."""

    def to_settings(self) -> TlsClient:
        """Return plain data. Reads the password's file."""
        return self._plain(self.minimum_version)


class UpstreamTlsSection(_TowardsServer):
    """TLS towards the brokers; `{}` turns it on with the authorities of the system."""

    minimum_version: Literal["1.0", "1.1", "1.2", "1.3"] = "1.2"
    """The oldest version of TLS that is spoken. 1.0 and 1.1 need `security_level: 0`."""
    security_level: Annotated[int, Field(ge=0, le=5)] | None = None
    """How weak a broker's certificate, keys and ciphers may be, in OpenSSL's levels: 1 takes RSA keys of 1024 bits, 0
    also SHA-1 signatures and TLS before 1.2. Default: OpenSSL's own (2)."""

    @model_validator(mode="after")
    def _weak_enough(self) -> Self:
        if self.minimum_version in OLD_VERSIONS and self.security_level != 0:
            raise ValueError(
                f"minimum_version {self.minimum_version} needs security_level: 0: OpenSSL speaks TLS 1.0 and 1.1 at no "
                "other level"
            )
        return self

    def to_settings(self) -> TlsClient:
        """Return plain data. Reads the password's file."""
        return self._plain(self.minimum_version, self.security_level)


class ServerTlsSection(_Passworded):
    """TLS of a listener."""

    cert_file: ReadableFile
    """Our certificate, PEM, with the chain."""
    key_file: ReadableFile
    """Private key of `cert_file`, PEM."""
    client_ca_file: ReadableFile | None = None
    """Authorities that clients' certificates may come from, PEM."""
    client_auth: Literal["none", "optional", "required"] = "none"
    """Do clients have to show a certificate?"""
    client_crl_file: ReadableFile | None = None
    """Clients' certificates that are revoked: a list (CRL) of every authority in `client_ca_file`, PEM."""
    minimum_version: Literal["1.2", "1.3"] = "1.2"
    """The oldest version of TLS that is spoken."""

    @model_validator(mode="after")
    def _authority(self) -> Self:
        if (self.client_auth == "none") != (self.client_ca_file is None):
            raise ValueError("client_ca_file is needed for client_auth optional or required, and for nothing else")
        if self.client_crl_file is not None and self.client_ca_file is None:
            raise ValueError("client_crl_file without client_ca_file has no meaning")
        return self

    def to_settings(self) -> TlsServer:
        """Return plain data. Reads the password's file."""
        return TlsServer(
            self.cert_file,
            self.key_file,
            self._password(),
            self.client_ca_file,
            self.client_auth,
            self.minimum_version,
            self.client_crl_file,
        )

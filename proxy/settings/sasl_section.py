"""The part of the configuration about SASL towards the brokers, as a pydantic model; its docstrings are the texts of
the JSON schema."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, SecretStr, model_validator

from .fields import ReadableFile, SecretFile, Section, secret_of
from .sasl import SaslClient


class SaslSection(Section):
    """The principal that the proxy itself is to the brokers."""

    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
    """As the brokers have it."""
    username: Annotated[str, Field(min_length=1, pattern=r"^[^\x00]+$")] | None = None
    """Name of the principal, for PLAIN and SCRAM."""
    password: SecretStr | None = None
    """Its password. Better in a file or in the environment."""
    password_file: SecretFile | None = None
    """File that holds the password."""
    token_file: ReadableFile | None = None
    """File that holds a token, for OAUTHBEARER; it is read again when it changes."""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        passwords = (self.password is not None) + (self.password_file is not None)
        if self.mechanism == "OAUTHBEARER":
            if self.token_file is None or passwords or self.username is not None:
                raise ValueError("the mechanism OAUTHBEARER needs token_file, and no username or password")
        elif self.username is None or passwords != 1 or self.token_file is not None:
            raise ValueError(
                f"the mechanism {self.mechanism} needs username and one of password and password_file, no token_file"
            )
        if self.password_file is None or self.password_file.is_file():  # a pipe can be read only once
            self._password()
        return self

    def _password(self) -> str | None:
        password = secret_of(self.password, self.password_file)
        if password is not None and (not password or "\0" in password):
            raise ValueError("the password is empty or has a zero byte")
        return password

    def to_settings(self) -> SaslClient:
        """Return plain data. Reads the password's file."""
        return SaslClient(self.mechanism, self.username, self._password(), self.token_file)

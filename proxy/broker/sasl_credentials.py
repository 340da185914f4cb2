"""Our credentials towards the brokers, and the exchanges that prove them (``codecs/sasl.py``). Reads the token's file;
knows no frame.

No secret is ever in an error."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from pathlib import Path

from ...codecs.sasl import (
    NONCE_BYTES,
    OAUTHBEARER,
    PLAIN,
    SCRAM_HASHES,
    Mechanism,
    OAuthBearer,
    Plain,
    SaltedPasswords,
    SaslError,
    Scram,
)
from .. import limits
from ..settings.sasl import SaslClient


class Credentials:
    """Our credentials, and the exchanges that prove them. They can be replaced while the process runs."""

    def __init__(self, settings: SaslClient, random_bytes: Callable[[int], bytes]) -> None:
        self.settings = settings
        self.version = 0
        """Grows whenever the settings or the token change."""
        self._random_bytes = random_bytes
        self._salted = SaltedPasswords()
        self._token = _TokenFile()

    def replace(self, settings: SaslClient) -> None:
        """Use these settings from the next exchange on."""
        if settings != self.settings:
            self.settings = settings
            self._salted = SaltedPasswords()
            self.version += 1

    @property
    def shown(self) -> str:
        """Our principal, for messages to people."""
        name = "" if self.settings.username is None else f" as {self.settings.username!r}"
        return f"{self.settings.mechanism}{name}"

    def look(self) -> None:
        """Read the token again if it has changed. Raises SaslError."""
        if self.settings.token_file is not None and self._token.look(self.settings.token_file):
            self.version += 1

    def begin(self) -> Mechanism:
        """Return a new exchange. Raises SaslError when there is no token."""
        said = self.settings
        if said.mechanism == OAUTHBEARER:
            self.look()
            return OAuthBearer(self._token.token)
        assert said.username is not None
        assert said.password is not None
        if said.mechanism == PLAIN:
            return Plain(said.username, said.password)
        nonce = b64encode(self._random_bytes(NONCE_BYTES))
        return Scram(SCRAM_HASHES[said.mechanism], said.username, said.password, nonce, self._salted.get)


class _TokenFile:
    """The token in a file that another program renews."""

    def __init__(self) -> None:
        self.token = ""
        self._stamp: tuple[str, int, int, int] | None = None

    def look(self, path: Path) -> bool:
        """Read the file if it has changed; return whether the token is another one."""
        try:
            status = path.stat()
            stamp = (str(path), status.st_mtime_ns, status.st_ino, status.st_size)
            if stamp == self._stamp:
                return False
            if status.st_size > limits.SASL_FRAME_BYTES_MAX:
                raise SaslError(f"token_file {path}: {status.st_size} bytes are no token")
            token = path.read_bytes().decode("ascii").strip()
        except OSError as error:
            raise SaslError(f"token_file {path}: {error.strerror}") from None
        except UnicodeDecodeError:
            token = ""
        if not token or not token.isprintable():
            raise SaslError(f"token_file {path}: there is no token in it")
        before, self.token, self._stamp = self.token, token, stamp
        return before != token

"""A virtual broker that takes SASL PLAIN, of both kinds, and one who wants a connection: for tests of exchanges."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from idemproxy.codecs import messages
from idemproxy.codecs.framing import frame
from idemproxy.codecs.headers import encode_response_header, parse_request_header
from idemproxy.codecs.sasl import PLAIN
from idemproxy.proxy.versions import ApiKey
from idemproxy.reactor import Wire
from testkit.virtual.network import NetworkSettings

ADDRESS = ("kafka", 9093)
OLD = {ApiKey.SASL_HANDSHAKE: 0, ApiKey.API_VERSIONS: 0}
NEW = {ApiKey.SASL_HANDSHAKE: 1, ApiKey.API_VERSIONS: 2, ApiKey.SASL_AUTHENTICATE: 1}
WHOLE = NetworkSettings(split_chance=0.0, partial_write_chance=0.0, truncation_chance=0.0)
IN_PIECES = NetworkSettings(split_chance=1.0, partial_write_chance=0.5, truncation_chance=0.0)


@dataclass
class Rules:
    """How the broker behaves."""

    versions: dict[ApiKey, int] = field(default_factory=lambda: dict(OLD))
    mechanisms: tuple[str, ...] = (PLAIN,)
    password: bytes = b"secret"
    handshake_error: int = 0
    after: bytes = b""
    silent_on: str = ""
    hangs_up_on: str = ""
    echo: bytes = b""
    starts_at: str = "versions"


class VirtualSaslBroker:
    """One connection at a broker that takes SASL PLAIN, and then answers every frame with ``echo``."""

    def __init__(self, rules: Rules, log: list[str]) -> None:
        self.rules = rules
        self.log = log
        self.state = rules.starts_at
        self.buffer = b""
        self.handshake_version = -1
        self.wire: Wire | None = None

    def connected(self, wire: Wire) -> None:
        self.wire = wire
        self.log.append("connected")

    def lost(self, reason: str) -> None:
        self.log.append("lost")

    def received(self, data: bytes) -> None:
        self.buffer += data
        while len(self.buffer) >= 4 and len(self.buffer) >= 4 + int.from_bytes(self.buffer[:4], "big"):
            end = 4 + int.from_bytes(self.buffer[:4], "big")
            found, self.buffer = self.buffer[4:end], self.buffer[end:]
            self.handle(found)

    def handle(self, data: bytes) -> None:
        assert self.wire is not None
        bare = self.state == "token" and self.handshake_version == 0
        header = None if bare or self.state == "open" else parse_request_header(data)
        what = "token" if bare else "open" if header is None else ApiKey(header.api_key).name
        self.log.append(what)
        if self.rules.hangs_up_on == what:
            self.wire.close()
        elif self.rules.silent_on != what:
            for answer in self.answers(what, header, data if header is None else data[header.body_offset :]):
                self.wire.send(frame(answer))

    def answers(self, what: str, header: Any, body: bytes) -> Iterator[bytes]:
        if what == "open":
            yield self.rules.echo
            return
        if header is None:
            if body != b"\0proxy\0" + self.rules.password:
                assert self.wire is not None
                self.wire.close()
                return
            self.state = "open"
            yield b""
            if self.rules.after:
                yield self.rules.after
            return
        key, version = header.api_key, header.api_version
        start = encode_response_header(key, version, header.correlation_id)
        yield start + messages.encode_response(key, version, **self.fields(ApiKey(key), version, body))

    def fields(self, key: ApiKey, version: int, body: bytes) -> dict[str, Any]:
        if key == ApiKey.API_VERSIONS:
            self.state = "handshake"
            keys = [
                {"api_key": one, "min_version": 0, "max_version": last} for one, last in self.rules.versions.items()
            ]
            return {"error_code": 0, "api_keys": keys}
        if key == ApiKey.SASL_HANDSHAKE:
            assert version <= self.rules.versions[ApiKey.SASL_HANDSHAKE]
            self.handshake_version = version
            asked = messages.decode_request(key, version, body).mechanism
            self.state = "token"
            error = self.rules.handshake_error or (0 if asked in self.rules.mechanisms else 33)
            return {"error_code": error, "mechanisms": list(self.rules.mechanisms)}
        assert key == ApiKey.SASL_AUTHENTICATE
        if bytes(messages.decode_request(key, version, body).auth_bytes) == b"\0proxy\0" + self.rules.password:
            self.state = "open"
            return {"error_code": 0, "error_message": None, "auth_bytes": b""}
        return {"error_code": 58, "error_message": "wrong, \x1b[31mmy friend", "auth_bytes": b""}


class Client:
    """Who wants a connection."""

    def __init__(self) -> None:
        self.wire: Wire | None = None
        self.data = b""
        self.reasons: list[str] = []

    def connected(self, wire: Wire) -> None:
        assert self.wire is None
        self.wire = wire

    def received(self, data: bytes) -> None:
        self.data += data

    def lost(self, reason: str) -> None:
        self.reasons.append(reason)

"""The errors of everything but producing: those of a batch are in ``producing/errors.py``."""

from __future__ import annotations

from ..producing.errors import ClientError, shown_code


class ConnectionFailed(ClientError):
    """A server cannot be reached, the connection to it ended, or it does not answer in time."""


class AnswersOutOfOrder(ConnectionFailed):
    """The server answered a later request first, on one connection. What belongs to which request cannot be known."""


class AuthenticationFailed(ConnectionFailed):
    """The server does not accept us. Not tried again."""


class UnsupportedServer(ClientError):
    """The server lacks an API, or has no version of it that is spoken here."""


class RequestRefused(ClientError):
    """The server answered a request that appends nothing with an error."""

    def __init__(self, what: str, code: int) -> None:
        super().__init__(f"{what}: {shown_code(code)}")
        self.code = code


class OffsetOutOfRange(RequestRefused):
    """There is no such offset in the log: it was deleted, or is not written yet."""


class TimesUnsupported(ClientError):
    """The server, or a log in message format v0, finds no offsets by time."""


class UnreadableLog(ClientError):
    """What a partition holds at an offset cannot be read: a wrong checksum, an unknown codec."""

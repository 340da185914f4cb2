"""What can be wrong with received bytes: one small tree of exceptions. Everything that bytes from outside can trigger
is a ``WireError``. Anything else that leaves ``codecs`` is a bug of ours.
"""

from __future__ import annotations


class WireError(Exception):
    """The other side sent something that can't be read. The message says which field, and where."""


class Truncated(WireError):
    """A field reaches beyond the end of what was sent."""


class Malformed(WireError):
    """A field has a value that it can't have."""


class ChecksumMismatch(WireError):
    """The checksum does not fit the bytes."""


class UnsupportedVersion(WireError):
    """A version of an API that is not served here."""

    def __init__(self, api_key: int, api_version: int) -> None:
        super().__init__(f"API {api_key} in version {api_version} is not supported")
        self.api_key = api_key
        self.api_version = api_version


class LimitExceeded(WireError):
    """A size or a count is above its limit. The message names the limit and its unit."""


class RecordLimitExceeded(LimitExceeded):
    """One record is above a limit: it does not help to split its batch."""

"""What ends a read. Each message is a sentence for a person: Spark shows it as the reason of the query's failure."""

from __future__ import annotations


class WrongOption(ValueError):
    """An option, or options that do not go together."""


class DataLost(Exception):
    """Records that should be there are not. With ``failOnDataLoss`` false nothing raises it."""


class DamagedLog(Exception):
    """A part of the log that cannot be read, as ``DataLost``."""

"""Which columns a query has. Spark asks for them in a process of its own, so nothing else is imported here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.sql.types import StructType

from .options import Rows, check_names, rows_of
from .problems import WrongOption

Columns = tuple[tuple[str, str], ...]
"""Name and type of Spark."""
RECORDS: Final[Columns] = (
    ("key", "binary"),
    ("value", "binary"),
    ("topic", "string"),
    ("partition", "int"),
    ("offset", "bigint"),
    ("timestamp", "timestamp"),
    ("timestampType", "int"),
)
RECORDS_WITH_HEADERS: Final[Columns] = (*RECORDS, ("headers", "array<struct<key:string,value:binary>>"))
BATCHES: Final[Columns] = (
    ("topic", "string"),
    ("partition", "int"),
    ("baseOffset", "bigint"),
    ("lastOffset", "bigint"),
    ("recordCount", "int"),
    ("timestamp", "timestamp"),
    ("timestampType", "int"),
    ("producerId", "bigint"),
    ("producerEpoch", "int"),
    ("baseSequence", "int"),
    ("batchMarker", "binary"),
    ("magic", "int"),
    ("codec", "string"),
    ("crc", "bigint"),
    ("crcIsValid", "boolean"),
    ("sizeBytes", "int"),
    ("entryOffset", "bigint"),
    ("isTransactional", "boolean"),
    ("isControl", "boolean"),
)


def columns_for(options: Mapping[str, str]) -> str:
    """Return the columns as Spark declares them. Raises WrongOption."""
    check_names(options)
    return ", ".join(f"{name} {kind}" for name, kind in _columns(options))


def check_schema(schema: StructType, options: Mapping[str, str]) -> None:
    """Raise WrongOption if the user has declared other columns."""
    wanted = ",".join(f"{name}:{kind}" for name, kind in _columns(options))
    if schema.simpleString() != f"struct<{wanted}>":
        raise WrongOption(f"schema: the columns are given, leave it out: {columns_for(options)}")


def _columns(options: Mapping[str, str]) -> Columns:
    rows, includes_headers = rows_of(options)
    if rows is Rows.BATCHES:
        return BATCHES
    return RECORDS_WITH_HEADERS if includes_headers else RECORDS

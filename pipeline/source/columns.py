"""Which columns a query has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql.types import StructType

from . import batches, records
from .options import Rows, check_names, rows_of
from .problems import WrongOption


def columns_for(options: Mapping[str, str]) -> str:
    """Return the columns as Spark declares them. Raises WrongOption."""
    check_names(options)
    return ", ".join(f"{name} {kind}" for name, kind, _ in _columns(options))


def check_schema(schema: StructType, options: Mapping[str, str]) -> None:
    """Raise WrongOption for columns that somebody else has declared."""
    wanted = ",".join(f"{name}:{kind}" for name, kind, _ in _columns(options))
    if schema.simpleString() != f"struct<{wanted}>":
        raise WrongOption(f"schema: the columns are given, leave it out: {columns_for(options)}")


def _columns(options: Mapping[str, str]) -> tuple[tuple[str, str, Any], ...]:
    rows, includes_headers = rows_of(options)
    if rows is Rows.BATCHES:
        return batches.COLUMNS
    return records.COLUMNS_WITH_HEADERS if includes_headers else records.COLUMNS

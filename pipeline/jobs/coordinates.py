"""Source coordinates: where a record was before it was written elsewhere. Functions from DataFrame to DataFrame.

A record that is written to another topic loses its place: no reader can tell whether two equal records were one before.
With topic, partition and offset of the source in each record, any later job can. They are carried in headers, which
brokers before 0.11 do not store, or in the value: a line of JSON, a newline, and the value as it was.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ...client.coordinates import IS_NULL
from ...client.coordinates import SOURCE_OFFSET as OFFSET
from ...client.coordinates import SOURCE_PARTITION as PARTITION
from ...client.coordinates import SOURCE_TOPIC as TOPIC

HEADERS: Final = "headers"
VALUE: Final = "value"
COORDINATES: Final = ("source_topic", "source_partition", "source_offset")
_LINE: Final = f"`{TOPIC}` string, `{PARTITION}` int, `{OFFSET}` bigint, `{IS_NULL}` boolean"
_HEADERS: Final = "array<struct<key:string,value:binary>>"


def with_coordinates(rows: DataFrame, carrier: str = HEADERS) -> DataFrame:
    """Return rows of the source with their coordinates added to what they carry. ``rows``: topic, partition, offset,
    value, and headers if there are any. ``carrier``: ``headers`` or ``value``."""
    if carrier == VALUE:
        line = F.to_json(
            F.struct(
                F.col("topic").alias(TOPIC),
                F.col("partition").alias(PARTITION),
                F.col("offset").alias(OFFSET),
                F.col("value").isNull().alias(IS_NULL),
            )
        )
        value = F.coalesce(F.col("value").cast("binary"), F.lit(bytearray()))
        return rows.withColumn("value", F.concat(F.encode(line, "UTF-8"), F.lit(bytearray(b"\n")), value))
    ours = F.array(*(_header(name, column) for name, column in zip((TOPIC, PARTITION, OFFSET), _PLACE, strict=True)))
    theirs = F.col("headers") if "headers" in rows.columns else F.lit(None).cast(_HEADERS)
    kept = F.filter(theirs, lambda one: ~one["key"].isin(TOPIC, PARTITION, OFFSET))
    return rows.withColumn("headers", F.concat(F.coalesce(kept, F.array().cast(_HEADERS)), ours.cast(_HEADERS)))


def coordinates_of(rows: DataFrame, carrier: str = HEADERS) -> DataFrame:
    """Return rows with the columns ``COORDINATES``, and everything else as it was before they were added. Null where a
    record has none."""
    if carrier == VALUE:
        newline = F.instr(F.decode(F.col("value"), "ISO-8859-1"), "\n")
        said = F.from_json(F.decode(F.substring("value", F.lit(1), newline - 1), "UTF-8"), _LINE)
        rows = rows.withColumn("_said", F.when(newline > 0, said))
        rest = F.substring("value", newline + 1, F.length("value"))
        value = F.when(F.col("_said").getField(OFFSET).isNull(), F.col("value")).when(
            ~F.col("_said").getField(IS_NULL), rest
        )
        places = [F.col("_said").getField(name).alias(as_name) for name, as_name in _NAMED]
        others = [F.col(name) for name in rows.columns if name not in ("_said", "value")]
        return rows.select(*others, value.alias("value"), *places)
    found = {name: _header_of(name) for name, _ in _NAMED}
    topic, partition, offset = (found[name] for name, _ in _NAMED)
    left = F.filter(F.col("headers"), lambda one: ~one["key"].isin(TOPIC, PARTITION, OFFSET))
    return (
        rows.withColumn("source_topic", topic)
        .withColumn("source_partition", partition.cast("int"))
        .withColumn("source_offset", offset.cast("bigint"))
        .withColumn("headers", F.when(F.size(left) > 0, left))
    )


_PLACE: Final = ("topic", "partition", "offset")
_NAMED: Final = tuple(zip((TOPIC, PARTITION, OFFSET), COORDINATES, strict=True))


def _header(name: str, column: str) -> Column:
    return F.struct(F.lit(name).alias("key"), F.encode(F.col(column).cast("string"), "UTF-8").alias("value"))


def _header_of(name: str) -> Column:
    """The text of the last header of this name, null if there is none."""
    values = F.transform(F.filter(F.col("headers"), lambda one: one["key"] == F.lit(name)), lambda one: one["value"])
    return F.decode(F.try_element_at(values, F.lit(-1)), "UTF-8")

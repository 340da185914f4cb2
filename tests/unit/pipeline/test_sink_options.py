"""Options are Spark's and Kafka's own; whatever is not meant for this sink is refused with a sentence."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from idemproxy.codecs.compression import Codec
from idemproxy.pipeline.sink.options import Login, known_options, sink_options
from idemproxy.pipeline.sink.problems import SinkProblem
from idemproxy.pipeline.sink.writer import check_schema

ROOT = Path(__file__).resolve().parents[3]
STREAM = {"kafka.bootstrap.servers": "one:9092,two:9092", "checkpointLocation": "/chk/"}
RUN = {"kafka.bootstrap.servers": "one:9092", "stagingLocation": "s3a://bucket/stage", "producerName": "run-1"}
JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="al\\"ice" password="se cret";'


def test_a_stream_keeps_its_files_in_its_checkpoint_and_a_run_below_its_name() -> None:
    assert sink_options(STREAM, is_streaming=True).location == "/chk/sink"
    assert sink_options(RUN, is_streaming=False).location == "s3a://bucket/stage/run-1/sink"


def test_spark_tells_names_in_lower_case() -> None:
    lowered = {name.lower(): value for name, value in {**STREAM, "producerExpirySeconds": "60"}.items()}
    assert sink_options(lowered, is_streaming=True) == sink_options(
        {**STREAM, "producerExpirySeconds": "60"}, is_streaming=True
    )


def test_kafka_s_own_settings_are_read() -> None:
    given = {
        **STREAM,
        "topic": "out",
        "kafka.compression.type": "GZIP",
        "kafka.batch.size": "65536",
        "kafka.delivery.timeout.ms": "30000",
        "kafka.security.protocol": "sasl_ssl",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": JAAS,
        "kafka.acks": "-1",
    }
    options = sink_options(given, is_streaming=True)
    assert options.connection.login == Login("SCRAM-SHA-512", 'al"ice', "se cret")
    assert "se cret" not in repr(options)
    assert (options.codec, options.batch_bytes, options.delivery_seconds_max) == (Codec.GZIP, 65536, 30.0)
    assert pickle.loads(pickle.dumps(options)) == options


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"kafka.linger.ms": "5", "Topics": "x"}, "unknown options: Topics, kafka.linger.ms; known are topic, "),
        ({"path": "/x"}, "the topic is set by the option topic"),
        ({"kafka.acks": "1"}, "kafka.acks: an exactly-once sink needs all"),
        ({"kafka.enable.idempotence": "false"}, "needs true"),
        ({"checkpointLocation": ""}, "has to be an option of the query itself"),
        ({"stagingLocation": "/s"}, "stagingLocation is for batch writes"),
        ({"kafka.bootstrap.servers": ""}, "kafka.bootstrap.servers is missing"),
        ({"kafka.bootstrap.servers": "nowhere"}, "'nowhere' is not host:port"),
        ({"kafka.batch.size": "1_000"}, "kafka.batch.size: '1_000' is no whole number"),
        ({"producerExpirySeconds": "0"}, "producerExpirySeconds: '0' is no whole number from 1"),
        ({"producerName": "a/b"}, "producerName 'a/b'"),
        ({"kafka.compression.type": "brotli"}, "none of none, gzip, snappy, lz4, zstd"),
        ({"kafka.security.protocol": "TLS"}, "none of PLAINTEXT, SSL"),
        ({"kafka.security.protocol": "SASL_PLAINTEXT"}, "username=.* is expected"),
        (
            {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.jaas.config": JAAS},
            "kafka.sasl.mechanism: 'GSSAPI' is none of PLAIN",
        ),
        ({"kafka.ssl.truststore.location": "/a.jks"}, "PEM is read, no Java key stores"),
    ],
)
def test_what_is_wrong_is_said(more: dict[str, str], sentence: str) -> None:
    with pytest.raises(SinkProblem, match=sentence):
        sink_options({**STREAM, **more}, is_streaming=True)


@pytest.mark.parametrize("missing", ["stagingLocation", "producerName"])
def test_a_batch_write_needs_a_place_and_a_name(missing: str) -> None:
    with pytest.raises(SinkProblem, match="a batch write has no checkpoint"):
        sink_options({name: value for name, value in RUN.items() if name != missing}, is_streaming=False)


def test_every_known_option_is_taken() -> None:
    assert {"topic", "producerName", "kafka.batch.size"} <= set(known_options())
    assert "path" not in known_options()


def schema(**columns: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


def headers(value: DataType) -> DataType:
    return ArrayType(schema(key=StringType(), value=value))


@pytest.mark.parametrize(
    ("columns", "topic", "sentence"),
    [
        (schema(key=StringType()), "t", "a column value is needed"),
        (schema(value=BinaryType()), None, "no topic"),
        (schema(value=IntegerType()), "t", "the column value is int, and has to be binary or string"),
        (schema(value=StringType(), partition=LongType()), "t", "the column partition is bigint, and has to be int"),
        (schema(value=StringType(), headers=headers(StringType())), "t", "the column headers is array<struct<key:st"),
        (schema(value=StringType(), headers=MapType(StringType(), BinaryType())), "t", "the column headers is map"),
    ],
)
def test_columns_of_another_type_are_refused(columns: StructType, topic: str | None, sentence: str) -> None:
    with pytest.raises(SinkProblem, match=sentence):
        check_schema(columns, topic)


def test_the_columns_of_spark_s_own_kafka_source_are_taken() -> None:
    columns: dict[str, DataType] = {
        **{"key": BinaryType(), "VALUE": StringType(), "topic": StringType(), "partition": IntegerType()},
        **{"offset": LongType(), "timestamp": TimestampType(), "headers": headers(BinaryType())},
    }
    check_schema(schema(**columns), None)


def test_the_page_has_every_option_of_the_sink() -> None:
    sink, source = ((ROOT / f"docs/how-to/spark-{name}.md").read_text() for name in ("sink", "source"))
    security = source.split("\n### TLS and SASL\n")[1].split("\n## ")[0]
    cells = [line.split("|")[1] for line in (sink + security).splitlines() if line.startswith("| `")]
    named = {name for cell in cells for name in re.findall(r"`([\w.]+)`", cell)}
    taken_silently = {"includeHeaders", "queryName", "kafka.acks", "kafka.enable.idempotence"}
    assert set(known_options()) - taken_silently <= named
    assert {name for name in named if name.startswith("kafka.")} - set(known_options()) == {
        "kafka.ssl.endpoint.identification.algorithm"
    }, "the page says that this one is of the source only"

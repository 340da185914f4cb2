"""Options of ``format("idemproxy")``: Spark's names and values in, or one sentence that says what is wrong."""

from __future__ import annotations

import pickle
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from idemproxy.client.security import Sasl
from idemproxy.pipeline.reading.broker import EARLIEST, LATEST, Tls
from idemproxy.pipeline.source.columns import BATCHES, RECORDS_WITH_HEADERS
from idemproxy.pipeline.source.options import KNOWN, WITHOUT_USE, Rows, check_names, parse_options, rows_of
from idemproxy.pipeline.source.problems import WrongOption

BASE = {"kafka.bootstrap.servers": "one:9092,[::1]:9093", "subscribe": "orders"}
JAAS = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="al\\"ice" password="se;cret";'


def options(more: Mapping[str, str], without: str = "") -> dict[str, str]:
    return {name.lower(): value for name, value in {**BASE, **more}.items() if name != without}


def test_defaults_are_those_of_sparks_own_source() -> None:
    batch = parse_options(options({}), is_stream=False)
    stream = parse_options(options({}), is_stream=True)
    assert (batch.start.time, batch.end.time, stream.start.time) == (EARLIEST, LATEST, LATEST)
    assert batch.bootstrap == (("one", 9092), ("::1", 9093))
    assert batch.topics.names == ("orders",)
    assert batch.rows is Rows.RECORDS
    assert batch.fails_on_data_loss
    assert not batch.includes_headers
    assert batch.partitions_min is batch.records_per_task_max is stream.rows_per_trigger_max is None


def test_everything_is_taken() -> None:
    given = options(
        {
            "subscribe": " a, b ,a",
            "startingOffsets": '{"a":{"0":5,"1":-2},"b":{"0":-1},"begins at":{"a":{"0":1}}}',
            "minPartitions": "7",
            "maxRecordsPerPartition": "9",
            "maxOffsetsPerTrigger": "100",
            "failOnDataLoss": "FALSE",
            "includeHeaders": "true",
            "kafka.max.partition.fetch.bytes": "1000000000",
            "startingOffsetsByTimestampStrategy": "latest",
        }
    )
    taken = parse_options(given, is_stream=True)
    assert taken.topics.names == ("a", "b")
    assert taken.start.offsets == {("a", 0): 5, ("a", 1): EARLIEST, ("b", 0): LATEST}
    assert (taken.partitions_min, taken.records_per_task_max, taken.rows_per_trigger_max) == (7, 9, 100)
    assert (taken.fails_on_data_loss, taken.includes_headers, taken.may_begin_at_end) == (False, True, True)
    assert taken.fetch_bytes == 256 << 20
    assert pickle.loads(pickle.dumps(taken)) == taken


def test_a_time_for_all_comes_before_times_and_those_before_offsets() -> None:
    times = {"startingOffsetsByTimestamp": '{"orders":{"0":17}}', "startingOffsets": "latest"}
    assert parse_options(options(times), is_stream=True).start.times == {("orders", 0): 17}
    start = parse_options(options({**times, "startingTimestamp": "23"}), is_stream=True).start
    assert (start.time, start.option) == (23, "startingTimestamp")
    end = parse_options(options({"endingTimestamp": "9", "endingOffsets": "latest"}), is_stream=False).end
    assert end.time == 9


def test_topics_by_pattern_and_by_assignment() -> None:
    by_pattern = parse_options(options({"subscribePattern": "ord.*"}, "subscribe"), is_stream=False).topics
    assert by_pattern.pattern is not None
    assert by_pattern.pattern.fullmatch("orders")
    assigned = parse_options(options({"assign": '{"b":[1],"a":[2,0,0]}'}, "subscribe"), is_stream=False).topics
    assert assigned.partitions == (("a", 0), ("a", 2), ("b", 1))


def test_security_is_what_kafkas_own_options_say() -> None:
    given = {
        "kafka.security.protocol": "sasl_ssl",
        "kafka.sasl.mechanism": "SCRAM-SHA-256",
        "kafka.sasl.jaas.config": JAAS,
        "kafka.ssl.truststore.location": "/tls/ca.pem",
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.endpoint.identification.algorithm": "",
        "kafka.client.id": "me",
    }
    access = parse_options(options(given), is_stream=False).access
    assert access.sasl == Sasl("SCRAM-SHA-256", 'al"ice', "se;cret")
    assert access.tls == Tls(ca_file="/tls/ca.pem", checks_hostname=False)
    assert access.client_id == "me"
    assert "se;cret" not in repr(access)
    plain = parse_options(options({}), is_stream=False).access
    assert (plain.tls, plain.sasl) == (None, None)


@pytest.mark.parametrize(
    ("given", "without", "said"),
    [
        (
            {"subscrib": "x"},
            "",
            "subscrib: no such option to read with; there are kafka.bootstrap.servers, subscribe, ",
        ),
        ({"kafka.group.id": "x"}, "", "kafka.group.id: this source joins no consumer group; leave the option out"),
        ({}, "subscribe", "exactly one of subscribe, subscribePattern and assign is wanted, not 0"),
        ({"assign": '{"a":[0]}'}, "", "exactly one of subscribe, subscribePattern and assign is wanted, not 2"),
        ({"assign": '{"a":0}'}, "subscribe", "assign: a: a list of partitions is wanted"),
        ({"assign": '{"a":[-1]}'}, "subscribe", "assign: a: -1 is no partition"),
        ({"assign": "{}"}, "subscribe", "assign: no partition"),
        ({"subscribePattern": "("}, "subscribe", "subscribePattern: '\\('"),
        ({"subscribe": " ,"}, "", "subscribe: no topic"),
        ({}, "kafka.bootstrap.servers", "kafka.bootstrap.servers: '' is not host:port"),
        ({"kafka.bootstrap.servers": "a:1,b"}, "", "kafka.bootstrap.servers: 'b' is not host:port"),
        ({"kafka.bootstrap.servers": "a:70000"}, "", "is not host:port"),
        ({"startingOffsets": "first"}, "", "startingOffsets: 'first': latest or earliest, or offsets as JSON"),
        ({"startingOffsets": "{"}, "", "startingOffsets: this is no JSON"),
        ({"startingOffsets": '{"a":[5]}'}, "", 'startingOffsets: a: {"partition": number} is wanted'),
        ({"startingOffsets": '{"a":{"0":1.5}}'}, "", "startingOffsets: a, partition 0: 1.5 is no number"),
        ({"startingOffsets": '{"a":{"0":true}}'}, "", "startingOffsets: a, partition 0: True is no number"),
        ({"startingOffsets": '{"a":{"x":1}}'}, "", "startingOffsets: a: 'x' is no partition"),
        ({"startingOffsets": '{"a":{"0":-3}}'}, "", "startingOffsets: a-0: -3 is no offset to start at"),
        ({"startingOffsets": "latest"}, "", "startingOffsets: latest leaves a batch query nothing to read"),
        ({"endingOffsets": '{"a":{"0":-2}}'}, "", "endingOffsets: a-0: -2 is no offset to end at"),
        ({"endingOffsets": "earliest"}, "", "endingOffsets: 'earliest': latest, or offsets as JSON"),
        ({"startingTimestamp": "now"}, "", "startingTimestamp: 'now' is no time in ms"),
        ({"startingOffsetsByTimestamp": '{"a":{"0":-1}}'}, "", "startingOffsetsByTimestamp: times are in ms, 0 or"),
        ({"maxOffsetsPerTrigger": "5"}, "", "maxOffsetsPerTrigger: is for readStream only"),
        ({"minPartitions": "0"}, "", "minPartitions: '0' is no number above 0"),
        ({"failOnDataLoss": "yes"}, "", "failOnDataLoss: 'yes' is none of true, false"),
        ({"rows": "lines"}, "", "rows: 'lines' is none of records, batches"),
        ({"rows": "batches", "includeHeaders": "true"}, "", "includeHeaders: a batch has no headers"),
        ({"kafka.isolation.level": "read_committed"}, "", "read_committed is not spoken here"),
        ({"kafka.security.protocol": "TLS"}, "", "kafka.security.protocol: 'TLS' is none of PLAINTEXT, SSL"),
        ({"kafka.security.protocol": "SASL_SSL"}, "", "kafka.sasl.jaas.config: '... required username="),
        (
            {"kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.jaas.config": JAAS},
            "",
            "kafka.sasl.mechanism: SASL mechanism 'GSSAPI': one of PLAIN",
        ),
        (
            {"kafka.security.protocol": "SSL", "kafka.ssl.truststore.location": "/store.jks"},
            "",
            "kafka.ssl.truststore.type: PEM is read, no Java key stores",
        ),
    ],
)
def test_what_is_wrong_is_one_sentence(given: dict[str, str], without: str, said: str) -> None:
    with pytest.raises(WrongOption, match=said.replace("[", "\\[").replace("{", "\\{").replace(".", "\\.")) as raised:
        parse_options(options(given, without), is_stream=False)
    assert "\n" not in str(raised.value)


def test_ends_are_for_batches_only() -> None:
    for name in ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"):
        with pytest.raises(WrongOption, match=f"{name}: is for read only"):
            parse_options(options({name: "5"}), is_stream=True)


def test_every_known_name_is_taken_and_no_name_is_both() -> None:
    check_names(dict.fromkeys(KNOWN, ""))
    assert not {name.lower() for name in KNOWN} & {name.lower() for name in WITHOUT_USE}
    assert rows_of({"ROWS": "Batches"}) == (Rows.BATCHES, False)


def test_the_page_has_every_option_and_every_column() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs/how-to/spark-source.md").read_text()
    cells = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    named = {name for cell in cells for name in re.findall(r"`([^`]+)`", cell)}
    columns = {column for column, _ in BATCHES} - {"batchMarker"} | {
        "batchMarker"
    }  # it has the name that the column gets
    assert set(KNOWN) | columns <= named
    assert {name for name in named if name.startswith("kafka.")} <= set(KNOWN)
    for name, _ in RECORDS_WITH_HEADERS:
        assert f"`{name}`" in page

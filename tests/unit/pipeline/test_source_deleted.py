"""A stream whose topics are deleted: with ``failOnDataLoss`` false it continues, and says so."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from idemproxy.client import limits
from idemproxy.codecs.message_set import encode_message
from idemproxy.pipeline.reading import broker, patience
from idemproxy.pipeline.source.options import parse_options
from idemproxy.pipeline.source.problems import DataLost, WrongOption
from idemproxy.pipeline.source.stream import StreamReader
from testkit.stage.reading_server import ReadingServer

Offset = dict[str, Any]
LOG = [encode_message(b"k", b"v", magic=1, offset=offset, timestamp=7) for offset in range(5)]
WAYS = [
    {"subscribe": "t,u"},
    {"subscribePattern": "[tu]"},
    {"assign": '{"t":[0],"u":[0]}'},
]
pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ReadingServer]:
    monkeypatch.setattr(broker, "NEW_TOPIC_SECONDS", 0.1)
    monkeypatch.setattr(limits, "READING_PAUSES_SECONDS", (0.01,) * 5)
    with ReadingServer(LOG) as running:
        running.topics = ["t", "u"]
        yield running


def stream(server: ReadingServer, way: dict[str, str], *, strict: bool = False) -> StreamReader:
    given = {"kafka.bootstrap.servers": "{}:{}".format(*server.address), "startingOffsets": "earliest"}
    return StreamReader(parse_options({**given, **way, "failOnDataLoss": str(strict).lower()}, is_stream=True))


def trigger(reader: StreamReader, start: Offset) -> tuple[Offset, list[tuple[str, int]]]:
    end = json.loads(json.dumps(reader.latestOffset(dict(start), ReadAllAvailable())))
    partitions = reader.partitions(start, end)
    found = [row for one in partitions for table in reader.read(one) for row in table.to_pylist()]
    return end, [(row["topic"], row["offset"]) for row in found]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: next(iter(way)))
def test_the_stream_continues_with_what_is_there(
    server: ReadingServer, way: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    reader = stream(server, way)
    offset, rows = trigger(reader, {})
    assert len(rows) == 10
    server.topics = ["t"]
    with caplog.at_level(logging.WARNING):
        offset, rows = trigger(reader, offset)
    assert (offset, rows) == ({"t": {"0": 5}}, [])
    assert "u-0: not there any more; was the topic deleted or recreated" in caplog.text
    assert trigger(reader, offset) == (offset, [])
    assert trigger(stream(server, way), offset) == (offset, []), "also when it is started again"
    server.topics = ["t", "u"]
    offset, rows = trigger(reader, offset)
    assert rows == [("u", number) for number in range(5)], "recreated, it is read from its start"


@pytest.mark.parametrize("way", WAYS, ids=lambda way: next(iter(way)))
def test_the_last_topic_may_be_deleted_too(server: ReadingServer, way: dict[str, str]) -> None:
    given = {**way, "startingOffsets": "latest"}
    offset, _ = trigger(stream(server, given), {})
    server.topics = []
    offset, rows = trigger(stream(server, given), offset)
    assert rows == []
    assert offset, "else it would begin again, at the latest offset"
    assert trigger(stream(server, given), offset) == (offset, [])
    server.topics = ["t", "u"]
    _, rows = trigger(stream(server, given), offset)
    assert len(rows) == 10


@pytest.mark.parametrize("way", WAYS, ids=lambda way: next(iter(way)))
def test_a_stream_with_trigger_available_now_continues_after_a_deletion_too(
    server: ReadingServer, way: dict[str, str]
) -> None:
    offset, _ = trigger(stream(server, way), {})
    server.topics = ["t"]
    reader = stream(server, way)
    reader.prepareForTriggerAvailableNow()
    assert trigger(reader, offset) == ({"t": {"0": 5}}, [])


@pytest.mark.parametrize("is_available_now", [False, True])
@pytest.mark.parametrize("way", WAYS, ids=lambda way: next(iter(way)))
def test_a_loss_ends_a_strict_stream(server: ReadingServer, way: dict[str, str], is_available_now: bool) -> None:
    offset, _ = trigger(stream(server, way, strict=True), {})
    server.topics = ["t"]
    reader = stream(server, way, strict=True)
    if is_available_now:
        reader.prepareForTriggerAvailableNow()
    with pytest.raises(DataLost, match="u-0: not there any more; was the topic deleted"):
        trigger(reader, offset)


@pytest.mark.parametrize("is_available_now", [False, True])
@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize(
    ("way", "said"),
    [
        ({"subscribe": "t,misspelled"}, "subscribe: there is no topic misspelled"),
        ({"subscribePattern": "misspelled.*"}, "subscribePattern: no topic fits"),
        ({"assign": '{"t":[0,7]}'}, "assign: there is no t-7"),
    ],
)
def test_a_misspelled_topic_is_reported_at_the_start(
    server: ReadingServer, way: dict[str, str], said: str, strict: bool, is_available_now: bool
) -> None:
    reader = stream(server, way, strict=strict)
    if is_available_now:
        reader.prepareForTriggerAvailableNow()
    with pytest.raises(WrongOption, match=said):
        trigger(reader, {})


@pytest.mark.parametrize("is_available_now", [False, True])
@pytest.mark.parametrize("way", [{"subscribe": "t,misspelled"}, {"assign": '{"t":[0,7]}'}])
def test_a_missing_topic_added_later_is_an_error_where_loss_is_forbidden(
    server: ReadingServer, way: dict[str, str], is_available_now: bool, caplog: pytest.LogCaptureFixture
) -> None:
    offset, _ = trigger(stream(server, {"subscribe": "t"}), {})
    readers = [stream(server, way, strict=strict) for strict in (True, False)]
    for reader in readers if is_available_now else ():
        reader.prepareForTriggerAvailableNow()
    strict, tolerant = readers
    with pytest.raises(WrongOption, match="there is no"):
        trigger(strict, offset)
    with caplog.at_level(logging.WARNING):
        end, _ = trigger(tolerant, offset)
        trigger(tolerant, end)
    assert end == offset
    assert caplog.text.count("there is no") == 1, "it may have been deleted in an earlier life, so it is only told"


def test_a_task_of_a_topic_that_was_deleted_meanwhile(server: ReadingServer, caplog: pytest.LogCaptureFixture) -> None:
    reader, strict = stream(server, WAYS[0]), stream(server, WAYS[0], strict=True)
    end = reader.latestOffset({}, ReadAllAvailable())
    server.topics = ["t"]
    of_t, of_u = reader.partitions({}, end)
    assert len(list(reader.read(of_t))) == 1
    assert list(reader.read(of_u)) == []
    assert "u-0: the offsets 0 to 4 are gone: the topic is not there any more" in caplog.text
    with pytest.raises(DataLost, match="u-0: the offsets 0 to 4 are gone"):
        list(strict.read(strict.partitions({}, end)[1]))
    assert patience.LAG_SECONDS_MAX == 10

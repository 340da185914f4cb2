"""Message sets of old clients at real brokers: they are in the log once, as they were sent."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from idemproxy.codecs.error_codes import ErrorCode
from idemproxy.codecs.message_set import encode_set
from idemproxy.codecs.record_batch import iterate_records, iterate_stored
from testkit.real.brokers.kraft_cluster import KraftCluster
from testkit.real.clients.raised_producer import RaisedProducer
from testkit.real.clients.raw_client import RawClient

_names = itertools.count()
OUTPUT_BYTES_MAX = 64 << 20
RECORDS = [(b"key", b"value", 1_700_000_000_000), (None, b"", 1_700_000_000_005), (b"", None, -1)]


@dataclass
class Scene:
    cluster: KraftCluster

    @property
    def addresses(self) -> dict[int, tuple[str, int]]:
        return {broker: self.cluster.address(broker) for broker in self.cluster.broker_ids}

    def topic(self, **config: str | int) -> str:
        name = f"raised-{next(_names)}"
        self.cluster.create_topic(name, config={key.replace("_", "."): value for key, value in config.items()})
        return name

    def stored(self, topic: str) -> list[tuple[bytes | None, bytes | None, int]]:
        """Key, value and timestamp of all records of partition 0."""
        with RawClient(self.cluster.address(0)) as reader:
            found, offset, end = [], 0, reader.end_offset(topic, 0)
            while offset < end:
                for batch in iterate_stored(reader.fetch(topic, 0, offset)):
                    records = iterate_records(batch.records, batch.header, OUTPUT_BYTES_MAX, is_stored=True)
                    found += [(one.key, one.value, one.timestamp) for one in records]
                    offset = batch.base_offset + batch.header.last_offset_delta + 1
            return found


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    directory: Path = tmp_path_factory.mktemp("kraft")
    with KraftCluster(directory, auto_create_topics=False) as running:
        yield Scene(running)


def test_a_set_of_each_format_is_stored_as_it_was_sent(scene: Scene) -> None:
    topic = scene.topic()
    with RaisedProducer(scene.addresses) as producer:
        first = producer.produce_one(topic, encode_set(RECORDS, magic=1), version=2)
        second = producer.produce_one(topic, encode_set(RECORDS, magic=0), version=0)
    assert (first.error_code, first.base_offset) == (ErrorCode.NONE, 0)
    assert (second.error_code, second.base_offset) == (ErrorCode.NONE, 3)
    stored = scene.stored(topic)
    assert stored[:3] == RECORDS
    assert [one[:2] for one in stored[3:]] == [one[:2] for one in RECORDS]

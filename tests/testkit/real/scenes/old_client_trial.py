"""One old client at work: it produces with each of its codecs, and reads by itself what it wrote. A client of today
reads it from the brokers themselves: it has to be what was sent, in order, once. Owns no broker and no proxy."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition

from idemproxy.demo.child_processes import ChildProcesses
from testkit.real.clients.client_runs import LIBRDKAFKA, read_plainly, start_producer
from testkit.real.clients.java_clients import JavaClientError
from testkit.real.clients.old_configurations import OldConfiguration, start_old_producer, start_old_reader

PARTITIONS = 4
READ_SECONDS_MAX = 60
_APART_SECONDS = 0.05
Place = tuple[int, int, str]
"""Partition, offset, value."""


@dataclass
class Trial:
    """What is tried, and what is not as it should be. ``bootstrap``: of the proxy; ``direct``: of the brokers.
    ``newer_codec``: of what a client of today adds."""

    configuration: OldConfiguration
    bootstrap: str
    direct: str
    topic: str
    directory: Path
    records: int
    newer_codec: str = "zstd"
    complaints: list[str] = field(default_factory=list)
    done: list[str] = field(default_factory=list)

    def run(self, children: ChildProcesses) -> None:
        """Produce with the first half of the codecs, read in a group; do so with the rest, read again; read all."""
        codecs = self.configuration.codecs
        names = (
            [(codec, codec) for codec in codecs]
            if len(codecs) > 1
            else [(f"{codecs[0]}{n}", codecs[0]) for n in (0, 1)]
        )
        middle = len(names) // 2
        sent: list[Place] = []
        time_ms = 0
        for half, chosen in enumerate((names[:middle], names[middle:])):
            time_ms = int(time.time() * 1000)
            time.sleep(_APART_SECONDS)
            for name, codec in chosen:
                sent += self._produce(children, name, codec, list(sent))
                if self.complaints:
                    return  # readers would wait for what is not there
            newer = self._produce_newer(children, list(sent)) if half and self.configuration.reads_zstd else []
            sent += newer
            if "group" in self.configuration.readings:
                self._read_in_group(children, half, len(chosen) * self.records + len(newer), sent)
        if "simple" in self.configuration.readings:
            self._read_alone(children, sent, time_ms, middle * self.records // PARTITIONS)
        stored = read_plainly(
            children,
            self.directory,
            bootstrap=self.direct,
            topic=self.topic,
            partitions=PARTITIONS,
            records=len(sent),
            name="stored",
        )
        self._expect("what is stored", stored, sent)

    def _produce(self, children: ChildProcesses, name: str, codec: str, before: Sequence[Place]) -> list[Place]:
        """Return where its records have to be."""
        program = start_old_producer(
            children,
            self.directory,
            self.configuration,
            bootstrap=self.bootstrap,
            topic=self.topic,
            partitions=PARTITIONS,
            records=self.records,
            name=name,
            compression=codec,
        )
        due = self._due(name, before)
        try:
            outcome = program.wait()
        except JavaClientError as error:
            self.complaints.append(f"producing with {codec}: {error}")
            return due
        if (outcome["acked"], outcome["failed"]) != (self.records, 0):
            self.complaints.append(f"producing with {codec}: {outcome}")
        elif self.configuration.tells_offsets:
            told = [
                (one.partition, one.offset, f"{name}:{one.partition}:{one.number}") for one in program.acknowledged()
            ]
            self._expect(f"the offsets reported with {codec}", told, due)
        self.done.append(f"produce {codec}")
        return due

    def _due(self, name: str, before: Sequence[Place]) -> list[Place]:
        """Where the records of this name have to be, behind those before them."""
        offsets = [sum(place[0] == partition for place in before) for partition in range(PARTITIONS)]
        each = self.records // PARTITIONS
        return [(place, offsets[place] + n, f"{name}:{place}:{n}") for place in range(PARTITIONS) for n in range(each)]

    def _produce_newer(self, children: ChildProcesses, before: Sequence[Place]) -> list[Place]:
        """A client of today adds what no old one could read: zstd, and a header in each record."""
        program = start_producer(
            children,
            self.directory,
            LIBRDKAFKA,
            bootstrap=self.direct,
            topic=self.topic,
            partitions=PARTITIONS,
            records=self.records,
            name="newer",
            compression=self.newer_codec,
            header="old clients have none",
        )
        program.wait()
        self.done.append(f"{self.newer_codec} of a newer client beside it")
        return self._due("newer", before)

    def _read_in_group(self, children: ChildProcesses, half: int, records: int, sent: Sequence[Place]) -> None:
        """``sent``: so far; the group has read all but the last ``records`` of them, if it starts again."""
        program = start_old_reader(
            children,
            self.directory,
            self.configuration,
            bootstrap=self.bootstrap,
            topic=self.topic,
            partitions=PARTITIONS,
            records=records,
            group=self._group,
            name=f"group-{half}",
            seconds_max=READ_SECONDS_MAX,
        )
        try:
            outcome = program.wait()
        except JavaClientError as error:
            self.complaints.append(f"reading in a group, start {half + 1}: {error}")
            return
        read = [(one.partition, one.offset, one.value) for one in program.consumed()]
        self._expect(f"what the group read, start {half + 1}", read, sent[len(sent) - records :])
        due = {partition: len(sent) // PARTITIONS for partition in range(PARTITIONS)}
        told = outcome.get("committed")
        if told is not None and {int(partition): offset for partition, offset in told.items()} != due:
            self.complaints.append(f"committed by its own word, start {half + 1}: {told}, not {due}")
        if (committed := self._committed()) != due:
            self.complaints.append(f"committed, start {half + 1}: {committed}, not {due}")
        self.done.append(f"group, start {half + 1}")

    @property
    def _group(self) -> str:
        return f"group-of-{self.topic}"

    def _committed(self) -> dict[int, int]:
        """As the brokers say to a client of today."""
        places = [TopicPartition(self.topic, partition) for partition in range(PARTITIONS)]
        asker = Consumer({"bootstrap.servers": self.direct, "group.id": self._group})
        found = {one.partition: one.offset for one in asker.committed(places, timeout=30)}
        asker.close()
        return found

    def _read_alone(self, children: ChildProcesses, sent: Sequence[Place], time_ms: int, of_time: int) -> None:
        by_time = "times" in self.configuration.readings
        program = start_old_reader(
            children,
            self.directory,
            self.configuration,
            bootstrap=self.bootstrap,
            topic=self.topic,
            partitions=PARTITIONS,
            records=len(sent),
            group=None,
            name="alone",
            seconds_max=READ_SECONDS_MAX,
            time_ms=time_ms if by_time else None,
        )
        try:
            outcome = program.wait()
        except JavaClientError as error:
            self.complaints.append(f"reading alone: {error}")
            return
        read = [(one.partition, one.offset, one.value) for one in program.consumed()]
        self._expect("what it read alone", sorted(set(read)) if self.configuration.repeats_alone else read, sent)
        self.done.append("simple")
        if by_time:
            found = {int(partition): offset for partition, offset in outcome["times"].items()}
            if found != dict.fromkeys(range(PARTITIONS), of_time):
                self.complaints.append(f"offsets by time: {found}, not {of_time} each")
            self.done.append("times")

    def _expect(self, what: str, found: Sequence[Place], due: Sequence[Place]) -> None:
        """Each partition's records in this order."""
        for partition in range(PARTITIONS):
            got, wanted = ([place for place in places if place[0] == partition] for places in (found, due))
            if got != wanted:
                differing = next(
                    (n for n, pair in enumerate(zip(got, wanted, strict=False)) if pair[0] != pair[1]), None
                )
                first = "" if differing is None else f", first difference: {got[differing]} for {wanted[differing]}"
                self.complaints.append(f"{what}, partition {partition}: {len(got)} of {len(wanted)}{first}")

"""The checker outside: compares the log with what the clients were told. It knows nothing of the proxy's inside.

I1 no batch twice; I2 order, epochs never go back, no gap in an epoch; I3 acknowledged means in the log at that offset,
below the high watermark, from that moment on; never 59, and never 45 for a batch that is in the log or comes there
under the same name; at most one unanswered append of a producer on a partition (R3). A copy that a client makes
itself, by sending a batch again under a new epoch for a reason that the proxy did not give it, is counted and is no
violation.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from idemproxy.codecs.marker import Identity, parse_marker
from idemproxy.codecs.message_set import iterate_shallow
from testkit.virtual_broker_faults import ProduceSeen
from testkit.virtual_client import VirtualClient
from testkit.virtual_cluster import VirtualCluster
from testkit.virtual_log import Message, Stored
from testkit.virtual_producer import Batch, TopicPartition

Where = tuple[str, int, str, int]
SEQUENCE_LIMIT = 2**31


@dataclass(frozen=True, slots=True)
class InLog:
    """One record where it lies, with the number that the marker gives it."""

    offset: int
    value: bytes
    producer_id: int
    producer_epoch: int
    sequence: int
    appended_at: float


class Oracle:
    """Watches one cluster and its clients from the start; ``violations`` is complete after ``finish``."""

    def __init__(self, cluster: VirtualCluster, clients: Sequence[VirtualClient]) -> None:
        self.cluster = cluster
        self.clients = clients
        self.violations: list[str] = []
        self.client_made_copies = 0
        self._outstanding: dict[Where, ProduceSeen] = {}
        cluster.on_produce.append(self._produce_arrived)
        cluster.on_produce_over.append(self._produce_is_over)
        for client in clients:
            client.on_acknowledged.append(self._acknowledged)

    def finish(self) -> list[str]:
        """Check the whole log and all that was told. Returns every violation, those of the brokers' view included."""
        told = self._told()
        for partition, batches in told.items():
            records, foreign = records_of(self.cluster.log(*partition).messages)
            self.violations += [f"{partition}: {what}" for what in foreign]
            self._check_partition(partition, batches, records)
        return self.violations + self.cluster.all_violations()

    # ------------------------------------------------------------------ while it runs
    def _acknowledged(self, batch: Batch) -> None:
        """I3 in the moment of the answer."""
        assert batch.acknowledged is not None
        _, offset = batch.acknowledged
        log = self.cluster.log(*batch.partition)
        if offset < 0:
            return  # 46: somewhere in the log, looked for at the end
        for index, value in enumerate(batch.values):
            found = log.at(offset + index)
            if index and not _holds_all(log.at(offset), batch):
                return  # stored in parts: one offset is answered, the first; the rest is looked for at the end
            if found is None or found[1].value != value:
                self.violations.append(f"I3: {value!r} acknowledged at {offset + index}, there is {_shown(found)}")
            elif offset + index >= log.committed:
                self.violations.append(f"I3: {value!r} acknowledged at {offset + index}, above the high watermark")

    def _produce_arrived(self, seen: ProduceSeen) -> None:
        for where in self._producers_of(seen):
            other = self._outstanding.get(where)
            if other is not None and self.cluster.brokers[other.broker].lives == other.broker_life:
                self.violations.append(f"R3: {where} is in request {seen.number} and in {other.number}, unanswered")
            self._outstanding[where] = seen

    def _produce_is_over(self, seen: ProduceSeen) -> None:
        for where in self._producers_of(seen):
            if self._outstanding.get(where) is seen:
                del self._outstanding[where]

    @staticmethod
    def _producers_of(seen: ProduceSeen) -> Iterable[Where]:
        for topic, partition, message_set in seen.body.partitions:
            producers = {
                identity.producer_id
                for message in iterate_shallow(message_set or b"")
                for identity in parse_marker(message.key) or ()
            }
            yield from ((seen.peer, producer_id, topic, partition) for producer_id in sorted(producers))

    # ------------------------------------------------------------------ at the end
    def _told(self) -> dict[TopicPartition, list[tuple[VirtualClient, Batch]]]:
        told: dict[TopicPartition, list[tuple[VirtualClient, Batch]]] = {
            partition: [] for partition in self.cluster.partitions
        }
        for client in self.clients:
            for batch in client.leaves:
                told[batch.partition].append((client, batch))
        return told

    def _check_partition(
        self, partition: TopicPartition, told: Sequence[tuple[VirtualClient, Batch]], records: Sequence[InLog]
    ) -> None:
        places: dict[bytes, list[InLog]] = {}
        names: dict[tuple[int, int, int], bytes] = {}
        for record in records:
            places.setdefault(record.value, []).append(record)
        for _, batch in told:
            for identity in batch.sent_as:
                for index, value in enumerate(batch.values):
                    sequence = (identity.base_sequence + index) % SEQUENCE_LIMIT
                    names[identity.producer_id, identity.producer_epoch, sequence] = value
        for record in records:
            name = record.producer_id, record.producer_epoch, record.sequence
            if names.get(name) != record.value:
                self._say(partition, f"{record} was never sent under that name")
        self._check_names(partition, records)
        for client in self.clients:
            mine = [batch for owner, batch in told if owner is client]
            self._check_order(partition, mine, places)
        for _, batch in told:
            self._check_batch(partition, batch, places)

    def _check_names(self, partition: TopicPartition, records: Sequence[InLog]) -> None:
        """I1 and I2 by identity: in every epoch the sequences follow each other, and no older epoch comes after."""
        last: dict[int, InLog] = {}
        for record in records:
            before = last.get(record.producer_id)
            if before is None or record.producer_epoch > before.producer_epoch:
                if record.sequence != 0:
                    self._say(partition, f"I2: epoch {record.producer_epoch} begins with {record}")
            elif record.producer_epoch < before.producer_epoch:
                self._say(partition, f"I2: {record} comes after epoch {before.producer_epoch}")
            elif record.sequence != (before.sequence + 1) % SEQUENCE_LIMIT:
                kind = "I1 or I2" if record.sequence <= before.sequence else "I2"
                self._say(partition, f"{kind}: {record} follows sequence {before.sequence}")
            last[record.producer_id] = record

    def _check_order(
        self,
        partition: TopicPartition,
        batches: Sequence[Batch],
        places: dict[bytes, list[InLog]],
    ) -> None:
        """I2 by value: what one user sent lies in the order in which it was sent; renumbered batches are left out."""
        last = -1
        for batch in batches:
            if batch.renumbered_for:
                continue
            for value in batch.values:
                for record in places.get(value, [])[:1]:
                    if record.offset <= last:
                        self._say(partition, f"I2: {value!r} at {record.offset}, after a later one at {last}")
                    last = max(last, record.offset)

    def _check_batch(self, partition: TopicPartition, batch: Batch, places: dict[bytes, list[InLog]]) -> None:
        firsts = places.get(batch.values[0], [])
        in_parts = bool(firsts) and not _holds_all(self.cluster.log(*partition).at(firsts[0].offset), batch)
        for index, value in enumerate(batch.values):
            found = places.get(value, [])
            if len(found) > 1:
                self._judge_copies(partition, batch, found)
            if batch.acknowledged is not None:
                offset = batch.acknowledged[1]
                if not found:
                    self._say(partition, f"I3: {value!r} was acknowledged and is not in the log")
                elif offset >= 0 and found[0].offset != offset + index and (index == 0 or not in_parts):
                    self._say(
                        partition, f"I3: {value!r} was acknowledged at {offset + index}, lies at {found[0].offset}"
                    )
        for answer in batch.answers:
            if answer.error_code == 59:
                self._say(partition, f"59 for {batch.values[0]!r}")
            if answer.error_code == 45:
                identity = answer.identity
                for record in places.get(batch.values[0], []):
                    name = record.producer_id, record.producer_epoch, record.sequence
                    asked = identity.producer_id, identity.producer_epoch, identity.base_sequence
                    if name == asked:  # in the log then, or taken later: in any case no gap that was proven
                        self._say(partition, f"45 at {answer.at:.3f} for {record}, which is in the log")

    def _judge_copies(self, partition: TopicPartition, batch: Batch, found: Sequence[InLog]) -> None:
        names = {(record.producer_id, record.producer_epoch, record.sequence) for record in found}
        of_the_proxy = [reason for reason in batch.renumbered_for if reason.startswith(("45", "59"))]
        if len(names) == len(found) and batch.renumbered_for and not of_the_proxy:
            self.client_made_copies += 1
            return
        why = f", renumbered for {batch.renumbered_for}" if batch.renumbered_for else ""
        self._say(partition, f"I1: {found[0].value!r} at {[record.offset for record in found]}{why}")

    def _say(self, partition: TopicPartition, what: str) -> None:
        self.violations.append(f"{partition[0]}-{partition[1]}: {what}")


def _holds_all(found: tuple[Stored, Message] | None, batch: Batch) -> bool:
    """Is the stored message one that holds the whole batch, not a part of it?"""
    if found is None:
        return True
    values = [message.value for message in found[0].message.records]
    return batch.values[0] not in values or batch.values[-1] in values


def records_of(messages: Sequence[Stored]) -> tuple[list[InLog], list[str]]:
    """Return every record of marked wrappers with its number, and what else there is as complaints."""
    records: list[InLog] = []
    complaints: list[str] = []
    for stored in messages:
        identities: tuple[Identity, ...] = parse_marker(stored.message.key) or ()
        inner = stored.message.records
        if sum(identity.record_count for identity in identities) != len(inner):
            complaints.append(f"the message at {stored.first_offset} has {len(inner)} records and marker {identities}")
            continue
        offset = stored.first_offset
        for identity in identities:
            for index in range(identity.record_count):
                sequence = (identity.base_sequence + index) % SEQUENCE_LIMIT
                value = inner[offset - stored.first_offset].value or b""
                name = identity.producer_id, identity.producer_epoch, sequence
                records.append(InLog(offset, value, *name, stored.appended_at))
                offset += 1
    return records, complaints


def _shown(found: object) -> str:
    return "nothing" if found is None else repr(found)[:200]

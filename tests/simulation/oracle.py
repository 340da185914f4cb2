"""The checker outside: compares the log with what the clients got as answers. It knows nothing of the proxy's inside.

I1 no batch twice; I2 order, epochs never go back, no gap in an epoch; I3 acknowledged means in the log at that offset,
below the high watermark, from that moment on; no error for a producer that did nothing wrong, ``UNKNOWN_PRODUCER_ID``
and ``UNKNOWN_SERVER_ERROR`` for nobody, ``OUT_OF_ORDER_SEQUENCE_NUMBER`` never for a batch that is in the log or comes
there under the same name; at most one unanswered append of a producer on a partition (R3); every request is answered,
or its connection closed, in time. What may be otherwise, and why, is the table in ``allowed``: each use of it is
counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from simulation.allowed import (
    CANNOT_BE_TOLD,
    OUT_OF_ORDER,
    Allowed,
    asks_in_vain,
    begins_late,
    has_newer_epoch,
    is_forgotten,
    is_gap_of_failures,
    is_rest_left,
    keeps_batch_markers,
    may_be_refused,
    may_be_unmarked,
    may_be_untold,
    values_before,
    was_ahead,
    was_left_behind,
    was_overtaken,
    went_with_its_topic,
)
from simulation.log_records import InLog, holds_all, producers_in, records_of, stored_with

from idemproxy.codecs.batch_marker import Identity
from testkit.virtual.batches import is_batch, parse_batch
from testkit.virtual.broker import PROXY
from testkit.virtual.broker_faults import ProduceSeen
from testkit.virtual.client import VirtualClient
from testkit.virtual.cluster import VirtualCluster
from testkit.virtual.log import Message, Stored, parse_messages
from testkit.virtual.network import Network
from testkit.virtual.producer import SEQUENCE_LIMIT, Answer, Batch, TopicPartition
from testkit.virtual.producer import Identity as SentAs
from testkit.virtual.wire import VirtualWire

Where = tuple[str, int, str, int]
Name = tuple[int, int, int]
"""Producer id, producer epoch, sequence."""
ANSWER_SECONDS_MAX = 60.0
"""A request whose connection works is answered by then, or the connection is closed."""
FENCED, UNKNOWN_PRODUCER, UNKNOWN_ERROR = 47, 59, -1

GivenAt = Callable[[TopicPartition, Answer], float]
"""An answer that a client has read at a partition -> when it was given."""


class Oracle:
    """Watches one cluster and its clients from the start; ``violations`` is complete after ``finish``."""

    def __init__(
        self,
        cluster: VirtualCluster,
        clients: Sequence[VirtualClient],
        *,
        ids_get_old: bool = False,
        expiry_seconds: float | None = None,
        has_names: bool = False,
    ) -> None:
        """``ids_get_old``: producer ids outlive the time after which what is known of them may have expired;
        ``expiry_seconds``: that time, where it is so short that a producer may be silent for longer. ``has_names``:
        client ids are names of producers."""
        self.cluster = cluster
        self.clients = clients
        self.violations: list[str] = []
        self.allowed: Counter[Allowed] = Counter()
        self.answer_seconds_max = 0.0
        """The longest that a request waited on a connection that worked."""
        self.given_at: GivenAt = lambda _partition, answer: answer.at
        """When the proxy gave an answer."""
        self._refusals: tuple[int, ...] = cluster.rates.refusals
        self._state_was_lost = False
        self._ids_get_old = ids_get_old
        self._has_names = has_names
        self.stores_both = False
        """Has a broker stored another format than before?"""
        self._expiry_seconds = expiry_seconds
        self._outstanding: dict[Where, ProduceSeen] = {}
        self._lost_values: dict[TopicPartition, tuple[int, set[bytes]]] = {}
        """Of each partition how many lost messages were looked at, and the values in them."""
        self._asked_for: dict[int, list[Where]] = {}
        """Number of a request that is being worked on -> whose batches are in it."""
        cluster.on_produce.append(self._produce_arrived)
        cluster.on_produce_over.append(self._produce_is_over)
        for client in clients:
            client.on_acknowledged.append(self._acknowledged)

    @property
    def client_made_copies(self) -> int:
        """Copies that producers made themselves."""
        return self.allowed[Allowed.OWN_COPY]

    def finish(self, refusals: tuple[int, ...] = (), *, state_was_lost: bool = False) -> list[str]:
        """Check the whole log and all answers. Returns every violation, those of the brokers' view included.

        ``refusals``: codes with which brokers refused batches in this run. ``state_was_lost``: another data generation
        has begun in Redis, or it may have lost something.
        """
        self._refusals = refusals
        self._state_was_lost = state_was_lost
        told = self._told()
        for partition, batches in told.items():
            records, foreign = self._records_of(partition, self.cluster.log(*partition).history)
            for what in foreign:
                self._say(partition, what)
            self._check_partition(partition, batches, records)
        return self.violations + self.cluster.all_violations()

    # ------------------------------------------------------------------ while it runs
    def look(self, network: Network) -> None:
        """Look whether somebody waits for too long; to be called every now and then."""
        for client, (wire, sent_at) in ((one, waiting) for one in self.clients for waiting in one.oldest_unanswered()):
            assert isinstance(wire, VirtualWire)
            if wire.connection.is_open and not wire.is_paused:
                seconds = network.now - sent_at
                self.answer_seconds_max = max(self.answer_seconds_max, seconds)
                if seconds > ANSWER_SECONDS_MAX:
                    self.violations.append(f"liveness: {client.name} waits {seconds:.1f} s for an answer")

    def unfinished(self, seconds: float, *, state_was_lost: bool) -> list[str]:
        """Everything has been calm for so long: a complaint of every producer that still has no answer.
        ``state_was_lost``: see ``finish``."""
        problems = []
        for client in self.clients:
            for partition in sorted({batch.partition for batch in client.leaves if not batch.is_done}):
                mine = [batch for batch in client.leaves if batch.partition == partition]
                where_from, gone = self.cluster.partitions[partition], self._gone(partition)
                if asks_in_vain(where_from, mine, gone, state_was_lost=state_was_lost):
                    self.allowed[Allowed.ASKS_IN_VAIN] += 1
                    continue
                where = f"{partition[0]}-{partition[1]}"
                problems.append(f"liveness: {client.name} is not done on {where} after {seconds:.0f} calm seconds")
        return problems

    def _acknowledged(self, batch: Batch) -> None:
        """I3 in the moment of the answer."""
        assert batch.acknowledged is not None
        _, offset = batch.acknowledged
        log = self.cluster.log(*batch.partition)
        if offset < 0:
            return  # 46: somewhere in the log, looked for at the end
        gone = self._gone(batch.partition)
        first = log.was_at(offset)
        for index, value in enumerate(batch.values):
            found = log.was_at(offset + index) if index else first
            if index == 1 and not self._is_whole(batch, first):
                return  # stored in parts: one offset is answered, the first; the rest is looked for at the end
            if value in gone:
                self.allowed[Allowed.LOST_BY_BROKERS] += 1
            elif found is None or found[1].value != value:
                self.violations.append(f"I3: {value!r} acknowledged at {offset + index}, there is {_shown(found)}")
            elif offset + index >= log.committed:
                self.violations.append(f"I3: {value!r} acknowledged at {offset + index}, above the high watermark")

    def _is_whole(self, batch: Batch, first: tuple[Stored, Message] | None) -> bool:
        """Was it stored as one? Its first record tells, where it lies, or where it lay before the brokers lost it."""
        lost = self.cluster.log(*batch.partition).lost
        is_gone = batch.values[0] in self._gone(batch.partition)
        return holds_all(stored_with(batch.values[0], lost) if is_gone else first and first[0], batch)

    def _gone(self, partition: TopicPartition) -> set[bytes]:
        """The values of all records that the brokers have lost by now."""
        lost, (known, values) = self.cluster.log(*partition).lost, self._lost_values.get(partition, (0, set()))
        if known < len(lost):
            values |= {record.value for record in self._records_of(partition, lost[known:])[0]}
            self._lost_values[partition] = len(lost), values
        return values

    def _records_of(self, partition: TopicPartition, messages: Sequence[Stored]) -> tuple[list[InLog], list[str]]:
        """What the messages hold. A record without a batch marker is named by who sent it, where it may be without
        one."""
        if not may_be_unmarked(self.cluster.partitions[partition], self._refusals):
            return records_of(messages)

        def sent_as(value: bytes) -> list[Identity]:
            batches = [batch for client in self.clients for batch in client.leaves if value in batch.values]
            return [
                Identity(
                    name.producer_id,
                    name.producer_epoch,
                    (name.base_sequence + batch.values.index(value)) % SEQUENCE_LIMIT,
                    1,
                )
                for batch in batches
                for name in batch.sent_as
            ]

        return records_of(messages, sent_as)

    def _produce_arrived(self, seen: ProduceSeen) -> None:
        if self.cluster.users is not None:
            self._judge_sender(seen)
        if seen.client_id != PROXY:
            return  # a client's own bytes: the broker keeps their order
        self._asked_for[seen.number] = list(self._producers_of(seen))
        for where in self._asked_for[seen.number]:
            other = self._outstanding.get(where)
            if other is not None and self._still_waits(other):
                self.violations.append(f"R3: {where} is in request {seen.number} and in {other.number}, unanswered")
            self._outstanding[where] = seen

    def _judge_sender(self, seen: ProduceSeen) -> None:
        """Every record is sent by who made it: its value begins with his name."""
        for topic, partition, message_set in seen.body.partitions:
            data = message_set or b""
            for message in [parse_batch(data)] if is_batch(data) else parse_messages(data):
                makers = {(record.value or b"").split(b"/")[0].decode() for record in message.records}
                if makers != {seen.principal}:
                    self._say((topic, partition), f"{seen.principal!r} sends what {makers} have made")

    def _still_waits(self, seen: ProduceSeen) -> bool:
        """Does its sender wait for the answer? Of a connection that was half-open the broker has heard nothing."""
        connection = self.cluster.network.connections.get(seen.connection)
        lives = self.cluster.brokers[seen.broker].lives == seen.broker_life
        return lives and connection is not None and connection.ends[0].is_open

    def _produce_is_over(self, seen: ProduceSeen) -> None:
        for where in self._asked_for.pop(seen.number, ()):
            if self._outstanding.get(where) is seen:
                del self._outstanding[where]

    def _producers_of(self, seen: ProduceSeen) -> Iterable[Where]:
        for topic, partition, message_set in seen.body.partitions:
            producers = sorted(producers_in(message_set or b"", self.cluster.network.sent))
            yield from ((seen.peer, producer_id, topic, partition) for producer_id in producers)

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
        lost, _ = self._records_of(partition, self.cluster.log(*partition).lost)
        places: dict[bytes, list[InLog]] = {}
        names: dict[Name, bytes] = {}
        unrecoverable: dict[Name, float] = {}
        for record in records:
            places.setdefault(record.value, []).append(record)
        for _, batch in told:
            for identity in batch.sent_as:
                for index, value in enumerate(batch.values):
                    sequence = (identity.base_sequence + index) % SEQUENCE_LIMIT
                    names[identity.producer_id, identity.producer_epoch, sequence] = value
                    if batch.failed is not None:
                        unrecoverable[identity.producer_id, identity.producer_epoch, sequence] = batch.failed[0]
        for record in records:
            if names.get(record.name) != record.value:
                self._say(partition, f"{record} was never sent under that name")
        self._check_names(partition, records, {record.name for record in lost}, unrecoverable)
        gone = {record.value for record in lost}
        for client in self.clients:
            mine = [batch for owner, batch in told if owner is client]
            self._check_order(partition, mine, places)
            for batch in mine:
                self._check_places(partition, batch, mine, places, gone)
                self._check_failure(client, partition, batch, mine)
                for answer in batch.answers:
                    self._check_answer(partition, batch, answer, mine, places)

    def _check_names(
        self,
        partition: TopicPartition,
        records: Sequence[InLog],
        lost: set[Name],
        unrecoverable: Mapping[Name, float],
    ) -> None:
        """I1 and I2 by identity: in every epoch the sequences follow each other, and no older epoch comes after."""
        last: dict[int, InLog] = {}
        first_places: dict[Name, InLog] = {}
        for record in records:
            before = last.get(record.producer_id)
            if not record.is_sure or (before is not None and not before.is_sure):
                last[record.producer_id] = record  # what follows it tells no gap
                continue
            first = first_places.setdefault(record.name, record)
            if first is not record and self._is_too_old(partition, first.offset):
                last[record.producer_id] = record
                continue
            begins = before is None or record.producer_epoch > before.producer_epoch
            due = 0 if begins or before is None else (before.sequence + 1) % SEQUENCE_LIMIT
            if before is not None and record.producer_epoch < before.producer_epoch:
                self._say(partition, f"I2: {record} comes after epoch {before.producer_epoch}")
            elif record.sequence != due and self._fills_the_gap(record, due, lost):
                self.allowed[Allowed.LOST_BY_BROKERS] += 1
            elif (
                record.sequence > due
                and self._may_have_expired(before, record)
                and begins_late(record, due, unrecoverable)
            ):
                self.allowed[Allowed.BEGINS_LATE] += 1
            elif record.sequence != due and begins:
                self._say(partition, f"I2: epoch {record.producer_epoch} begins with {record}")
            elif record.sequence != due and before is not None:
                kind = "I1 or I2" if record.sequence <= before.sequence else "I2"
                self._say(partition, f"{kind}: {record} follows sequence {before.sequence}")
            last[record.producer_id] = record

    def _may_have_expired(self, before: InLog | None, record: InLog) -> bool:
        """May all that was known of its producer in its epoch have been forgotten by then?"""
        if before is None or record.producer_epoch > before.producer_epoch:
            return self._ids_get_old
        return self._expiry_seconds is not None and record.appended_at >= before.appended_at + self._expiry_seconds

    @staticmethod
    def _fills_the_gap(record: InLog, due: int, lost: set[Name]) -> bool:
        """Were all records between the one that is due and this one taken by the brokers?"""
        missing = range(due, record.sequence)
        return bool(missing) and all((record.producer_id, record.producer_epoch, s) in lost for s in missing)

    def _check_order(
        self, partition: TopicPartition, batches: Sequence[Batch], places: dict[bytes, list[InLog]]
    ) -> None:
        """I2 by value: what one user sent lies in the order in which it was sent; renumbered batches are left out."""
        last = -1
        for number, batch in enumerate(batches):
            if batch.renumbered_for:
                continue
            found = places.get(batch.values[0], []) if batch.failed is not None else []
            if found and was_left_behind(batch, found[0].offset, batches[number + 1 :], places):
                self.allowed[Allowed.LEFT_BY_AN_OLDER_INSTANCE] += 1
                continue
            for value in batch.values:
                for record in places.get(value, [])[:1]:
                    if record.offset <= last:
                        self._say(partition, f"I2: {value!r} at {record.offset}, after a later one at {last}")
                    last = max(last, record.offset)

    def _check_places(
        self,
        partition: TopicPartition,
        batch: Batch,
        mine: Sequence[Batch],
        places: dict[bytes, list[InLog]],
        gone: set[bytes],
    ) -> None:
        """I1 and I3 at the end."""
        log = self.cluster.log(*partition)
        firsts = places.get(batch.values[0], [])
        told = None if batch.acknowledged is None else batch.acknowledged[1]
        first = next((one for one in firsts if one.offset == told), firsts[0] if firsts else None)
        in_parts = not self._is_whole(batch, log.was_at(first.offset) if first else None)
        for index, value in enumerate(batch.values):
            found = places.get(value, [])
            if len(found) > 1:
                causes = self._causes(batch, mine)
                is_allowed = bool(causes) and all(
                    self._may_begin_again(partition, one, mine, places, gone) for one in causes
                )
                self._judge_copies(partition, batch, found, is_allowed=is_allowed)
            if batch.acknowledged is None:
                continue
            offset = batch.acknowledged[1]
            if value in gone:
                self.allowed[Allowed.LOST_BY_BROKERS] += 1
            elif not found:
                self._say(partition, f"I3: {value!r} was acknowledged and is not in the log")
            elif offset >= 0 and (index == 0 or not in_parts) and offset + index not in [one.offset for one in found]:
                self._say(partition, f"I3: {value!r} was acknowledged at {offset + index}, lies at {found[0].offset}")

    def _is_too_old(self, partition: TopicPartition, offset: int) -> bool:
        """Was a copy deleted that a retry would have been recognised by?"""
        return self._state_was_lost and offset < self.cluster.log(*partition).start_offset

    @staticmethod
    def _causes(batch: Batch, mine: Sequence[Batch]) -> list[Batch]:
        """The batches for whose 45 it was numbered again."""
        return [one for one in mine if f"45 for batch {one.first}" in batch.renumbered_for]

    def _may_begin_again(
        self,
        partition: TopicPartition,
        batch: Batch,
        mine: Sequence[Batch],
        places: dict[bytes, list[InLog]],
        gone: set[bytes],
    ) -> bool:
        """Did it get an ``OUT_OF_ORDER_SEQUENCE_NUMBER`` that is allowed, and that makes its client send again what is
        stored?"""
        there = [record for record in places.get(batch.values[0], []) if record.is_sure]
        told = [answer for answer in batch.answers if answer.error_code == OUT_OF_ORDER]
        is_gone = self._state_was_lost and went_with_its_topic(self.cluster.partitions[partition], batch, gone)
        return is_gone or any(
            self._came_early(batch, one, self.given_at(partition, one), _named(there, one), mine, places)
            for one in told
        )

    def _judge_copies(
        self, partition: TopicPartition, batch: Batch, found: Sequence[InLog], *, is_allowed: bool
    ) -> None:
        """``is_allowed``: its client had a reason to send it again that is nobody's fault."""
        names = len({record.name for record in found})
        if not all(record.is_sure for record in found):  # without a batch marker: of any name that it was sent under
            names = min(len(found), len(set(batch.sent_as)))
        of_the_proxy = [reason for reason in batch.renumbered_for if reason.startswith(("45", "59"))]
        if names == len(found) and batch.renumbered_for and not of_the_proxy:
            self.allowed[Allowed.OWN_COPY] += 1
            return
        if names == len(found) and is_allowed:
            self.allowed[Allowed.COPY_FOR_AN_ALLOWED_45] += 1
            return
        if self._is_too_old(partition, found[-2].offset):
            self.allowed[Allowed.OLDER_THAN_THE_LOG] += 1
            return
        why = f", renumbered for {batch.renumbered_for}" if batch.renumbered_for else ""
        self._say(partition, f"I1: {found[0].value!r} at {[record.offset for record in found]}{why}")

    # ------------------------------------------------------------------ answers
    def _check_failure(
        self, client: VirtualClient, partition: TopicPartition, batch: Batch, mine: Sequence[Batch]
    ) -> None:
        """Failures that a user sees."""
        if batch.failed is None:
            return
        at, how = batch.failed
        if how == "gave up" and client.settings.delivery is not None:
            self.allowed[Allowed.GAVE_UP] += 1
            return
        code = int(how.removeprefix("code ")) if how.startswith("code ") else None
        if code is not None and may_be_refused(code, self._refusals):
            self.allowed[Allowed.REFUSED] += 1
        elif code == CANNOT_BE_TOLD and may_be_untold(self.cluster.partitions[partition]):
            self.allowed[Allowed.CANNOT_BE_TOLD] += 1
        elif code == CANNOT_BE_TOLD and self.stores_both and is_rest_left(self.cluster.partitions[partition], batch):
            self.allowed[Allowed.REST_IS_LEFT] += 1
        elif code == FENCED and self._has_names and client.ids_given_up:
            self.allowed[Allowed.FENCED_BY_ITSELF] += 1
        elif code == FENCED and self._went_on(client, batch, mine):
            self.allowed[Allowed.OLD_EPOCH] += 1
        else:
            self._say(partition, f"the user of {client.name} sees: {how} for {batch.values[0]!r} at {at:.3f}")

    def _went_on(self, client: VirtualClient, batch: Batch, mine: Sequence[Batch]) -> bool:
        """Had its client begun a newer epoch while the batch was under way: there or, where it has a name,
        elsewhere?"""
        is_there = any(has_newer_epoch(one, batch.answers[-1].identity) for one in mine)
        return is_there or (self._has_names and self._raised_its_epoch(client, batch.sent_as[-1]))

    def _raised_its_epoch(self, client: VirtualClient, sent_as: SentAs) -> bool:
        """Has the client, of its own accord, sent anything under a newer epoch? A name has one epoch for all
        partitions, so what it still has under way elsewhere is then of an older one."""
        return any(has_newer_epoch(one, sent_as) for one in client.leaves)

    def _check_answer(
        self,
        partition: TopicPartition,
        batch: Batch,
        answer: Answer,
        mine: Sequence[Batch],
        places: dict[bytes, list[InLog]],
    ) -> None:
        """45, 47, 59 and -1: never to a producer that did nothing wrong."""
        if answer.error_code not in (UNKNOWN_PRODUCER, UNKNOWN_ERROR, FENCED, OUT_OF_ORDER):
            return
        what = f"{answer.error_code} at {answer.at:.3f} for {batch.values[0]!r}"
        if answer.error_code in (UNKNOWN_PRODUCER, UNKNOWN_ERROR):
            self._say(partition, what)
        elif answer.error_code == FENCED:
            named = [client for client in self.clients if self._has_names and batch in client.leaves]
            has_raised = any(self._raised_its_epoch(client, answer.identity) for client in named)
            if has_raised or any(has_newer_epoch(one, answer.identity) for one in mine):
                self.allowed[Allowed.OLD_EPOCH] += 1
            elif self._has_names and any(client.ids_given_up for client in self.clients if batch in client.leaves):
                self.allowed[Allowed.FENCED_BY_ITSELF] += 1
            else:
                self._say(partition, what)
        elif answer.error_code == OUT_OF_ORDER:
            given_at = self.given_at(partition, answer)
            there = _named([record for record in places.get(batch.values[0], []) if record.is_sure], answer)
            if there and self._is_too_old(partition, there[-1].offset):
                self.allowed[Allowed.OLDER_THAN_THE_LOG] += 1
            elif self._came_early(batch, answer, given_at, there, mine, places):
                self.allowed[Allowed.OVERTAKEN] += 1
            elif there:  # in the log then, or taken later: in any case no gap that was proven
                self._say(partition, f"{what}, which is in the log under that name")
            elif is_gap_of_failures(batch, answer, mine):
                self.allowed[Allowed.BEHIND_A_FAILURE] += 1
            elif not keeps_batch_markers(self.cluster.partitions[partition]):
                self.allowed[Allowed.CANNOT_BE_TOLD] += 1
            elif self._is_gone_for_good(partition, batch, answer, mine):
                self.allowed[Allowed.FORGOTTEN] += 1
            else:
                self._say(partition, f"{what}, which continues what its producer sent")

    def _came_early(
        self,
        batch: Batch,
        answer: Answer,
        given_at: float,
        there: Sequence[InLog],
        mine: Sequence[Batch],
        places: dict[bytes, list[InLog]],
    ) -> bool:
        """Did it come before what its client had sent, or numbered, before it?"""
        before = self._before(answer, mine, places)
        return was_overtaken(batch, answer, given_at, there) or was_ahead(batch, answer, given_at, there, before)

    @staticmethod
    def _before(answer: Answer, mine: Sequence[Batch], places: dict[bytes, list[InLog]]) -> list[InLog]:
        """Where the record before its batch lies."""
        return [record for value in values_before(answer.identity, mine) for record in places.get(value, ())]

    def _is_gone_for_good(self, partition: TopicPartition, batch: Batch, answer: Answer, mine: Sequence[Batch]) -> bool:
        """Is the record before its batch lost, or the batch itself with its topic, which has later ones of its producer
        since it was made again? The first batch of an epoch has no record before it."""
        where_from = self.cluster.partitions[partition]
        return self._may_forget(partition) and (
            is_forgotten(where_from, answer.identity, mine)
            or went_with_its_topic(where_from, batch, self._gone(partition))
        )

    def _may_forget(self, partition: TopicPartition) -> bool:
        """May nobody know of what was acknowledged, so that the log alone tells it? If Redis has lost nothing, it lacks
        what a proxy had not noted before its lease ended. Where retention or compaction took that, the log shows that
        something is missing, and the code is INVALID_RECORD. A log that lost its end, or begins again, shows
        nothing."""
        met = self.cluster.partitions[partition].met
        return self._state_was_lost or bool({"topic recreated", "unclean election"} & met)

    def _say(self, partition: TopicPartition, what: str) -> None:
        self.violations.append(f"{partition[0]}-{partition[1]}: {what}")


def _named(records: Iterable[InLog], answer: Answer) -> list[InLog]:
    """Those that lie there under the name for which the answer was given."""
    return [record for record in records if record.name == answer.identity[:3]]


def _shown(found: object) -> str:
    return "nothing" if found is None else repr(found)[:200]

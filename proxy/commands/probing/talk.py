"""What a probe asks a cluster, as flows over the effects of ``client/``: the topic, the batches, the log. Judges
nothing. Pure: no sockets, no clock.

A response that says no, or that never comes, is what a probe is there to see: it becomes an outcome. Only without a
topic, or without a right that all of it needs, there is nothing to see: ``CannotProbe``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, NamedTuple, TypeVar

from ....client.asking import (
    EARLIEST,
    FETCH,
    LATEST,
    LIST_OFFSETS,
    Ask,
    AskAtOnce,
    Disconnect,
    Now,
    Offered,
    Servers,
    Sleep,
    ask_any,
)
from ....client.errors import AnswersOutOfOrder, AuthenticationFailed, ConnectionFailed, UnsupportedServer
from ....codecs.compression import Codec
from ....codecs.error_codes import ErrorCode, name_of, named
from ....producing.cluster import METADATA, Address, Cluster, cluster_of, metadata_fields
from ....producing.numbered_batch import Place
from ....values import value
from ...probe.batches import (
    CODECS,
    FIRST_OF_UNKNOWN,
    GAP,
    HEADERS,
    MARKERS,
    RECORDS_EACH,
    ZSTD_FETCH,
    ZSTD_PRODUCE,
    Maker,
    ProbeBatch,
)
from ...probe.seen import (
    FORMAT_V2,
    OUT_OF_ORDER,
    IdTrials,
    Outcome,
    Returned,
    Seen,
    Sent,
    Trials,
    Unanswered,
    Unsent,
    seen_of,
)
from ...probe.stored import LogBatch, UnreadableAnswer, batches_of
from . import limits

PRODUCE, CREATE_TOPICS, DELETE_TOPICS, INIT_PRODUCER_ID = 0, 19, 20, 22
_V2_VERSIONS: Final = (3, 12)
"""Of Produce: those with record batches, before topics are named by id."""
_V1_VERSIONS: Final = (2, 2)
"""The last one with message sets, and the one from which format v1 is allowed (KIP-32)."""
_FETCH_VERSIONS: Final = (2, 12)
"""From 2 on format v1 comes back; 13 names topics by id. From 7 on the fields' defaults mean: no fetch session."""
_METADATA_VERSIONS: Final = (0, 9)
_LIST_OFFSETS_VERSIONS: Final = (0, 7)
_CREATE_TOPICS_VERSIONS: Final = (0, 7)
_DELETE_TOPICS_VERSIONS: Final = (0, 5)
_INIT_PRODUCER_ID_VERSIONS: Final = (0, 5)
_DEFAULT_REPLICATION_FROM: Final = 4
"""From this version of CreateTopics on -1 stands for the cluster's default (KIP-464)."""
_PASSING: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    }
)
"""Errors by which nothing was done, and that pass by themselves, mostly in the first seconds of a topic."""
_DENIED: Final = (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
_NO_PRODUCE: Final = "no version of Produce for message format v1 or v2 is listed"
_EPOCH_MAX: Final = 2**15 - 1
_TRANSACTION_TIMEOUT_MS: Final = 60_000
Result = TypeVar("Result")


class CannotProbe(Exception):
    """There is no verdict; the message says why, and what can be done about it."""


class NotCreated(CannotProbe):
    """The server refuses to create a topic, so there is nothing to delete."""


class _NotYet(Exception):
    """An error that passes by itself; the message names it."""


@value(frozen=True, slots=True)
class Partition:
    """The partition that is probed, its leader, and the offset at which its log ends before the first batch."""

    topic: str
    leader: Address
    start: int
    offered: Mapping[int, tuple[int, int]]


class _GivenId(NamedTuple):
    """A producer id with its epoch, as the server gave it: any numbers."""

    number: int
    epoch: int


# ---------------------------------------------------------------------- the topic
async def greet(servers: Servers) -> Seen | None:
    """Return what is seen already when a server has said which versions it has: mostly nothing, None. Raises what
    ``Offered`` raises, of the last server."""
    *others, last = servers
    for address in others:
        try:
            return _seen_of_versions(await Offered(address))
        except AuthenticationFailed:
            raise
        except ConnectionFailed:
            continue
    return _seen_of_versions(await Offered(last))


def _seen_of_versions(offered: Mapping[int, tuple[int, int]]) -> Seen | None:
    if any(_has(offered, PRODUCE, versions) for versions in (_V1_VERSIONS, _V2_VERSIONS)):
        return None
    return seen_of(Trials(None), (), _NO_PRODUCE)


def _has(offered: Mapping[int, tuple[int, int]], api_key: int, versions: tuple[int, int]) -> bool:
    theirs = offered.get(api_key)
    return theirs is not None and max(theirs[0], versions[0]) <= min(theirs[1], versions[1])


async def create_topic(servers: Servers, topic: str) -> None:
    """Create a topic with one partition and the cluster's default replication, else one replica. Raises NotCreated;
    CannotProbe and what ``Ask`` raises: then whether it was created is not known."""
    replications = [-1, 1]
    failed = f"the topic {topic} cannot be created"

    async def ask() -> None:
        controller = await _controller(servers)
        highest = (await Offered(controller)).get(CREATE_TOPICS, (0, -1))[1]
        if highest < 0:
            raise NotCreated("the server lists no CreateTopics: create an empty topic, and name it with --topic")
        if highest < _DEFAULT_REPLICATION_FROM and len(replications) > 1:
            replications.pop(0)
        wanted = {"name": topic, "num_partitions": 1, "replication_factor": replications[0], "assignments": [],
                  "configs": []}  # fmt: skip
        fields = {"topics": [wanted], "timeout_ms": limits.PRODUCE_TIMEOUT_MS, "validate_only": False}
        answer = await Ask(controller, CREATE_TOPICS, _CREATE_TOPICS_VERSIONS, "CreateTopics", fields)
        if not answer.topics:
            raise ConnectionFailed("the response to CreateTopics lacks the topic")
        code = int(answer.topics[0].error_code)
        if code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):  # the latter after a response that was lost
            return
        if code == ErrorCode.INVALID_REPLICATION_FACTOR and len(replications) > 1:
            replications.pop(0)
            raise _NotYet(named(code))
        if code in (*_PASSING, ErrorCode.REQUEST_TIMED_OUT):
            raise _NotYet(named(code))
        said = getattr(answer.topics[0], "error_message", None)
        why = f"{_shown(code)} ({said})" if said else _shown(code)
        remedy = "grant Create on Cluster, or create" if code in _DENIED else "create"
        raise NotCreated(f"{failed}: {why}: {remedy} an empty topic, and name it with --topic")

    await _until_there(ask, limits.TOPIC_SECONDS_MAX, failed)


async def delete_topic(servers: Servers, topic: str, *, was_created: bool) -> None:
    """Delete it. ``was_created``: its creation was confirmed. Raises CannotProbe, and what ``Ask`` raises: then it may
    be there."""
    uncertain_until = await Now() + limits.UNCERTAIN_SECONDS_MAX

    async def ask() -> None:
        fields = {"topic_names": [topic], "timeout_ms": limits.PRODUCE_TIMEOUT_MS}
        controller = await _controller(servers)
        answer = await Ask(controller, DELETE_TOPICS, _DELETE_TOPICS_VERSIONS, "DeleteTopics", fields)
        if not answer.responses:
            raise ConnectionFailed("the response to DeleteTopics lacks the topic")
        code = int(answer.responses[0].error_code)
        is_unknown = code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if code == ErrorCode.NONE or (is_unknown and (was_created or await Now() >= uncertain_until)):
            return
        if code in (*_PASSING, ErrorCode.REQUEST_TIMED_OUT):
            raise _NotYet(named(code))
        raise CannotProbe(f"{_shown(code)}{': grant Delete on the topic' if code in _DENIED else ''}")

    await _until_there(ask, limits.DELETION_SECONDS_MAX, "DeleteTopics")


async def find_partition(servers: Servers, topic: str, *, is_ours: bool) -> Partition:
    """Return partition 0 of the topic as soon as it has a leader. Raises CannotProbe: there is no such topic, it is not
    empty, a right is missing; and what ``Ask`` raises."""
    if not is_ours:
        await _check_existing(servers, topic)

    async def ask() -> Address:
        cluster, _ = await _look(servers, [topic])
        leader = cluster.leaders.get(Place(topic, 0))
        if leader is not None:
            return cluster.brokers[leader]
        code = cluster.errors.get(topic, int(ErrorCode.LEADER_NOT_AVAILABLE))
        if code in _DENIED:
            raise CannotProbe(f"the topic {topic} cannot be seen: {_shown(code)}: grant Describe on it")
        raise _NotYet(named(code))

    leader = await _until_there(ask, limits.TOPIC_SECONDS_MAX, f"the topic {topic} gets no leader")
    start, end = [await _end(leader, topic, at) for at in (EARLIEST, LATEST)]
    if start != end:
        raise CannotProbe(f"the topic {topic} is not empty, it has offsets {start} to {end - 1}: name an empty one")
    return Partition(topic, leader, end, await Offered(leader))


async def _check_existing(servers: Servers, topic: str) -> None:
    """Raise CannotProbe if there is no such topic. All are listed, as naming one may create it on brokers before
    0.11."""
    try:
        answer = await ask_any(servers, METADATA, (1, _METADATA_VERSIONS[1]), "Metadata", {"topics": None})
    except UnsupportedServer:
        answer = await ask_any(servers, METADATA, (0, 0), "Metadata", {"topics": []})
    if topic not in cluster_of(answer).partitions:
        raise CannotProbe(f"there is no topic {topic}, or Describe on it is missing: create it, or leave out --topic")


async def _end(leader: Address, topic: str, at: int) -> int:
    """Return an end of the log as an offset. ``at``: ``EARLIEST`` or ``LATEST``."""
    what = "ListOffsets"
    wanted = {"partition_index": 0, "timestamp": at, "max_num_offsets": 1}
    fields = {"replica_id": -1, "isolation_level": 0, "topics": [{"name": topic, "partitions": [wanted]}]}

    async def ask() -> int:
        answer = await Ask(leader, LIST_OFFSETS, _LIST_OFFSETS_VERSIONS, what, fields)
        if not answer.topics or not answer.topics[0].partitions:
            raise ConnectionFailed(f"the response to {what} lacks the partition")
        one = answer.topics[0].partitions[0]
        if one.error_code in _DENIED:
            raise CannotProbe(f"the end of {topic} cannot be seen: {_shown(one.error_code)}: grant Describe on it")
        if one.error_code in _PASSING:
            raise _NotYet(named(one.error_code))
        if one.error_code != ErrorCode.NONE:
            raise CannotProbe(f"the end of {topic} cannot be seen: {named(one.error_code)}")
        old_style = getattr(one, "old_style_offsets", None)
        return int(old_style[0] if old_style else one.offset)

    return await _until_there(ask, limits.RETRY_SECONDS_MAX, f"the end of {topic} cannot be seen")


async def _look(servers: Servers, topics: list[str]) -> tuple[Cluster, Address | None]:
    """Return what Metadata says, and the controller's address where it is known."""
    answer = await ask_any(servers, METADATA, _METADATA_VERSIONS, "Metadata", metadata_fields(topics))
    cluster = cluster_of(answer)
    servers.learned(cluster)
    return cluster, cluster.brokers.get(getattr(answer, "controller_id", -1))


async def _controller(servers: Servers) -> Address:
    """Return who creates and deletes topics. A service may name none: then any server is asked."""
    cluster, controller = await _look(servers, [])
    return controller or next(iter(cluster.brokers.values()), next(iter(servers)))


async def _until_there(ask: Callable[[], Awaitable[Result]], seconds_max: float, what: str) -> Result:
    """Return what ``ask`` returns. While it raises an error that passes, or connections fail, it is called again.
    Raises CannotProbe: ``what``, and the last error; AuthenticationFailed, UnsupportedServer."""
    end = await Now() + seconds_max
    while True:
        try:
            return await ask()
        except AuthenticationFailed:
            raise
        except (ConnectionFailed, _NotYet) as error:
            problem = str(error)
        if await Now() + limits.PAUSE_SECONDS >= end:
            raise CannotProbe(f"{what}: {problem}")
        await Sleep(limits.PAUSE_SECONDS)


# ---------------------------------------------------------------------- the trials
class Probe:
    """The trials on one partition. ``maker``: of the batches."""

    def __init__(self, partition: Partition, maker: Maker) -> None:
        self._at = partition
        self._maker = maker

    async def run(self) -> Seen:
        """Send everything, read the log, and return what was seen. Raises CannotProbe for a missing right on the
        topic."""
        trials, unread = await self._try_everything()
        log, unread_at_the_end = await self._read(trials)
        return seen_of(trials, log, unread or unread_at_the_end)

    async def _try_everything(self) -> tuple[Trials, str]:
        first = None
        if self._has(PRODUCE, _V2_VERSIONS):
            first = await self._send(self._maker.batch("first"))
            if not first.outcome.is_success:
                return Trials(first), _unstored(first.outcome)
            trials = Trials(first)
            log, unread = await self._read(trials)
            if not log:
                return trials, unread
            if log[0].magic == FORMAT_V2:
                return await self._try_v2(first), ""
        make = self._maker.wrapper
        at_once = [make(f"at-once-{number}") for number in range(limits.PIPELINED)]
        if not self._has(PRODUCE, _V1_VERSIONS):
            if first is None:  # of the leader; the first server has some
                return Trials(None), _NO_PRODUCE
            unsent = Unsent("Produce 2, which message format v1 needs, is not listed")
            return Trials(first, tuple(Sent(one, unsent) for one in at_once)), unsent.reason
        wrappers = [await self._send(make(f"wrapper-{number}"), _V1_VERSIONS) for number in range(limits.WRAPPERS)]
        return Trials(first, await self._send_at_once(at_once, _V1_VERSIONS), wrappers=tuple(wrappers)), ""

    async def _try_v2(self, first: Sent) -> Trials:
        make = self._maker.batch
        at_once = [make(f"at-once-{number}") for number in range(limits.PIPELINED)]
        pipelined = await self._send_at_once(at_once, _V2_VERSIONS)
        marked = [await self._send(make(f"marked-{number}", (-1, *marker))) for number, marker in enumerate(MARKERS)]
        with_headers = await self._send(make("headers", headers=HEADERS))
        compressed = [await self._send(make(codec.name.lower(), codec=codec)) for codec in CODECS if self._takes(codec)]
        given = await self._producer_ids()
        producer_ids: tuple[int, ...] | Outcome | None = None
        ids = None
        if isinstance(given, list):
            producer_ids = tuple(one.number for one in given)
            if min(producer_ids) >= 0 and all(0 <= one.epoch < _EPOCH_MAX for one in given):
                ids = await self._try_ids(*given)
        else:
            producer_ids = given
        return Trials(first, pipelined, tuple(marked), with_headers, tuple(compressed), (), producer_ids, ids)

    async def _try_ids(self, known: _GivenId, unknown: _GivenId) -> IdTrials:
        """Only ids that the server gave are used: some count theirs from the highest that they see. The first five
        batches are sent at once, as clients do, and what is sent again goes over another connection, as it does after a
        response was lost."""

        def make(name: str, sequence: int, producer: _GivenId = known) -> ProbeBatch:
            return self._maker.batch(name, (producer.number, producer.epoch, sequence))

        batches = [make(f"id-{number}", number * RECORDS_EACH) for number in range(limits.PIPELINED + 1)]
        in_order = [*await self._send_at_once(batches[:-1], _V2_VERSIONS), await self._send(batches[-1])]
        await Disconnect(self._at.leader)
        again = [(await self._send(batches[-number])).outcome for number in (1, 5, 6)]
        other_content = await self._send(make("other", limits.PIPELINED * RECORDS_EACH))
        following = len(batches) * RECORDS_EACH
        gap = await self._send(make("gap", following + GAP))
        newer = await self._send(make("newer", 0, known._replace(epoch=known.epoch + 1)))
        older = await self._send(make("older", following))
        first_of_unknown = await self._send(make("unknown", FIRST_OF_UNKNOWN, unknown))
        last, fifth, sixth = again
        return IdTrials(tuple(in_order), last, fifth, sixth, other_content, gap, newer, older, first_of_unknown)

    def _has(self, api_key: int, versions: tuple[int, int]) -> bool:
        return _has(self._at.offered, api_key, versions)

    def _takes(self, codec: Codec) -> bool:
        if codec is not Codec.ZSTD:
            return True
        highest = [self._at.offered.get(api_key, (0, 0))[1] for api_key in (PRODUCE, FETCH)]
        return highest[0] >= ZSTD_PRODUCE and highest[1] >= ZSTD_FETCH

    # ------------------------------------------------------------------ requests
    async def _producer_ids(self) -> list[_GivenId] | Outcome | None:
        """Return two ids, why there are none, or None: InitProducerId is not listed."""
        if not self._has(INIT_PRODUCER_ID, _INIT_PRODUCER_ID_VERSIONS):
            return None
        fields = {"transactional_id": None, "transaction_timeout_ms": _TRANSACTION_TIMEOUT_MS}
        found: list[_GivenId] = []

        async def ask() -> Outcome:
            answer = await Ask(self._at.leader, INIT_PRODUCER_ID, _INIT_PRODUCER_ID_VERSIONS, "InitProducerId", fields)
            if answer.error_code == ErrorCode.NONE:
                found.append(_GivenId(int(answer.producer_id), int(answer.producer_epoch)))
            return Returned(int(answer.error_code))

        while len(found) < 2:
            outcome = await self._patiently(ask)
            if not outcome.is_success:
                return outcome
        return found

    async def _send(self, batch: ProbeBatch, versions: tuple[int, int] = _V2_VERSIONS) -> Sent:
        """Send one batch, again while it is refused with an error that passes. Raises CannotProbe."""

        async def ask() -> Outcome:
            answer = await Ask(self._at.leader, PRODUCE, versions, "Produce", self._produce_fields(batch))
            return _outcome_of(answer)

        return Sent(batch, self._allowed(await self._patiently(ask), "Write"))

    async def _send_at_once(self, batches: list[ProbeBatch], versions: tuple[int, int]) -> tuple[Sent, ...]:
        """Send several batches, each in a request of its own, before the first response is waited for."""
        requests = tuple(map(self._produce_fields, batches))
        try:
            answers = await AskAtOnce(self._at.leader, PRODUCE, versions, "Produce", requests)
            outcomes = [_outcome_of(one) for one in answers]
        except AnswersOutOfOrder:
            outcomes = [Unanswered(OUT_OF_ORDER)] * len(batches)
        except AuthenticationFailed:
            raise
        except ConnectionFailed as error:
            outcomes = [Unanswered(str(error))] * len(batches)
        return tuple(map(Sent, batches, outcomes))

    def _produce_fields(self, batch: ProbeBatch) -> dict[str, Any]:
        part = {"index": 0, "records": batch.data}
        return {
            "transactional_id": None,
            "acks": -1,
            "timeout_ms": limits.PRODUCE_TIMEOUT_MS,
            "topic_data": [{"name": self._at.topic, "partition_data": [part]}],
        }

    async def _patiently(self, ask: Callable[[], Awaitable[Outcome]]) -> Outcome:
        """Return the first outcome that does not pass by itself. A connection that ends is one: what the request has
        done is not known."""
        end = await Now() + limits.RETRY_SECONDS_MAX
        while True:
            try:
                outcome = await ask()
            except AuthenticationFailed:
                raise
            except ConnectionFailed as error:
                return Unanswered(str(error))
            is_passing = isinstance(outcome, Returned) and outcome.error_code in _PASSING and outcome.base_offset < 0
            if not is_passing or await Now() + limits.PAUSE_SECONDS >= end:
                return outcome
            await Sleep(limits.PAUSE_SECONDS)

    def _allowed(self, outcome: Outcome, right: str) -> Outcome:
        if isinstance(outcome, Returned) and outcome.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            raise CannotProbe(f"{_shown(outcome.error_code)}: grant {right} on the topic {self._at.topic}")
        return outcome

    # ------------------------------------------------------------------ the log
    async def _read(self, trials: Trials) -> tuple[list[LogBatch], str]:
        """Return the log from the start of the probe until all that was acknowledged is in it, and why it ends before
        that: ''. Raises CannotProbe."""
        wanted = {record.value for one in trials if one.outcome.is_success for record in one.batch.records}
        found: list[LogBatch] = []
        offset, size = self._at.start, 0
        end = await Now() + limits.READ_SECONDS_MAX
        while True:
            try:
                data, high_watermark = await self._fetch(offset)
                batches, offset = batches_of(data, offset)
            except AuthenticationFailed:
                raise
            except (UnreadableAnswer, ConnectionFailed, UnsupportedServer) as error:
                return found, str(error)
            size += len(data)
            found += batches
            wanted -= {record.value for one in batches for record in one.records}
            is_at_end = not batches or offset >= high_watermark >= 0
            if is_at_end and (not wanted or await Now() >= end):
                return found, "acknowledged batches do not come" if wanted else ""
            if size > limits.LOG_BYTES_MAX:
                return found, "more records than the probe has sent"
            if not batches:
                await Sleep(limits.PAUSE_SECONDS)  # a server may answer at once instead of waiting for records

    async def _fetch(self, offset: int) -> tuple[memoryview, int]:
        """Return stored bytes from the offset on, and the high watermark. Raises ConnectionFailed, also for an error
        of the partition, and UnsupportedServer."""
        partition = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": limits.FETCH_BYTES}
        fields = {"replica_id": -1, "max_wait_ms": limits.FETCH_WAIT_MS, "min_bytes": 1,
                  "max_bytes": limits.FETCH_BYTES, "isolation_level": 0,
                  "topics": [{"topic": self._at.topic, "partitions": [partition]}]}  # fmt: skip
        fetched: list[tuple[memoryview, int]] = []

        async def ask() -> Outcome:
            answer = await Ask(self._at.leader, FETCH, _FETCH_VERSIONS, "Fetch", fields)
            if not answer.responses or not answer.responses[0].partitions:
                raise ConnectionFailed("the response to Fetch lacks the partition")
            one = answer.responses[0].partitions[0]
            fetched.append((memoryview(one.records or b""), int(one.high_watermark)))
            return Returned(int(one.error_code))

        outcome = self._allowed(await self._patiently(ask), "Read")
        if not outcome.is_success:
            raise ConnectionFailed(f"Fetch: {outcome}")
        return fetched[-1]


def _shown(code: int) -> str:
    """Return an error for a sentence that says itself which right is missing."""
    return name_of(code) if code in _DENIED else named(code)


def _unstored(outcome: Outcome) -> str:
    return f"the first batch {'is refused: ' if isinstance(outcome, Returned) else 'gets '}{outcome}"


def _outcome_of(answer: Any) -> Outcome:
    if not answer.responses or not answer.responses[0].partition_responses:
        raise ConnectionFailed("the response to Produce lacks the partition")
    one = answer.responses[0].partition_responses[0]
    return Returned(int(one.error_code), int(one.base_offset))

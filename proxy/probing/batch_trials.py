"""The batches that a probe sends, and the log after them, as flows over the effects of ``client/``. Judges nothing.
Pure: no sockets, no clock.

A response that says no, or that never comes, is what a probe is there to see: it becomes an outcome. Only without a
right that all of it needs there is nothing to see: ``CannotProbe``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, NamedTuple

from ...client.asking import (
    FETCH,
    LATEST,
    Ask,
    AskAtOnce,
    Disconnect,
    Now,
    Offered,
    Servers,
    Sleep,
)
from ...client.errors import AnswersOutOfOrder, AuthenticationFailed, ConnectionFailed, UnsupportedServer
from ...client.log_flows import LOG_END_REPLICA_ID
from ...codecs.compression import Codec
from ...codecs.error_codes import ErrorCode
from ..probe.batches import (
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
from ..probe.seen import FORMAT_V2, Seen, seen_of
from ..probe.stored import LogBatch, UnreadableAnswer, batches_of
from ..probe.trials import OUT_OF_ORDER, IdTrials, NoResponse, Outcome, Returned, Sent, Trials, Unsent
from . import limits
from .topic import PASSING, CannotProbe, ProbedPartition, find_end, shown_right

PRODUCE, INIT_PRODUCER_ID = 0, 22
_V2_VERSIONS: Final = (3, 12)
"""Of Produce: those with record batches, before topics are named by id."""
_V1_VERSIONS: Final = (2, 2)
"""The last one with message sets, and the one from which format v1 is allowed (KIP-32)."""
_FETCH_VERSIONS: Final = (2, 12)
"""From 2 on format v1 comes back; 13 names topics by id. From 7 on the fields' defaults mean: no fetch session."""
_INIT_PRODUCER_ID_VERSIONS: Final = (0, 5)
_NO_PRODUCE: Final = "no version of Produce for message format v1 or v2 is listed"
_EPOCH_MAX: Final = 2**15 - 1
_TRANSACTION_TIMEOUT_MS: Final = 60_000


class _GivenId(NamedTuple):
    """A producer id with its epoch, as the server gave it: any numbers."""

    number: int
    epoch: int


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


class BatchTrials:
    """The trials on one partition. ``maker``: of the batches."""

    def __init__(self, partition: ProbedPartition, maker: Maker) -> None:
        self._at = partition
        self._maker = maker

    async def run(self) -> Seen:
        """Send everything, read the log, and return what was seen. Raises CannotProbe for a missing right on the
        topic."""
        trials, unread = await self._try_everything()
        log, unread_at_the_end = await self._read(trials)
        end = await self._log_end() if log else ""
        return seen_of(trials, log, unread or unread_at_the_end, end)

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
            outcomes = [NoResponse(OUT_OF_ORDER)] * len(batches)
        except AuthenticationFailed:
            raise
        except ConnectionFailed as error:
            outcomes = [NoResponse(str(error))] * len(batches)
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
                return NoResponse(str(error))
            is_passing = isinstance(outcome, Returned) and outcome.error_code in PASSING and outcome.base_offset < 0
            if not is_passing or await Now() + limits.PAUSE_SECONDS >= end:
                return outcome
            await Sleep(limits.PAUSE_SECONDS)

    def _allowed(self, outcome: Outcome, right: str) -> Outcome:
        if isinstance(outcome, Returned) and outcome.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            raise CannotProbe(f"{shown_right(outcome.error_code)}: grant {right} on the topic {self._at.topic}")
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

    async def _log_end(self) -> int | str:
        """Return the log end offset as the proxy asks for it, or why there is none."""
        try:
            return await find_end(self._at.leader, self._at.topic, LATEST, LOG_END_REPLICA_ID)
        except AuthenticationFailed:
            raise
        except (CannotProbe, ConnectionFailed, UnsupportedServer) as error:
            return str(error)

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
            if not answer.responses and getattr(answer, "throttle_time_ms", 0) > 0:  # the quota is used up (KIP-219)
                return Returned(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
            if not answer.responses or not answer.responses[0].partitions:
                raise ConnectionFailed("the response to Fetch lacks the partition")
            one = answer.responses[0].partitions[0]
            fetched.append((memoryview(one.records or b""), int(one.high_watermark)))
            return Returned(int(one.error_code))

        outcome = self._allowed(await self._patiently(ask), "Read")
        if not outcome.is_success:
            raise ConnectionFailed(f"Fetch: {outcome}")
        return fetched[-1]


def _unstored(outcome: Outcome) -> str:
    return f"the first batch {'is refused: ' if isinstance(outcome, Returned) else 'gets '}{outcome}"


def _outcome_of(answer: Any) -> Outcome:
    if not answer.responses or not answer.responses[0].partition_responses:
        raise ConnectionFailed("the response to Produce lacks the partition")
    one = answer.responses[0].partition_responses[0]
    return Returned(int(one.error_code), int(one.base_offset))

"""Batches without a producer id, as their broker takes them (rule R20): converted where the broker's format needs it,
in order, with the acks of their request. Owns the conversion and the answers of one request. Stores nothing and writes
no batch marker."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from ...codecs.batch_marker import MAGIC, parse_batch_marker
from ...codecs.compression import Codec
from ...codecs.convert import HeaderPolicy, HeaderRefused, converting_one
from ...codecs.errors import WireError
from ...codecs.header_marker import may_be_marker
from ...codecs.message_set import iterate_shallow
from ...codecs.produce import API_KEY, PartitionRecords, encode_request, parse_response
from ...codecs.record_batch import MAGIC as RECORD_BATCH
from ...codecs.record_batch import magic_of, parse_single_batch
from ...codecs.steps import STEP_BYTES, STEP_RECORDS, Steps
from ...reactor import Buffer
from .. import limits
from ..admission.long_work import Done, LongWork
from ..admission.loop_budget import LoopBudget
from ..admission.memory_budget import Held, MemoryBudget
from ..producer import answers
from ..producer.batch import Answer
from .pipe import RequestUpstream

_VERSION = 2
_PART_BYTES = 2048
"""What the work on one partition counts for, in addition to its bytes."""
_BATCH_MARKER_BEGINS = re.compile(re.escape(MAGIC))


class NonIdempotentHost(Protocol):
    """What is needed of the engine."""

    @property
    def policy(self) -> HeaderPolicy: ...

    @property
    def loop_budget(self) -> LoopBudget: ...

    @property
    def long_work(self) -> LongWork: ...

    @property
    def memory(self) -> MemoryBudget: ...


# R20 lives here: converted where the format asks for it, nothing else.
class NonIdempotentBatches:
    """The batches without a producer id of one request. ``sendable``: topic, partition and message set of each that is
    forwarded, once they are converted."""

    def __init__(
        self,
        parts: Sequence[tuple[PartitionRecords, Callable[[Answer], None]]],
        request_held: Held,
        host: NonIdempotentHost,
        sender: str,
        refused: Callable[[str], None],
        batch_version: int | None = None,
    ) -> None:
        """``parts``: the batches, each with the callback for its answer. ``request_held``: counts the bytes of the
        request. ``refused`` is called with the reason why something cannot be forwarded. ``batch_version``: of Produce,
        where the broker stores format v2; None: it does not."""
        self.sendable: list[tuple[str, int, Buffer]] = []
        self._host = host
        self._sender = sender
        self._parts = parts
        self._request_held = request_held  # kept as long as this is: the client may go before they are converted
        self._refused = refused
        is_stored = batch_version is not None and all(_is_batch(item.records) for item, _ in parts)
        self._version = batch_version if batch_version is not None and is_stored else _VERSION
        self._in_format = _as_they_are if is_stored else _old_formats
        # An estimate of the converted copies; their size is counted once they are made.
        size = sum(len(item.records or b"") for item, _ in parts)
        self._held: Held | None = Held(host.memory.hold_bytes, size + size // 4)
        self._waiting: dict[tuple[str, int], Callable[[Answer], None]] = {}

    def convert(self, ready: Callable[[], None]) -> None:
        """Convert them; ``ready`` is called when that is done, at once if it takes one step. By then the batches that
        cannot be forwarded have been refused and answered."""
        items, policy = [item for item, _ in self._parts], self._host.policy
        is_late = self._host.loop_budget.is_long

        def done(result: Done[list[Buffer | Answer]]) -> None:
            self._take(result.result())
            ready()

        self._host.long_work.begin(partial(self._in_format, items, policy), self._sender, done, is_late=is_late)

    def _take(self, message_sets: list[Buffer | Answer]) -> None:
        parts, self._parts = self._parts, ()
        for (item, answer), message_set in zip(parts, message_sets, strict=True):
            if isinstance(message_set, Answer):
                self._refused(message_set.message or "")
                answer(message_set)
            else:
                self.sendable.append((item.topic, item.partition, message_set))
                self._waiting[(item.topic, item.partition)] = answer

    def send(self, pipe: RequestUpstream, acks: int, timeout_ms: int, failed: Callable[[str], None]) -> None:
        """Send them on. ``failed`` is called if the broker's answer leaves out a partition."""
        version = self._version
        body = encode_request(version, acks, timeout_ms, self.sendable)
        if acks == 0:
            pipe.request(API_KEY, version, body, None)
            for answer in self._waiting.values():
                answer(Answer(0))
            return

        # What is sent is the request's own bytes, or a converted copy of them: that one is counted here.
        copied_bytes = sum(len(sent) for _, _, sent in self.sendable if not isinstance(sent, memoryview))
        self._held = Held(self._host.memory.hold_bytes, copied_bytes)
        self.sendable = []

        def answered(response: memoryview) -> None:
            self._held = None
            found, _throttle_ms = parse_response(response, 0, version)
            for one in found:
                done = self._waiting.pop((one.topic, one.partition), None)
                if done is not None:
                    done(Answer(one.error_code, one.base_offset, one.log_append_time_ms))
            if self._waiting:
                failed("the broker's answer leaves a partition out")

        pipe.request(API_KEY, version, body, answered)


def _is_batch(records: memoryview | None) -> bool:
    try:
        return records is not None and magic_of(records) == RECORD_BATCH
    except WireError:
        return False


def _as_they_are(items: Sequence[PartitionRecords], _policy: HeaderPolicy) -> Steps[list[Buffer | Answer]]:
    """Return all batches of format v2 of a request, for a broker that stores it, but those that could be taken for ones
    with a batch marker."""
    made: list[Buffer | Answer] = []
    for item in items:
        assert item.records is not None
        header = parse_single_batch(item.records)
        is_marker = may_be_marker(header.producer_epoch)
        made.append(answers.marker_without_id(header.producer_epoch) if is_marker else item.records)
    yield from ()
    return made


def _old_formats(items: Sequence[PartitionRecords], policy: HeaderPolicy) -> Steps[list[Buffer | Answer]]:
    """Return all of a request."""
    made: list[Buffer | Answer] = []
    bytes_at_once = 0
    for item in items:
        made.append((yield from _old_format(item, policy)))
        bytes_at_once += len(item.records or b"") + _PART_BYTES
        if bytes_at_once >= STEP_BYTES:
            bytes_at_once = 0
            yield
    return made


def _old_format(item: PartitionRecords, policy: HeaderPolicy) -> Steps[Buffer | Answer]:
    """Return the records as a message set, converted if need be; or what the client is answered instead."""
    records = item.records
    assert records is not None
    try:
        if magic_of(records) < 2:
            is_marked = yield from _finding_batch_marker(records)
            return answers.invalid("a wrapper's key names batches of a producer", 0) if is_marked else records
        converted = yield from converting_one(
            records,
            codec=Codec(parse_single_batch(records).codec),
            magic=1,
            policy=policy,
            output_bytes_max=limits.DECOMPRESSED_BYTES_MAX,
        )
        return converted.message_set
    except HeaderRefused as refused:
        return answers.header_refused(refused.header, item.topic)
    except WireError as error:
        return answers.unreadable(error)


def _finding_magic(records: Buffer) -> Steps[bool]:
    """Does a batch marker's first word occur anywhere?"""
    for start in range(0, len(records), STEP_BYTES):
        if start:
            yield
        if _BATCH_MARKER_BEGINS.search(records, start, start + STEP_BYTES + len(MAGIC) - 1):
            return True
    return False


def _finding_batch_marker(records: Buffer) -> Steps[bool]:
    """Does a wrapper in it have a batch marker as its key, so that it would be taken for batches of an idempotent
    producer? Only the proxy may write batch markers."""
    if not (yield from _finding_magic(records)):
        return False
    for index, one in enumerate(iterate_shallow(records), 1):
        if one.is_wrapper and parse_batch_marker(one.key) is not None:
            return True
        if not index % STEP_RECORDS:
            yield
    return False

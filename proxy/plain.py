"""Batches without a producer id, as an old broker takes them (rule R20): converted where the format asks for
it, in order, with their own acks."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Protocol

from ..codecs.compression import Codec
from ..codecs.convert import HeaderPolicy, HeaderRefused, to_message_set
from ..codecs.errors import WireError
from ..codecs.marker import MAGIC, parse_marker
from ..codecs.message_set import iterate_shallow
from ..codecs.produce import API_KEY, PartitionRecords, encode_request, parse_response
from ..codecs.record_batch import magic_of, parse_single_batch
from ..reactor import Buffer
from . import answers, limits
from .batch import Answer
from .holdings import Held
from .passes import Pass
from .pipe import Pipe
from .shared import Shared

_VERSION = 2
_MARKER_BEGINS = re.compile(re.escape(MAGIC))


class Host(Protocol):
    """What is needed of the engine."""

    @property
    def shared(self) -> Shared: ...

    @property
    def current_pass(self) -> Pass: ...

    def hold_bytes(self, count: int) -> None: ...


# R20 lives here: converted where the format asks for it, nothing else.
class PlainBatches:
    """Those of one request. ``sendable``: topic, partition and message set of each that goes on."""

    def __init__(
        self,
        parts: Sequence[tuple[PartitionRecords, Callable[[Answer], None]]],
        host: Host,
        refused: Callable[[str], None],
    ) -> None:
        """``parts``: the batches, and who wants their answers. What cannot go on is answered at once, and ``refused``
        is told why."""
        self.sendable: list[tuple[str, int, Buffer]] = []
        self._count = host.hold_bytes
        self._held: Held | None = None
        self._waiting: dict[tuple[str, int], Callable[[Answer], None]] = {}
        for item, answer in parts:
            if host.current_pass.is_too_long:
                message_set: Buffer | Answer = answers.held_back("this request is too much to be converted at once")
            else:
                message_set = old_format(item, host.shared.policy)
            if isinstance(message_set, Answer):
                refused(message_set.message or "")
                answer(message_set)
            else:
                self.sendable.append((item.topic, item.partition, message_set))
                self._waiting[(item.topic, item.partition)] = answer

    def send(self, pipe: Pipe, acks: int, timeout_ms: int, failed: Callable[[str], None]) -> None:
        """Send them on. ``failed``: told when the broker's answer cannot be passed on."""
        body = encode_request(_VERSION, acks, timeout_ms, self.sendable)
        if acks == 0:
            pipe.request(API_KEY, _VERSION, body, None)
            for answer in self._waiting.values():
                answer(Answer(0))
            return

        # What is sent is the request's own bytes, or a converted copy of them: that one is counted here.
        self._held = Held(self._count, sum(len(sent) for _, _, sent in self.sendable if isinstance(sent, bytes)))
        self.sendable = []

        def answered(response: memoryview) -> None:
            self._held = None
            found, _throttle_ms = parse_response(response, 0, _VERSION)
            for one in found:
                done = self._waiting.pop((one.topic, one.partition), None)
                if done is not None:
                    done(Answer(one.error_code, one.base_offset, one.log_append_time_ms))
            if self._waiting:
                failed("the broker's answer leaves a partition out")

        pipe.request(API_KEY, _VERSION, body, answered)


def old_format(item: PartitionRecords, policy: HeaderPolicy) -> Buffer | Answer:
    """Return the records as a message set, converted if need be; or what the client is answered instead."""
    records = item.records
    assert records is not None
    if len(item.topic) > limits.TOPIC_CHARACTERS_MAX:
        return answers.unknown_partition()
    try:
        if magic_of(records) < 2:
            return answers.invalid("a wrapper's key names batches of a producer", 0) if _is_marked(records) else records
        return to_message_set(
            records,
            codec=Codec(parse_single_batch(records).codec),
            magic=1,
            policy=policy,
            output_bytes_max=limits.DECOMPRESSED_BYTES_MAX,
        ).message_set
    except HeaderRefused as refused:
        return answers.header_refused(refused.header, item.topic)
    except WireError as error:
        return answers.unreadable(str(error))


def _is_marked(records: Buffer) -> bool:
    """Would it be taken for somebody's batches in the log? Only the proxy may say whose they are."""
    if _MARKER_BEGINS.search(records) is None:
        return False
    return any(one.is_wrapper and parse_marker(one.key) is not None for one in iterate_shallow(records))

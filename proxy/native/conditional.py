"""Conditional publish (rule R23) on topics on which the brokers give idempotence: it is refused. Pure.

A broker knows nothing of it. It takes the second writer's batch for a retry of the first one's, as both have the same
producer id and sequence, and answers with the first one's offset. A batch that says its offset in a record header is
appended wherever the log ends.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final
from uuid import UUID

from ...codecs import messages
from ...codecs.produce_walk import Part, ProduceWalk, Wanted
from ...state.producer_ids import CONDITIONAL_ID
from .. import limits
from ..producer import answers
from ..producer.batch import Answer
from ..producer.grouping import EXPECTED_OFFSET_HEADER
from ..session.routing import CONDITIONAL_NATIVELY
from ..versions import ApiKey

_WANTED: Final = Wanted(CONDITIONAL_ID, EXPECTED_OFFSET_HEADER.encode())
_TOPIC_IDS_FROM: Final = 13

NOT_SERVED: Final = CONDITIONAL_NATIVELY
"""For a batch that is published conditionally."""
_COME_AGAIN: Final = answers.held_back("another batch of the request was published conditionally: send this one again")
"""For the others of its request."""


def walk_through(data: bytes | bytearray, at: int, end: int, version: int) -> ProduceWalk | None:
    """Look for conditional batches in a request whose acks end at ``at`` in ``data`` and that ends at ``end``, of which
    the rest may be still to come. None: there is certainly none."""
    is_small = end <= len(data) and end - at <= limits.SEARCHED_REQUEST_BYTES_MAX
    if is_small and not _WANTED.may_be_in(data, at, end):
        return None
    walk = ProduceWalk(version, end - at, _WANTED)
    walk.feed(data, at)
    return walk


def refused(version: int, parts: Iterable[Part]) -> bytes:
    """Return the body of the answer to a request with these partitions, nothing of which is forwarded."""
    responses: list[dict[str, Any]] = []
    last: bytes | None = None
    for part in parts:
        if part.topic != last:
            last = part.topic
            is_id = version >= _TOPIC_IDS_FROM
            name = {"topic_id": UUID(bytes=last)} if is_id else {"name": last.decode("utf-8", "replace")}
            responses.append({**name, "partition_responses": []})
        responses[-1]["partition_responses"].append(
            _fields(part.partition, NOT_SERVED if part.is_wanted else _COME_AGAIN)
        )
    return messages.encode_response(ApiKey.PRODUCE, version, responses=responses)


def _fields(partition: int, answer: Answer) -> dict[str, Any]:
    return {
        "index": partition,
        "error_code": answer.error_code,
        "base_offset": -1,
        "log_append_time_ms": -1,
        "log_start_offset": -1,
        "error_message": answer.message,
    }

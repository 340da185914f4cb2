"""How Produce is served in its versions where the proxy writes for a client: how a request is read, which batches it
becomes, and how its answer is laid out. What is done with the batches is up to ``produce.py``.

Produce 0 to 2 has message sets, which are raised. From Produce 3 on clients send batches themselves. Those without a
producer id get one: of a batch that and its checksum change, and no record is looked at. A request with a producer id
or a transaction of its own is not served here, nor is one that brokers refuse (``is_written``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from crc32c import crc32c

from ....codecs import produce, produce_topic_ids
from ....codecs.error_codes import ErrorCode
from ....codecs.errors import WireError
from ....codecs.old_formats.raising import RefusedSet
from ....codecs.produce import IDEMPOTENT_VERSION_MIN, SENT_VERSION_MAX, PartitionAnswer, ProduceRequest
from ....codecs.record_batch import CONTROL_FLAG, TRANSACTIONAL_FLAG, BatchHeader, parse_single_batch
from ....codecs.steps import STEP_BYTES, Steps
from ....producing.numbered_batch import Place
from ....reactor import Buffer
from ....values import value
from .error_codes import produced_code, written_code
from .raised_sets import raising_all

ACKS: Final = (-1, 0, 1)
PARTITIONS_MAX: Final = 4_000
"""Of one request, which concerns one broker: it should lead no more. To read or to answer so many takes 15 ms."""
_NAME_BYTES_MAX: Final = 2**15 - 1
_ATTRIBUTES_AT: Final = 21

Sets = Mapping[Place, tuple[Sequence[Buffer], int]]
"""By partition: what a request has for it, mostly one, and the most bytes of a batch."""
Batches = dict[Place, list[Buffer] | RefusedSet]
Parts = Sequence[tuple[str, int, Buffer]]


@value(frozen=True, slots=True)
class ProduceFormat:
    """Some versions of Produce. ``names_topics_by_id``: the topic of a place is its id, in hexadecimal digits.
    ``splits``: a batch that is too large is taken apart, as its client does not know what a batch is. ``keeps_body``:
    its batches are parts of the request. ``client_code``: what a client gets for a broker's code. ``broker_version``:
    for the client's version and the broker's highest one. ``batches_of``: arrival time, the most bytes of a set,
    unpacked, and those of all batches follow the sets."""

    names_topics_by_id: bool
    splits: bool
    keeps_body: bool
    client_code: Callable[[int, bool], int]
    broker_version: Callable[[int, int], int]
    parse_request: Callable[[Buffer, int], ProduceRequest]
    batches_of: Callable[[Sets, int, int, int], Steps[Batches]]
    encode_request: Callable[[int, int, int, Parts], Sequence[Buffer]]
    parse_response: Callable[[Buffer, int], tuple[list[PartitionAnswer], int]]
    encode_response: Callable[[int, Sequence[PartitionAnswer], int], bytes]


# ---------------------------------------------------------------------- what becomes batches
def _verifying_all(sets: Sets, _arrived_ms: int, _unpacked_bytes_max: int, _bytes_max: int) -> Steps[Batches]:
    """Return the batches as they are. What is damaged is refused: to sign it again would hide that."""
    found: Batches = {}
    for place, (batches, _) in sets.items():
        (batch,) = batches
        view, crc = memoryview(batch), 0
        for start in range(_ATTRIBUTES_AT, len(view), STEP_BYTES):
            crc = crc32c(view[start : start + STEP_BYTES], crc)
            yield
        if crc == parse_single_batch(view).crc:
            found[place] = [batch]
        else:
            found[place] = RefusedSet(ErrorCode.CORRUPT_MESSAGE, f"record batch: CRC-32C is not {crc:#010x}")
    return found


def is_written(body: Buffer, api_version: int) -> bool:
    """Is a request of Produce 3 or above served here, given its body? Not if any batch has a producer id or belongs to
    a transaction, and not if a broker would refuse it, or cannot read it: then it is for the broker to judge."""
    try:
        request = format_of(api_version).parse_request(body, api_version)
        headers = [parse_single_batch(one.records or memoryview(b"")) for one in request.partitions]
    except WireError:
        return False
    places = {(one.topic, one.partition) for one in request.partitions}
    names_fit = all(len(topic.encode()) <= _NAME_BYTES_MAX for topic in {topic for topic, _ in places})  # from 9 on
    is_plain = request.transactional_id is None and request.acks in ACKS and names_fit
    return is_plain and 0 < len(headers) == len(places) <= PARTITIONS_MAX and all(map(_is_without_id, headers))


def _is_without_id(header: BatchHeader) -> bool:
    return header.producer_id == -1 and not header.attributes & (TRANSACTIONAL_FLAG | CONTROL_FLAG)


# ---------------------------------------------------------------------- versions
def _parse_request(body: Buffer, api_version: int) -> ProduceRequest:
    return produce.parse_request(body, 0, min(api_version, produce.CLIENT_VERSION_MAX))


def _parse_response(body: Buffer, api_version: int) -> tuple[list[PartitionAnswer], int]:
    return produce.parse_response(body, 0, api_version)


def _encode_response(api_version: int, answers: Sequence[PartitionAnswer], throttle_ms: int) -> bytes:
    return produce.encode_response(min(api_version, produce.CLIENT_VERSION_MAX), answers, throttle_ms)


MESSAGE_SETS: Final = ProduceFormat(
    names_topics_by_id=False,
    splits=True,
    keeps_body=False,
    client_code=produced_code,
    broker_version=lambda _, highest: min(highest, SENT_VERSION_MAX),
    parse_request=_parse_request,
    batches_of=raising_all,
    encode_request=produce.encode_request,
    parse_response=_parse_response,
    encode_response=_encode_response,
)
"""Produce 0 to 2."""
BATCHES: Final = ProduceFormat(
    names_topics_by_id=False,
    splits=False,
    keeps_body=True,
    client_code=written_code,
    broker_version=lambda version, highest: min(version, highest, SENT_VERSION_MAX),
    parse_request=_parse_request,
    batches_of=_verifying_all,
    encode_request=produce.encode_request,
    parse_response=_parse_response,
    encode_response=_encode_response,
)
"""Produce 3 to 12. The broker is asked in the client's version: so it judges as it would without the proxy. Versions 10
to 12 have the layouts of 9 but for tagged fields, and differ from 8 in transactions alone."""
BATCHES_BY_TOPIC_ID: Final = ProduceFormat(
    names_topics_by_id=True,
    splits=False,
    keeps_body=True,
    client_code=written_code,
    broker_version=lambda version, _: version,
    parse_request=lambda body, _: produce_topic_ids.parse_request(body),
    batches_of=_verifying_all,
    encode_request=lambda _, acks, timeout_ms, parts: produce_topic_ids.encode_request(acks, timeout_ms, parts),
    parse_response=lambda body, _: produce_topic_ids.parse_response(body),
    encode_response=lambda _, answers, throttle_ms: produce_topic_ids.encode_response(answers, throttle_ms),
)
"""Produce 13. The broker gets the ids as well: it refuses one of a topic that was deleted, though another one may have
its name by now."""


def format_of(api_version: int) -> ProduceFormat:
    """Return how this version is served: 0 to 13."""
    assert 0 <= api_version <= produce_topic_ids.VERSION
    if api_version < IDEMPOTENT_VERSION_MIN:
        return MESSAGE_SETS
    return BATCHES if api_version < produce_topic_ids.VERSION else BATCHES_BY_TOPIC_ID

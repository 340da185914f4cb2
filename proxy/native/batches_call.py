"""A produce request of a client of the engine, in front of brokers that store format v2: its answer in the client's own
layout, and what is refused of it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from ...codecs import produce_topic_ids
from ...codecs.errors import WireError
from ...codecs.header_marker import may_be_marker
from ...codecs.produce import PartitionAnswer
from ...codecs.record_batch import MAGIC, magic_of, parse_single_batch
from ..producer import answers
from ..producer.batch import Answer
from ..session.produce import ProduceCall
from ..session.routing import BatchKind, Way

_BATCHES_SINCE: Final = 3


class BatchesCall(ProduceCall):
    """A produce request whose batches are stored as they come. ``conditional``: of the batches, by their place, those
    that are published conditionally, as far as some are not the engine's."""

    conditional: Collection[int] = ()
    refusal: Answer | None = None
    """Of all its batches: it is transactional, and one of its topics is the engine's."""

    topic_ids: Mapping[str, str] = MappingProxyType({})
    """By name, where the client names topics by their ids."""

    def _encoded_body(self, found: Sequence[PartitionAnswer]) -> bytes:
        if self.prefix.version < produce_topic_ids.VERSION:
            return super()._encoded_body(found)
        for one in found:
            one.topic = self.topic_ids.get(one.topic, one.topic)
        return produce_topic_ids.encode_response(found)

    def _way_of(self, topic: str, index: int) -> Way | Answer:
        if self.refusal is not None:
            return self.refusal
        kind = BatchKind.CONDITIONAL if index in self.conditional else BatchKind.IDEMPOTENT
        return self.host.way_of(topic, kind)

    def _refusal_without_id(self, producer_epoch: int) -> Answer | None:
        is_marker = may_be_marker(producer_epoch)
        return answers.marker_without_id(producer_epoch, self.prefix.version) if is_marker else None


def is_plain(records: memoryview | None, version: int) -> bool:
    """Is a batch, or message set, without a producer id, and no broker takes it for another one?"""
    if not records:
        return True  # for the broker to refuse
    try:
        if magic_of(records) < MAGIC:
            return True
        header = parse_single_batch(records)
    except WireError:
        return False
    return version >= _BATCHES_SINCE and header.producer_id < 0 and not may_be_marker(header.producer_epoch)

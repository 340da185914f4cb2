"""Which batches are the engine's, which pass to the broker, and which are refused: by the mode, the topic and the kind
of the batch. One table, pure; a partition has one kind of writer. How the engine stores a batch is its broker's form,
and changes nothing here."""

from __future__ import annotations

from enum import Enum
from typing import Final

from ..broker.served import Idempotence
from ..producer import answers
from ..producer.batch import Answer


class BatchKind(Enum):
    """``PLAIN``: without a producer id. ``CONDITIONAL``: it says at which offset it has to be, by its producer id or in
    a header; known only where it could pass."""

    PLAIN = "without a producer id"
    IDEMPOTENT = "idempotent"
    CONDITIONAL = "conditional"
    TRANSACTIONAL = "transactional"


class Way(Enum):
    """Where a batch goes that is not refused. The engine may refuse it for what it is in itself."""

    PASSES = "passes"
    ENGINE = "engine"


CONDITIONAL_NATIVELY: Final = answers.not_served_conditionally(
    "the brokers give idempotence on this topic (native), which is not among topics.conditional"
)


def way_of(mode: Idempotence | None, *, matches: bool, is_conditional: bool, kind: BatchKind) -> Way | Answer:
    """Return where a batch goes, or its refusal. ``matches``: is its topic of ``topics.engine`` or
    ``topics.conditional``? ``is_conditional``: is it of the latter, and takes conditional publishes only?"""
    is_native = mode is Idempotence.NATIVE
    if is_native and not matches:
        return CONDITIONAL_NATIVELY if kind is BatchKind.CONDITIONAL else Way.PASSES
    if kind is BatchKind.TRANSACTIONAL:
        return answers.transactional_natively() if is_native else answers.transactional()
    return Way.PASSES if kind is BatchKind.PLAIN and not is_conditional else Way.ENGINE

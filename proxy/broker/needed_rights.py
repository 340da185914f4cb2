"""Which rights the proxy's principal needs at the brokers, and which of them it lacks. Pure; the table of
docs/how-to/sasl.md is this one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ...values import value
from ..bridge.rights import Operation, Rights
from ..flow.form import Form
from ..versions import ApiKey, BrokerRanges

_WRITE_IS_ENOUGH_SINCE: Final = ApiKey.DESCRIBE_CLUSTER
"""Brokers that list it (2.8) take batches with producer ids of whoever may write to the topic (KIP-679)."""
_TOPIC_NEEDS: Final = (
    (Operation.READ, "what is in doubt there could not be found out"),
    (Operation.WRITE, "batches are refused"),
)


@value(frozen=True, slots=True)
class Lacking:
    """A right that is missing. ``topics``: on which; empty: on the cluster. ``so``: what does not work."""

    operation: Operation
    topics: tuple[str, ...]
    so: str

    def __str__(self) -> str:
        name = self.operation.name.title().replace("_", "")
        where = ", ".join(self.topics[:5]) + (", ..." if len(self.topics) > 5 else "") if self.topics else "the cluster"
        return f"our principal lacks {name} on {where}: {self.so}"


def lacking(rights: Rights, ranges: BrokerRanges, form: Form, *, writes: bool) -> Iterator[Lacking]:
    """Yield what is missing of what the proxy needs where it appends itself. Topics that it may not describe are not
    known to it. ``writes``: with its own principal, and not with those of clients (``pass_through``)."""
    needs_ids = writes and form is Form.OWN_IDS and _WRITE_IS_ENOUGH_SINCE not in ranges
    if needs_ids and rights.cluster is not None and Operation.IDEMPOTENT_WRITE not in rights.cluster:
        yield Lacking(Operation.IDEMPOTENT_WRITE, (), "batches with a producer id are refused")
    for operation, so in _TOPIC_NEEDS:
        if operation is Operation.WRITE and not writes:
            continue
        names = [name for name, may in sorted(rights.topics.items()) if may is not None and operation not in may]
        if names:
            yield Lacking(operation, tuple(names), so)

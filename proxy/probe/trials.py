"""What a probe has sent, and what the server returned. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ...codecs.error_codes import ErrorCode, name_of
from ...values import value
from .batches import ProbeBatch

NO_RESPONSE: Final = "no response"
OUT_OF_ORDER: Final = "responses in another order than the requests"
"""The reason of requests that were sent at once."""


@value(frozen=True, slots=True)
class Returned:
    """The response to a request, or its part for one batch. ``base_offset`` -1: none."""

    error_code: int
    base_offset: int = -1

    @property
    def is_success(self) -> bool:
        return self.error_code == ErrorCode.NONE

    def __str__(self) -> str:
        return name_of(self.error_code)


@value(frozen=True, slots=True)
class NoResponse:
    """There was no response, or none that can be read. ``reason``: a clause for people."""

    reason: str

    @property
    def is_success(self) -> bool:
        return False

    def __str__(self) -> str:
        return f"{NO_RESPONSE} ({self.reason})"


@value(frozen=True, slots=True)
class Unsent:
    """There was no request. ``reason``: a clause for people."""

    reason: str

    @property
    def is_success(self) -> bool:
        return False

    def __str__(self) -> str:
        return self.reason


Outcome = Returned | NoResponse | Unsent


@value(frozen=True, slots=True)
class Sent:
    """One batch with its outcome."""

    batch: ProbeBatch
    outcome: Outcome


@value(frozen=True, slots=True)
class IdTrials:
    """What was sent under producer ids that the server gave, in this order. ``in_order``: six batches. The next three
    are outcomes of the last, the fifth last and the sixth last of them, sent again."""

    in_order: tuple[Sent, ...]
    last_again: Outcome
    fifth_last_again: Outcome
    sixth_last_again: Outcome
    other_content: Sent
    """The sequence of the last batch, with other records."""
    gap: Sent
    newer_epoch: Sent
    older_epoch: Sent
    unknown_id: Sent


@value(frozen=True, slots=True)
class Trials:
    """All that was sent to one partition. ``first`` is None where no version of Produce takes format v2. ``wrappers``:
    in message format v1. ``producer_ids``: None where InitProducerId is not listed."""

    first: Sent | None
    pipelined: tuple[Sent, ...] = ()
    marked: tuple[Sent, ...] = ()
    with_headers: Sent | None = None
    compressed: tuple[Sent, ...] = ()
    wrappers: tuple[Sent, ...] = ()
    producer_ids: tuple[int, ...] | Outcome | None = None
    ids: IdTrials | None = None

    def __iter__(self) -> Iterator[Sent]:
        """Every batch that was sent once, in the order in which they were sent. ``other_content`` is not among them:
        a server that takes it for the batch before returns success and stores nothing."""
        if self.first is not None:
            yield self.first
        yield from (*self.pipelined, *self.marked)
        if self.with_headers is not None:
            yield self.with_headers
        yield from (*self.compressed, *self.wrappers)
        if (ids := self.ids) is not None:
            yield from ids.in_order
            yield from (ids.gap, ids.newer_epoch, ids.older_epoch, ids.unknown_id)

    def resent(self) -> set[str]:
        """Names of batches that were sent again."""
        if self.ids is None:
            return set()
        return {self.ids.in_order[-number].batch.name for number in (1, 5, 6)}

    def refused(self) -> Iterator[Sent]:
        """Batches that were answered with an error and no offset: they must not be stored."""
        for one in (*self, *((self.ids.other_content,) if self.ids is not None else ())):
            if isinstance(one.outcome, Returned) and not one.outcome.is_success and one.outcome.base_offset < 0:
                yield one

"""Bridges made of steps: one step leads from a version to the one below it, and its answer back up. Knows no API.

Most steps change a few bytes of a small body. What is large and hot (Fetch) has a bridge of its own instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ...reactor import Buffer
from .base import THROTTLE_NONE, Chunks, RequestRefused, check_size


class Step(Protocol):
    """From one version down to the next lower one. Made again for every request, so it may remember."""

    def down(self, request: Buffer) -> Buffer | RequestRefused:
        """The request body one version lower. A refusal carries its answer in the layout of the higher version."""
        ...

    def up(self, answer: Buffer) -> Buffer:
        """The answer body one version higher."""
        ...


class Throttle:
    """The request is the same; the answer gets throttle_time_ms in front (what Kafka 0.11 did to most APIs at once)."""

    __slots__ = ()

    def down(self, request: Buffer) -> Buffer | RequestRefused:
        """The same."""
        return request

    def up(self, answer: Buffer) -> Buffer:
        """Nothing to wait for, then the answer."""
        return THROTTLE_NONE + bytes(answer)


class Same:
    """Request and answer are the same: only what a broker or a client does with them differs."""

    __slots__ = ()

    def down(self, request: Buffer) -> Buffer | RequestRefused:
        """The same."""
        return request

    def up(self, answer: Buffer) -> Buffer:
        """The same."""
        return answer


class Ladder:
    """A bridge of zero or more steps, the highest version first. Without a step it hands everything through."""

    __slots__ = ("_steps", "broker_version")

    def __init__(self, broker_version: int, steps: Sequence[Step] = ()) -> None:
        self.broker_version = broker_version
        self._steps = steps

    def request(self, body: memoryview) -> Chunks | RequestRefused:
        """All steps down, or the first refusal, whose answer has gone up the steps again. LimitExceeded for a body that
        is too large to be rewritten (``check_size``)."""
        if any(not isinstance(step, Throttle | Same) for step in self._steps):
            check_size(body)
        current: Buffer = body
        for depth, step in enumerate(self._steps):
            lower = step.down(current)
            if isinstance(lower, RequestRefused):
                if lower.answer is None:
                    return lower
                return RequestRefused(lower.error_code, lower.reason, bytes(self._up(lower.answer, depth)))
            current = lower
        return (current,)

    def response(self, body: memoryview) -> Chunks:
        """All steps up."""
        return (self._up(body, len(self._steps)),)

    def _up(self, answer: Buffer, depth: int) -> Buffer:
        for step in reversed(self._steps[:depth]):
            answer = step.up(answer)
        return answer

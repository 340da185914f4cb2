"""Frozen dataclasses that cost nothing extra: the type checker forbids assignments to them, at run time they are plain.

A really frozen one sets every field through ``object.__setattr__``, which took a fifth of the time of a produce."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

__all__ = ["value"]

if TYPE_CHECKING:
    from dataclasses import dataclass as value
else:

    def value(*, frozen: bool, slots: bool) -> Callable[[type], type]:
        """Return the decorator of a dataclass that is compared and hashed by its fields, and never assigned to."""
        assert frozen, "what changes is a plain dataclass"
        return dataclass(slots=slots, unsafe_hash=True)

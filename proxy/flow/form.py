"""How a partition's leader stores batches, and so how they are sent and found again: its form."""

from __future__ import annotations

from enum import Enum


class Form(Enum):
    """What an append is made of."""

    WRAPPER_V1 = "wrapper v1"
    """A compressed message of format v1, with its batch marker as the key: up to five batches."""
    MARKED_V2 = "v2, marked"
    """One batch of format v2 as its client has sent it, but for the producer: its batch marker is in its header."""

    @property
    def holds_groups(self) -> bool:
        """Are several batches appended as one, and large ones in parts?"""
        return self is Form.WRAPPER_V1

    @property
    def names_producers(self) -> bool:
        """Does the log tell which producers its batches are of? Only then can an entry be rebuilt of whatever was
        appended, as an append reservation needs."""
        return self is Form.WRAPPER_V1

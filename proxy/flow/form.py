"""How a partition's leader stores batches, and so how they are sent and found again: its form."""

from __future__ import annotations

from enum import Enum


class Form(Enum):
    """What an append is made of, in the order in which forms are preferred. ``label``: for people. ``is_v2``: batches
    of message format v2. ``holds_groups``: several batches are appended as one, and large ones in parts.
    ``names_producers``: the log tells which producer a batch is of, so an entry can be rebuilt of whatever was
    appended, as an append reservation needs."""

    OWN_IDS = "v2, own ids", True, False, True
    """One batch of format v2 as its client has sent it: the broker's own idempotence recognises what is sent again."""
    MARKED_V2 = "v2, marked", True, False, False
    """The same without its producer: its batch marker is in its header (``codecs/header_marker.py``)."""
    WRAPPER_V1 = "wrapper v1", False, True, True
    """A compressed message of format v1, with its batch marker as the key: up to five batches."""

    def __init__(self, label: str, is_v2: bool, holds_groups: bool, names_producers: bool) -> None:
        self.label = label
        self.is_v2 = is_v2
        self.holds_groups = holds_groups
        self.names_producers = names_producers

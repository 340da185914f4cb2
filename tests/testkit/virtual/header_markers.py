"""The batch markers of message format v2, as the kit knows them: by all that clients have sent.

A marker in a batch's header is a hash, from which nobody reads an identity. The kit knows every identity under which
anything was sent, so it can tell which one a marker stands for. Written from the description of the marker and
independent of the proxy's codec, so that an error there cannot hide here.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from hashlib import blake2b

from idemproxy.codecs.batch_marker import Identity

_IDENTITY = struct.Struct(">qhii")
_FIELDS = struct.Struct(">hi")
_BYTES = 6
_PLAIN_EPOCHS = (b"\xff\xff", b"\0\0")
"""What producers without idempotence send."""


def fields_of(identity: Sequence[int]) -> tuple[int, int]:
    """Producer epoch and base sequence of a batch whose marker stands for this identity."""
    made = blake2b(_IDENTITY.pack(*identity), digest_size=8, person=b"header").digest()[:_BYTES]
    if made[:2] in _PLAIN_EPOCHS:
        made = bytes((made[0] ^ 0x40,)) + made[1:]
    epoch, sequence = _FIELDS.unpack(made)
    return epoch, sequence


class SentIdentities:
    """Under which identities batches were sent, by all clients of one world."""

    def __init__(self) -> None:
        self._new: set[Identity] = set()
        self._known: dict[tuple[int, int, int], Identity] = {}

    def note(self, producer_id: int, producer_epoch: int, base_sequence: int, record_count: int) -> None:
        """A batch leaves its client under this identity."""
        self._new.add(Identity(producer_id, producer_epoch, base_sequence, record_count))

    def marked_as(self, producer_epoch: int, base_sequence: int, record_count: int) -> Identity | None:
        """The identity that these fields of a batch without a producer id stand for; None: nobody has sent it."""
        for identity in self._new:
            self._known[(*fields_of(identity), identity.record_count)] = identity
        self._new.clear()
        return self._known.get((producer_epoch, base_sequence, record_count))

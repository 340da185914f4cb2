"""One wrapper to append: the records of some batches of one producer, converted and wrapped with their batch marker.
Pure.

Owns the bytes and the identities of the batches in it, and counts the bytes as long as they are kept. ``grouping.py``
says which batches go together."""

from __future__ import annotations

from ...codecs import convert
from ...codecs.batch_marker import Identity, anchor_of_batch_marker, encode_batch_marker
from ...codecs.compression import Codec
from ...codecs.convert import Inner
from ...codecs.header_marker import header_marker_of, marking_batch
from ...codecs.logged import anchor_of_header_marker, anchor_of_own_ids
from ...codecs.record_batch import BatchHeader
from ...codecs.steps import Steps
from ...reactor import Buffer
from ...state.entry import NO_CONTENT
from ...values import value
from ..admission.memory_budget import Count, Held
from .form import Form


@value(frozen=True, slots=True)
class Wrapper:
    """Whole batches, or a part of one. ``identities``: what the batch marker says. ``anchor``: what identifies it in
    the log. ``first_content``: the digest of its first record. ``compress_harder``: compressed though the client did
    not. ``held`` counts its bytes. ``is_marked``: a batch marker names its records in the log; otherwise nothing there
    tells their producer."""

    identities: tuple[Identity, ...]
    message_set: Buffer
    anchor: bytes
    first_content: bytes
    max_timestamp: int
    codec: Codec
    compress_harder: bool
    held: Held
    is_marked: bool = True
    form: Form = Form.WRAPPER_V1

    @property
    def is_compressed(self) -> bool:
        """Is it as small as its codec makes it?"""
        return self.compress_harder or bool(self.codec) or self.form.is_v2

    def unwrapping(self, output_bytes_max: int) -> Steps[Inner]:
        """Return the records."""
        assert self.is_marked
        message_set = yield from convert.unwrapping(self.message_set, output_bytes_max)
        record_count = sum(identity.record_count for identity in self.identities)
        return Inner(message_set, record_count, self.max_timestamp, self.first_content)


def wrapping(
    identities: tuple[Identity, ...], inner: Inner, codec: Codec, count: Count, *, compress_harder: bool = False
) -> Steps[Wrapper]:
    """Return the records with their batch marker. Until they are wrapped their uncompressed bytes are counted: these
    may be a thousand times as many."""
    held = Held(count, len(inner.message_set))
    batch_marker = encode_batch_marker(identities)
    message_set = yield from convert.wrapping(inner, key=batch_marker, codec=codec, compress_harder=compress_harder)
    held.resize(len(message_set))
    anchor = anchor_of_batch_marker(batch_marker)
    return Wrapper(
        identities, message_set, anchor, inner.first_content, inner.max_timestamp, codec, compress_harder, held
    )


def marking(identity: Identity, batch: memoryview, header: BatchHeader, content: bytes, count: Count) -> Steps[Wrapper]:
    """Return a client's batch as it is appended where the leader stores format v2."""
    marker = header_marker_of(identity)
    marked = yield from marking_batch(batch, marker)
    anchor = anchor_of_header_marker(marker, identity.record_count)
    return marked_wrapper(identity, marked, anchor, content, header, count)


def marked_wrapper(
    identity: Identity, marked: bytes | bytearray, anchor: bytes, content: bytes, header: BatchHeader, count: Count
) -> Wrapper:
    """Return a batch that has its batch marker in its header. ``content``: the digest of its first record. ``header``:
    of the client's batch."""
    held = Held(count, len(marked))
    what = (identity,), marked, anchor, content, header.max_timestamp, Codec.NONE, False, held
    return Wrapper(*what, form=Form.MARKED_V2)


def as_sent(identity: Identity, batch: memoryview, header: BatchHeader, count: Count) -> Wrapper:
    """Return a client's batch as it is appended with its own producer id. Its bytes are those of its request, which
    are counted already. Nothing is stored of it without its producer id, so no content is looked for."""
    held = Held(count, 0)
    what = (identity,), batch, anchor_of_own_ids(header), NO_CONTENT, header.max_timestamp, Codec.NONE, False, held
    return Wrapper(*what, form=Form.OWN_IDS)

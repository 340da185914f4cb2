"""How a group becomes a message set: one wrapper with its batch marker, or the next part of a batch that is too large
for the broker. Pure, and in steps, as large batches take long.

Knows which sizes and codecs a topic was seen to take; sends nothing and decides nothing about sequences.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ...codecs import convert
from ...codecs.batch_digest import digesting_messages
from ...codecs.batch_marker import Identity, anchor_of, encode_batch_marker
from ...codecs.compression import Codec, codec_of
from ...codecs.convert import Conversion, HeaderPolicy, Inner
from ...codecs.kernel import KERNEL
from ...codecs.message_set import iterate_shallow
from ...codecs.record_batch import PRODUCER, PRODUCER_AT, BatchHeader
from ...codecs.steps import Steps
from ...reactor import Buffer
from ...state.commit import Stored
from ...state.decide import BatchIdentity
from ...state.entry import GROUP_BATCHES_MAX, NO_ANCHOR, NO_CONTENT, NO_DIGEST
from ...state.sequence import advance, distance
from ...values import value
from .. import limits
from ..admission.memory_budget import Count, Held
from ..flow.form import Form
from ..flow.wrapper import Wrapper, as_sent, marked_wrapper, marking, wrapping
from ..partition_log.topic_facts import TopicFacts
from .batch import Batch

EXPECTED_OFFSET_HEADER = "expected-offset"


@dataclass(slots=True)
class WrapperOptions:
    """What the configuration says of wrappers. ``policy``: what becomes of record headers, which old brokers cannot
    store."""

    policy: HeaderPolicy = field(default_factory=HeaderPolicy)

    @property
    def conditional_policy(self) -> HeaderPolicy:
        """The policy for conditional batches: it also drops the header with the expected offset."""
        return self.policy.dropping_also(EXPECTED_OFFSET_HEADER)


@value(frozen=True, slots=True)
class Target:
    """The producer of the batches, their topic, and what is known of topics. ``hold_bytes``: counts the bytes of
    wrappers in the memory budget. ``keeps_whole``: a batch is appended as a whole, or not at all (rule R23)."""

    topics: TopicFacts
    options: WrapperOptions
    hold_bytes: Count
    producer_id: int
    topic: str
    keeps_whole: bool = False

    def sending_whole(self, batch: Batch, form: Form) -> Steps[deque[Wrapper]]:
        """Return a single batch as it is appended where its leader stores format v2. Raises WireError for records that
        cannot be read."""
        header, whose = batch.header, batch.identity
        if form is Form.OWN_IDS:
            if sent_as_is(batch) is None:
                batch.digest = yield from convert.digesting_whole(batch.records, header, limits.UNPACKED_BYTES_MAX)
            return deque((as_sent(_identity(self, whose), batch.records, header, self.hold_bytes),))
        # As its client has written it: a batch that says its offset in a record header names another producer (R23).
        named = PRODUCER.unpack_from(batch.records, PRODUCER_AT)
        if KERNEL and named == (self.producer_id, whose.producer_epoch, whose.base_sequence):
            made = KERNEL.mark_batch(batch.records)
            if made is not None:
                marked, anchor, content, batch.digest = made
                identity = _identity(self, whose)
                return deque((marked_wrapper(identity, marked, anchor, content, header, self.hold_bytes),))
        if batch.digest == NO_DIGEST:
            batch.digest = yield from convert.digesting_whole(batch.records, batch.header, limits.UNPACKED_BYTES_MAX)
        records = batch.records, header
        (content,) = yield from convert.digesting_batch(*records, limits.UNPACKED_BYTES_MAX, count=1)
        return deque(((yield from marking(_identity(self, whose), *records, content, self.hold_bytes)),))


def planning(target: Target, group: Sequence[Batch], form: Form) -> Steps[deque[Wrapper]]:
    """Convert what is left of the group into one wrapper. A single batch that unpacks to more than one wrapper may
    hold, or of a size that the topic is known to refuse, is cut: the first wrapper leaves next, and the others are its
    later parts, which may still have to be cut. There may be more parts after these. None at all: nobody waits for the
    batch any more, or nobody did while it was read, so its end was not looked at.

    Raises HeaderRefused, and WireError for records that cannot be read.
    """
    if form.is_v2:
        return (yield from target.sending_whole(group[0], form))
    size_max = target.topics.refused_size(target.topic)
    pieces = group[0].rest
    if not pieces or pieces[0].identities[0].base_sequence != group[0].left.base_sequence:
        batch, codec = group[0], _codec_of(target, group)
        is_small = not batch.header.attributes and batch.header.size_bytes <= convert.SMALL_BYTES_MAX
        if (is_small and not batch.stored_records) or len(group) > 1 or target.keeps_whole:
            inner = yield from _converting(target, group)
            at = 0
            for batch in group:
                count = batch.identity.record_count
                batch.digest, at = yield from digesting_messages(inner.message_set, count, at)
            identities = tuple([_identity(target, batch.identity) for batch in group])
            pieces = deque(((yield from _wrapping(target, identities, inner, codec, size_max)),))
        else:
            pieces = yield from _planning_parts(target, batch, codec, size_max)
    if pieces and size_max is not None and len(group) == 1 and not target.keeps_whole:
        yield from _fitting(target, pieces, size_max)
    return pieces


def _planning_parts(target: Target, batch: Batch, codec: Codec, size_max: int | None) -> Steps[deque[Wrapper]]:
    """Return the wrappers of a single batch; of one that is far larger than others the first ones."""
    due = _identity(target, batch.left)
    conversion = Conversion(
        batch.records, batch.header, target.options.policy, unpacked_bytes_max=limits.UNPACKED_BYTES_MAX
    )
    yield from conversion.skipping(batch.stored_records)
    pieces: deque[Wrapper] = deque()
    size_bytes, digest = 0, NO_DIGEST
    while not conversion.is_done:
        if pieces:
            yield
            if not batch.is_wanted:
                return deque()
            if size_bytes >= limits.PLANNED_BYTES_MAX and batch.stored_records:
                break
        inner = yield from conversion.making(limits.WRAPPER_UNPACKED_BYTES_MAX)
        if not batch.stored_records:
            digest, _ = yield from digesting_messages(inner.message_set, inner.record_count, before=digest)
        if size_bytes >= limits.PLANNED_BYTES_MAX:
            continue  # nothing of a batch is appended before all of it was read: its last record may be one to refuse
        piece = yield from _wrapping(target, (due._replace(record_count=inner.record_count),), inner, codec, size_max)
        due = due._replace(base_sequence=advance(due.base_sequence, inner.record_count))
        del inner
        size_bytes += len(piece.message_set)
        pieces.append(piece)
    if not batch.stored_records:
        batch.digest = digest
    elif batch.digest == NO_DIGEST:
        batch.digest = yield from convert.digesting_whole(batch.records, batch.header, limits.UNPACKED_BYTES_MAX)
    return pieces


def _wrapping(
    target: Target, identities: tuple[Identity, ...], inner: Inner, codec: Codec, size_max: int | None
) -> Steps[Wrapper]:
    piece = yield from wrapping(identities, inner, codec, target.hold_bytes)
    if size_max is not None and len(piece.message_set) >= size_max and not piece.is_compressed:
        piece = yield from compressing_harder(target, piece)
    return piece


def planned(
    target: Target,
    identities: tuple[Identity, ...],
    form: Form,
    message_set: Buffer,
    anchor: bytes,
    content: bytes,
    max_timestamp: int,
) -> deque[Wrapper]:
    """Return the plan of a group of uncompressed batches that was made at once (``convert.wrap_plain``,
    ``sent_as_is``)."""
    held = Held(target.hold_bytes, len(message_set))
    what = identities, message_set, anchor, content, max_timestamp, Codec.NONE, False, held
    return deque((Wrapper(*what, form=form),))


def sent_as_is(batch: Batch) -> tuple[Buffer, bytes, bytes, int] | None:
    """Return what is appended of an uncompressed batch with its own producer id: its bytes, its anchor, no content that
    is looked for, its newest timestamp. None: only in steps."""
    made = KERNEL.digest_batch(batch.records) if KERNEL else None
    if made is None:
        return None
    anchor, batch.digest = made
    return batch.records, anchor, NO_CONTENT, batch.header.max_timestamp


def _converting(target: Target, group: Sequence[Batch]) -> Steps[Inner]:
    batches: list[memoryview] = []
    headers: list[BatchHeader] = []
    for batch in group:  # a comprehension would be a call
        batches += (batch.records,)
        headers += (batch.header,)
    return (
        yield from convert.converting(
            batches,
            headers,
            policy=target.options.conditional_policy if target.keeps_whole else target.options.policy,
            output_bytes_max=limits.DECOMPRESSED_BYTES_MAX if target.keeps_whole else limits.WRAPPER_UNPACKED_BYTES_MAX,
        )
    )


def _identity(target: Target, of: BatchIdentity) -> Identity:
    return Identity(target.producer_id, of.producer_epoch, of.base_sequence, of.record_count)


def _codec_of(target: Target, group: Sequence[Batch]) -> Codec:
    """Return the topic's own codec if it is known, else the first that a client chose."""
    codec = target.topics.wrapper_codecs.get(target.topic, Codec.NONE)
    for batch in group:
        if batch.header.attributes and not codec:
            codec = codec_of(batch.header.codec)
    return codec


def compressing_harder(target: Target, piece: Wrapper) -> Steps[Wrapper]:
    """Return the same records compressed, even if the client did not compress them."""
    inner = yield from piece.unwrapping(limits.DECOMPRESSED_BYTES_MAX)
    return (yield from wrapping(piece.identities, inner, piece.codec, target.hold_bytes, compress_harder=True))


def _fitting(target: Target, pieces: deque[Wrapper], size_max: int) -> Steps[None]:
    """Cut the first of a batch's pieces until it is smaller than ``size_max`` bytes, or has one record; a single record
    goes without its batch marker if that makes it small enough."""
    while len(pieces[0].message_set) >= size_max:
        head = pieces.popleft()
        if head.identities[0].record_count == 1:
            pieces.appendleft((yield from leaving_the_batch_marker_out(target, head)) or head)
            return
        pieces.extendleft(reversed((yield from halving(target, head))))


def halving(target: Target, piece: Wrapper) -> Steps[list[Wrapper]]:
    """Return the records of a piece in two pieces, each compressed. The piece is of one batch, and has more than one
    record."""
    inner = yield from piece.unwrapping(limits.DECOMPRESSED_BYTES_MAX)
    border = yield from convert.border_of_halves(inner)
    return (yield from _cutting(target, piece.identities[0], inner, border, piece.codec))


def _cutting(target: Target, whole: Identity, inner: Inner, border: int, codec: Codec) -> Steps[list[Wrapper]]:
    """Return two pieces of one batch; the second begins with record ``border``."""
    parts = yield from convert.cutting(inner, [border])
    del inner
    pieces = []
    sequence = whole.base_sequence
    for part in parts:
        identity = whole._replace(base_sequence=sequence, record_count=part.record_count)
        pieces.append((yield from wrapping((identity,), part, codec, target.hold_bytes, compress_harder=True)))
        sequence = advance(sequence, part.record_count)
    return pieces


def leaving_the_batch_marker_out(target: Target, piece: Wrapper) -> Steps[Wrapper | None]:
    """Return a single record as a plain message, or as a wrapper without a key if that is smaller: a broker may take
    that where a batch marker makes it too large. None: it had no batch marker already, or the topic is known to refuse
    that size too.

    Nothing in the log tells whose such a record is: an unknown outcome about it ends as unknown if the log has an equal
    one."""
    assert piece.identities[0].record_count == 1
    if not piece.is_marked:
        return None
    inner = yield from piece.unwrapping(limits.DECOMPRESSED_BYTES_MAX)
    codec, compress_harder = piece.codec, piece.compress_harder
    message_set: bytes | bytearray = inner.message_set
    if len(piece.message_set) - len(encode_batch_marker(piece.identities)) < len(message_set):
        message_set = yield from convert.wrapping(inner, key=None, codec=codec, compress_harder=compress_harder)
    size_max = target.topics.refused_size(target.topic)
    if size_max is not None and len(message_set) >= size_max:
        return None
    (message,) = iterate_shallow(message_set)
    is_stored_so = target.topic not in target.topics.wrapper_codecs or message.is_wrapper
    return Wrapper(
        piece.identities,
        message_set,
        anchor_of(message) if is_stored_so else NO_ANCHOR,
        piece.first_content,
        piece.max_timestamp,
        codec,
        compress_harder,
        Held(target.hold_bytes, len(message_set)),
        is_marked=False,
    )


def located(piece: Wrapper, base_offset: int) -> list[Stored]:
    """Return where each identity lies, of a wrapper that was appended at ``base_offset``."""
    located = []
    for identity in piece.identities:
        located.append(Stored(identity.producer_epoch, identity.base_sequence, identity.record_count, base_offset))
        base_offset += identity.record_count
    return located


def offset_of(placed: Sequence[Stored], sequence: int) -> int:
    """Return where the record with this sequence lies; it is in one of ``placed``."""
    for piece in placed:
        ahead = distance(piece.base_sequence, sequence)
        if ahead < piece.record_count:
            return piece.base_offset + ahead
    raise AssertionError(f"sequence {sequence} is in none of {placed}")


def gather(first: Batch, queue: Iterable[Batch], form: Form) -> list[Batch]:
    """Return a group: ``first`` and what follows it in the queue, up to five consecutive batches of the same client
    connection, of ``GROUP_BYTES_MAX`` bytes together (a larger ``first`` goes alone)."""
    group = [first]
    if not form.holds_groups:
        return group
    size = len(first.records)
    while not group[-1].is_alone and len(group) < GROUP_BATCHES_MAX:
        last = group[-1].identity
        due = advance(last.base_sequence, last.record_count)
        found = _follower(queue, last.producer_epoch, due, first)
        if found is None or size + len(found.records) > limits.GROUP_BYTES_MAX:
            break
        group.append(found)
        size += len(found.records)
    return group


def in_one_pipeline(group: list[Batch]) -> list[Batch]:
    """Return the first batches of a group that follow each other in their writer's pipeline (rule R23)."""
    for index in range(1, len(group)):
        if not group[index].comes_behind(group[index - 1]):
            return group[:index]
    return group


def _follower(queue: Iterable[Batch], producer_epoch: int, due: int, first: Batch) -> Batch | None:
    """Return the batch that follows directly, if it came from a connection of the group's first batch."""
    for batch in queue:
        identity = batch.identity
        if identity.base_sequence != due or identity.producer_epoch != producer_epoch or batch.is_alone:
            continue
        connections = {id(waiter.connection) for waiter in first.waiters if not waiter.is_gone}
        if any(id(waiter.connection) in connections for waiter in batch.waiters if not waiter.is_gone):
            return batch
    return None

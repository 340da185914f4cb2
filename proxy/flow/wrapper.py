"""The records of one append while it waits to be sent: converted, and wrapped when it leaves, alone or together with
those of other producers (``merge_producers``). Pure.

Keeps bytes and names, and counts the bytes as long as they are here: the records only until they are wrapped, unless
others may still join them. ``grouping.py`` says which may go together, ``merge.py`` which do."""

from __future__ import annotations

from collections.abc import Sequence

from ...codecs import convert
from ...codecs.compression import Codec
from ...codecs.convert import Inner
from ...codecs.marker import Identity, anchor_of_marker, encode_marker
from ...codecs.steps import Steps, at_once
from ...values import value
from ..admission.memory_budget import Count, Held

_BYTES_PER_IDENTITY = 18
_BYTES_PER_WRAPPER = 128
"""More than a wrapper has beside its records and identities, as long as it holds no more than 128 KiB."""


def _count_nothing(_bytes: int) -> None:
    """Counts nothing."""


class PendingWrapper:
    """``inner``: the records. ``joined_bytes_max``: the largest wrapper that they may be a part of together with
    others; 0: they go alone. ``compress_harder``: compressed even if the client did not compress. ``count`` is called
    with the bytes that are kept here."""

    __slots__ = (
        "_anchor",
        "_count",
        "_held",
        "_inner",
        "_max_timestamp",
        "_message_set",
        "codec",
        "compress_harder",
        "first_content",
        "identities",
        "is_marked",
        "joined_bytes_max",
    )

    def __init__(
        self,
        identities: tuple[Identity, ...],
        inner: Inner,
        codec: Codec,
        *,
        compress_harder: bool = False,
        joined_bytes_max: int = 0,
        count: Count = _count_nothing,
    ) -> None:
        self.identities = identities
        self.codec = codec
        self.compress_harder = compress_harder
        self.joined_bytes_max = joined_bytes_max
        self.first_content = inner.first_content
        """The digest of its first record."""
        self.is_marked = True
        """Does a marker name its records in the log? Otherwise nothing there tells their producer."""
        self._max_timestamp = inner.max_timestamp
        self._inner: Inner | None = inner
        self._message_set: bytes | bytearray | None = None
        self._anchor = b""
        self._count = count
        self._held = Held(count, len(inner.message_set))

    @classmethod
    def made(
        cls,
        identities: tuple[Identity, ...],
        message_set: bytes | bytearray,
        anchor: bytes,
        first_content: bytes,
        max_timestamp: int,
        codec: Codec,
        count: Count,
    ) -> PendingWrapper:
        """Return one that was wrapped already, and goes alone."""
        nothing = Inner(bytearray(), 0, max_timestamp, first_content)
        wrapper = cls(identities, nothing, codec, count=count)
        wrapper._message_set, wrapper._anchor = message_set, anchor
        wrapper.goes_alone()
        return wrapper

    @property
    def size_bytes(self) -> int:
        """Bytes of the wrapper. Before it is made: never too few, unless a codec makes data larger."""
        if self._message_set is not None:
            return len(self._message_set)
        return len(self.inner.message_set) + len(self.identities) * _BYTES_PER_IDENTITY + _BYTES_PER_WRAPPER

    @property
    def inner(self) -> Inner:
        """The records; not of what goes alone and has been wrapped."""
        assert self._inner is not None
        return self._inner

    def wrapped(self) -> bytes | bytearray:
        """Return the wrapper with its marker, made when it is asked for first: what may be merged is small."""
        if self._message_set is None:
            at_once(self._wrapping())
            assert self._message_set is not None
        return self._message_set

    def goes_alone(self) -> None:
        """From now on it is not put together with others."""
        at_once(self.going_alone())

    def going_alone(self) -> Steps[None]:
        """The same in steps. The records are released once they are wrapped: unpacked they may take a thousand times as
        much."""
        self.joined_bytes_max = 0
        if self._message_set is None:
            yield from self._wrapping()
        self._inner = None
        self._recount()

    def leaves_without_marker(self, message_set: bytes | bytearray, anchor: bytes) -> None:
        """It goes alone, as this message, which has no marker. ``anchor``: what identifies that message."""
        self.is_marked = False
        self._message_set, self._anchor = message_set, anchor
        self.goes_alone()

    def _wrapping(self) -> Steps[None]:
        marker = encode_marker(self.identities)
        harder = self.compress_harder
        wrapper = yield from convert.wrapping(self.inner, key=marker, codec=self.codec, compress_harder=harder)
        self._anchor = anchor_of_marker(marker)
        self._message_set = wrapper
        self._recount()

    def unwrapping(self, output_bytes_max: int) -> Steps[Inner]:
        """Return the records, also of what has been wrapped with its marker."""
        assert self.is_marked
        if self._inner is not None:
            return self._inner
        message_set = yield from convert.unwrapping(self.wrapped(), output_bytes_max)
        record_count = sum(identity.record_count for identity in self.identities)
        return Inner(message_set, record_count, self._max_timestamp, self.first_content)

    def _recount(self) -> None:
        records = 0 if self._inner is None else len(self._inner.message_set)
        self._held.resize(records + (0 if self._message_set is None else len(self._message_set)))

    @property
    def anchor(self) -> bytes:
        """What identifies the wrapper in the log."""
        self.wrapped()
        return self._anchor


@value(frozen=True, slots=True)
class WrapperPlan:
    """One wrapper to append: whole batches, or a part of one."""

    identities: tuple[Identity, ...]
    wrapper: PendingWrapper
    is_compressed: bool

    @property
    def message_set(self) -> bytes | bytearray:
        """The wrapper, if it goes alone."""
        return self.wrapper.wrapped()

    @property
    def anchor(self) -> bytes:
        """What identifies it in the log, if it goes alone."""
        return self.wrapper.anchor


def joined(wrappers: Sequence[PendingWrapper]) -> PendingWrapper:
    """Return what holds the records and the names of all, in this order, as one wrapper. They have one codec."""
    identities = tuple([identity for wrapper in wrappers for identity in wrapper.identities])
    inner = convert.joined([wrapper.inner for wrapper in wrappers])
    whole = PendingWrapper(identities, inner, wrappers[0].codec, count=wrappers[0]._count)
    whole.goes_alone()
    return whole

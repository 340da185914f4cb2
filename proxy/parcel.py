"""The records of one append while it waits to be sent: converted, and wrapped when it leaves, alone or together with
those of other producers (``merge_producers``). Pure.

Keeps bytes and names; who may go together is said by ``plan.py``, who does by ``load.py``."""

from __future__ import annotations

from collections.abc import Sequence

from ..codecs import convert
from ..codecs.compression import Codec
from ..codecs.convert import Inner
from ..codecs.marker import Identity, anchor_of_marker, encode_marker

_BYTES_PER_IDENTITY = 18
_BYTES_PER_WRAPPER = 128
"""More than a wrapper has beside its records and identities, as long as it holds no more than 128 KiB."""


class Parcel:
    """``inner``: the records. ``joined_bytes_max``: the largest wrapper that they may be a part of together with
    others; 0: they go alone. ``compress_harder``: compressed even if the client did not compress."""

    __slots__ = ("_anchor", "_message_set", "codec", "compress_harder", "identities", "inner", "joined_bytes_max")

    def __init__(
        self,
        identities: tuple[Identity, ...],
        inner: Inner,
        codec: Codec,
        *,
        compress_harder: bool = False,
        joined_bytes_max: int = 0,
    ) -> None:
        self.identities = identities
        self.inner = inner
        self.codec = codec
        self.compress_harder = compress_harder
        self.joined_bytes_max = joined_bytes_max
        self._message_set: bytes | None = None
        self._anchor = b""

    @property
    def size_bytes(self) -> int:
        """Bytes of the wrapper. Before it is made: never too few, unless a codec makes data larger."""
        if self._message_set is not None:
            return len(self._message_set)
        return len(self.inner.message_set) + len(self.identities) * _BYTES_PER_IDENTITY + _BYTES_PER_WRAPPER

    def wrapped(self) -> bytes:
        """Return the wrapper with its marker, made when it is asked for first."""
        if self._message_set is None:
            marker = encode_marker(self.identities)
            self._anchor = anchor_of_marker(marker)
            self._message_set = convert.wrap(
                self.inner, key=marker, codec=self.codec, compress_harder=self.compress_harder
            )
        return self._message_set

    @property
    def anchor(self) -> bytes:
        """What names the wrapper in the log."""
        self.wrapped()
        return self._anchor


def joined(parcels: Sequence[Parcel]) -> Parcel:
    """Return what holds the records and the names of all, in this order. They have one codec."""
    identities = tuple([identity for parcel in parcels for identity in parcel.identities])
    return Parcel(identities, convert.joined([parcel.inner for parcel in parcels]), parcels[0].codec)

"""Whole batches to one wrapper in one call, as the proxy makes it in two steps with a check between them.

Owns nothing of its own: what is converted is converted by the shipped code.
"""

from __future__ import annotations

from collections.abc import Sequence

from idemproxy.codecs.compression import Codec
from idemproxy.codecs.convert import Converted, HeaderPolicy, to_inner, wrap


def to_wrapper(
    batches: Sequence[memoryview],
    *,
    key: bytes | None,
    codec: Codec,
    policy: HeaderPolicy,
    output_bytes_max: int,
    compress_harder: bool = False,
) -> Converted:
    """Return one wrapper of format v1 that holds all records of the batches, in order. Arguments and errors as those
    of ``to_inner`` and ``wrap``."""
    inner = to_inner(batches, policy=policy, output_bytes_max=output_bytes_max)
    wrapper = wrap(inner, key=key, codec=codec, compress_harder=compress_harder)
    return Converted(wrapper, inner.record_count, inner.first_content)

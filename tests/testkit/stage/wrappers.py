"""Whole batches converted in one call: the proxy does it in steps, and makes a wrapper in two with a check between.

Owns nothing of its own: what is converted is converted by the shipped code.
"""

from __future__ import annotations

from collections.abc import Sequence

from idemproxy.codecs.compression import Codec
from idemproxy.codecs.convert import Converted, HeaderPolicy, Inner, converting, converting_one, wrap
from idemproxy.codecs.record_batch import BatchHeader, parse_single_batch
from idemproxy.codecs.steps import at_once


def to_inner(
    batches: Sequence[memoryview],
    *,
    policy: HeaderPolicy,
    output_bytes_max: int,
    headers: Sequence[BatchHeader] | None = None,
) -> Inner:
    """Return what ``converting`` makes."""
    heads = headers or [parse_single_batch(batch) for batch in batches]
    return at_once(converting(batches, heads, policy=policy, output_bytes_max=output_bytes_max))


def to_message_set(
    batch: memoryview, *, codec: Codec, magic: int, policy: HeaderPolicy, output_bytes_max: int, wrap: bool = False
) -> Converted:
    """Return what ``converting_one`` makes."""
    steps = converting_one(batch, codec=codec, magic=magic, policy=policy, output_bytes_max=output_bytes_max, wrap=wrap)
    return at_once(steps)


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

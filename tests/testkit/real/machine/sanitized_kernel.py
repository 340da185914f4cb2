"""Gives a kernel that was built with sanitizers everything that one may be given, each time in memory of exactly its
size, so that one byte too far ends the process: ``python -m testkit.real.machine.sanitized_kernel LIBRARY ROUNDS``."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path
from random import Random
from typing import Any

from idemproxy.codecs.errors import WireError
from idemproxy.codecs.record_batch import BATCH_OVERHEAD_BYTES, Record, encode_batch, parse_single_batch
from testkit.stage.kernel_cases import OUTPUT_BYTES_MAX, damaged, in_python, random_batch, wrapper_in_python

from .kernel_build import load

_NUMBERS = (-(2**63), -1, 0, 1, 2, 60, 61, 62, 2**31, 2**62, 2**63 - 1)


def exact(data: bytes) -> Any:
    """The same bytes in a block of the allocator that ends with them."""
    return (ctypes.c_ubyte * len(data)).from_buffer_copy(data)


def main(library: Path, rounds: int) -> None:
    """Ends by the sanitizers' abort, or an AssertionError, if something is wrong."""
    kernel: Any = load(library)
    random = Random(4)
    taken = 0
    for _ in range(rounds):
        batch = random_batch(random)
        for data in (batch, damaged(batch, random), batch[: random.randrange(len(batch))]):
            taken += converted(kernel, data)
        numbers = random.choices(_NUMBERS, k=3)
        kernel.convert(random.choice((0, 1)), *numbers[:1], *[exact(batch)] * random.randint(1, 6))
        kernel.wrap_batches(*numbers[:1], *[exact(damaged(batch, random))] * random.randint(1, 6))
        kernel.convert_part(1, 0, exact(damaged(batch, random)), BATCH_OVERHEAD_BYTES, 0, 0, random.randint(1, 200))
        kernel.convert_part(1, 0, exact(batch), *random.choices(_NUMBERS, k=4))
        payload = exact(batch)
        kernel.crc32c(payload, random.choice((0, 1, 21, len(batch), -1, 2**62)))
        kernel.digest_content(None if random.random() < 0.3 else payload, payload)
        kernel.digest_marker(payload)
        digested(kernel, batch, random)
        kernel.wrap(random.choice((0, 1)), 1, random.choice((False, True)), *numbers[:2], exact(b"k" * 17), payload)
        kernel.encode_marker(*[(*random.choices(_NUMBERS, k=3), 1)] * random.randint(1, 6))
        output = exact(bytes(random.randrange(1_000)))
        elements = exact(random.randbytes(random.randrange(300)))
        kernel.unsnappy_part(elements, 0, output, random.randrange(len(output) + 1))
        kernel.unsnappy_part(payload, numbers[0], output, numbers[1])
    whole = encode_batch([Record(index, 0, b"k" * index, b"v" * 40) for index in range(4)])
    for size in range(len(whole) + 1):
        converted(kernel, whole[:size])
    for at in range(BATCH_OVERHEAD_BYTES, len(whole)):
        for byte in (b"\x7f", b"\x80", b"\xff"):
            converted(kernel, whole[:at] + byte + whole[at + 1 :])
    for base in (2**63 - 1, 2**63 - 5):
        later = bytearray(encode_batch([Record(0, 5, None, None)], base_timestamp=0))
        later[27:35] = base.to_bytes(8, "big", signed=True)
        assert kernel.convert(1, OUTPUT_BYTES_MAX, exact(bytes(later))) is None
        assert kernel.convert_part(1, 0, exact(bytes(later)), BATCH_OVERHEAD_BYTES, base, 0, 1) is None
    for count in _NUMBERS:
        forged = bytearray(whole)
        forged[57:61] = (count & 0xFFFFFFFF).to_bytes(4, "big")
        assert kernel.convert(1, OUTPUT_BYTES_MAX, exact(bytes(forged))) is None
    assert taken > rounds
    print("clean", taken)


def digested(kernel: Any, batch: bytes, random: Random) -> None:
    """Messages that are whole, cut off or damaged, from anywhere in them."""
    made = kernel.convert(random.choice((0, 1)), OUTPUT_BYTES_MAX, exact(batch))
    whole = random.randbytes(60) if made is None else bytes(made[0])
    position = random.choice((0, 0, random.randrange(len(whole)), *_NUMBERS))
    at = random.choice((*range(8, 17), random.randrange(len(whole))))  # its size, checksum and format are there
    for data in (whole, whole[: random.randrange(len(whole))], whole[:at] + random.randbytes(1) + whole[at + 1 :]):
        kernel.digest_messages(exact(data), position, random.choice((1, 3, *_NUMBERS)), exact(bytes(8)))
    kernel.digest_messages(exact(whole), 0, 1, exact(bytes(random.randrange(10))))


def converted(kernel: Any, data: bytes) -> bool:
    """Whether the kernel took it; then it has made of it what the Python makes."""
    made = kernel.convert(1, OUTPUT_BYTES_MAX, exact(data))
    wrapped = kernel.wrap_batches(OUTPUT_BYTES_MAX, exact(data))
    if made is None:
        assert wrapped is None
        return False
    try:
        parse_single_batch(memoryview(data))
    except WireError:
        return False
    assert made == in_python([data], 1)
    assert wrapped == wrapper_in_python([data])
    return True


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))

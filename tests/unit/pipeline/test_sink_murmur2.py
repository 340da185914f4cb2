"""Keys go to the partitions where Kafka's own producers send them."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as kafka_python

from idemproxy.pipeline.sink.encode import buffers_of
from idemproxy.pipeline.sink.murmur2 import LONG_BYTES, murmur2, murmur2_of, partitions_of

KNOWN = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}
"""Of Kafka's own UtilsTest."""


def hashes(keys: list[bytes]) -> list[int]:
    return [int(one) for one in murmur2(*buffers_of(pa.array(keys, pa.large_binary())))]


def test_hashes_are_those_of_kafka() -> None:
    assert hashes(list(KNOWN)) == [value % 2**32 for value in KNOWN.values()]
    assert [murmur2_of(key) for key in KNOWN] == [value % 2**32 for value in KNOWN.values()]


@given(st.lists(st.binary(max_size=40)))
def test_a_column_has_the_hashes_of_its_keys(keys: list[bytes]) -> None:
    expected = [kafka_python(key) % 2**32 for key in keys]
    assert hashes(keys) == expected
    assert [murmur2_of(key) for key in keys] == expected


@pytest.mark.parametrize("size", [LONG_BYTES - 1, LONG_BYTES, LONG_BYTES + 1, 5000])
def test_long_keys_are_hashed_too(size: int) -> None:
    keys = [b"short", bytes(range(256)) * 20, b"", b"x" * size]
    assert hashes(keys) == [kafka_python(key) % 2**32 for key in keys]


def test_partitions_are_those_of_the_default_partitioner() -> None:
    keys = [b"%d" % number for number in range(1000)]
    data, offsets = buffers_of(pa.array(keys, pa.large_binary()))
    expected = [(kafka_python(key) & 0x7FFF_FFFF) % 7 for key in keys]
    assert partitions_of(data, offsets, 7).tolist() == expected


def test_a_slice_of_a_column_is_hashed_as_it_stands() -> None:
    column = pa.array([b"one", b"two", None, b"three"], pa.large_binary()).slice(1)
    assert murmur2(*buffers_of(column)).tolist() == [kafka_python(key) % 2**32 for key in (b"two", b"", b"three")]
    assert len(murmur2(np.empty(0, np.uint8), np.zeros(1, np.int64))) == 0

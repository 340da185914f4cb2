"""Source coordinates: in headers, or before the value where brokers have no headers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from idemproxy.client import StoredRecord
from idemproxy.client.coordinates import Coordinates, from_headers, from_value, taken_off

COORDINATES = st.builds(
    Coordinates,
    st.text("abcXYZ019._-", min_size=1, max_size=249),
    st.integers(0, 2**31 - 1),
    st.integers(0, 2**63 - 1),
)
ORDERS = Coordinates("orders", 3, 17)


@given(COORDINATES, st.none() | st.binary(max_size=50))
def test_what_was_put_before_a_value_is_taken_off_again(source: Coordinates, value: bytes | None) -> None:
    assert from_value(source.before(value)) == (source, value)
    assert taken_off(StoredRecord(0, 0, b"key", source.before(value))) == (source, value, ())


@given(COORDINATES)
def test_headers_are_read_as_they_were_written(source: Coordinates) -> None:
    assert from_headers(source.headers()) == source
    others = ("trace", b"1"), *source.headers(), ("more", None)
    assert taken_off(StoredRecord(0, 0, None, None, others)) == (source, None, (("trace", b"1"), ("more", None)))


def test_the_names_are_those_of_the_page() -> None:
    assert ORDERS.headers() == (("source-topic", b"orders"), ("source-partition", b"3"), ("source-offset", b"17"))
    line = b'{"source-topic":"orders","source-partition":3,"source-offset":17,"is-null":%s}\n'
    assert ORDERS.before(b"v\nw") == line % b"false" + b"v\nw"
    assert ORDERS.before(None) == line % b"true"
    assert ORDERS.before(b"") == line % b"false"


@pytest.mark.parametrize(
    "value",
    [None, b"", b"\n", b"a value", b"7\n", b"[]\n", b"{}\n", b"\xff\n", b'{"source-topic":"a","source-partition":1}\nx',
     b'{"source-topic":"a","source-partition":"x","source-offset":2}\n',
     b'{"source-topic":"a","source-partition":[1],"source-offset":2}\n', ORDERS.before(b"value")[:-6]],
)  # fmt: skip
def test_a_value_without_coordinates_is_refused(value: bytes | None) -> None:
    with pytest.raises(ValueError, match="no source coordinates"):
        from_value(value)


def test_headers_without_coordinates_are_refused() -> None:
    for headers in ((), ORDERS.headers()[:2], (*ORDERS.headers()[:2], ("source-offset", None))):
        with pytest.raises(ValueError, match="no source coordinates"):
            from_headers(headers)

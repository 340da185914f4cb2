from __future__ import annotations

import pytest
from isal import isal_zlib

from idemproxy.codecs.batch_marker import (
    Identity,
    anchor_of,
    anchor_of_batch_marker,
    content_digest,
    encode_batch_marker,
    parse_batch_marker,
)
from idemproxy.codecs.compression import Codec
from idemproxy.codecs.message_set import ShallowMessage, encode_message, iterate_shallow
from testkit.stage.either_way import either_way  # noqa: F401

ONE = Identity(2**62 - 1, 2**15 - 1, 2**31 - 1, 500)
OTHER = Identity(0, 0, 0, 1)


def message(key: bytes | None, value: bytes | None) -> ShallowMessage:
    (read,) = iterate_shallow(encode_message(key, value, magic=1, offset=7, codec=Codec.GZIP))
    return read


@pytest.mark.parametrize("identities", [(ONE,), (OTHER,), (ONE, OTHER), (OTHER,) * 200])
def test_a_batch_marker_says_what_it_was_made_of(identities: tuple[Identity, ...]) -> None:
    key = encode_batch_marker(identities)

    assert parse_batch_marker(key) == identities
    assert parse_batch_marker(memoryview(key)) == identities
    assert parse_batch_marker(bytearray(key)) == identities
    assert len(key) == 9 + 18 * len(identities)


def test_the_bytes_of_a_batch_marker_do_not_change_between_versions() -> None:
    key = encode_batch_marker([Identity(4660, 2, 77, 3)])

    assert key.hex() == "a969646d01" + "0000000000001234" + "0002" + "0000004d" + "00000003" + key[-4:].hex()
    assert isal_zlib.crc32(key[:-4]) == int.from_bytes(key[-4:], "big")


@pytest.mark.parametrize("key", [None, b"", b"key", b"\xa9idm", b"\xa9idm\1\0\0\0\0", bytes(27), b"x" * 27])
def test_foreign_keys_are_no_batch_markers(key: bytes | None) -> None:
    assert parse_batch_marker(key) is None


def test_every_flipped_bit_and_every_cut_makes_it_no_batch_marker() -> None:
    key = encode_batch_marker([ONE, OTHER])
    for position in range(len(key)):
        for bit in range(8):
            flipped = bytearray(key)
            flipped[position] ^= 1 << bit
            assert parse_batch_marker(flipped) is None
        assert parse_batch_marker(key[:position]) is None
    assert parse_batch_marker(key + b"\0" * 18) is None


@pytest.mark.parametrize(
    "fields", ["ffffffffffffffff 0000 00000000 00000001", "00" * 8 + "ffff 00000000 00000001", "00" * 18]
)
def test_a_well_signed_batch_marker_with_impossible_numbers_is_none(fields: str) -> None:
    body = b"\xa9idm\1" + bytes.fromhex(fields)

    assert parse_batch_marker(body + isal_zlib.crc32(body).to_bytes(4, "big")) is None


@pytest.mark.parametrize(
    "identity", [Identity(-1, 0, 0, 1), Identity(0, -1, 0, 1), Identity(0, 0, -1, 1), Identity(0, 0, 0, 0)]
)
def test_an_identity_that_can_not_be_is_our_bug(identity: Identity) -> None:
    with pytest.raises(AssertionError):
        encode_batch_marker([identity])


def test_the_anchor_of_a_marked_wrapper_is_known_before_it_is_stored() -> None:
    key = encode_batch_marker([ONE])

    assert anchor_of(message(key, b"compressed")) == anchor_of_batch_marker(key)
    # The broker may compress again: the value does not count.
    assert anchor_of(message(key, b"compressed otherwise")) == anchor_of_batch_marker(key)
    assert anchor_of(message(encode_batch_marker([OTHER]), b"compressed")) != anchor_of_batch_marker(key)
    assert len(anchor_of_batch_marker(key)) == 8


def test_the_anchor_of_another_message_is_its_content() -> None:
    assert anchor_of(message(b"k", b"v")) == content_digest(b"k", b"v")
    assert anchor_of(message(None, None)) == content_digest(None, None)


def test_contents_that_differ_have_different_digests() -> None:
    nothing: list[tuple[bytes | None, bytes | None]] = [(None, None), (None, b""), (b"", None), (b"", b"")]
    contents = [*nothing, (b"ab", b"c"), (b"a", b"bc"), (b"", b"abc"), (b"abc", b"")]

    assert len({content_digest(key, value) for key, value in contents}) == len(contents)
    assert content_digest(memoryview(b"ab"), bytearray(b"c")) == content_digest(b"ab", b"c")
    assert len(content_digest(b"a", b"b")) == 8

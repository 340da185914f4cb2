"""What is read of a produce request while it passes, in pieces of any size; compared with the protocol library."""

import random
from typing import Any
from uuid import UUID

import pytest

from idemproxy.codecs import messages
from idemproxy.codecs.compression import Codec
from idemproxy.codecs.headers import encode_request_header
from idemproxy.codecs.produce_acks import acks_of
from idemproxy.codecs.produce_walk import HEADERS_MAX, REQUEST_HEADERS_MAX, Part, ProduceWalk, Wanted, only_topic
from idemproxy.codecs.record_batch import Record, encode_batch

PRODUCE = 0
WANTED = Wanted(2**63 - 1, b"expected-offset")
TOPIC_ID = UUID(int=7)
Headers = tuple[tuple[str, bytes | None], ...]


def request(version: int, parts: tuple[tuple[str, int, bytes | None], ...]) -> bytes:
    """What comes after the acks of such a request."""
    topics: list[dict[str, Any]] = []
    for topic, partition, records in parts:
        if not topics or topics[-1]["name"] != topic:
            topics.append({"name": topic, "topic_id": TOPIC_ID, "partition_data": []})
        topics[-1]["partition_data"].append({"index": partition, "records": records})
    body = messages.encode_request(PRODUCE, version, acks=-1, timeout_ms=1000, topic_data=topics)
    data = encode_request_header(PRODUCE, version, 7, "client") + body
    found = acks_of(data, 0, len(data), version)
    assert found is not None
    return data[found[1] :]


def batch(
    producer_id: int = -1,
    headers: Headers = (),
    value: bytes | None = b"value",
    key: bytes | None = None,
    codec: Codec = Codec.NONE,
) -> bytes:
    records = [Record(index, 1_700_000_000_000, key, value, headers) for index in range(3)]
    return encode_batch(records, producer_id=producer_id, producer_epoch=0, base_sequence=0, codec=codec)


def walked(data: bytes, version: int, *cuts: int) -> ProduceWalk:
    """The walk through a request that arrives in these pieces, the first of them after other bytes."""
    walk = ProduceWalk(version, len(data), WANTED)
    first, *others = [data[begin:end] for begin, end in zip((0, *cuts), (*cuts, len(data)), strict=True)]
    walk.feed(b"????" + first, 4)
    for piece in others:
        walk.feed(piece)
    return walk


PARTS = (
    ("orders", 3, batch(17)),
    ("orders", 4, None),
    ("wal", 0, batch(WANTED.producer_id)),
    ("wal", 1, batch(-1, (("trace", b"1"), ("expected-offset", b"12")))),
    ("wal", 2, batch(9, (("trace", None), ("expected", b"")), value=b"v" * 3000, key=b"k" * 200)),
    ("wal", 3, batch(9, (("trace", None), ("expected-offset", b"")), value=None)),
    ("zipped", 0, batch(5, codec=Codec.GZIP)),
    ("zipped", 1, batch(WANTED.producer_id, codec=Codec.GZIP)),
)
FOUND = [False, False, True, True, False, True, False, True]


@pytest.mark.parametrize("version", range(3, 14))
def test_every_batch_that_is_looked_for_is_found_however_the_request_arrives(version: int) -> None:
    data = request(version, PARTS)
    topics = {name: TOPIC_ID.bytes if version >= 13 else name.encode() for name, _, _ in PARTS}
    wanted = [Part(topics[topic], at, found) for (topic, at, _), found in zip(PARTS, FOUND, strict=True)]
    chance = random.Random(version)
    ways = [(), *((cut,) for cut in range(1, len(data), 7)), tuple(range(1, len(data)))]
    ways += [tuple(sorted(chance.sample(range(1, len(data)), 9))) for _ in range(200)]
    for cuts in ways:
        walk = walked(data, version, *cuts)
        assert walk.parts == wanted, cuts
        assert walk.has_found
        assert walk.is_over


def test_it_is_over_as_soon_as_no_batch_follows() -> None:
    data = request(7, (("orders", 0, batch(9, value=b"v" * 10_000)),))
    walk = ProduceWalk(7, len(data), WANTED)
    walk.feed(data[:200])
    assert not walk.is_over, "the headers of the first record have not come"
    walk.feed(data[200:11_000])
    assert (walk.is_over, walk.has_found, walk.parts) == (True, False, [Part(b"orders", 0, False)])
    assert walk.left == len(data) - 11_000


def test_a_batch_is_found_before_its_request_has_arrived() -> None:
    data = request(7, (("wal", 0, batch(WANTED.producer_id, value=b"v" * 10_000)),))
    walk = ProduceWalk(7, len(data), WANTED)
    walk.feed(data[:150])
    assert walk.has_found


def test_parts_without_a_v2_batch_or_with_too_many_headers_pass() -> None:
    many = (*((f"h{number}", b"") for number in range(HEADERS_MAX)), ("expected-offset", b"1"))
    parts = (("a", 0, b"x" * 100), ("a", 1, b""), ("a", 2, batch(9, many)), ("a", 3, batch(WANTED.producer_id)))
    walk = walked(request(3, parts), 3)
    assert [one.is_wanted for one in walk.parts] == [False, False, False, True]


def test_of_a_request_with_many_headers_the_first_ones_are_looked_at() -> None:
    """A header costs a microsecond, and a request that comes as a whole is walked through at once."""
    many, last = (("h", b""),) * HEADERS_MAX, (("expected-offset", b"1"),)
    parts = [("a", number, batch(9, many)) for number in range(REQUEST_HEADERS_MAX // HEADERS_MAX)]
    after = (("a", 300, batch(9, last)), ("a", 301, batch(WANTED.producer_id)), ("a", 302, batch(9, last)))
    for before, found in ((parts, [False, True, False]), (parts[1:], [True, True, True])):
        walk = walked(request(9, (*before, *after)), 9)
        assert [one.partition for one in walk.parts if one.is_wanted] == [300 + n for n in range(3) if found[n]]


def test_any_bytes_can_be_walked_and_only_a_fields_start_is_kept() -> None:
    chance = random.Random(5)
    whole = {version: request(version, PARTS) for version in (3, 9, 13)}
    for _ in range(3000):
        version = chance.choice((3, 9, 13))
        data = bytearray(whole[version])
        for _ in range(chance.randrange(1, 6)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        cuts = sorted(chance.sample(range(1, len(data)), 4))
        walked(bytes(data), version, *cuts)
    endless = request(9, ())[:-2] + b"\x02" + b"\xff\xff\xff\xff\x0f"
    walk = ProduceWalk(9, 100 << 20, WANTED)
    walk.feed(endless)
    for _ in range(20):
        walk.feed(bytes(16 * 1024))
    assert walk.is_over


@pytest.mark.parametrize("version", range(14))
def test_the_only_topic_is_found_as_soon_as_it_is_there(version: int) -> None:
    data = request(version, (("u0", 0, batch()), ("u0", 1, batch())))
    wanted = TOPIC_ID.bytes if version >= 13 else b"u0"
    end = next(at for at in range(len(data)) if only_topic(data[:at], 0, version) is not None)
    assert only_topic(data[:end], 0, version) == only_topic(data, 0, version) == (wanted, end)
    assert data[:end].endswith(wanted)
    for others in ((("a", 0, batch()), ("b", 0, batch())), ()):
        found = only_topic(request(version, others), 0, version)
        assert found is not None
        assert found[0] == b""

"""What fuzzing begins with: frames of real clients and brokers (``corpus.jsonl``, made by ``record.py``), and bytes
that our own encoders write. Returns bytes; runs nothing."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from idemproxy.codecs.batch_marker import Identity, encode_batch_marker
from idemproxy.codecs.compression import Codec, compress
from idemproxy.codecs.framing import frame
from idemproxy.codecs.message_set import encode_message, encode_set
from idemproxy.codecs.record_batch import Record, encode_batch
from idemproxy.proxy.partition_log.log_offsets import Position
from idemproxy.proxy.partition_log.offset_checkpoints import OffsetCheckpoints
from idemproxy.state.entry import Entry, Intent, IntentBatch, IntentKind, WindowBatch, pack
from idemproxy.state.producer_ids import pack_block

CORPUS = Path(__file__).with_name("corpus.jsonl")
_RECORDS = [
    Record(0, 1_700_000_000_000, b"key", b"value" * 20, ()),
    Record(1, 1_700_000_000_001, None, None, (("traceparent", b"00-" + b"1" * 32), ("", None))),
]
_PLAIN = b"value" * 50 + bytes(range(256))


@cache
def recorded() -> tuple[dict[str, Any], ...]:
    """Return the recorded frames: kind (request, answer), who sent it, API, version, and the bytes in hexadecimal."""
    return tuple(json.loads(line) for line in CORPUS.read_text().splitlines())


def seeds_of(kind: str) -> list[bytes]:
    """Return the seeds of one kind, see ``targets.Target``."""
    return list(_SEEDS[kind]())


def _requests() -> Iterator[bytes]:
    return (bytes.fromhex(one["hex"]) for one in recorded() if one["kind"] == "request")


def _answers() -> Iterator[bytes]:
    for one in recorded():
        if one["kind"] == "answer":
            yield bytes([one["api"], one["version"]]) + bytes.fromhex(one["hex"])


def _streams() -> Iterator[bytes]:
    yield from (frame(one) for one in list(_requests())[::5])
    yield b"".join(frame(one) for one in _requests() if len(one) < 100)
    yield b"\x16\x03\x01\x02\x00\x01"
    yield b"GET / HTTP/1.1\r\n\r\n"


def _batches() -> Iterator[bytes]:
    for codec in Codec:
        yield encode_batch(_RECORDS, producer_id=7, producer_epoch=1, base_sequence=5, codec=codec)
    yield encode_batch(_RECORDS[:1])


def _contexts() -> Iterator[bytes]:
    trace, span = b"0af7651916cd43dd8448eb211c80319c", b"b7ad6b7169203331"
    yield b"traceparent:00-" + trace + b"-" + span + b"-01\ntracestate:rojo=00f067aa0ba902b7,congo=t61rcWkgMzE"
    yield b"b3:" + trace + b"-" + span + b"-1-05e3ac9a4f6e3b90"
    yield b"b3:0"
    yield b"X-B3-TraceId:" + trace + b"\nX-B3-SpanId:" + span + b"\nX-B3-Sampled:1\nX-B3-Flags:1\nX-B3-ParentSpanId"
    yield from _batches()


def _sets() -> Iterator[bytes]:
    records = [(b"key", b"value" * 20, 1_700_000_000_000), (None, b"other", 1_700_000_000_001)]
    for magic in (0, 1):
        inner = encode_set(records, magic=magic)
        yield inner
        for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4):
            yield encode_message(
                encode_batch_marker([Identity(7, 0, 0, 2)]),
                compress(codec, inner, magic=magic),
                magic=magic,
                offset=1,
                timestamp=1_700_000_000_001,
                codec=codec,
            )
    for one in recorded():
        if one["kind"] == "set":
            yield bytes.fromhex(one["hex"])


def _compressed() -> Iterator[bytes]:
    for magic in (0, 1, 2):
        for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4):
            yield bytes([magic * 5 + codec]) + compress(codec, _PLAIN, magic=magic)
    yield bytes([2 * 5 + Codec.ZSTD]) + compress(Codec.ZSTD, _PLAIN, magic=2)


def _tokens() -> Iterator[bytes]:
    for number in range(4):
        yield bytes([number]) + b"\0alice\0secret"
        yield bytes([number]) + b"n,,n=alice,r=fyko+d2lbbFgONRv9qkxdawL"
        yield bytes([number]) + b"n,a=alice,\x01auth=Bearer eyJhbGciOiJub25lIn0.eyJzdWIiOiJhbGljZSJ9.\x01\x01"


def _challenges() -> Iterator[bytes]:
    salt = b64encode(b"salt")
    yield b"\0r=fykoNRv9qkxdawL,s=" + salt + b",i=4096\0v=" + salt
    yield b"\0e=unknown-user"
    yield b'\x01{"status":"invalid_token"}'
    yield b"\x01" + b"[" * 3000  # was found: too deep for the parser, and not taken for a refusal


def _batch_markers() -> Iterator[bytes]:
    yield encode_batch_marker([Identity(7, 0, 0, 1)])
    yield encode_batch_marker([Identity(2**61, 3, 2**31 - 1, 500), Identity(8, 1, 9, 2)])


def _library() -> Iterator[bytes]:
    for one in recorded():
        if one["kind"] in ("request", "answer") and one["api"] < 36:
            at = one.get("body", 4)
            yield bytes([one["api"], one["version"], one["kind"] == "request"]) + bytes.fromhex(one["hex"])[at:]


def _stored() -> Iterator[bytes]:
    window = tuple(WindowBatch(5 * n, 5, 100 + 5 * n, 1_700_000_000_000 + n) for n in range(5))
    intent = Intent(
        b"incarnat",
        0,
        (IntentBatch(25, 5, b"digest-1"), IntentBatch(30, 2, b"digest-2")),
        125,
        b"anchored",
        bytes(8),
        1,
    )
    entry = Entry(9, b"g" * 16, b"somebody", 0, 25, window, 100, 125, b"anchored")
    yield pack(entry)
    yield pack(Entry(1, b"g" * 16, bytes(8), 0, 0, window[:0]))
    yield pack(Entry(10, b"g" * 16, bytes(8), 0, 25, window[2:], 100, 125, b"anchored", intent))
    yield pack(
        Entry(
            11,
            b"g" * 16,
            bytes(8),
            0,
            25,
            (),
            100,
            125,
            b"a" * 8,
            Intent(bytes(8), 0, (), 1, b"", b"", 1, kind=IntentKind.UNRECOVERABLE),
        )
    )
    yield pack_block(b"g" * 16, 1_700_000_000_000)
    yield pack_block(b"g" * 16, 1_700_000_000_000, b"somebody")
    yield b"{topic/3}:00000000000003e8"
    yield b"member:0123456789abcdef"


def _redis() -> Iterator[bytes]:
    yield b"\x00+OK\r\n:1\r\n$5\r\nhello\r\n$-1\r\n*2\r\n:1\r\n+x\r\n-NOSCRIPT no\r\n"
    yield b"\x03%1\r\n+a\r\n:1\r\n~1\r\n#t\r\n,1.5\r\n_\r\n(123\r\n=5\r\ntxt:x\r\n>1\r\n+push\r\n"


def _texts() -> Iterator[bytes]:
    yield b"# Server\r\nredis_version:8.2.3\r\nrun_id:aa\r\nmaster_replid:bb\r\nrole:master\r\n"
    yield b"redis://user:p%40ss@[::1]:6379/3?db=2"
    yield b"unix:///run/redis.sock?db=1"


def _marks() -> Iterator[bytes]:
    marks = OffsetCheckpoints()
    marks.note(1000.0, ("orders", 3), Position(77, b"anchored"))
    marks.note(1000.0, ("audit", 0), Position(0, bytes(8)))
    yield marks.pack(1000.0, 1_700_000_000_000)


_SEEDS = {
    "request": _requests,
    "answer": _answers,
    "stream": _streams,
    "batch": _batches,
    "context": _contexts,
    "set": _sets,
    "compressed": _compressed,
    "sasl": _tokens,
    "challenge": _challenges,
    "marker": _batch_markers,
    "library": _library,
    "stored": _stored,
    "redis": _redis,
    "text": _texts,
    "marks": _marks,
}

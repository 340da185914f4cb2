"""Lower bounds and what others have stored below them (rule R8)."""

import struct

from idemproxy.codecs.compression import Codec
from idemproxy.codecs.message_set import encode_message, encode_set
from testkit.staged_sequencer import Client, Stage
from testkit.virtual_log import Message, Stored


def store(stage: Stage, data: bytes, *, records: int = 1, magic: int = 1, codec: int = 0) -> None:
    """Something that a foreign writer has stored, whatever it is."""
    first = stage.log.end_offset
    stage.log.end_offset += records
    data = struct.pack(">q", stage.log.end_offset - 1) + data[8:]
    inner = tuple(Message(0, magic, 0, -1, None, None, b"") for _ in range(records)) if codec else ()
    stage.log.messages.append(Stored(first, Message(0, magic, codec, -1, None, None, data, inner), stage.now))
    stage.log.advance(stage.log.end_offset)


def test_a_foreign_message_that_cannot_be_opened_does_not_keep_producers_away() -> None:
    stage = Stage()
    store(stage, encode_message(None, b"no lz4 at all", magic=1, codec=Codec.LZ4), records=5, codec=3)
    request = stage.send(Client(), 0)
    stage.run(1)
    assert (request.code, request.offset) == (0, 5)


def test_a_foreign_message_of_another_format_does_not_keep_producers_away() -> None:
    stage = Stage()
    newer = bytearray(encode_set([(None, b"value", 0)], magic=1))
    newer[16] = 2
    store(stage, bytes(newer), magic=2)
    request = stage.send(Client(), 0)
    stage.run(1)
    assert (request.code, request.offset) == (0, 1)


def test_a_doubt_above_a_foreign_message_that_cannot_be_opened_is_resolved() -> None:
    stage = Stage()
    store(stage, encode_message(None, b"no lz4 at all", magic=1, codec=Codec.LZ4), records=5, codec=3)
    stage.outcomes.append(stage.loses_answer)
    request = stage.send(Client(), 0)
    stage.run(10)
    assert (request.code, request.offset) == (0, 5)

"""Producers without idempotence through the proxy: which connections are served by the stage, in which order, and that
all others stay bytes."""

from __future__ import annotations

import gc
import struct
import sys
from collections import Counter
from types import FrameType
from uuid import UUID

import pytest

from idemproxy.codecs import messages, produce_topic_ids
from idemproxy.codecs.error_codes import ErrorCode
from idemproxy.codecs.primitives import encode_unsigned_varint
from idemproxy.codecs.produce import PartitionAnswer, encode_response
from idemproxy.codecs.record_batch import Record, encode_batch, parse_single_batch
from idemproxy.proxy.native.raising import RaisingSession
from idemproxy.proxy.native.session import NativeSession
from idemproxy.proxy.producer.grouping import EXPECTED_OFFSET_HEADER
from idemproxy.proxy.session.name_patterns import matching
from idemproxy.proxy.versions import ApiKey
from testkit.virtual.line import request
from testkit.virtual.raising_scene import NAME, TIMEOUT_MS, RaisingScene, fetch, message_set, metadata
from testkit.virtual.raising_scene import produce as produce_old

OWN = 900


def batch(
    *values: bytes, producer_id: int = -1, sequence: int = -1, headers: tuple[tuple[str, bytes], ...] = ()
) -> bytes:
    records = [Record(n, 5, None, value, headers) for n, value in enumerate(values)]
    return encode_batch(records, producer_id=producer_id, producer_epoch=0, base_sequence=sequence)


ONE = batch(b"value")


def produce(
    number: int, records: bytes = ONE, *, version: int = 8, acks: int = -1, timeout_ms: int = TIMEOUT_MS
) -> bytes:
    """To partition 0 of the topic."""
    if version < 9:
        head = struct.pack(">hhiih", -1, acks, timeout_ms, 1, len(NAME)) + NAME
        body = head + struct.pack(">iii", 1, 0, len(records)) + records
    else:
        head = b"\0" + struct.pack(">hi", acks, timeout_ms) + b"\x02" + encode_unsigned_varint(len(NAME) + 1) + NAME
        size = encode_unsigned_varint(len(records) + 1)
        body = head + b"\x02" + struct.pack(">i", 0) + size + records + b"\0\0\0"
    return request(number, ApiKey.PRODUCE, version, body)


class Scene(RaisingScene):
    def __init__(self, *patterns: str, requires_login: bool = False) -> None:
        super().__init__(requires_login=requires_login)
        self.engine.upstream_idempotence = matching(patterns) if patterns else None

    @property
    def is_staged(self) -> bool:
        (session,) = self.engine.sessions
        assert isinstance(session.handler, NativeSession | RaisingSession)
        return isinstance(session.handler, RaisingSession)

    def came(self) -> bytes:
        """What has come over the only connection to the broker, as it came."""
        (end,) = self.ends
        return bytes(end.data)

    def pass_answer(self, version: int = 8) -> None:
        """The broker answers a request that it got as it was."""
        empty = struct.pack(">ii", 0, 0) if version < 9 else b"\x01" + struct.pack(">i", 0) + b"\0"
        self.waiting(ApiKey.PRODUCE).answer(empty)
        self.run()

    def batch_out(self) -> bytes:
        """The batch of the Produce that waits at the broker, of one partition."""
        return self.waiting(ApiKey.PRODUCE).frames[0][-len(ONE) :]


def test_a_batch_of_a_client_without_idempotence_is_written_over_a_connection_of_its_own() -> None:
    scene = Scene("cli*")
    scene.send(metadata(1))
    scene.answer_metadata(1, 0)
    scene.send(produce(2))
    scene.give_id()
    header = parse_single_batch(memoryview(scene.batch_out()))
    assert (header.producer_id, header.base_sequence) == (4000, 0)
    scene.answer_produce(offset=17)
    scene.send(produce(3))
    assert parse_single_batch(memoryview(scene.batch_out())).base_sequence == 1
    scene.answer_produce(offset=18)
    assert scene.line.answers == [1, 2, 3]
    part = scene.line.data[scene.line.data.rindex(NAME) + len(NAME) :]
    assert struct.unpack_from(">iihq", part) == (1, 0, ErrorCode.NONE, 18)
    assert len(scene.ends) == 2
    assert not scene.engine.old_clients.inventory.newest_first(), "it is no old client"
    scene.assert_nothing_stays()


@pytest.mark.parametrize("version", [3, 8, 9, 12])
@pytest.mark.parametrize(
    ("patterns", "records"),
    [
        ((), ONE),
        (("other*", "*client2"), ONE),
        (("*",), batch(b"value", producer_id=OWN, sequence=0)),
        (("*",), message_set(b"x" * 80)),
        (("*",), b""),
    ],
    ids=["no setting", "another name", "a producer id of its own", "format v1", "no records"],
)
def test_other_connections_stay_bytes(version: int, patterns: tuple[str, ...], records: bytes) -> None:
    scene = Scene(*patterns)
    sent = [produce(number, records, version=version) for number in (1, 2)]
    scene.send(*sent)
    assert scene.came() == b"".join(sent)
    assert not scene.is_staged
    for _ in sent:
        scene.pass_answer(version)
    assert scene.line.answers == [1, 2]
    assert len(scene.ends) == scene.connects == 1
    scene.assert_nothing_stays()


def test_a_client_without_a_client_id_is_meant_by_a_pattern_for_all() -> None:
    for pattern, is_staged in (("*", True), ("?*", False), ("client", False)):
        scene = Scene(pattern)
        nameless = bytearray(produce(1))
        del nameless[14 : 14 + len("client")]
        nameless[12:14] = b"\xff\xff"
        nameless[:4] = (len(nameless) - 4).to_bytes(4, "big")
        scene.send(bytes(nameless))
        assert scene.is_staged is is_staged, pattern


def test_a_client_id_that_would_be_too_long_in_utf_8_is_not_told_to_the_broker() -> None:
    """Of each byte that is none three are made."""
    scene = Scene("*")
    named = bytearray(produce(1))
    named[12 : 14 + len("client")] = struct.pack(">h", 20_000) + b"\xff" * 20_000
    named[:4] = (len(named) - 4).to_bytes(4, "big")
    scene.send(bytes(named))
    scene.give_id()
    assert scene.waiting(ApiKey.PRODUCE).frames[0][8:10] == b"\xff\xff"
    scene.answer(ApiKey.PRODUCE, encode_response(8, [PartitionAnswer(NAME.decode(), 0, 0, 17)]))
    assert scene.line.answers == [1]
    scene.assert_nothing_stays()


@pytest.mark.parametrize("version", [3, 9])
@pytest.mark.parametrize("has_own", [False, True])
def test_the_choice_does_not_depend_on_how_the_bytes_come(version: int, has_own: bool) -> None:
    records = batch(b"value", producer_id=OWN, sequence=0) if has_own else ONE
    whole = produce(1, records, version=version)
    for at in range(1, len(whole)):
        scene = Scene("client")
        scene.send(whole[:at])
        scene.send(whole[at:])
        assert scene.is_staged is not has_own, at
        if has_own:
            assert scene.came() == whole
        else:
            scene.give_id()
            assert scene.batch_out()[57:] == ONE[57:]


def test_what_passes_keeps_its_place_between_what_is_written() -> None:
    scene = Scene("client")
    scene.send(produce(1))
    scene.give_id()
    own = [produce(2 + n, batch(b"own", producer_id=OWN, sequence=n)) for n in range(2)]
    scene.send(*own, produce(4), metadata(5), produce_old(6, message_set(b"old")))
    assert all(end.keys in ([], [ApiKey.PRODUCE]) for end in scene.ends)
    scene.answer_produce()
    for number, one in enumerate(own):
        assert bytes(scene.waiting(ApiKey.PRODUCE).data) == one, "it passes as bytes, and alone"
        scene.pass_answer()
        assert scene.line.answers == [1, 2, 3][: 2 + number]
    assert parse_single_batch(memoryview(scene.batch_out())).base_sequence == 1
    scene.answer_produce()
    scene.answer_metadata(1, 0)
    scene.answer_produce()
    assert scene.line.answers == [1, 2, 3, 4, 5, 6]
    scene.assert_nothing_stays()


def test_a_thousand_requests_at_once_that_pass_are_passed_in_turns() -> None:
    scene = Scene("client")
    scene.send(produce(1))
    scene.give_id()
    own = [produce(2, batch(b"own", producer_id=OWN, sequence=n), acks=0) for n in range(1000)]
    scene.send(*own, metadata(3))
    scene.answer_produce()
    scene.run(5)
    end = scene.waiting(ApiKey.PRODUCE)
    assert bytes(end.data).startswith(b"".join(own))
    for _ in own:
        end.drop()
    scene.answer_metadata(1, 0)
    assert scene.line.answers == [1, 3]
    scene.assert_nothing_stays()


def test_a_batch_that_is_published_conditionally_is_refused() -> None:
    scene = Scene("client")
    scene.send(produce(1))
    scene.give_id()
    scene.send(produce(2, batch(b"v", headers=((EXPECTED_OFFSET_HEADER, b"7"),))), produce(3))
    scene.answer_produce()
    assert scene.line.answers == [1, 2]
    assert scene.batch_out()[57:] == ONE[57:]
    scene.answer_produce()
    assert scene.line.answers == [1, 2, 3]
    scene.assert_nothing_stays()


def test_fetches_of_such_a_client_pass_as_they_are() -> None:
    scene = Scene("client")
    scene.send(produce(1))
    scene.give_id()
    scene.answer_produce()
    asked = fetch(2, version=4)
    scene.send(asked)
    assert bytes(scene.waiting(ApiKey.FETCH).data) == asked


def test_a_client_that_authenticates_writes_over_its_own_connection() -> None:
    scene = Scene("client", requires_login=True)
    scene.log_in()
    for number in (3, 4):
        scene.send(produce(number))
        if number == 3:
            scene.give_id()
        scene.answer_produce()
    assert scene.line.answers == [1, 2, 3, 4]
    assert scene.connects == 1
    scene.assert_nothing_stays()


@pytest.mark.parametrize("acks", [-1, 0])
def test_a_client_that_leaves_with_a_batch_out_leaves_nothing_once_that_has_an_outcome(acks: int) -> None:
    scene = Scene("client")
    scene.send(produce(1, acks=acks))
    scene.give_id()
    assert scene.line.wire is not None
    scene.line.wire.reset()
    scene.run()
    drained: list[bool] = []
    scene.engine.drain(lambda: drained.append(True))
    scene.run()
    assert not drained
    scene.answer_produce()
    scene.run(1)
    assert drained
    scene.assert_nothing_stays()


@pytest.mark.parametrize("version", [8, 9])
def test_what_wants_no_answer_is_written_though_its_client_left_before_its_turn(version: int) -> None:
    scene = Scene("client")
    scene.send(*(produce(number, version=version, acks=0) for number in (1, 2, 3)), produce(4))
    assert scene.line.wire is not None
    scene.line.wire.reset()
    scene.run()
    scene.give_id()
    for sequence in range(3):
        assert parse_single_batch(memoryview(scene.batch_out())).base_sequence == sequence
        scene.answer_produce()
    assert not any(end.keys for end in scene.ends)
    scene.assert_nothing_stays()


def test_a_large_request_is_counted_while_it_is_kept() -> None:
    scene = Scene("client")
    big = produce(1, batch(bytes(4 << 20)))
    half = len(big) // 2
    scene.send(big[:half])
    memory = scene.engine.memory
    assert half <= memory.unfinished_bytes + memory.bytes_held <= len(big) + (1 << 20)
    scene.send(big[half:])
    scene.give_id()
    assert memory.bytes_held >= 4 << 20
    scene.answer_produce()
    assert scene.line.answers == [1]
    scene.assert_nothing_stays()
    gc.collect()
    assert not any(isinstance(one, bytearray | memoryview) and len(one) >= 4 << 20 for one in gc.get_objects())


def calls_of(scene: Scene, *requests: bytes) -> Counter[str]:
    """Which functions of the session run while it gets these requests."""
    (session,) = scene.engine.sessions
    called: Counter[str] = Counter()

    def count(frame: FrameType, event: str, _argument: object) -> None:
        if event == "call":
            called[f"{frame.f_code.co_filename.rpartition('/')[2]}:{frame.f_code.co_name}"] += 1

    sys.setprofile(count)
    try:
        for one in requests:
            session.handler.received(one)
    finally:
        sys.setprofile(None)
    return called


def test_passing_connections_are_asked_once_and_nothing_where_there_is_no_setting() -> None:
    """Counted, as a busy machine changes no count: the same calls with the setting and without it."""
    requests = [produce(number) for number in range(1, 21)]
    found = {}
    for patterns in ((), ("other-*",)):
        scene = Scene(*patterns)
        first = calls_of(scene, requests[0])
        found[patterns] = calls_of(scene, *requests[1:])
        assert first["session.py:_choose"] == 1
        assert first["headers.py:parse_request_header"] == (1 if not patterns else 2), "one is for the client's name"
        assert first["produce_walk.py:begins_without_id"] == 0
    assert found[()] == found["other-*",]
    assert "session.py:_choose" not in found[()]


def test_while_only_the_broker_knows_whether_a_login_is_done_requests_pass() -> None:
    scene = Scene("client", requires_login=True)
    name = b"OAUTHBEARER"
    scene.send(request(1, ApiKey.SASL_HANDSHAKE, 1, struct.pack(">h", len(name)) + name))
    scene.answer(ApiKey.SASL_HANDSHAKE, b"\0\0" + struct.pack(">ih", 1, len(name)) + name)
    scene.send(request(2, ApiKey.SASL_AUTHENTICATE, 0, struct.pack(">i", 4) + b"\0a\0b"))
    scene.answer(ApiKey.SASL_AUTHENTICATE, b"\0\0\xff\xff" + struct.pack(">i", 0))
    scene.send(produce(3))
    assert scene.came() == produce(3)
    scene.pass_answer()
    scene.send(produce(4))
    assert scene.is_staged
    scene.give_id()
    scene.answer_produce()
    assert scene.line.answers == [1, 2, 3, 4]
    scene.assert_nothing_stays()


def metadata_answer(topic_id: UUID, node: int, leader: int) -> bytes:
    partition: dict[str, object] = {"error_code": 0, "partition_index": 0, "leader_id": leader, "leader_epoch": 0}
    partition |= {"replica_nodes": [node], "isr_nodes": [node], "offline_replicas": []}
    topic = {"error_code": 0, "name": NAME.decode(), "topic_id": topic_id, "partitions": [partition]}
    brokers = [{"node_id": node, "host": "h", "port": 1, "rack": None}]
    return messages.encode_response(ApiKey.METADATA, 12, brokers=brokers, controller_id=0, topics=[topic])


def test_leaders_of_a_topic_that_is_named_by_its_id_are_asked_for_by_id() -> None:
    scene, topic_id = Scene("client"), UUID(int=1 << 90)
    parts = b"\x02" + struct.pack(">i", 0) + encode_unsigned_varint(len(ONE) + 1) + ONE + b"\0\0\0"
    body = b"\0" + struct.pack(">hi", -1, TIMEOUT_MS) + b"\x02" + topic_id.bytes + parts
    scene.send(request(1, ApiKey.PRODUCE, 13, body))
    scene.give_id()
    end = scene.waiting(ApiKey.PRODUCE)
    first = end.frames[0]
    assert end.wire is not None
    end.wire.reset()
    end.data.clear()
    assert scene.world.network.run(3, lambda: any(ApiKey.METADATA in end.keys for end in scene.ends))
    asked = scene.waiting(ApiKey.METADATA).frames[0]
    assert asked[2:4] == b"\0\x0c"
    assert topic_id.bytes in asked
    for leader in (-1, scene.broker.number):
        assert scene.world.network.run(3, lambda: any(ApiKey.METADATA in end.keys for end in scene.ends))
        scene.answer(ApiKey.METADATA, metadata_answer(topic_id, scene.broker.number, leader))
        assert any(ApiKey.PRODUCE in end.keys for end in scene.ends) is (leader >= 0)
    assert scene.waiting(ApiKey.PRODUCE).frames[0][-len(parts) :] == first[-len(parts) :]
    stored = produce_topic_ids.encode_response([PartitionAnswer(topic_id.hex, 0, 0, 5)])
    scene.answer(ApiKey.PRODUCE, stored)
    assert scene.line.answers == [1]
    assert bytes(scene.line.data).endswith(stored)
    scene.assert_nothing_stays()


def test_what_a_lost_connection_leaves_in_doubt_is_sent_again() -> None:
    scene = Scene("client")
    scene.send(metadata(1))
    scene.answer_metadata(1, 0)
    scene.send(produce(2, version=9))
    scene.give_id()
    first = scene.batch_out()
    for end in scene.ends:
        assert end.wire is not None
        end.wire.reset()
        end.data.clear()
    assert scene.world.network.run(3, lambda: any(ApiKey.METADATA in end.keys for end in scene.ends))
    scene.answer_metadata(4, scene.broker.number)
    scene.run(1)
    assert scene.batch_out() == first
    scene.answer_produce(ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
    assert scene.line.answers == [1, 2]
    scene.assert_nothing_stays()

"""One connection of a producer without idempotence that sends batches itself: they get a producer id and nothing else
changes, in each version."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from idemproxy.codecs import messages, produce_topic_ids
from idemproxy.codecs.compression import Codec
from idemproxy.codecs.error_codes import ErrorCode
from idemproxy.codecs.message_set import encode_set
from idemproxy.codecs.produce import ProduceRequest
from idemproxy.codecs.record_batch import (
    CONTROL_FLAG,
    TRANSACTIONAL_FLAG,
    Record,
    encode_batch,
    parse_single_batch,
    verify_crc,
)
from idemproxy.codecs.steps import STEP_BYTES
from idemproxy.producing.cluster import Cluster
from idemproxy.producing.numbered_batch import Place
from idemproxy.proxy.bridge.upward.error_codes import OF_A_LENT_ID, written_code
from idemproxy.proxy.bridge.upward.produce_effects import (
    AnswerClient,
    AskLeaders,
    AskProducerId,
    CloseClient,
    SendProduce,
)
from idemproxy.proxy.bridge.upward.produce_formats import PARTITIONS_MAX, format_of, is_written

from .test_upward_produce import (
    _GIVEN_ID,
    ARRIVED_MS,
    GAP,
    HOME,
    INVALID_RECORD,
    NONE,
    NOT_ENOUGH_REPLICAS,
    NOT_LEADER,
    OLD_EPOCH,
    TIMED_OUT,
    TOO_LARGE,
    TOPIC,
    Scene,
    Shared,
    numbers_of,
    request_of,
)

VERSIONS = range(3, 14)
BY_ID = 13
TOPIC_ID = UUID(int=1 << 100)
ABOUT_PRODUCER_IDS = {45, 46, 47, 48, 49, 59, 90}
"""OUT_OF_ORDER_SEQUENCE_NUMBER and the like: a client without idempotence has no way to react."""
CHANGED = [range(17, 21), range(43, 57)]
"""Of a batch: checksum; producer id, epoch and base sequence."""


def batch(*values: bytes, codec: Codec = Codec.NONE, producer_id: int = -1, attributes: int = 0) -> bytes:
    records = [Record(n, 5 + n, None, value, (("h", b"1"),)) for n, value in enumerate(values)]
    numbers = {"producer_id": producer_id, "producer_epoch": -1, "base_sequence": -1}
    return encode_batch(records, codec=codec, attributes=attributes, **numbers)


ONE = batch(b"v", b"w")


def body_of(
    version: int,
    *sets: tuple[int, bytes | None],
    acks: int = -1,
    transactional_id: str | None = None,
    name: str = TOPIC,
) -> bytes:
    """As the library writes it."""
    topic = {"topic_id": TOPIC_ID} if version >= BY_ID else {"name": name}
    data = {**topic, "partition_data": [{"index": index, "records": records} for index, records in sets]}
    fields: dict[str, Any] = {"transactional_id": transactional_id, "acks": acks, "timeout_ms": 8_000}
    return bytes(messages.encode_request(0, version, **fields, topic_data=[data]))


def produce(scene: Scene, version: int, *sets: tuple[int, bytes], acks: int = -1) -> None:
    body = body_of(version, *(sets or ((0, ONE),)), acks=acks)
    assert is_written(body, version)
    scene.do(scene.machine.begin(body, version, scene.now, ARRIVED_MS))


def request(sent: SendProduce) -> ProduceRequest:
    return request_of(sent) if sent.api_version < BY_ID else produce_topic_ids.parse_request(b"".join(sent.body))


def records_of(sent: SendProduce) -> bytes:
    (one,) = request(sent).partitions
    assert one.records is not None
    return bytes(one.records)


def reply(scene: Scene, sent: SendProduce, code: int, offset: int = -1, message: str | None = None) -> None:
    """As the broker's library writes it."""
    answer = {"index": 0, "error_code": code, "base_offset": offset, "log_append_time_ms": 77, "log_start_offset": 5}
    part: dict[str, Any] = {**answer, "record_errors": [], "error_message": message}
    topic = {"topic_id": TOPIC_ID} if sent.api_version >= BY_ID else {"name": TOPIC}
    responses = [{**topic, "partition_responses": [part]}]
    body = messages.encode_response(0, sent.api_version, responses=responses, throttle_time_ms=3)
    scene.do(scene.machine.answered(sent.number, body, scene.now))


def answered(scene: Scene, version: int) -> Any:
    """What the client reads, by the library."""
    (effect,) = scene.take(AnswerClient)
    found = messages.decode_response(0, version, effect.body)
    assert found.throttle_time_ms in (0, 3)
    (topic,) = found.responses
    assert topic.topic_id == TOPIC_ID if version >= BY_ID else topic.name == TOPIC
    (part,) = topic.partition_responses
    return part


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("version", VERSIONS)
def test_a_batch_is_sent_with_a_producer_id_and_no_other_byte_changes(version: int, codec: Codec) -> None:
    scene, data = Scene(version=13), batch(b"v" * 50, b"w" * 50, codec=codec)
    produce(scene, version, (0, data))
    sent = scene.sent()
    stored = records_of(sent)
    assert sent.api_version == (version if version in (*range(9), BY_ID) else 8)
    assert {n for n, pair in enumerate(zip(data, stored, strict=True)) if pair[0] != pair[1]} <= {
        n for positions in CHANGED for n in positions
    }
    header = parse_single_batch(memoryview(stored))
    verify_crc(memoryview(stored), header)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (101, 0, 0)
    reply(scene, sent, NONE, 40)

    part = answered(scene, version)
    assert (part.index, part.error_code, part.base_offset, part.log_append_time_ms) == (0, NONE, 40, 77)
    assert part.log_start_offset == (5 if version >= 5 else -1)


def test_a_large_batch_is_numbered_in_steps_and_the_next_one_continues() -> None:
    scene = Scene()
    for number, value in enumerate((bytes(3 * STEP_BYTES), b"small")):
        data = batch(value)
        produce(scene, 7, (0, data))
        sent = scene.sent()
        stored = memoryview(records_of(sent))
        verify_crc(stored, parse_single_batch(stored))
        assert (numbers_of(sent), bytes(stored[57:])) == ((101, 0, number), data[57:])
        reply(scene, sent, NONE, number)


@pytest.mark.parametrize("version", [3, 9, BY_ID])
@pytest.mark.parametrize(("acks", "expected"), [(-1, -1), (1, 1), (0, 1)])
def test_the_clients_acks_are_kept_but_for_none(version: int, acks: int, expected: int) -> None:
    scene = Scene(version=13)
    produce(scene, version, acks=acks)
    sent = scene.sent()
    assert request(sent).acks == expected
    reply(scene, sent, NONE, 1)

    assert scene.machine.is_idle
    assert len(scene.take(AnswerClient)) == (acks != 0)


def test_without_acks_an_error_ends_the_connection() -> None:
    scene = Scene()
    produce(scene, 8, acks=0)
    reply(scene, scene.sent(), 117)

    assert scene.take(CloseClient)


@pytest.mark.parametrize("version", VERSIONS)
def test_after_a_lost_answer_the_same_bytes_are_sent_again(version: int) -> None:
    scene = Scene(version=13)
    produce(scene, version)
    first = scene.sent()
    scene.lose()
    again = scene.wait_until_sent()
    assert (again.api_version, records_of(again)) == (first.api_version, records_of(first))
    reply(scene, again, NONE, 40)

    assert answered(scene, version).base_offset == 40


def test_what_the_broker_has_already_is_a_success_without_an_offset() -> None:
    scene = Scene()
    produce(scene, 8)
    reply(scene, scene.sent(), ErrorCode.DUPLICATE_SEQUENCE_NUMBER)

    part = answered(scene, 8)
    assert (part.error_code, part.base_offset) == (NONE, -1)


@pytest.mark.parametrize("code", [GAP, OLD_EPOCH, ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.PRODUCER_FENCED])
@pytest.mark.parametrize("version", [8, BY_ID])
def test_what_a_broker_says_of_a_sequence_is_between_it_and_the_proxy(version: int, code: int) -> None:
    scene = Scene(version=13)
    produce(scene, version)
    first = scene.sent()
    reply(scene, first, code)
    again = scene.sent()
    if version != BY_ID:
        assert numbers_of(again) in {(101, 1, 0), (102, 0, 0)}
    assert records_of(again) != records_of(first)
    reply(scene, again, NONE, 3)

    assert answered(scene, version).error_code == NONE


@pytest.mark.parametrize("version", [7, 8, 11, BY_ID])
def test_a_batch_that_is_too_large_is_refused_as_the_broker_does_and_not_taken_apart(version: int) -> None:
    scene = Scene(version=13)
    produce(scene, version, (0, batch(*(b"v" * 400 for _ in range(20)))))
    reply(scene, scene.sent(), TOO_LARGE)

    assert answered(scene, version).error_code == TOO_LARGE
    assert not scene.take(SendProduce)


@pytest.mark.parametrize(("version", "expected"), [(7, None), (8, "no key"), (12, "no key"), (BY_ID, "no key")])
def test_the_brokers_message_is_passed_on(version: int, expected: str | None) -> None:
    scene = Scene(version=13)
    produce(scene, version)
    reply(scene, scene.sent(), INVALID_RECORD, message="no key")

    part = answered(scene, version)
    assert (part.error_code, part.base_offset) == (INVALID_RECORD, -1)
    assert part.error_message == expected


def test_a_batch_that_is_refused_leaves_its_sequence_to_the_next() -> None:
    scene = Scene()
    for number, code in enumerate((INVALID_RECORD, NONE, TOO_LARGE, NONE)):
        produce(scene, 8)
        sent = scene.sent()
        assert numbers_of(sent) == (101, 0, 2 * (number // 2))
        reply(scene, sent, code, -1 if code else number)


def test_a_damaged_batch_is_refused_and_the_others_are_sent() -> None:
    scene = Scene()
    damaged = ONE[:-1] + bytes((ONE[-1] ^ 1,))
    produce(scene, 7, (0, damaged), (1, ONE))
    sent = scene.sent()
    assert [one.partition for one in request(sent).partitions] == [1]
    scene.reply(sent, (1, NONE, 4))

    assert scene.answer(7) == {(TOPIC, 0): (ErrorCode.CORRUPT_MESSAGE, -1), (TOPIC, 1): (NONE, 4)}


def test_all_of_a_request_is_counted_while_one_of_its_batches_waits() -> None:
    """Batches are not copied before they are sent: as long as one waits, all of the request is in memory."""
    scene, large = Scene(), bytearray(batch(bytes(1 << 20)))
    large[-1] ^= 1
    produce(scene, 8, (0, bytes(large)), (1, ONE))
    sent = scene.sent()
    assert [one.partition for one in request(sent).partitions] == [1]
    assert scene.machine.buffered_bytes == len(body_of(8, (0, bytes(large)), (1, ONE))) + len(ONE)
    scene.reply(sent, (1, NONE, 4))

    assert scene.machine.is_idle
    assert scene.machine.buffered_bytes == 0


def test_what_may_be_in_the_log_when_the_time_is_over_is_a_timeout() -> None:
    scene = Scene()
    produce(scene, 8)
    while not scene.machine.is_idle:
        scene.wait()

    assert answered(scene, 8).error_code == TIMED_OUT


def test_what_is_certainly_not_in_the_log_has_the_brokers_code() -> None:
    scene = Scene()
    produce(scene, 8)
    while not scene.machine.is_idle:
        for sent in scene.take(SendProduce):
            reply(scene, sent, NOT_ENOUGH_REPLICAS)
        if not scene.machine.is_idle:
            scene.wait()

    assert answered(scene, 8).error_code == NOT_ENOUGH_REPLICAS


@pytest.mark.parametrize("code", range(-1, 150))
def test_no_client_hears_of_a_producer_id(code: int) -> None:
    scene = Scene()
    produce(scene, 8)
    while not scene.machine.is_idle:
        for sent in scene.take(SendProduce):
            reply(scene, sent, code, 9 if code == NONE else -1)
        if not scene.machine.is_idle:
            scene.wait()

    found = answered(scene, 8).error_code
    assert found not in ABOUT_PRODUCER_IDS
    assert found in (code, TIMED_OUT, NOT_LEADER, ErrorCode.UNKNOWN_SERVER_ERROR, NONE)


@pytest.mark.parametrize("code", range(-1, 150))
def test_a_code_is_the_brokers_own_unless_it_is_about_a_producer_id(code: int) -> None:
    assert written_code(code, True) == TIMED_OUT
    assert written_code(code) == OF_A_LENT_ID.get(code, code)
    assert written_code(code) not in ABOUT_PRODUCER_IDS - {48}


def test_a_principal_that_gets_no_producer_id_learns_why() -> None:
    scene = Scene(gives_ids=False)
    produce(scene, 8)
    scene.do(scene.machine.answered_id(_GIVEN_ID.pack(0, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, -1, -1), scene.now))

    assert answered(scene, 8).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


@pytest.mark.parametrize("code", [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE])
def test_a_producer_id_is_asked_for_until_the_time_is_over(code: int) -> None:
    scene, asked = Scene(gives_ids=False), 0
    produce(scene, 8)
    while not scene.machine.is_idle:
        if scene.take(AskProducerId):
            asked += 1
            scene.do(scene.machine.answered_id(_GIVEN_ID.pack(0, code, -1, -1), scene.now))
        if not scene.machine.is_idle:
            scene.wait()

    assert asked > 3
    assert answered(scene, 8).error_code == NOT_LEADER


# ---------------------------------------------------------------------- topic ids
def test_a_producer_id_is_used_with_names_or_with_topic_ids() -> None:
    """Two batches of one partition under the same number, once by name and once by id, would be taken for one."""
    scene, numbers = Scene(version=13), []
    for version in (12, 13, 12, 13, 2):
        if version == 2:
            scene.produce()
        else:
            produce(scene, version)
        sent = scene.sent()
        data = records_of(sent)
        header = parse_single_batch(memoryview(data))
        numbers.append((header.producer_id, header.base_sequence))
        reply(scene, sent, NONE, 2 * len(numbers))
        scene.take(AnswerClient)

    assert numbers == [(101, 0), (102, 0), (101, 2), (102, 2), (101, 4)]


def test_leaders_are_asked_for_by_topic_id() -> None:
    scene = Scene(version=13)
    produce(scene, 13)
    scene.sent()
    scene.lose()
    while not any(isinstance(one, AskLeaders) for one in scene.effects):
        scene.wait()
    (asked,) = scene.take(AskLeaders)
    assert (asked.topics, asked.are_ids) == ((TOPIC_ID.hex,), True)
    leaders = {Place(TOPIC_ID.hex, 0): HOME}
    cluster = Cluster({HOME: ("broker", HOME)}, leaders, {TOPIC_ID.hex: (0,)}, {})
    scene.do(scene.machine.learned(asked.topics, cluster, scene.now))
    reply(scene, scene.wait_until_sent(), NONE, 3)

    assert answered(scene, 13).base_offset == 3


def test_a_topic_that_was_deleted_is_refused_by_its_id() -> None:
    scene = Scene(version=13)
    produce(scene, 13)
    reply(scene, scene.sent(), ErrorCode.UNKNOWN_TOPIC_ID)

    assert answered(scene, 13).error_code == ErrorCode.UNKNOWN_TOPIC_ID


# ---------------------------------------------------------------------- what passes
@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_not_written(version: int) -> None:
    changed = bytearray(ONE)
    changed[7] = 1
    sets: dict[str, list[tuple[int, bytes | None]]] = {
        "a producer id": [(0, batch(b"v", producer_id=5))],
        "one of two has a producer id": [(0, ONE), (1, batch(b"v", producer_id=5))],
        "a transaction": [(0, batch(b"v", attributes=TRANSACTIONAL_FLAG))],
        "a control batch": [(0, batch(b"v", attributes=CONTROL_FLAG))],
        "format v1": [(0, encode_set([(None, b"v" * 80, 5)], magic=1))],
        "two batches": [(0, ONE + ONE)],
        "a batch that is cut off": [(0, ONE[:-1])],
        "a base offset": [(0, bytes(changed))],
        "no records": [(0, None)],
        "an empty set": [(0, b"")],
        "a partition twice": [(0, ONE), (0, ONE)],
        "nothing": [],
        "many partitions": [(n, ONE) for n in range(PARTITIONS_MAX + 1)],
    }
    for what, one in sets.items():
        assert not is_written(body_of(version, *one), version), what
    assert is_written(body_of(version, *((n, ONE) for n in range(PARTITIONS_MAX))), version)
    assert not is_written(body_of(version, (0, ONE), transactional_id="tx"), version)
    assert not is_written(body_of(version, (0, ONE), acks=2), version)
    whole = body_of(version, (0, ONE))
    assert all(not is_written(whole[:end], version) for end in range(len(whole)))


@pytest.mark.parametrize("version", [9, 12])
def test_a_name_that_no_broker_reads_is_not_written(version: int) -> None:
    """It does not fit into the version in which brokers are asked."""
    longest = "\N{EURO SIGN}" * 10_922 + "x"
    assert is_written(body_of(version, (0, ONE), name=longest), version)
    assert not is_written(body_of(version, (0, ONE), name=longest + "x"), version)


@given(st.integers(3, 13), st.integers(0, 200), st.binary(max_size=6))
def test_any_bytes_are_judged(version: int, at: int, instead: bytes) -> None:
    whole = bytearray(body_of(version, (0, ONE), (1, ONE)))
    whole[at : at + len(instead)] = instead
    if is_written(bytes(whole), version):
        assert format_of(version).parse_request(bytes(whole), version).partitions
    scene = Scene(version=13)
    scene.do(scene.machine.begin(bytes(body_of(version, (0, ONE))), version, scene.now, ARRIVED_MS))
    sent = scene.sent()
    answer = messages.encode_response(0, sent.api_version, responses=[], throttle_time_ms=0)
    damaged = bytearray(answer)
    damaged[at % (len(answer) + 1) :] = instead
    scene.do(scene.machine.answered(sent.number, bytes(damaged), scene.now))


def test_connections_of_both_kinds_share_ids() -> None:
    shared = Shared()
    old, new = Scene(shared), Scene(shared)
    old.produce()
    old.reply(old.sent(), (0, NONE, 0))
    produce(new, 8)

    assert numbers_of(new.sent()) == (101, 0, 2)

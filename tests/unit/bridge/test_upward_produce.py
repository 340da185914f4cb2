"""One connection of an old producer: what is sent for its requests, what it gets, and when."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import TypeVar

import pytest

from idemproxy.codecs.compression import Codec, compress
from idemproxy.codecs.error_codes import ErrorCode
from idemproxy.codecs.message_set import encode_message, encode_set
from idemproxy.codecs.produce import (
    PartitionAnswer,
    ProduceRequest,
    encode_request,
    encode_response,
    parse_request,
    parse_response,
)
from idemproxy.codecs.record_batch import BatchHeader, batch_of, parse_single_batch
from idemproxy.codecs.steps import at_once
from idemproxy.producing.cluster import Cluster
from idemproxy.producing.numbered_batch import Place
from idemproxy.proxy.bridge.upward.departed_clients import ClientIdentity, DepartedClients
from idemproxy.proxy.bridge.upward.produce import (
    BYTES_AT_ONCE,
    RENEWALS_MAX,
    SETS_AT_ONCE,
    RaisedProduce,
    RaisedProduceSettings,
)
from idemproxy.proxy.bridge.upward.produce_effects import (
    AnswerClient,
    AskLeaders,
    AskProducerId,
    CloseClient,
    DisconnectBroker,
    Effect,
    RunSteps,
    SendProduce,
)
from idemproxy.proxy.bridge.upward.produce_formats import PARTITIONS_MAX
from idemproxy.proxy.bridge.upward.producer_ids import ProducerIdPool, ProducerIdPools
from idemproxy.proxy.bridge.upward.raised_sets import RAISED_BYTES_MIN
from idemproxy.proxy.bridge.upward.topic_limits import BATCH_BYTES_MIN, TopicLimits

HOME, OTHER = 3, 4
TOPIC = "t"
TIMEOUT_MS = 8_000
DEADLINE = 6.0
ARRIVED_MS = 1_800_000_000_000
NONE, CORRUPT, UNKNOWN_TOPIC, NOT_LEADER, TIMED_OUT, TOO_LARGE = 0, 2, 3, 6, 7, 10
NOT_ENOUGH_REPLICAS, AFTER_APPEND, GAP, OLD_EPOCH, INVALID_RECORD = 19, 20, 45, 47, 87
SET = encode_set([(b"k", b"v", 5), (None, b"w", 6)], magic=1)
_GIVEN_ID = Struct(">ihqh")
EffectType = TypeVar("EffectType")
Answers = dict[tuple[str, int], tuple[int, int]]


class Shared:
    def __init__(self, ids_max: int = 10) -> None:
        self.pools = ProducerIdPools(ProducerIdPool(ids_max), ProducerIdPool(ids_max))
        self.pool = self.pools.by_name
        self.departed = DepartedClients()
        self.limits = TopicLimits()
        self.last_id = 100


class Scene:
    """A connection to broker 3. Ids are given at once, steps are run at once; the rest is up to the test."""

    def __init__(
        self,
        shared: Shared | None = None,
        *,
        version: int = 8,
        client: str = "old",
        gives_ids: bool = True,
        runs_steps: bool = True,
        unpacked_bytes_max: int = 1 << 20,
    ) -> None:
        self.shared = shared or Shared()
        self.now = 0.0
        self.gives_ids = gives_ids
        self.runs_steps = runs_steps
        self.effects: list[Effect] = []
        self.is_woken = False
        self.machine = RaisedProduce(
            RaisedProduceSettings(HOME, version, unpacked_bytes_max),
            ClientIdentity("10.0.0.1", client),
            self.shared.pools,
            self.shared.departed,
            self.shared.limits,
            self._wake,
        )

    def _wake(self) -> None:
        self.is_woken = True

    # ------------------------------------------------------------------ the client
    def produce(
        self, sets: Sequence[tuple[int, bytes]] = ((0, SET),), *, version: int = 2, acks: int = -1, timeout: int = 8_000
    ) -> None:
        parts = [(TOPIC, partition, data) for partition, data in sets]
        body = b"".join(encode_request(version, acks, timeout, parts))
        self.do(self.machine.begin(body, version, self.now, ARRIVED_MS))

    def answer(self, version: int = 2) -> Answers:
        """Code and base offset by partition, of the answer that is due."""
        effects = self.take(AnswerClient)
        assert self.machine.is_idle
        (effect,) = effects
        answers, _ = parse_response(effect.body, 0, version)
        return {(one.topic, one.partition): (one.error_code, one.base_offset) for one in answers}

    def code(self) -> int:
        ((code, _),) = self.answer().values()
        return code

    # ------------------------------------------------------------------ the shell
    def do(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, RunSteps) and self.runs_steps:
                self.do(self.machine.worked(effect.number, at_once(effect.start()), self.now))
            elif isinstance(effect, AskProducerId) and self.gives_ids:
                self.shared.last_id += 1
                self.do(self.machine.answered_id(_GIVEN_ID.pack(0, 0, self.shared.last_id, 0), self.now))
            else:
                self.effects.append(effect)

    def take(self, kind: type[EffectType]) -> list[EffectType]:
        """What was asked for of this kind, once."""
        found: list[EffectType] = [one for one in self.effects if isinstance(one, kind)]
        self.effects = [one for one in self.effects if not isinstance(one, kind)]
        return found

    def sent(self) -> SendProduce:
        effects = self.take(SendProduce)
        assert len(effects) == 1
        return effects[0]

    def reply(self, asked: SendProduce, *answers: tuple[int, int, int], throttle_ms: int = 0) -> None:
        """Answer with (partition, code, base offset)."""
        body = encode_response(
            asked.api_version, [PartitionAnswer(TOPIC, *one, log_append_time_ms=77) for one in answers], throttle_ms
        )
        self.do(self.machine.answered(asked.number, body, self.now))

    def lose(self, broker: int = HOME, *, was_sent: bool = True) -> None:
        self.do(self.machine.lost(broker, self.now, was_sent=was_sent))

    def wait(self) -> float:
        """Let time pass until it is to be woken."""
        assert self.machine.wakes_at is not None
        self.now = self.machine.wakes_at
        self.do(self.machine.woken(self.now))
        return self.now

    def wait_until_sent(self) -> SendProduce:
        while not any(isinstance(one, SendProduce) for one in self.effects):
            assert self.wait() < DEADLINE
        return self.sent()

    def learn(self, leader: int) -> None:
        (asked,) = self.take(AskLeaders)
        addresses = {broker: ("broker", broker) for broker in (HOME, OTHER)}
        leaders = {Place(TOPIC, number): leader for number in range(4)}
        self.do(self.machine.learned(asked.topics, Cluster(addresses, leaders, {TOPIC: (0, 1, 2, 3)}, {}), self.now))


def request_of(sent: SendProduce) -> ProduceRequest:
    return parse_request(b"".join(sent.body), 0, sent.api_version)


def header_of(sent: SendProduce, index: int = 0) -> BatchHeader:
    records = request_of(sent).partitions[index].records
    assert records is not None
    return parse_single_batch(records)


def numbers_of(sent: SendProduce, index: int = 0) -> tuple[int, int, int]:
    """Producer id, epoch and base sequence of one of its batches."""
    header = header_of(sent, index)
    return header.producer_id, header.producer_epoch, header.base_sequence


# ---------------------------------------------------------------------- the usual way
@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_set_is_sent_under_an_id_and_its_offset_is_returned(version: int) -> None:
    scene = Scene()
    scene.produce(version=version)
    sent = scene.sent()
    assert sent.broker == HOME
    assert numbers_of(sent) == (101, 0, 0)
    scene.reply(sent, (0, NONE, 40))

    assert scene.answer(version) == {(TOPIC, 0): (NONE, 40)}


def test_the_next_request_continues_with_the_next_sequence() -> None:
    scene = Scene()
    for number in range(3):
        scene.produce()
        sent = scene.sent()
        assert numbers_of(sent) == (101, 0, 2 * number)
        scene.reply(sent, (0, NONE, 2 * number))


def test_log_append_time_and_throttle_time_are_passed_on() -> None:
    scene = Scene()
    scene.produce()
    scene.reply(scene.sent(), (0, NONE, 1), throttle_ms=30)
    (effect,) = scene.take(AnswerClient)
    ((answer,), throttle_ms) = parse_response(effect.body, 0, 2)

    assert (answer.log_append_time_ms, throttle_ms) == (77, 30)


@pytest.mark.parametrize(("version", "expected"), [(3, 3), (7, 7), (8, 8), (11, 8)])
def test_the_broker_is_spoken_to_in_the_highest_version_that_both_have(version: int, expected: int) -> None:
    scene = Scene(version=version)
    scene.produce()

    assert scene.sent().api_version == expected


@pytest.mark.parametrize(("acks", "expected"), [(-1, -1), (1, 1), (0, 1)])
def test_the_clients_acks_are_kept_but_for_none(acks: int, expected: int) -> None:
    scene = Scene()
    scene.produce(acks=acks)

    assert request_of(scene.sent()).acks == expected


def test_without_acks_there_is_no_answer() -> None:
    scene = Scene()
    scene.produce(acks=0)
    scene.reply(scene.sent(), (0, NONE, 1))

    assert scene.machine.is_idle
    assert not scene.take(AnswerClient)
    assert not scene.take(CloseClient)


def test_without_acks_an_error_ends_the_connection() -> None:
    scene = Scene()
    scene.produce(acks=0)
    scene.reply(scene.sent(), (0, INVALID_RECORD, -1))

    (effect,) = scene.take(CloseClient)
    assert "CORRUPT_MESSAGE" in effect.reason


@pytest.mark.parametrize("acks", [2, 5, -2])
def test_acks_that_kafka_does_not_know_are_refused_and_nothing_is_sent(acks: int) -> None:
    scene = Scene()
    scene.produce(acks=acks)

    assert scene.code() == ErrorCode.INVALID_REQUIRED_ACKS
    assert not scene.take(SendProduce)


@pytest.mark.parametrize(
    ("data", "expected"), [(b"", (NONE, -1)), (SET[:-1], (CORRUPT, -1)), (b"\0" * 40, (CORRUPT, -1))]
)
def test_what_needs_nothing_sent_is_answered_at_once(data: bytes, expected: tuple[int, int]) -> None:
    scene = Scene()
    scene.produce([(0, data)])

    assert scene.answer() == {(TOPIC, 0): expected}
    assert not scene.take(SendProduce)


def test_a_set_that_is_missing_is_corrupt() -> None:
    scene = Scene()
    body = encode_request(2, -1, 5000, [(TOPIC, 0, b"")])[0][:-4]
    scene.do(scene.machine.begin(bytes(body) + b"\xff" * 4, 2, scene.now, ARRIVED_MS))

    assert scene.code() == CORRUPT


def test_a_request_that_cannot_be_read_ends_the_connection() -> None:
    scene = Scene()
    scene.do(scene.machine.begin(b"\0" * 3, 2, scene.now, ARRIVED_MS))

    assert scene.take(CloseClient)
    assert scene.machine.is_idle


def test_a_request_with_too_many_partitions_ends_the_connection() -> None:
    scene = Scene()
    scene.produce([(number, b"") for number in range(PARTITIONS_MAX + 1)])
    assert scene.take(CloseClient)
    scene.produce([(number, b"") for number in range(PARTITIONS_MAX)])

    assert len(scene.answer()) == PARTITIONS_MAX


def test_many_sets_leave_in_several_requests() -> None:
    scene = Scene()
    count = 2 * SETS_AT_ONCE + 1
    scene.produce([(number, SET) for number in range(count)])
    sent = 0
    while not scene.machine.is_idle:
        asked = scene.sent()
        partitions = [one.partition for one in request_of(asked).partitions]
        assert len(partitions) <= SETS_AT_ONCE
        sent += len(partitions)
        scene.reply(asked, *((number, NONE, number) for number in partitions))
    assert sent == count

    assert scene.answer() == {(TOPIC, number): (NONE, number) for number in range(count)}


def test_large_sets_are_not_all_in_memory_twice() -> None:
    scene = Scene()
    scene.produce([(number, encode_set([(None, bytes(900_000), 5)], magic=1)) for number in range(20)])
    rounds = 0
    while not scene.machine.is_idle:
        rounds += 1
        asked = scene.sent()
        partitions = [one.partition for one in request_of(asked).partitions]
        assert len(partitions) == 4
        scene.reply(asked, *((number, NONE, number) for number in partitions))

        assert scene.machine.buffered_bytes > 4 * 900_000 or scene.machine.is_idle

    assert rounds == 5
    assert scene.machine.buffered_bytes == 0


def test_wrappers_that_become_much_larger_are_refused_before_memory_is_full() -> None:
    zeros = encode_set([(None, bytes(1 << 20), 0)] * 60, magic=0)
    one = encode_set([(None, b"v", 0)], magic=0)
    packed = [(codec, compress(codec, data, magic=0)) for codec, data in ((Codec.GZIP, zeros), (Codec.SNAPPY, one))]
    both = b"".join(encode_message(None, data, magic=0, codec=codec, timestamp=0) for codec, data in packed)
    scene = Scene(unpacked_bytes_max=64 << 20)
    scene.produce([(number, both) for number in range(12)] + [(12, SET)])
    assert 10 << 20 < scene.machine.buffered_bytes <= RAISED_BYTES_MIN + BYTES_AT_ONCE
    while not scene.machine.is_idle:
        for sent in scene.take(SendProduce):
            scene.reply(sent, *((one.partition, NONE, one.partition) for one in request_of(sent).partitions))

    codes = [code for code, _ in scene.answer().values()]
    fitting = codes.index(TOO_LARGE)
    assert codes == [NONE] * fitting + [TOO_LARGE] * (12 - fitting) + [NONE]


def test_two_sets_of_one_partition_are_both_sent() -> None:
    scene = Scene()
    one = b"".join(encode_request(2, -1, TIMEOUT_MS, [(TOPIC, 0, SET)]))
    body = one[:6] + b"\0\0\0\2" + 2 * one[10:]
    scene.do(scene.machine.begin(body, 2, scene.now, ARRIVED_MS))
    first = scene.sent()
    scene.reply(first, (0, NONE, 1))
    second = scene.sent()
    assert numbers_of(second) == (101, 0, 2)
    scene.reply(second, (0, NONE, 9))

    assert scene.answer() == {(TOPIC, 0): (NONE, 1)}


def test_several_partitions_leave_in_one_request() -> None:
    scene = Scene()
    scene.produce([(0, SET), (1, SET), (2, b"")])
    sent = scene.sent()
    assert [numbers_of(sent, index) for index in (0, 1)] == [(101, 0, 0)] * 2
    scene.reply(sent, (0, NONE, 5), (1, TOO_LARGE, -1))
    assert scene.sent()  # the first half

    assert not scene.machine.is_idle


def test_a_large_batch_is_sent_like_a_small_one() -> None:
    scene = Scene()
    large = encode_set([(None, bytes(3 << 20), 5)], magic=1)
    for sequence in range(2):
        scene.produce([(0, large), (1, SET)])
        sent = scene.take(SendProduce)
        assert [numbers_of(one) for one in sent] == [(101, 0, 2 * sequence), (101, 0, sequence)]
        scene.reply(sent[0], (1, NONE, 5))
        scene.reply(sent[1], (0, NONE, 6))
        assert scene.answer() == {(TOPIC, 0): (NONE, 6), (TOPIC, 1): (NONE, 5)}


def test_a_large_batch_after_a_gap_gets_its_new_epoch() -> None:
    scene = Scene(runs_steps=False)
    scene.produce([(0, encode_set([(None, bytes(3 << 20), 5)], magic=1)), (1, SET)])
    (raised,) = scene.take(RunSteps)
    scene.do(scene.machine.worked(raised.number, at_once(raised.start()), scene.now))
    (numbered,) = scene.take(RunSteps)
    scene.reply(scene.sent(), (1, GAP, -1))
    scene.runs_steps = True
    scene.do(scene.machine.worked(numbered.number, at_once(numbered.start()), scene.now))

    assert [numbers_of(one) for one in scene.take(SendProduce)] == [(101, 1, 0)] * 2


# ---------------------------------------------------------------------- what is sent again
def test_after_a_lost_answer_the_same_bytes_are_sent_again() -> None:
    scene = Scene()
    scene.produce()
    first = scene.sent()
    scene.lose()
    assert not scene.take(SendProduce)
    again = scene.wait_until_sent()

    assert request_of(again).partitions[0].records == request_of(first).partitions[0].records
    scene.reply(again, (0, NONE, 3))
    assert scene.answer() == {(TOPIC, 0): (NONE, 3)}


@pytest.mark.parametrize("code", [NOT_ENOUGH_REPLICAS, TIMED_OUT, AFTER_APPEND, -1, 14, 89])
def test_what_passes_is_not_shown_to_the_client(code: int) -> None:
    scene = Scene()
    scene.produce()
    first = scene.sent()
    scene.reply(first, (0, code, -1))
    again = scene.wait_until_sent()
    assert numbers_of(again) == numbers_of(first)
    scene.reply(again, (0, NONE, 3))

    assert scene.code() == NONE


@pytest.mark.parametrize(
    ("code", "expected"),
    [(NOT_ENOUGH_REPLICAS, NOT_LEADER), (14, NOT_LEADER), (TIMED_OUT, TIMED_OUT), (AFTER_APPEND, TIMED_OUT)],
)
def test_at_three_quarters_of_the_timeout_the_client_is_to_come_again(code: int, expected: int) -> None:
    scene = Scene()
    scene.produce()
    tries = 0
    while not scene.machine.is_idle:
        for sent in scene.take(SendProduce):
            tries += 1
            scene.reply(sent, (0, code, -1))
        if not scene.machine.is_idle:
            scene.wait()

    assert tries > 3
    assert scene.now == DEADLINE
    assert scene.code() == expected


def test_a_broker_that_says_nothing_is_disconnected_and_asked_again() -> None:
    scene = Scene()
    scene.produce()
    first = scene.sent()
    again = scene.wait_until_sent()
    assert 4.9 < scene.now < DEADLINE
    assert scene.take(DisconnectBroker) == [DisconnectBroker(HOME)]
    assert numbers_of(again) == numbers_of(first)
    scene.reply(first, (0, NONE, 3))  # comes late, and is ignored
    assert not scene.machine.is_idle
    while not scene.machine.is_idle:
        scene.wait()

    assert scene.code() == TIMED_OUT


def test_the_broker_waits_for_its_replicas_less_long_than_the_client() -> None:
    scene = Scene()
    scene.produce()

    assert request_of(scene.sent()).timeout_ms == 4000


@pytest.mark.parametrize(("timeout_ms", "deadline"), [(0, 0.75), (-1, 0.75), (2_000, 1.5), (2**31 - 1, 90.0)])
def test_a_request_ends_at_three_quarters_of_its_timeout_within_limits(timeout_ms: int, deadline: float) -> None:
    scene = Scene(gives_ids=False)
    scene.produce(timeout=timeout_ms)
    while not scene.machine.is_idle:
        scene.wait()

    assert scene.now == deadline
    assert scene.code() == NOT_LEADER


# ---------------------------------------------------------------------- leaders
@pytest.mark.parametrize("code", [NOT_LEADER, UNKNOWN_TOPIC, 5])
def test_that_another_broker_leads_goes_to_the_client_at_once(code: int) -> None:
    scene = Scene()
    scene.produce()
    scene.reply(scene.sent(), (0, code, -1))

    assert scene.now == 0
    assert scene.code() == code
    assert not scene.take(AskLeaders)


def test_a_broker_that_cannot_be_reached_is_another_one_to_the_client() -> None:
    scene = Scene()
    scene.produce()
    scene.sent()
    scene.lose(was_sent=False)

    assert scene.now == 0
    assert scene.code() == NOT_LEADER


def test_a_set_that_may_be_in_the_log_follows_the_leader() -> None:
    scene = Scene()
    scene.produce()
    first = scene.sent()
    scene.lose()
    scene.learn(OTHER)
    again = scene.wait_until_sent()
    assert again.broker == OTHER
    assert numbers_of(again) == numbers_of(first)
    scene.reply(again, (0, NONE, 3))

    assert scene.code() == NONE


def test_the_rest_of_a_set_follows_the_leader() -> None:
    scene = Scene()
    scene.shared.limits.refused(TOPIC, BATCH_BYTES_MIN)
    scene.produce([(0, encode_set([(None, b"x" * 400, 1)] * 2, magic=1))])
    scene.reply(scene.sent(), (0, NONE, 7))
    second = scene.sent()
    assert numbers_of(second) == (101, 0, 1)
    scene.reply(second, (0, NOT_LEADER, -1))
    assert not scene.machine.is_idle
    scene.learn(OTHER)
    again = scene.wait_until_sent()
    assert again.broker == OTHER
    scene.reply(again, (0, NONE, 9))

    assert scene.answer() == {(TOPIC, 0): (NONE, 7)}


def test_a_set_that_is_in_the_log_in_part_is_not_reported_as_absent() -> None:
    scene = Scene()
    scene.shared.limits.refused(TOPIC, BATCH_BYTES_MIN)
    scene.produce([(0, encode_set([(None, b"x" * 400, 1)] * 2, magic=1))])
    scene.reply(scene.sent(), (0, NONE, 7))
    while not scene.machine.is_idle:
        for sent in scene.take(SendProduce):
            scene.reply(sent, (0, NOT_ENOUGH_REPLICAS, -1))
        if not scene.machine.is_idle:
            scene.wait()

    assert scene.answer() == {(TOPIC, 0): (TIMED_OUT, -1)}


@pytest.mark.parametrize(
    ("code", "expected"), [(INVALID_RECORD, ErrorCode.UNKNOWN_SERVER_ERROR), (TOO_LARGE, TOO_LARGE), (32, 32)]
)
def test_a_set_in_the_log_in_part_gets_no_code_that_clients_retry(code: int, expected: int) -> None:
    scene = Scene()
    scene.shared.limits.refused(TOPIC, BATCH_BYTES_MIN)
    scene.produce([(0, encode_set([(None, b"x" * 400, 1)] * 2, magic=1))])
    scene.reply(scene.sent(), (0, NONE, 7))
    scene.reply(scene.sent(), (0, code, -1))

    assert scene.answer() == {(TOPIC, 0): (expected, -1)}


# ---------------------------------------------------------------------- refusals
@pytest.mark.parametrize(("code", "expected"), [(INVALID_RECORD, CORRUPT), (29, 29), (32, 32), (TOO_LARGE, TOO_LARGE)])
def test_a_refusal_goes_to_its_set_alone_and_leaves_no_gap(code: int, expected: int) -> None:
    scene = Scene()
    one = encode_set([(None, b"v", 5)], magic=1)
    scene.produce([(0, one), (1, one)])
    scene.reply(scene.sent(), (0, code, -1), (1, NONE, 8))
    assert scene.answer() == {(TOPIC, 0): (expected, -1), (TOPIC, 1): (NONE, 8)}

    scene.produce([(0, one), (1, one)])
    sent = scene.sent()
    assert [numbers_of(sent, index) for index in (0, 1)] == [(101, 0, 0), (101, 0, 1)]


def test_a_refusal_after_a_lost_answer_may_hide_an_append() -> None:
    scene = Scene()
    scene.produce()
    scene.sent()
    scene.lose()
    scene.reply(scene.wait_until_sent(), (0, INVALID_RECORD, -1))

    assert scene.code() == TIMED_OUT


def test_a_batch_that_is_too_large_is_split_until_it_fits() -> None:
    scene = Scene()
    records = [(None, b"%d" % number * 20, number) for number in range(100)]
    scene.produce([(0, encode_set(records, magic=1))])
    offset = sequence = 0
    largest = 2_000
    while not scene.machine.is_idle:
        sent = scene.sent()
        header = header_of(sent)
        if header.size_bytes > largest:
            scene.reply(sent, (0, TOO_LARGE, -1))
            continue
        assert numbers_of(sent) == (101, 0, sequence)
        sequence += header.record_count
        scene.reply(sent, (0, NONE, offset))
        offset += header.record_count

    assert sequence == 100
    assert scene.answer() == {(TOPIC, 0): (NONE, 0)}
    assert largest / 3 < scene.shared.limits.batch_bytes_max(TOPIC) <= largest
    assert scene.shared.limits.batch_bytes_max("another") > largest


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
def test_a_batch_that_is_too_large_and_no_records_is_refused(codec: Codec) -> None:
    scene = Scene()
    scene.produce([(0, batch_of(b"\x7f" * 3_000, 100, 5, attributes=codec)), (1, SET)])
    scene.reply(scene.sent(), (0, TOO_LARGE, -1), (1, NONE, 5))

    assert scene.answer() == {(TOPIC, 0): (TOO_LARGE, -1), (TOPIC, 1): (NONE, 5)}


def test_one_record_that_is_too_large_is_refused_and_changes_no_limit() -> None:
    scene = Scene()
    before = scene.shared.limits.batch_bytes_max(TOPIC)
    scene.produce([(0, encode_set([(None, b"v" * 3000, 5)], magic=1))])
    scene.reply(scene.sent(), (0, TOO_LARGE, -1))

    assert scene.code() == TOO_LARGE
    assert scene.shared.limits.batch_bytes_max(TOPIC) == before


# ---------------------------------------------------------------------- sequences that a broker does not take
@pytest.mark.parametrize("code", [GAP, 59])
def test_a_batch_behind_a_lost_one_continues_in_the_next_epoch(code: int) -> None:
    scene = Scene()
    scene.produce()
    scene.reply(scene.sent(), (0, NONE, 5))
    scene.answer()
    scene.produce([(0, SET), (1, SET)])
    scene.reply(scene.sent(), (0, code, -1), (1, NONE, 1))
    again = scene.sent()
    assert numbers_of(again) == (101, 1, 0)
    assert [one.partition for one in request_of(again).partitions] == [0]
    scene.reply(again, (0, NONE, 5))
    assert scene.answer() == {(TOPIC, 0): (NONE, 5), (TOPIC, 1): (NONE, 1)}

    scene.produce([(0, SET), (1, SET)])
    sent = scene.sent()
    assert [numbers_of(sent, index) for index in (0, 1)] == [(101, 1, 2), (101, 1, 0)]


def test_a_fenced_id_is_used_no_more() -> None:
    scene = Scene()
    scene.produce([(0, SET), (1, SET)])
    scene.reply(scene.sent(), (0, OLD_EPOCH, -1), (1, NONE, 3))
    again = scene.sent()
    assert numbers_of(again) == (102, 0, 0)
    scene.reply(again, (0, NONE, 5))

    assert scene.answer() == {(TOPIC, 0): (NONE, 5), (TOPIC, 1): (NONE, 3)}
    assert scene.shared.pool.known == 1


def test_a_batch_that_may_be_in_the_log_is_not_written_under_another_id() -> None:
    scene = Scene()
    scene.produce([(0, SET), (1, SET)])
    scene.reply(scene.sent(), (1, NONE, 3))
    scene.reply(scene.wait_until_sent(), (0, OLD_EPOCH, -1))

    assert scene.answer() == {(TOPIC, 0): (TIMED_OUT, -1), (TOPIC, 1): (NONE, 3)}
    assert scene.shared.pool.known == 0


def test_a_batch_whose_answer_is_overdue_once_its_id_is_fenced_has_an_unknown_outcome() -> None:
    scene = Scene()
    scene.produce([(0, encode_set([(None, bytes(3 << 20), 5)], magic=1)), (1, SET)])
    _, small = sorted(scene.take(SendProduce), key=lambda one: request_of(one).partitions[0].partition)
    scene.now = 1.0
    scene.reply(small, (1, OLD_EPOCH, -1))
    assert not scene.take(AskProducerId)
    while not scene.machine.is_idle:
        for sent in scene.take(SendProduce):
            assert [one.partition for one in request_of(sent).partitions] == [1]
            assert numbers_of(sent) == (102, 0, 0)
            scene.reply(sent, (1, NONE, 9))
        if not scene.machine.is_idle:
            scene.wait()

    assert scene.now < DEADLINE
    assert scene.answer() == {(TOPIC, 0): (TIMED_OUT, -1), (TOPIC, 1): (NONE, 9)}


def test_a_broker_that_takes_no_sequence_ends_the_request() -> None:
    scene = Scene()
    scene.produce()
    for epoch in range(RENEWALS_MAX + 1):
        sent = scene.sent()
        assert numbers_of(sent) == (101, epoch, 0)
        scene.reply(sent, (0, GAP, -1))

    assert scene.code() == ErrorCode.UNKNOWN_SERVER_ERROR


CODES = range(-1, 150)


@pytest.mark.parametrize("base_offset", [-1, 0])
@pytest.mark.parametrize("is_doubtful", [False, True])
@pytest.mark.parametrize("code", CODES)
def test_whatever_the_broker_answers_the_client_knows_the_code_in_time(
    code: int, is_doubtful: bool, base_offset: int
) -> None:
    scene = Scene()
    scene.produce([(0, SET), (1, SET)])
    if is_doubtful:
        scene.lose()
    while not scene.machine.is_idle:
        for sent in scene.take(SendProduce):
            parts = [one.partition for one in request_of(sent).partitions]
            scene.reply(sent, *((one, NONE, 5) if one else (0, code, base_offset) for one in parts))
        scene.take(AskLeaders)
        if not scene.machine.is_idle:
            scene.wait()

    assert scene.now <= DEADLINE
    answer = scene.answer()
    assert -1 <= answer[TOPIC, 0][0] <= 44
    assert answer[TOPIC, 0][0] not in (35, NOT_ENOUGH_REPLICAS, AFTER_APPEND)
    assert (answer[TOPIC, 0][0] == NONE) == (code in (NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER))
    assert answer[TOPIC, 1][0] == NONE, "another set has nothing to do with it"


@pytest.mark.parametrize("code", [code for code in CODES if code])
def test_whatever_the_broker_answers_to_the_question_for_an_id_the_client_knows_the_code(code: int) -> None:
    scene = Scene(gives_ids=False)
    scene.produce()
    while not scene.machine.is_idle:
        for _ in scene.take(AskProducerId):
            scene.do(scene.machine.answered_id(_GIVEN_ID.pack(0, code, -1, -1), scene.now))
        if not scene.machine.is_idle:
            scene.wait()

    assert scene.now <= DEADLINE
    assert -1 <= scene.code() <= 44
    assert scene.shared.pool.known == 0


# ---------------------------------------------------------------------- producer ids
@pytest.mark.parametrize("code", [14, 15, 16, 41, 51])
def test_a_broker_that_gives_no_id_yet_is_asked_again(code: int) -> None:
    scene = Scene(gives_ids=False)
    scene.produce()
    (asked,) = scene.take(AskProducerId)
    assert asked.broker == HOME
    scene.do(scene.machine.answered_id(_GIVEN_ID.pack(0, code, -1, -1), scene.now))
    assert not scene.take(AskProducerId)
    scene.gives_ids = True

    assert numbers_of(scene.wait_until_sent()) == (101, 0, 0)


@pytest.mark.parametrize(("code", "expected"), [(31, 31), (29, 29), (35, 42), (-1, -1)])
def test_a_broker_that_gives_no_id_at_all_refuses_the_request(code: int, expected: int) -> None:
    scene = Scene(gives_ids=False)
    scene.produce()
    scene.do(scene.machine.answered_id(_GIVEN_ID.pack(0, code, -1, -1), scene.now))

    assert scene.code() == expected
    assert scene.shared.pool.known == 0


@pytest.mark.parametrize(("number", "epoch"), [(-1, -1), (5, -1), (-1, 0)])
def test_a_broker_that_gives_an_id_or_epoch_below_0_refuses_the_request(number: int, epoch: int) -> None:
    scene = Scene(gives_ids=False)
    scene.produce()
    scene.do(scene.machine.answered_id(_GIVEN_ID.pack(0, 0, number, epoch), scene.now))

    assert scene.code() == ErrorCode.UNKNOWN_SERVER_ERROR


def test_a_lost_connection_ends_the_question_for_an_id() -> None:
    scene = Scene(gives_ids=False)
    scene.produce()
    scene.take(AskProducerId)
    scene.lose()
    assert scene.shared.pool.known == 0
    scene.gives_ids = True
    assert scene.wait_until_sent()

    late = Scene(gives_ids=False)
    late.produce()
    late.lose(was_sent=False)
    assert late.code() == NOT_LEADER


def test_requests_wait_for_an_id_where_there_are_no_more() -> None:
    shared = Shared(ids_max=1)
    first, second = Scene(shared), Scene(shared, client="another")
    first.produce()
    second.produce()
    assert not second.take(SendProduce)
    first.reply(first.sent(), (0, NONE, 1))
    assert second.is_woken
    second.do(second.machine.woken(second.now))

    assert numbers_of(second.sent()) == (101, 0, 2)


def test_after_an_unknown_outcome_the_connection_continues_in_the_next_epoch() -> None:
    scene = Scene()
    scene.produce()
    while not scene.machine.is_idle:
        scene.wait()
    assert scene.code() == TIMED_OUT
    scene.effects.clear()
    scene.produce()

    assert numbers_of(scene.sent()) == (101, 1, 0)


def test_where_batches_may_arrive_under_two_ids_each_is_followed_under_its_own() -> None:
    shared = Shared()
    first, second, both = Scene(shared), Scene(shared), Scene(shared)
    for number, scene in enumerate((first, second)):
        scene.produce([(number, SET)])
    for scene in (first, second):
        while not scene.machine.is_idle:
            scene.wait()
        assert scene.code() == TIMED_OUT
    both.produce([(0, SET), (1, SET), (2, SET)])
    sent = both.sent()
    assert [one.partition for one in request_of(sent).partitions] == [0, 2]
    assert {numbers_of(sent, index) for index in (0, 1)} == {(101, 1, 0)}
    both.reply(sent, (0, NONE, 5), (2, NONE, 6))
    sent = both.sent()
    assert [one.partition for one in request_of(sent).partitions] == [1]
    assert numbers_of(sent) == (102, 1, 0)
    both.reply(sent, (1, NONE, 7))

    assert both.answer() == {(TOPIC, 0): (NONE, 5), (TOPIC, 1): (NONE, 7), (TOPIC, 2): (NONE, 6)}
    both.produce([(0, SET), (1, SET)])
    sent = both.sent()
    assert [one.partition for one in request_of(sent).partitions] == [0, 1], "all of them have arrived by now"


def test_an_id_under_which_nothing_may_be_written_by_the_time_it_is_given_is_left_to_others() -> None:
    shared = Shared()
    first, second = Scene(shared), Scene(shared, gives_ids=False)
    first.produce()
    second.produce(timeout=100_000)
    assert second.take(AskProducerId)
    while not first.machine.is_idle:
        first.wait()
    assert first.code() == TIMED_OUT
    second.do(second.machine.answered_id(_GIVEN_ID.pack(0, 0, 102, 0), first.now))

    assert numbers_of(second.sent()) == (101, 1, 0)
    assert 102 in shared.pool._idle


# ---------------------------------------------------------------------- clients that leave
def test_a_client_that_connects_again_waits_for_the_outcome() -> None:
    shared = Shared()
    old, new = Scene(shared), Scene(shared)
    old.produce()
    sent = old.sent()
    old.do(old.machine.left(old.now))
    new.produce()
    assert not new.take(SendProduce)
    old.reply(sent, (0, NONE, 1))
    assert old.machine.is_idle
    assert not old.take(AnswerClient)
    assert new.is_woken
    new.do(new.machine.woken(new.now))

    assert numbers_of(new.sent()) == (101, 0, 2)


def test_a_client_does_not_wait_for_connections_that_end_while_it_waits() -> None:
    shared = Shared()
    old, new, later = Scene(shared), Scene(shared), Scene(shared)
    old.produce()
    sent = old.sent()
    old.do(old.machine.left(old.now))
    new.produce()
    later.produce([(1, SET)], acks=0)
    later.do(later.machine.left(later.now))
    old.reply(sent, (0, NONE, 1))
    assert shared.departed.are_open
    new.do(new.machine.woken(new.now))

    assert new.sent()


def test_a_client_does_not_wait_longer_than_its_own_request_allows() -> None:
    shared = Shared()
    old, new = Scene(shared), Scene(shared)
    old.produce(timeout=100_000)
    old.do(old.machine.left(old.now))
    new.produce()
    while not new.machine.is_idle:
        new.wait()

    assert new.now == DEADLINE
    assert new.code() == NOT_LEADER


def test_a_batch_of_a_client_that_has_left_is_not_written_if_it_is_absent() -> None:
    shared = Shared()
    old, new = Scene(shared), Scene(shared)
    old.produce()
    old.reply(old.sent(), (0, NONE, 1))
    old.answer()
    old.produce()
    sent = old.sent()
    old.do(old.machine.left(old.now))
    new.produce()
    old.reply(sent, (0, GAP, -1))
    assert old.machine.is_idle
    assert not old.take(SendProduce)
    assert new.is_woken
    new.do(new.machine.woken(new.now))

    assert numbers_of(new.sent()) == (101, 1, 0)


@pytest.mark.parametrize(("acks", "is_repeated"), [(-1, False), (0, True)])
def test_a_batch_that_is_not_taken_for_now_is_not_repeated_once_its_client_has_left(
    acks: int, is_repeated: bool
) -> None:
    """The client's own retry would be there as well."""
    shared = Shared()
    old, new = Scene(shared), Scene(shared)
    old.produce(acks=acks)
    sent = old.sent()
    old.do(old.machine.left(old.now))
    new.produce()
    old.reply(sent, (0, NOT_ENOUGH_REPLICAS, -1))
    assert old.machine.is_idle != is_repeated

    assert new.is_woken != is_repeated


@pytest.mark.parametrize("code", [TIMED_OUT, AFTER_APPEND])
def test_a_batch_that_may_be_in_the_log_is_repeated_though_its_client_has_left(code: int) -> None:
    scene = Scene()
    scene.produce()
    sent = scene.sent()
    scene.do(scene.machine.left(scene.now))
    scene.reply(sent, (0, code, -1))

    assert numbers_of(scene.wait_until_sent()) == numbers_of(sent)


def test_what_wants_no_answer_is_sent_after_its_client_has_left_once_an_earlier_connection_has_its_outcome() -> None:
    shared = Shared()
    first, second = Scene(shared), Scene(shared)
    first.produce()
    sent = first.sent()
    first.do(first.machine.left(first.now))
    second.produce(acks=0)
    second.do(second.machine.left(second.now))
    assert not second.take(SendProduce)
    first.reply(sent, (0, NONE, 1))
    assert second.is_woken
    second.do(second.machine.woken(second.now))

    assert numbers_of(second.sent()) == (101, 0, 2)


def test_all_that_a_client_has_left_comes_before_what_its_next_connection_has_left() -> None:
    shared = Shared()
    first, second = Scene(shared), Scene(shared)
    first.produce(acks=0)
    sent = first.sent()
    first.do(first.machine.left(first.now, leaves_more=True))
    second.produce(acks=0)
    second.do(second.machine.left(second.now))
    first.reply(sent, (0, NONE, 1))
    assert not second.is_woken
    first.produce(acks=0)
    first.machine.leaves_no_more()
    sent = first.sent()
    assert not second.is_woken
    first.reply(sent, (0, NONE, 3))
    assert second.is_woken
    second.do(second.machine.woken(second.now))

    assert numbers_of(second.sent()) == (101, 0, 4)


def test_a_client_of_which_nothing_more_is_begun_is_not_waited_for() -> None:
    scene = Scene()
    scene.do(scene.machine.left(scene.now, leaves_more=True))
    assert scene.shared.departed.are_open
    scene.machine.leaves_no_more()

    assert not scene.shared.departed.are_open


def test_who_waits_for_an_earlier_connection_takes_no_turn_of_those_that_wait_for_an_id() -> None:
    shared = Shared(ids_max=1)
    owner, waiting, last = Scene(shared, client="a"), Scene(shared, client="b"), Scene(shared, client="c")
    earlier = Scene(shared, client="b", runs_steps=False)
    earlier.produce(acks=0)
    owner.produce()
    waiting.produce()
    last.produce()
    earlier.do(earlier.machine.left(earlier.now))
    owner.reply(owner.sent(), (0, NONE, 1))
    assert waiting.is_woken
    waiting.do(waiting.machine.woken(waiting.now))
    assert not waiting.take(SendProduce)

    assert last.is_woken


def test_of_a_client_that_has_left_nothing_more_is_begun() -> None:
    scene = Scene()
    scene.shared.limits.refused(TOPIC, BATCH_BYTES_MIN)
    scene.produce([(0, encode_set([(None, b"x" * 400, 1)] * 2, magic=1))])
    sent = scene.sent()
    scene.do(scene.machine.left(scene.now))
    scene.reply(sent, (0, NONE, 7))

    assert scene.machine.is_idle
    assert not scene.take(SendProduce)


def test_without_acks_all_is_sent_also_after_the_client_has_left() -> None:
    scene = Scene()
    scene.shared.limits.refused(TOPIC, BATCH_BYTES_MIN)
    scene.produce([(0, encode_set([(None, b"x" * 400, 1)] * 2, magic=1))], acks=0)
    first = scene.sent()
    scene.do(scene.machine.left(scene.now))
    scene.reply(first, (0, NONE, 7))
    scene.reply(scene.sent(), (0, NONE, 8))
    assert scene.machine.is_idle
    scene.produce(acks=0)

    assert scene.sent()


@pytest.mark.parametrize(("acks", "is_split"), [(0, True), (1, False)])
def test_a_batch_that_is_too_large_is_split_also_after_its_client_has_left_if_it_wants_no_answer(
    acks: int, is_split: bool
) -> None:
    scene = Scene()
    scene.produce(acks=acks)
    sent = scene.sent()
    scene.do(scene.machine.left(scene.now))
    scene.reply(sent, (0, TOO_LARGE, -1))

    assert bool(scene.take(SendProduce)) == is_split
    assert not scene.take(CloseClient)


def test_what_a_client_has_out_is_sent_again_after_it_has_left() -> None:
    shared = Shared()
    old, new = Scene(shared), Scene(shared)
    old.produce()
    first = old.sent()
    old.do(old.machine.left(old.now))
    old.lose()
    assert shared.departed.has_open_before(ClientIdentity("10.0.0.1", "old"), new.machine, shared.departed.count)
    again = old.wait_until_sent()
    assert numbers_of(again) == numbers_of(first)
    while not old.machine.is_idle:
        old.wait()
    new.produce()

    assert numbers_of(new.sent()) == (101, 1, 0), "a late batch is refused after this one"


@pytest.mark.parametrize("is_known", [False, True])
def test_a_client_that_leaves_before_anything_was_sent_ends_at_once(is_known: bool) -> None:
    scene = Scene(gives_ids=False, runs_steps=is_known)
    scene.produce()
    scene.do(scene.machine.left(scene.now))

    assert scene.machine.is_idle
    assert scene.shared.pool.known == 0
    assert not scene.shared.departed.are_open


# ---------------------------------------------------------------------- what comes too late
def test_steps_of_a_request_that_has_ended_are_ignored() -> None:
    scene = Scene(runs_steps=False)
    scene.produce()
    (old,) = scene.take(RunSteps)
    scene.now = DEADLINE
    scene.do(scene.machine.woken(scene.now))
    assert scene.code() == NOT_LEADER
    scene.produce()
    (new,) = scene.take(RunSteps)
    scene.do(scene.machine.worked(old.number, at_once(old.start()), scene.now))
    assert not scene.take(SendProduce)
    scene.do(scene.machine.worked(new.number, at_once(new.start()), scene.now))

    assert scene.sent()


def test_answers_that_nobody_waits_for_are_ignored() -> None:
    scene = Scene()
    assert scene.machine.answered(7, b"", scene.now) == []
    assert scene.machine.answered_id(b"", scene.now) == []
    assert scene.machine.lost(HOME, scene.now) == []
    assert scene.machine.learned([TOPIC], Cluster({}, {}, {}, {}), scene.now) == []
    assert scene.machine.not_learned(scene.now) == []
    assert scene.machine.woken(scene.now) == []


@pytest.mark.parametrize("body", [b"", b"\0" * 5, b"\0\0\0\1"])
def test_an_answer_that_cannot_be_read_is_a_lost_one(body: bytes) -> None:
    scene = Scene()
    scene.produce()
    first = scene.sent()
    scene.do(scene.machine.answered(first.number, body, scene.now))
    assert scene.take(DisconnectBroker) == [DisconnectBroker(HOME)]

    assert numbers_of(scene.wait_until_sent()) == numbers_of(first)


def test_a_partition_that_is_not_answered_is_sent_again() -> None:
    scene = Scene()
    scene.produce([(0, SET), (1, SET)])
    scene.reply(scene.sent(), (0, NONE, 1))
    again = scene.wait_until_sent()
    assert [one.partition for one in request_of(again).partitions] == [1]
    scene.reply(again, (1, NONE, 2))

    assert scene.answer() == {(TOPIC, 0): (NONE, 1), (TOPIC, 1): (NONE, 2)}

"""The door of conditional topics: who is let in, and at which offset a batch says that it has to be (rule R23)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from idemproxy.codecs.compression import Codec
from idemproxy.codecs.errors import Malformed
from idemproxy.codecs.message_set import encode_set
from idemproxy.codecs.record_batch import FOLLOWS, Record, encode_batch, parse_single_batch
from idemproxy.codecs.steps import Steps, at_once
from idemproxy.proxy.admission.memory_budget import MemoryBudget
from idemproxy.proxy.producer.batch import Answer, Batch
from idemproxy.proxy.session.conditional_topics import ConditionalTopics, reading_expected_offset
from idemproxy.proxy.session.produce import Part
from idemproxy.proxy.session.routing import BatchKind, Way
from idemproxy.proxy.session.sweeper import Sweepable
from idemproxy.proxy.settings.config import Caps
from idemproxy.state.conditional import Ahead
from idemproxy.state.entry import NO_PRINCIPAL
from idemproxy.state.producer_ids import CONDITIONAL_ID
from testkit.stage.door import DoorClient, call_of, code_of, way_by_proxy
from testkit.virtual.broker_faults import BrokerFault
from testkit.virtual.named_scene import NamedScene
from testkit.virtual.world import TOPIC

CONDITIONAL_PARTITION, OTHER = "wal-1", "orders"
NOT_CONDITIONAL, NO_CONDITIONAL_PARTITION, FENCED, INVALID = 44, 17, 47, 42


class Door:
    """What is around a request: topics with one partition, and what came through."""

    is_draining = False
    reactor: Any = None
    conditional_topics = ConditionalTopics(["wal-*"])

    def way_of(self, topic: str, kind: BatchKind) -> Way | Answer:
        return way_by_proxy(self.conditional_topics, topic, kind)

    def __init__(self) -> None:
        self.memory = MemoryBudget(Caps())
        self.taken: list[tuple[int, Batch]] = []
        self.events: list[object] = []

    def now(self) -> float:
        return 0.0

    def known_sequencer(self, _key: object) -> None:
        """Each producer is a new one."""

    def sequencer(self, producer_id: int, _topic: str, _partition: int) -> Any:
        return Taker(self, producer_id)

    def has_partition(self, _topic: str, _partition: int) -> bool:
        return True

    def look_for_topic(self, _topic: str, _done: Callable[[], None]) -> None:
        raise AssertionError

    def sweep(self, call: Sweepable, parts: Sequence[Part]) -> None:
        """Nobody's time is up here."""

    def swept(self, call: Sweepable) -> None:
        """As above."""

    def report(self, event: object) -> None:
        self.events.append(event)

    def send(
        self, topic: str, records: bytes, *, acks: int = -1, version: int = 3, client: DoorClient | None = None
    ) -> int | None:
        """Send one batch; the code of its answer, None if it is on its way."""
        call = call_of(self, client or DoorClient(), [(topic, 0, records)], acks=acks, version=version)
        call.begin()
        return code_of(call, topic)


class Taker:
    def __init__(self, door: Door, producer_id: int) -> None:
        self._door, self._producer_id = door, producer_id

    def enqueue(self, batch: Batch) -> None:
        self._door.taken.append((self._producer_id, batch))


@pytest.fixture
def door() -> Door:
    return Door()


def batch(count: int = 1, *expected: bytes | None, codec: Codec = Codec.NONE, **numbers: int) -> bytes:
    """``expected``: the header of each record."""
    headers = [(("expected-offset", one),) for one in expected] + [()] * (count - len(expected))
    records = [Record(index, 0, None, b"%d" % index, headers[index]) for index in range(count)]
    return encode_batch(records, codec=codec, **numbers)


def by_sequence(sequence: int, epoch: int = 0) -> bytes:
    return batch(producer_id=CONDITIONAL_ID, producer_epoch=epoch, base_sequence=sequence)


def test_who_is_not_conditional_is_refused(door: Door) -> None:
    client = DoorClient()
    batch_of_another = batch(producer_id=7, producer_epoch=0, base_sequence=0)
    assert door.send(CONDITIONAL_PARTITION, batch(), client=client) == NOT_CONDITIONAL
    assert door.send(CONDITIONAL_PARTITION, batch_of_another, client=client) == NOT_CONDITIONAL
    assert (
        door.send(CONDITIONAL_PARTITION, encode_set([(None, b"old", 0)], magic=1), version=2, client=client)
        == NOT_CONDITIONAL
    )
    assert door.send(CONDITIONAL_PARTITION, batch(2, b"5"), version=3, client=client) == INVALID, (
        "only the first record says it"
    )
    assert (door.taken, client.plain) == ([], [])
    assert len(door.events) == 4


def test_other_topics_take_any_producer_but_no_conditional_batch(door: Door) -> None:
    client = DoorClient()
    assert door.send(OTHER, batch(), client=client) is None
    assert door.send(OTHER, batch(producer_id=7, producer_epoch=0, base_sequence=0)) is None
    assert (len(client.plain), [producer_id for producer_id, _ in door.taken]) == (1, [7])
    assert door.send(OTHER, by_sequence(0)) == NO_CONDITIONAL_PARTITION


def test_a_producer_name_older_than_its_conditional_topic_is_always_refused() -> None:
    """What it has left open is found out for somebody who asks where producers stopped: so it is known at the proxy,
    and its requests could be taken by their bytes."""
    scene = NamedScene()
    world, net = scene.world, scene.network
    client = scene.instance()
    scene.send(client)
    world.cluster.choose_fault = lambda _seen: BrokerFault.LOST_REQUEST
    client.send(TOPIC, 0)
    net.run(2.0)
    for proxy in world.proxies:
        proxy.crash(down_seconds=None)
        proxy._is_conditional = True
    client.close()
    world.cluster.choose_fault = lambda _seen: BrokerFault.NONE
    for proxy in world.proxies:
        proxy.start()
    net.run(20.0)
    engine = world.proxies[0].engine
    told: list[object] = []
    engine.describe_producers([(TOPIC, 0)], NO_PRINCIPAL, told.append)
    assert net.run(30.0, lambda: bool(told))
    assert engine.known_sequencer((client.producer.producer_id, TOPIC, 0)) is not None
    stored = scene.stored()
    again = scene.instance()
    assert [scene.codes(scene.send(again)) for _ in range(3)] == [[NOT_CONDITIONAL]] * 3
    assert scene.stored() == stored


def test_nobody_raises_the_epoch(door: Door) -> None:
    assert door.send(CONDITIONAL_PARTITION, by_sequence(0, epoch=1)) == FENCED
    assert door.taken == []


def test_a_conditional_partition_belongs_to_all_who_may_write_to_it(door: Door) -> None:
    door.send(CONDITIONAL_PARTITION, by_sequence(5))
    ((producer_id, taken),) = door.taken
    assert (producer_id, taken.identity.base_sequence, taken.principal) == (CONDITIONAL_ID, 5, NO_PRINCIPAL)


@pytest.mark.parametrize("numbers", [{}, {"producer_id": 7, "producer_epoch": 3, "base_sequence": 11}])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_a_header_says_it_for_clients_that_number_their_batches_themselves(
    door: Door, numbers: dict[str, int], codec: Codec
) -> None:
    offset = 2**31 + 5
    assert (
        door.send(CONDITIONAL_PARTITION, batch(2, b"%d" % offset, b"%d" % (offset + 1), codec=codec, **numbers)) is None
    )
    ((producer_id, taken),) = door.taken
    assert (producer_id, taken.expected_offset) == (CONDITIONAL_ID, offset)
    assert (taken.identity.producer_epoch, taken.identity.base_sequence, taken.identity.record_count) == (0, 5, 2)


def test_an_answer_is_wanted_of_who_says_it_in_a_header(door: Door) -> None:
    assert door.send(CONDITIONAL_PARTITION, batch(1, b"0"), acks=1) is None
    assert door.send(CONDITIONAL_PARTITION, batch(1, b"0"), acks=2) == 21


@pytest.mark.parametrize(
    "said", [None, b"", b"-1", b"+1", b"01", b"1.0", b" 1", b"x", b"9223372036854775808", b"1" * 30]
)
def test_what_is_no_offset_is_refused(said: bytes | None) -> None:
    records = memoryview(batch(1, said))
    with pytest.raises(Malformed):
        at_once(reading_expected_offset(records, parse_single_batch(records)))


def test_what_does_not_belong_together_is_refused() -> None:
    for headers in ((b"5", b"5"), (b"5", b"7"), (b"5",)):
        records = memoryview(batch(2, *headers))
        with pytest.raises(Malformed):
            at_once(reading_expected_offset(records, parse_single_batch(records)))


def test_many_records_are_read_in_steps() -> None:
    records = memoryview(batch(5000, *(b"%d" % offset for offset in range(5000))))
    steps = reading_expected_offset(records, parse_single_batch(records))
    assert sum(1 for _ in steps) >= 5


def test_patterns() -> None:
    topics = ConditionalTopics(["wal-*", "one.exactly"])
    assert [topics.has(name) for name in ("wal-", "wal-1", "one.exactly")] == [True] * 3
    assert [topics.has(name) for name in ("a-wal-1", "oneXexactly", "one.exactly.2", "")] == [False] * 4
    assert not ConditionalTopics().has("wal-1")


def test_conditional_partitions_of_one_request_are_read_in_steps(door: Door) -> None:
    count, conditional_partitions = 900, 100
    data = memoryview(batch(count, *(b"%d" % at for at in range(count))))
    steps = 0

    class InSteps(DoorClient):
        def take_in_turns(self, taken: Steps[None]) -> None:
            nonlocal steps
            steps += sum(1 for _ in taken)

    call_of(
        door, InSteps(), [(CONDITIONAL_PARTITION, partition, data) for partition in range(conditional_partitions)]
    ).begin()
    assert len(door.taken) == conditional_partitions
    assert steps >= conditional_partitions - 1, "each is read in steps of its own"


def test_a_batch_that_is_refused_at_once_decides_about_what_follows_it(door: Door) -> None:
    client = DoorClient()
    assert door.send(CONDITIONAL_PARTITION, by_sequence(5), acks=0, client=client) is None, "acks=0 has no answer"
    following = bytearray(by_sequence(6))
    following[12:16] = FOLLOWS.to_bytes(4, "big")
    assert door.send(CONDITIONAL_PARTITION, bytes(following), client=client) is None
    assert [batch.link.ahead for _, batch in door.taken if batch.link is not None] == [Ahead.REFUSED]

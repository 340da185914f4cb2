"""Merging several producers into one wrapper (DESIGN section 7; rules R4, R17, R19): what the lanes put together, and
what each append is told."""

from collections.abc import Callable
from functools import partial

import pytest

from idemproxy.codecs.compression import Codec
from idemproxy.codecs.convert import HeaderPolicy
from idemproxy.codecs.marker import Identity, anchor_of, parse_marker
from idemproxy.codecs.message_set import inner_messages, iterate_shallow
from idemproxy.codecs.record_batch import Record, encode_batch
from idemproxy.proxy import limits
from idemproxy.proxy.broker.lane_pool import LanePool
from idemproxy.proxy.events import AppendMerged, AppendSent
from idemproxy.proxy.flow.effects import Append
from idemproxy.proxy.flow.outcome import Appended, InDoubt, NotSent, Outcome, Refused
from idemproxy.proxy.flow.wrapper import PendingWrapper
from idemproxy.reactor import Address
from testkit.stage.crowd import CALM, producers_of
from testkit.stage.wrappers import to_inner
from testkit.virtual.broker_end import BrokerEnd
from testkit.virtual.network import Network
from testkit.virtual.world import TOPIC

BROKER = 1
ADDRESS: Address = ("kafka", 9092)
NO_LIMIT = 1 << 30
CORRUPT = 2


def parcel(
    producer_id: int, *values: bytes, codec: Codec = Codec.NONE, bytes_max: int = limits.GROUP_BYTES_MAX
) -> PendingWrapper:
    """What one producer's batch becomes."""
    records = [Record(index, 1_700_000_000_000, None, value) for index, value in enumerate(values)]
    data = memoryview(encode_batch(records, producer_id=producer_id, producer_epoch=0, base_sequence=0))
    inner = to_inner([data], policy=HeaderPolicy(), output_bytes_max=NO_LIMIT)
    return PendingWrapper((Identity(producer_id, 0, 0, len(values)),), inner, codec, joined_bytes_max=bytes_max)


class Lanes:
    """A pool of lanes to one broker."""

    def __init__(self) -> None:
        self.network = Network(1, CALM)
        self.ends: list[BrokerEnd] = []
        self.events: list[object] = []
        self.network.listen(self.network.host("kafka"), ADDRESS, self._accept)
        host = self.network.host("proxy")
        self.pool = LanePool(
            host, BROKER, partial(host.connect, ADDRESS), may_send=lambda: True, report=self.events.append
        )
        self.pool.set_usable(True)

    def _accept(self) -> BrokerEnd:
        self.ends.append(BrokerEnd())
        return self.ends[-1]

    def append(
        self, records: PendingWrapper | bytes, *, partition: int = 0, may_send: Callable[[], str | None] = lambda: None
    ) -> list[Outcome]:
        """Ask for an append; what comes of it will be in the list."""
        outcomes: list[Outcome] = []
        names = records.identities if isinstance(records, PendingWrapper) else ()
        self.pool.append(Append(BROKER, TOPIC, partition, records, 30_000, may_send, names), outcomes.append)
        return outcomes

    def run(self, seconds: float = 0.05) -> None:
        self.network.run(seconds)

    @property
    def sent(self) -> list[list[int]]:
        """The producer ids of each wrapper that is out, in the order in which the requests left."""
        return [producers_of(data) for end in self.ends for _, _, data in end.produced]


# ---------------------------------------------------------------------- what goes together
def test_appends_that_wait_together_leave_in_one_wrapper_and_each_is_told_its_own_offset() -> None:
    lanes = Lanes()
    told = [lanes.append(parcel(7, b"a", b"b")), lanes.append(parcel(8, b"c")), lanes.append(parcel(9, b"d", b"e"))]
    lanes.run()
    (end,) = lanes.ends
    ((_, _, message_set),) = end.produced
    (wrapper,) = iterate_shallow(message_set)
    assert parse_marker(wrapper.key) == (Identity(7, 0, 0, 2), Identity(8, 0, 0, 1), Identity(9, 0, 0, 2))
    inner = inner_messages(wrapper, NO_LIMIT)
    assert [(one.offset, bytes(one.value or b"")) for one in inner] == list(enumerate([b"a", b"b", b"c", b"d", b"e"]))
    end.answer_produce(0, 40)
    lanes.run()
    outcomes = [one for (one,) in told]
    assert [one.base_offset for one in outcomes if isinstance(one, Appended)] == [40, 42, 43]
    assert {one.anchor for one in outcomes if isinstance(one, Appended)} == {anchor_of(wrapper)}
    assert sum(isinstance(event, AppendMerged) for event in lanes.events) == 3
    assert sum(isinstance(event, AppendSent) for event in lanes.events) == 3


def test_a_producer_that_may_not_be_sent_any_more_leaves_the_others_alone() -> None:
    lanes = Lanes()
    first = lanes.append(parcel(7, b"a"))
    gone = lanes.append(parcel(8, b"b"), may_send=lambda: "a client has gone")
    last = lanes.append(parcel(9, b"c"))
    lanes.run()
    assert lanes.sent == [[7, 9]]
    assert gone == [NotSent("a client has gone")]
    lanes.ends[0].answer_produce(0, 5)
    lanes.run()
    assert [one.base_offset for (one,) in (first, last) if isinstance(one, Appended)] == [5, 6]


def test_the_last_check_is_made_in_the_step_of_the_send() -> None:
    lanes = Lanes()
    asked: list[float] = []

    def may_send() -> str | None:
        asked.append(lanes.network.now)
        return None

    for producer_id in (7, 8):
        lanes.append(parcel(producer_id, b"v"), may_send=may_send)
    lanes.run()
    (first, second) = asked
    assert first == second > 0


def test_partitions_stay_apart_and_leave_in_one_request() -> None:
    lanes = Lanes()
    for producer_id in (7, 8, 9):
        for partition in (0, 1):
            lanes.append(parcel(producer_id, b"v"), partition=partition)
    lanes.run()
    assert len(lanes.ends) == 1
    assert lanes.ends[0].partitions == [0, 1]
    assert lanes.sent == [[7, 8, 9], [7, 8, 9]]


@pytest.mark.parametrize(
    "other",
    [
        parcel(8, b"b", codec=Codec.SNAPPY),
        parcel(8, b"b", bytes_max=0),
        parcel(8, b"b", bytes_max=290),
        parcel(8, b"b" * limits.GROUP_BYTES_MAX),
        b"a set that is wrapped already",
    ],
    ids=["another codec", "one that goes alone", "a small topic", "too much together", "ready made"],
)
def test_what_does_not_go_together_leaves_in_wrappers_of_its_own(other: PendingWrapper | bytes) -> None:
    for appends in ([parcel(7, b"a"), other], [other, parcel(7, b"a")]):
        lanes = Lanes()
        for records in appends:
            lanes.append(records)
        lanes.run()
        assert [len(end.partitions) for end in lanes.ends] == [1, 1]
        assert not any(isinstance(event, AppendMerged) for event in lanes.events)


def test_a_wrapper_holds_so_many_producers_and_no_more() -> None:
    lanes = Lanes()
    for producer_id in range(limits.MERGED_BATCHES_MAX + 44):
        lanes.append(parcel(producer_id, b"v"))
    lanes.run()
    assert [len(producers) for producers in lanes.sent] == [limits.MERGED_BATCHES_MAX, 44]


def test_a_merged_wrapper_is_no_larger_than_a_group_may_be() -> None:
    lanes = Lanes()
    for producer_id in range(60):
        lanes.append(parcel(producer_id, b"v" * 10_000))
    lanes.run()
    sizes = [len(data) for end in lanes.ends for _, _, data in end.produced]
    assert len(sizes) == 5
    assert limits.GROUP_BYTES_MAX - 11_000 < min(sizes[:-1]) <= max(sizes) <= limits.GROUP_BYTES_MAX


# ---------------------------------------------------------------------- what the outcome says
def test_a_refused_wrapper_is_told_as_one_in_which_others_were() -> None:
    lanes = Lanes()
    told = [lanes.append(parcel(7, b"a")), lanes.append(parcel(8, b"b"))]
    lanes.run()
    size = len(lanes.ends[0].produced[0][2])
    lanes.ends[0].answer_produce(CORRUPT, -1)
    lanes.run()
    assert told == [[Refused(CORRUPT, size)]] * 2
    alone = lanes.append(parcel(7, b"a"))
    lanes.run()
    lanes.ends[0].answer_produce(CORRUPT, -1)
    lanes.run()
    assert alone == [Refused(CORRUPT)]


def test_a_lost_connection_is_doubt_for_each() -> None:
    lanes = Lanes()
    told = [lanes.append(parcel(7, b"a")), lanes.append(parcel(8, b"b"))]
    lanes.run()
    assert lanes.ends[0].wire is not None
    lanes.ends[0].wire.reset()
    lanes.run()
    assert [type(one) for (one,) in told] == [InDoubt, InDoubt]

"""No path that a request can take leaves objects that hold each other: their bytes would wait for the collector of
cycles, which comes when it likes."""

from __future__ import annotations

import gc
import random
from collections.abc import Callable, Iterator, Sequence
from types import CoroutineType, FunctionType, GeneratorType, MethodType
from typing import Any

import pytest

from idemproxy.codecs.produce import parse_response
from idemproxy.proxy.admission.memory_budget import Held
from idemproxy.proxy.versions import ApiKey
from testkit.real.clients.raw_client import RawClient, batch, resigned
from testkit.virtual.broker_faults import BrokerFault, BrokerFaultRates, ProduceSeen
from testkit.virtual.line import Line, request
from testkit.virtual.log import MESSAGE_BYTES_MAX
from testkit.virtual.pass_through_client import Introduced
from testkit.virtual.world import TOPIC, World, WorldSettings

OURS = "idemproxy."
VERSION = 3
TIMEOUT_MS = 3_000


def module_of(thing: Any) -> str:
    """Where an object comes from: its class, or the function that it is or runs."""
    if isinstance(thing, MethodType):
        thing = thing.__func__
    if isinstance(thing, FunctionType):
        return thing.__module__ or ""
    if isinstance(thing, CoroutineType | GeneratorType):
        frame = thing.cr_frame if isinstance(thing, CoroutineType) else thing.gi_frame
        return "" if frame is None else frame.f_globals.get("__name__", "")
    return type(thing).__module__


@pytest.fixture
def garbage() -> Iterator[list[Any]]:
    """Everything that only the collector would have freed from here on."""
    gc.collect()
    assert not gc.garbage
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        yield gc.garbage
    finally:
        gc.set_debug(0)
        gc.garbage.clear()


def ours(garbage: list[Any]) -> list[str]:
    """What of it is the proxy's own."""
    gc.collect()
    return sorted(
        f"{module_of(thing)}.{getattr(thing, '__qualname__', type(thing).__qualname__)}"
        for thing in garbage
        if module_of(thing).startswith(OURS)
    )


class Scene:
    """A proxy, a broker with two partitions, and one client after the other."""

    def __init__(self, *, is_pass_through: bool = False) -> None:
        settings = WorldSettings(
            brokers=1,
            partitions=2,
            clients=0,
            has_principals=is_pass_through,
            has_pass_through=is_pass_through,
        )
        self.world = World(1, settings)
        if self.world.cluster.users is not None:
            self.world.cluster.users |= {"raw": True}
        self.world.start()
        self.run(20)  # leases of an earlier life have ended, and the first looks are over
        (self.proxy,) = self.world.proxies
        self.engine = self.proxy.engine
        self.is_pass_through = is_pass_through
        self._correlation_id = 100
        self.faults: list[BrokerFault] = []
        """Of the next produce requests that reach the broker."""
        self.world.cluster.choose_fault = self._choose

    def _choose(self, seen: ProduceSeen) -> BrokerFault:
        has_records = any(row[2] for row in seen.body.partitions)
        return self.faults.pop(0) if self.faults and has_records else BrokerFault.NONE

    def run(self, seconds: float) -> None:
        self.world.network.run(seconds)

    def line(self) -> Line:
        line = Line()
        host = self.world.network.host("client")
        host.connect(self.proxy.addresses[0], Introduced("raw", line) if self.is_pass_through else line)
        assert self.world.network.run(5, lambda: line.wire is not None)
        return line

    def send(
        self, line: Line, parts: Sequence[tuple[int, bytes | None]], *, acks: int = -1, version: int = VERSION
    ) -> None:
        self._correlation_id += 1
        rows = [(TOPIC, partition, records) for partition, records in parts]
        body = RawClient.produce_body(rows, version=version, acks=acks, timeout_ms=TIMEOUT_MS)
        assert line.wire is not None
        line.wire.send(request(self._correlation_id, ApiKey.PRODUCE, version, body))

    def codes(self, line: Line) -> list[int]:
        """The error codes of all its answers, in order."""
        found, position = [], 0
        while position < len(line.data):
            end = position + 4 + int.from_bytes(line.data[position : position + 4], "big")
            answers, _throttle_ms = parse_response(line.data[position + 8 : end], 0, 2)  # version 3 looks the same
            found += [answer.error_code for answer in answers]
            position = end
        return found


def records(number: int = 1, sequence: int = 0, value: bytes = b"value", epoch: int = 0) -> bytes:
    """A batch of a producer."""
    return batch([value], producer_id=1_000 + number, sequence=sequence, epoch=epoch)


def answered(scene: Scene, line: Line) -> list[int]:
    scene.send(line, [(0, records()), (1, records())])
    scene.run(10)
    return [0, 0]


def bad_checksum(scene: Scene, line: Line) -> list[int]:
    whole = bytearray(records())
    whole[-1] ^= 1
    scene.send(line, [(0, bytes(whole))])
    scene.run(10)
    return [2]


def named_twice(scene: Scene, line: Line) -> list[int]:
    scene.send(line, [(0, records()), (1, records()), (0, records(2))])
    scene.run(10)
    return [42, 0, 42]


def header_refused(scene: Scene, line: Line) -> list[int]:
    scene.send(line, [(0, batch([b"value"], producer_id=1_001, headers=(("mine", b"1"),)))])
    scene.run(10)
    return [43]


def unreadable(scene: Scene, line: Line) -> list[int]:
    scene.send(line, [(0, resigned(records(), 61, b"\x7f"))])
    scene.run(10)
    return [87]


def gap(scene: Scene, line: Line) -> list[int]:
    scene.send(line, [(0, records())])
    scene.run(10)
    scene.send(line, [(0, records(sequence=7))])
    scene.run(10)
    return [0, 45]


def fenced(scene: Scene, line: Line) -> list[int]:
    scene.send(line, [(0, records(epoch=3))])
    scene.run(10)
    scene.send(line, [(0, records(epoch=2))])
    scene.run(10)
    return [0, 47]


def duplicate(scene: Scene, line: Line) -> list[int]:
    scene.send(line, [(0, records())])
    scene.run(10)
    scene.send(line, [(0, records())])
    scene.run(10)
    return [0, 0]


def below_the_window(scene: Scene, line: Line) -> list[int]:
    for sequence in range(7):
        scene.send(line, [(0, records(sequence=sequence))])
        scene.run(10)
    scene.send(line, [(0, records())])
    scene.run(10)
    return [0] * 7 + [46]


def refused_by_the_broker(scene: Scene, line: Line) -> list[int]:
    scene.world.cluster.rates = BrokerFaultRates(refusals=(29,))
    scene.faults = [BrokerFault.REFUSED]
    scene.send(line, [(0, records())])
    scene.run(10)
    return [29]


def time_is_up(scene: Scene, line: Line) -> list[int]:
    scene.world.cluster.rates = BrokerFaultRates(slow=(5.0, 5.0))
    scene.faults = [BrokerFault.LATE_ANSWER]
    scene.send(line, [(0, records())])
    scene.run(30)
    return [7]


def joined(scene: Scene, line: Line) -> list[int]:
    scene.world.cluster.rates = BrokerFaultRates(slow=(5.0, 5.0))
    scene.faults = [BrokerFault.LATE_ANSWER]
    scene.send(line, [(0, records())])
    scene.run(4)
    scene.send(line, [(0, records())])
    scene.run(30)
    return [7, 0]


def unknown_outcome_is_resolved(scene: Scene, line: Line) -> list[int]:
    scene.faults = [BrokerFault.LOST_ANSWER]
    scene.send(line, [(0, records())])
    scene.run(30)
    return [0]


def unknown_outcome_and_forwarded_again(scene: Scene, line: Line) -> list[int]:
    scene.faults = [BrokerFault.LOST_REQUEST]
    scene.send(line, [(0, records())])
    scene.run(60)
    return [0]


def without_an_answer(scene: Scene, line: Line) -> list[int]:
    scene.send(line, [(0, batch([b"value"])), (1, batch([b"value"]))], acks=0)
    scene.run(10)
    return []


def without_an_answer_and_refused(scene: Scene, line: Line) -> list[int]:
    scene.send(line, [(0, batch([b"value"])), (1, records())], acks=0)
    scene.run(10)
    return []


def without_a_producer_id(scene: Scene, line: Line) -> list[int]:
    scene.send(line, [(0, batch([b"value"])), (1, batch([b"value"]))])
    scene.run(10)
    return [0, 0]


def without_a_producer_id_and_refused(scene: Scene, line: Line) -> list[int]:
    scene.send(line, [(0, batch([b"value"], headers=(("mine", b"1"),))), (1, batch([b"value"]))])
    scene.run(10)
    return [43, 0]


def unknown_partition(scene: Scene, line: Line) -> list[int]:
    scene.send(line, [(9, records())])
    scene.run(10)
    return [3]


def nothing_to_store(scene: Scene, line: Line) -> list[int]:
    scene.send(line, [(0, None)])
    scene.run(10)
    return [42]


def store_away(scene: Scene, line: Line) -> list[int]:
    scene.world.redis.restart(down_seconds=40)
    scene.send(line, [(0, records())])
    scene.run(60)
    return [7]


def gone_before_the_append(scene: Scene, line: Line) -> list[int]:
    scene.send(line, [(0, records()), (1, records())])
    assert line.wire is not None
    line.wire.close()
    scene.run(60)
    return []


def gone_after_the_append(scene: Scene, line: Line) -> list[int]:
    scene.world.cluster.rates = BrokerFaultRates(slow=(1.0, 1.0))
    scene.faults = [BrokerFault.LATE_ANSWER]
    scene.send(line, [(0, records()), (1, records())])
    scene.run(0.3)
    assert line.wire is not None
    line.wire.reset()
    scene.run(60)
    return []


def gone_in_doubt(scene: Scene, line: Line) -> list[int]:
    scene.faults = [BrokerFault.LOST_REQUEST]
    scene.send(line, [(0, records()), (1, records())])
    scene.run(0.3)
    assert line.wire is not None
    line.wire.reset()
    scene.run(60)
    return []


def gone_within_a_request(scene: Scene, line: Line) -> list[int]:
    assert line.wire is not None
    line.wire.send((50_000).to_bytes(4, "big") + bytes(40_000))
    scene.run(10)
    line.wire.reset()
    scene.run(10)
    return []


def gone_without_a_producer_id(scene: Scene, line: Line) -> list[int]:
    scene.send(line, [(0, batch([b"value"]))])
    scene.run(0.002)
    assert line.wire is not None
    line.wire.reset()
    scene.run(60)
    return []


def gone_with_last_words(scene: Scene, line: Line) -> list[int]:
    for _ in range(40):
        scene.send(line, [(0, batch([b"value"]))], acks=0)
    assert line.wire is not None
    line.wire.close()
    scene.run(60)
    return []


def stored_in_parts(scene: Scene, line: Line) -> list[int]:
    noise = random.Random(1).randbytes(MESSAGE_BYTES_MAX // 2)
    scene.send(line, [(0, batch([noise, noise[::-1], noise], producer_id=1_001))])
    scene.run(30)
    assert len(scene.world.cluster.log(TOPIC, 0).messages) > 1
    return [0]


def without_a_producer_id_and_its_broker_has_gone(scene: Scene, line: Line) -> list[int]:
    scene.faults = [BrokerFault.LOST_REQUEST]
    scene.send(line, [(0, batch([b"value"])), (1, batch([b"value"]))])
    scene.run(10)
    assert line.is_lost, "as the broker's own connection would be"
    return []


def without_room_for_its_rest(scene: Scene, line: Line) -> list[int]:
    """It is in the middle of a request when others fill the room, waits, and continues."""
    whole = request(200, ApiKey.PRODUCE, VERSION, RawClient.produce_body([(TOPIC, 0, records(value=bytes(2_000)))]))
    assert line.wire is not None
    line.wire.send(whole[:-100])
    scene.run(1)
    others = Held(scene.engine.memory.hold_bytes, 1 << 40)
    line.wire.send(whole[-100:])
    scene.run(1)
    assert line.data == b""
    del others
    scene.run(10)
    return [0]


def gone_without_room_for_its_rest(scene: Scene, line: Line) -> list[int]:
    others = Held(scene.engine.memory.hold_unfinished, 1 << 40)
    assert line.wire is not None
    line.wire.send((50_000).to_bytes(4, "big") + bytes(40_000))
    scene.run(1)
    line.wire.reset()
    scene.run(10)
    del others
    return []


def hung_up_on(scene: Scene, line: Line) -> list[int]:
    assert line.wire is not None
    line.wire.send(b"GET / HTTP/1.1\r\n\r\n")
    scene.run(10)
    assert line.is_lost
    return []


def is_usual(scene: Scene, line: Line) -> None:
    """From here on its batches with this producer id are usual."""
    for sequence in range(2):
        scene.send(line, [(0, records(sequence=sequence))])
        scene.run(1)


def usual(scene: Scene, line: Line) -> list[int]:
    is_usual(scene, line)
    for sequence in range(2, 9):
        scene.send(line, [(0, records(sequence=sequence))])
    scene.run(10)
    return [0] * 9


def usual_and_time_is_up(scene: Scene, line: Line) -> list[int]:
    is_usual(scene, line)
    scene.world.cluster.rates = BrokerFaultRates(slow=(5.0, 5.0))
    scene.faults = [BrokerFault.LATE_ANSWER]
    scene.send(line, [(0, records(sequence=2))])
    scene.run(30)
    return [0, 0, 7]


def usual_and_in_doubt(scene: Scene, line: Line) -> list[int]:
    is_usual(scene, line)
    scene.faults = [BrokerFault.LOST_ANSWER]
    scene.send(line, [(0, records(sequence=2))])
    scene.run(30)
    return [0, 0, 0]


def usual_and_the_store_is_away(scene: Scene, line: Line) -> list[int]:
    is_usual(scene, line)
    scene.world.redis.restart(down_seconds=40)
    scene.send(line, [(0, records(sequence=2))])
    scene.run(60)
    return [0, 0, 7]


def usual_and_gone(scene: Scene, line: Line) -> list[int]:
    is_usual(scene, line)
    scene.world.cluster.rates = BrokerFaultRates(slow=(1.0, 1.0))
    scene.faults = [BrokerFault.LATE_ANSWER]
    scene.send(line, [(0, records(sequence=2))])
    scene.run(0.3)
    assert line.wire is not None
    line.wire.reset()
    scene.run(60)
    return [0, 0]


PATHS: list[Callable[[Scene, Line], list[int]]] = [
    answered,
    bad_checksum,
    named_twice,
    header_refused,
    unreadable,
    gap,
    fenced,
    duplicate,
    below_the_window,
    refused_by_the_broker,
    time_is_up,
    joined,
    unknown_outcome_is_resolved,
    unknown_outcome_and_forwarded_again,
    without_an_answer,
    without_an_answer_and_refused,
    without_a_producer_id,
    without_a_producer_id_and_refused,
    unknown_partition,
    nothing_to_store,
    store_away,
    gone_before_the_append,
    gone_after_the_append,
    gone_in_doubt,
    gone_within_a_request,
    gone_without_a_producer_id,
    gone_with_last_words,
    stored_in_parts,
    without_a_producer_id_and_its_broker_has_gone,
    without_room_for_its_rest,
    gone_without_room_for_its_rest,
    hung_up_on,
    usual,
    usual_and_time_is_up,
    usual_and_in_doubt,
    usual_and_the_store_is_away,
    usual_and_gone,
]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("kind", ["plain", "pass_through"])
def test_a_request_and_its_connection_leave_nothing_to_collect(
    path: Callable[[Scene, Line], list[int]], kind: str, garbage: list[Any]
) -> None:
    scene = Scene(is_pass_through=kind == "pass_through")
    gc.collect()
    garbage.clear()
    line = scene.line()
    codes = path(scene, line)
    if kind == "pass_through" and path in (
        unknown_outcome_is_resolved,
        unknown_outcome_and_forwarded_again,
        usual_and_in_doubt,
    ):
        assert line.is_lost, "his own connection to the broker has ended, and with it his session"
        codes = codes[:-1]
    assert scene.codes(line) == codes
    assert ours(garbage) == []
    if not line.is_lost and line.wire is not None:
        line.wire.close()
    scene.run(60)
    assert not scene.engine.sessions
    assert ours(garbage) == [], "what was kept of the connection"
    assert scene.engine.memory.bytes_held == 0
    assert scene.world.errors() == []

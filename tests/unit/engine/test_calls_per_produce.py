"""How many functions the proxy's own code calls for one produce: a count, which a busy machine does not change, where
microseconds would be noise. ``make bench-proxy`` tells what they cost."""

import gc
import re
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType

import pytest
from hot_world import World

import idemproxy
from idemproxy.codecs.compression import Codec
from idemproxy.proxy.engine.engine import Engine
from testkit.real.machine.kernel_build import current
from testkit.stage.either_way import WAYS
from testkit.stage.kernel_cases import with_kernel

PASSES = 24
ROOT = idemproxy.__file__.rpartition("/src/")[0]
OURS = tuple(f"{ROOT}/{folder}/" for folder in ("src", "proxy", "state", "codecs"))


def calls_per_produce(
    connections: int,
    records: int,
    record_bytes: int,
    begin: Callable[[Engine], None] | None = None,
    form: str | None = None,
) -> tuple[float, Counter[str]]:
    """Return the calls of and from the product's functions, C functions among them, and how often which was called.

    As cProfile counts, without what the benchmark's own reactor, store, broker and clients call. Sockets and the
    connection to Redis are not in it."""
    begun = None if begin is None else lambda world: begin(world.engine)
    world = World(connections, records, record_bytes, begun, form=form)
    world.prepare(PASSES)
    # The garbage of other tests of this process would be collected in the middle of the count, and each finalizer
    # and each coroutine that is closed would be counted as a call.
    gc.collect()
    called: Counter[str] = Counter()
    ours: dict[CodeType, bool] = {}

    def count(frame: FrameType, event: str, argument: object) -> None:
        if event not in ("call", "c_call"):
            return
        code = frame.f_code
        if code not in ours:
            ours[code] = code.co_filename.startswith(OURS)
        if ours[code]:
            called[code.co_qualname if event == "call" else argument.__name__] += 1  # type: ignore[attr-defined]

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        answered = world.run(PASSES)
    finally:
        sys.setprofile(before)
    return called.total() / answered, called


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("connections", "records", "record_bytes", "calls_max"),
    [
        (50, 1, 100, {"python": 145.0, "kernel": 70.0}),
        (20, 16, 1024, {"python": 160.2, "kernel": 70.2}),
        (1, 1, 100, {"python": 199.2, "kernel": 124.2}),
    ],
    ids=["one record, 50 connections", "16 KB, 20 connections", "one record, one connection"],
)
def test_a_produce_takes_no_more_calls_than_it_did(
    way: str, connections: int, records: int, record_bytes: int, calls_max: dict[str, float]
) -> None:
    """The limits are what the code needs today. After a change that saves calls, run this test with ``-rA``, which
    prints the number and the functions that are called most, and write the number down here. A change that needs more
    of them takes them from somewhere else: each costs 0.1 to 0.3 us of every produce."""
    with with_kernel(current() if way == "kernel" else None):
        calls, called = calls_per_produce(connections, records, record_bytes)
    print(f"{calls:.1f} calls per produce;", ", ".join(f"{name} {n}" for name, n in called.most_common(20)))
    assert calls <= calls_max[way]


def with_append_reservations(engine: Engine) -> None:
    """Each batch of a busy producer leaves without a swap of its own."""
    engine.context.takes_append_reservations = True


@pytest.mark.parametrize("way", WAYS)
def test_under_an_append_reservation_a_produce_takes_fewer_calls(way: str) -> None:
    with with_kernel(current() if way == "kernel" else None):
        calls, called = calls_per_produce(50, 1, 100, with_append_reservations)
    print(f"{calls:.1f} calls per produce;", ", ".join(f"{name} {n}" for name, n in called.most_common(20)))
    assert calls <= {"python": 142.2, "kernel": 67.2}[way]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("form", "calls_max"),
    [("OWN_IDS", {"python": 150.2, "kernel": 67.2}), ("MARKED_V2", {"python": 220.2, "kernel": 82.2})],
)
def test_a_produce_in_message_format_v2_takes_no_more_calls_than_it_did(
    way: str, form: str, calls_max: dict[str, float]
) -> None:
    with with_kernel(current() if way == "kernel" else None):
        calls, called = calls_per_produce(50, 1, 100, with_append_reservations, form)
    print(f"{calls:.1f} calls per produce;", ", ".join(f"{name} {n}" for name, n in called.most_common(20)))
    assert calls <= calls_max[way]


def test_a_produce_passes_the_files_of_the_picture_in_its_order() -> None:
    """dev/pictures/one_produce.svg: the column on the left is the way to the broker."""
    picture = (Path(ROOT) / "dev/pictures/one_produce.svg").read_text()
    drawn = re.findall(r'<text class="file" x="216" y="\d+">([\w/]+\.py)<', picture)
    world = World(1, 1, 100, lambda world: with_append_reservations(world.engine))
    world.prepare(PASSES)
    passed: list[str] = []

    def note(frame: FrameType, event: str, _argument: object) -> None:
        name = frame.f_code.co_filename.removeprefix(f"{ROOT}/src/idemproxy/")
        if event == "call" and name in drawn:
            passed.append(name)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        world.run(3)
    finally:
        sys.setprofile(before)
    passed = passed[passed.index(drawn[0]) :]  # what came before is the answer to an earlier one
    assert len(drawn) == 8
    assert list(dict.fromkeys(passed)) == drawn


def with_codec(engine: Engine) -> None:
    """Its topic has a codec of its own: batches are converted in a flow."""
    engine.context.topics.wrapper_codecs["t"] = Codec.SNAPPY


@pytest.mark.parametrize("way", WAYS)
def test_a_produce_that_a_flow_prepares_takes_no_more_calls_than_it_did(way: str) -> None:
    with with_kernel(current() if way == "kernel" else None):
        calls, called = calls_per_produce(50, 1, 100, with_codec)
    print(f"{calls:.1f} calls per produce;", ", ".join(f"{name} {n}" for name, n in called.most_common(20)))
    assert calls <= {"python": 318.2, "kernel": 282.2}[way]

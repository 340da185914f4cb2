"""Who has a turn while something long is done, and how much of it is begun at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

from idemproxy.codecs.steps import Steps
from idemproxy.proxy import limits
from idemproxy.proxy.admission.long_work import LongWork
from idemproxy.proxy.admission.loop_budget import LoopBudget


class Reactor:
    """Passes that a test makes by hand; each step takes as long as it says."""

    def __init__(self) -> None:
        self.time = 0.0
        self._later: list[Callable[[], None]] = []
        self._at_flush: list[Callable[[], None]] = []

    def now(self) -> float:
        return self.time

    def later(self, _seconds: float, callback: Callable[[], None]) -> None:
        self._later.append(callback)

    def at_flush(self, callback: Callable[[], None]) -> None:
        self._at_flush.append(callback)

    def turn(self) -> bool:
        """One pass; False: there was nothing to do."""
        due, self._later = self._later, []
        for callback in due:
            callback()
        flush, self._at_flush = self._at_flush, []
        for callback in flush:
            callback()
        return bool(due)


class Scene:
    def __init__(self, step_seconds: float = 0.004) -> None:
        self.reactor = Reactor()
        self.work = LongWork(cast(Any, self.reactor), LoopBudget(cast(Any, self.reactor)))
        self.step_seconds = step_seconds
        self.open = self.open_most = 0
        self.ended: list[str] = []
        self.made: list[str] = []

    def add(self, name: str, steps: int, sender: str = "one", *, is_modest: bool = False) -> None:
        def start() -> Steps[str]:
            self.open += 1
            self.open_most = max(self.open_most, self.open)
            try:
                for _ in range(steps):
                    self.reactor.time += self.step_seconds
                    self.made.append(name)
                    yield
            finally:
                self.open -= 1
            return name

        self.work.add(start, sender, lambda done: self.ended.append(done.result()), is_modest=is_modest)

    def turns(self) -> Iterator[float]:
        """Seconds of each pass until nothing is left to do."""
        before = self.reactor.time
        while self.reactor.turn():
            yield self.reactor.time - before
            before = self.reactor.time


def test_a_pass_makes_so_many_steps_and_no_more() -> None:
    scene = Scene()
    scene.add("a", 100)
    scene.add("b", 3)
    assert max(scene.turns()) < limits.STEPS_SECONDS + 2 * scene.step_seconds + 0.001
    assert sorted(scene.ended) == ["a", "b"]
    assert scene.work.count == scene.open == 0


def test_one_step_is_made_however_long_the_pass_was() -> None:
    scene = Scene(step_seconds=1.0)
    scene.add("a", 3)
    assert len(list(scene.turns())) >= 3
    assert scene.ended == ["a"]


def test_what_is_short_does_not_wait_for_what_is_long() -> None:
    scene = Scene()
    for number in range(5):
        scene.add(f"long {number}", 50)
    scene.add("short", 3)
    list(scene.turns())
    assert scene.ended[0] == "short"
    assert scene.made.index("short") < 2 * 5 * limits.SHORT_WORK_STEPS_MAX


def test_senders_have_their_turn() -> None:
    scene = Scene()
    for number in range(20):
        scene.add(f"flood {number}", 3, "flood")
    scene.add("other", 3, "other")
    list(scene.turns())
    assert scene.ended.index("other") <= 2


def test_two_are_begun_at_most() -> None:
    scene = Scene()
    for number in range(20):
        scene.add(f"{number}", 20, f"sender {number % 3}")
    list(scene.turns())
    assert scene.open_most == 2
    assert len(scene.ended) == 20


def test_modest_work_has_one_step_a_pass_and_takes_no_others_turns() -> None:
    """Before, a pass ended with that step, so that other work had one step in a pass as well."""
    scene = Scene(step_seconds=0.001)
    scene.add("conversion", 5 * limits.SHORT_WORK_STEPS_MAX)
    list(scene.turns())
    steps, scene.made = len(scene.made), []
    for number in range(10):
        scene.add(f"log {number}", 30, f"topic {number}", is_modest=True)
    scene.add("conversion", 5 * limits.SHORT_WORK_STEPS_MAX)
    passes = 0
    for seconds in scene.turns():
        passes += 1
        assert seconds < limits.STEPS_SECONDS + 3 * scene.step_seconds
        if scene.made.count("conversion") == steps:
            break
    assert passes <= 1 + steps * scene.step_seconds / limits.STEPS_SECONDS
    assert len(scene.made) == steps + passes
    list(scene.turns())
    assert len(scene.ended) == 12


def test_an_exception_of_long_work_reaches_its_callback() -> None:
    scene = Scene()
    told: list[Any] = []

    def start() -> Steps[None]:
        yield
        raise ValueError("what is wrong")

    scene.work.add(start, "one", told.append)
    scene.add("next", 1)
    list(scene.turns())
    with pytest.raises(ValueError, match="what is wrong"):
        told[0].result()
    assert scene.ended == ["next"]


def test_a_callback_that_raises_stops_no_other_long_work() -> None:
    scene = Scene()

    def breaks(_done: object) -> None:
        raise RuntimeError("told")

    def start() -> Steps[None]:
        yield

    scene.work.add(start, "one", breaks)
    scene.add("next", 1)
    with pytest.raises(RuntimeError):
        list(scene.turns())
    list(scene.turns())
    assert scene.ended == ["next"]


def test_what_is_short_and_modest_does_not_wait_for_what_is_long_and_modest() -> None:
    """An unknown outcome near the end of its log, next to readings of whole logs."""
    scene = Scene()
    for number in range(5):
        scene.add(f"long {number}", 50, f"topic {number}", is_modest=True)
    scene.add("short", 3, "another topic", is_modest=True)
    list(scene.turns())
    assert scene.ended[0] == "short"
    assert scene.made.index("short") < 2 * 5 * limits.SHORT_WORK_STEPS_MAX

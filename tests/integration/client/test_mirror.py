"""examples/mirror.py between two real clusters: killed at each of its steps and at random, together with proxies and
brokers, it leaves the output as the input is."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from testkit.real.brokers.retention import assert_retention_takes_nothing
from testkit.real.scenes.example_lives import RandomKills
from testkit.real.scenes.mirror import Compared, MirrorScene

pytestmark = pytest.mark.long

TOPICS = {"orders": 2, "payments": 1}
STEPS = (
    ("before commit_offsets", 2),
    ("behind commit_offsets", 2),
    ("before send", 2),
    ("behind send", 3),
    ("before receipt", 1),
    ("behind receipt", 2),
    ("behind receipt", 7),
)


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MirrorScene]:
    with MirrorScene(tmp_path_factory.mktemp("mirror"), topics=TOPICS) as running:
        running.begin()
        yield running
        assert running.proxies.errors_of_ours() == []


@pytest.mark.promise("copies")
def test_killed_at_each_step_it_copies_each_record_once(scene: MirrorScene) -> None:
    planned = 0
    for step, number in STEPS:
        scene.feed(600)
        assert scene.lives.run_into(step, number), step
        planned += scene.planned()
    assert planned >= len(STEPS) - 1
    scene.finish(180)
    assert scene.planned() == 0
    stored = scene.compare().stored
    assert scene.compare() == Compared(stored, 0, 0, 0)
    assert stored >= 600 * len(STEPS)


@pytest.mark.promise("copies")
def test_killed_at_random_with_proxies_and_brokers_it_copies_each_record_once(scene: MirrorScene) -> None:
    before = scene.compare().stored
    kills = RandomKills(7)
    scene.lives.keep_alive()
    for index, cluster in enumerate((scene.destination, scene.source)):
        scene.feed(3000)
        kill_broker, kill_proxy = partial(scene.kill_broker, cluster), partial(scene.kill_proxy, index)
        kills.at_once(2.0, scene.lives.kill, kill_proxy, kill_broker)
        scene.wait_for_proxies()
    scene.finish(180)
    assert_retention_takes_nothing(scene.destination, *scene.topics)
    assert scene.compare() == Compared(before + 6000, 0, 0, 0)


def test_an_instance_that_stood_still_while_another_one_worked_does_no_harm(scene: MirrorScene) -> None:
    before = scene.compare().stored
    scene.feed(2000)
    with scene.instance("zombie") as zombie:
        zombie.stand_still("behind commit_offsets", 2)
        for _ in range(2):
            scene.finish(180)
            scene.feed(1000)
        code, said = zombie.go_on()
        assert (code, "another instance of mirror has committed" in said) == (1, True), said
    scene.finish(180)
    assert scene.compare() == Compared(before + 4000, 0, 0, 0)


def test_it_begins_once(scene: MirrorScene) -> None:
    with pytest.raises(AssertionError, match="has begun already"):
        scene.begin()

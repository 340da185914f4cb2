"""The proxy is killed by SIGKILL at every step of a produce: each retry gets the offset of the one copy in the log.

Two deaths at each point, in a seeded order, one instance after the other on the same data. ``make crashes`` has ten.
"""

from random import Random

import pytest

from runs.crashes import Story, plan_of, run_deaths
from testkit.real.brokers.kafka_cluster import fresh_topic
from testkit.real.proxies.crashing_proxy import CrashPoint

from .conftest import QuietPair

SEED = 1


@pytest.fixture(scope="module")
def story(quiet: QuietPair, tmp_path_factory: pytest.TempPathFactory) -> Story:
    plan = plan_of(CrashPoint, deaths=2, seed=SEED)
    Random(SEED).shuffle(plan)
    place = (fresh_topic(quiet.cluster, partitions=1), 0)
    return run_deaths(quiet.cluster, tmp_path_factory.mktemp("crashes"), place, plan, SEED)


@pytest.mark.promise("crash-in-flight")
def test_batches_are_stored_once_in_order_at_the_offset_of_their_answer(story: Story) -> None:
    assert story.complaints() == []
    assert len(story.values) > len(story.deaths)


@pytest.mark.parametrize("point", CrashPoint)
def test_the_batch_that_was_under_way_is_answered_by_the_next_life(story: Story, point: CrashPoint) -> None:
    deaths = [death for death in story.deaths if death.point is point]
    assert len(deaths) == 2
    for death in deaths:
        assert death.unanswered > 0
        assert death.sequence in story.told
        if point in (CrashPoint.BEFORE_RESERVE, CrashPoint.AFTER_RESERVE):
            assert not death.in_log, "nothing had left for the broker"
        if point is CrashPoint.AFTER_ANSWER:
            assert death.in_log


def test_unknown_outcomes_were_resolved_both_ways(story: Story) -> None:
    assert story.found > 0
    assert story.not_found > 0

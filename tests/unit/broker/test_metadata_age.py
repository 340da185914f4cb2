"""How old metadata may be: what is looked for is asked for soon, at first, and nothing is asked for without end."""

from collections.abc import Callable
from functools import partial

import pytest

from idemproxy.proxy import limits
from idemproxy.proxy.broker.metadata_age import MetadataAge

ASKED_EVERY_SECONDS = 0.01
LOOKED_FOR_SECONDS = 20
STARTED_AT = 100.0


def seen(partitions: int = 10) -> MetadataAge:
    """The whole cluster was seen this moment."""
    freshness = MetadataAge()
    freshness.learned_all(partitions, STARTED_AT, STARTED_AT)
    return freshness


def questions(may_ask: Callable[[float], bool], learn: Callable[[float], None]) -> list[float]:
    """When a broker is asked, while somebody asks again and again what is answered with the same all the time."""
    asked = []
    for step in range(int(LOOKED_FOR_SECONDS / ASKED_EVERY_SECONDS)):
        now = STARTED_AT + step * ASKED_EVERY_SECONDS
        if may_ask(now):
            learn(now)
            asked.append(now - STARTED_AT)
    return asked


def test_a_leader_is_looked_for_soon_and_then_more_and_more_seldom() -> None:
    freshness = seen()
    asked = questions(partial(freshness.may_look_for_leader, "t"), lambda now: freshness.learned(["t"], now, now))
    assert len([at for at in asked if at <= 1]) > 5
    assert len([at for at in asked if at > LOOKED_FOR_SECONDS / 2]) <= LOOKED_FOR_SECONDS / 2 + 1
    last = STARTED_AT + LOOKED_FOR_SECONDS
    assert not freshness.may_look_for_leader("t", last - limits.METADATA_FRESH_SECONDS / 2)
    later = last + limits.METADATA_LOOKED_FOR_SECONDS + 1
    freshness.learned(["t"], later - 0.1, later - 0.1)
    assert freshness.may_look_for_leader("t", later), "it is looked for again"


def test_a_topic_that_has_appeared_after_a_long_time_gets_its_leaders_soon() -> None:
    freshness = seen()
    questions(lambda now: freshness.may_look_in_all("t", now), lambda now: freshness.learned_all(10, now, now))
    now = STARTED_AT + LOOKED_FOR_SECONDS
    freshness.learned(["t"], now, now)
    freshness.appeared("t")
    assert freshness.may_look_for_leader("t", now + 2 * limits.METADATA_PAUSE_SECONDS)


@pytest.mark.parametrize("partitions", [10, 1_000, 100_000])
def test_the_whole_of_a_large_cluster_is_not_asked_for_again_and_again(partitions: int) -> None:
    freshness = seen(partitions)
    asked = questions(
        lambda now: freshness.may_look_in_all("t", now), lambda now: freshness.learned_all(partitions, now, now)
    )
    in_first_second = [at for at in asked if at <= 1]
    if partitions < 10_000:
        assert 5 < len(in_first_second) <= 1 / limits.METADATA_PAUSE_SECONDS
    else:
        assert len(in_first_second) <= 1
    assert asked[-1] > LOOKED_FOR_SECONDS - 2


def test_names_that_are_looked_for_are_not_kept_without_end() -> None:
    freshness = seen()
    for number in range(limits.METADATA_LOOKED_FOR_MAX + 10):
        freshness.may_look_for_leader(f"t-{number}", STARTED_AT)
    assert len(freshness._looked_for) == limits.METADATA_LOOKED_FOR_MAX
    assert freshness._looked_for.keys() == {f"t-{number}" for number in range(10, limits.METADATA_LOOKED_FOR_MAX + 10)}


def test_a_name_that_nobody_looks_for_any_more_is_forgotten() -> None:
    freshness = seen()
    freshness.may_look_for_leader("before", STARTED_AT)
    freshness.may_look_in_all("t", STARTED_AT + limits.METADATA_LOOKED_FOR_SECONDS)
    now = STARTED_AT + limits.METADATA_LOOKED_FOR_SECONDS + 1
    freshness.learned_all(10, now, now)
    assert list(freshness._looked_for) == ["t"]


def test_of_many_names_that_were_asked_for_the_latest_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "METADATA_ASKED_FOR_MAX", 3)
    freshness = seen()
    now = STARTED_AT + 2 * limits.METADATA_FRESH_SECONDS
    freshness.learned(["a", "b"], now, now)
    freshness.learned(["a", "c", "d", "e"], now + 0.1, now + 0.1)
    assert set(freshness._topic_asked_at) == set(freshness._topic_learned_at) == {"c", "d", "e"}
    freshness.learned(["c"], now + 0.2, now + 0.2)
    freshness.learned(["f"], now + 0.2, now + 0.2)
    assert {name: freshness.is_fresh(name, now + 0.2) for name in "abcdef"} == {
        **dict.fromkeys("abd", False),
        **dict.fromkeys("cef", True),
    }
    assert freshness.is_topic_overtaken("c", now)
    assert freshness.may_name("a", now + 0.2), "it costs one more question"


def test_after_a_change_only_later_questions_count() -> None:
    freshness = seen()
    asked_at, now = STARTED_AT + 0.1, STARTED_AT + 0.2
    assert freshness.is_all_fresh(now)
    assert freshness.is_fresh("t", now)
    freshness.changed(now)
    for at in (asked_at, now + 0.01):
        assert not freshness.is_all_fresh(now + 0.03)
        assert not freshness.is_fresh("t", now + 0.03)
        freshness.learned(["t"], at, now + 0.02)
        freshness.learned_all(10, at, now + 0.02)
    assert freshness.is_all_fresh(now + 0.03)
    assert freshness.is_fresh("t", now + 0.03)


def test_what_one_broker_tells_of_a_change_is_looked_at_again_soon() -> None:
    """Another one may have heard of it first."""
    freshness = seen()
    freshness.changed(STARTED_AT)
    asked = questions(
        lambda now: not freshness.is_all_fresh(now), lambda now: freshness.learned_all(10, now + 0.001, now + 0.001)
    )
    soon = [at for at in asked if at < limits.METADATA_SPREAD_SECONDS]
    assert 5 <= len(soon) <= limits.METADATA_SPREAD_SECONDS / limits.METADATA_PAUSE_SECONDS + 1
    later = len(asked) - len(soon)
    assert later <= LOOKED_FOR_SECONDS / limits.METADATA_FRESH_SECONDS + 1


def test_a_deleted_topic_that_a_lagging_broker_reports_stays_distrusted() -> None:
    freshness = seen()
    freshness.distrust("t", STARTED_AT)
    for after, is_distrusted in ((0.1, True), (limits.METADATA_SPREAD_SECONDS + 0.1, False)):
        freshness.learned_all(10, STARTED_AT + after, STARTED_AT + after)
        assert freshness.is_distrusted("t") == is_distrusted


def test_changes_without_end_do_not_have_a_large_cluster_asked_for_without_end() -> None:
    freshness = seen(100_000)

    def may_ask(now: float) -> bool:
        freshness.changed(now)
        return not freshness.is_all_fresh(now)

    asked = questions(may_ask, lambda now: freshness.learned_all(100_000, now, now))
    assert len(asked) <= LOOKED_FOR_SECONDS / limits.METADATA_FRESH_SECONDS + 1


def test_an_answer_that_took_long_is_as_fresh_as_any() -> None:
    freshness = MetadataAge()
    freshness.learned_all(10, STARTED_AT, STARTED_AT + 5)
    assert freshness.is_all_fresh(STARTED_AT + 5.5)

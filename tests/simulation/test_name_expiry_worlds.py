"""Producer names that expire, under active clients and under paused ones (rule R22): random worlds."""

from __future__ import annotations

import pytest
from simulation.name_expiry import FENCED, NAME_EXPIRY_SECONDS, NameExpiry

from idemproxy.proxy.events import InstanceBegan
from testkit.virtual.producer import RETRIABLE

SEEDS = range(1, 21)


@pytest.fixture(scope="module")
def played() -> list[NameExpiry]:
    worlds = [NameExpiry(seed) for seed in SEEDS]
    for world in worlds:
        outcome = world.run()
        assert not outcome.problems, outcome.explain()
    return worlds


@pytest.mark.promise("name-one-instance")
def test_paused_clients_begin_again_and_nothing_of_their_old_ids_is_stored(
    played: list[NameExpiry],
) -> None:
    answers = [code for world in played for _at, _identity, code, _offset in world.world.zombie.answers]
    assert len(answers) > len(SEEDS)
    assert set(answers) <= {FENCED, *RETRIABLE}
    assert sum(len(world.paused) for world in played) > len(SEEDS)
    for world in played:
        began = [
            (at, event.name)
            for proxy in world.world.proxies
            for at, _instance, event in proxy.events
            if isinstance(event, InstanceBegan)
        ]
        for client in world.paused:
            assert any(name == client.name and at > NAME_EXPIRY_SECONDS for at, name in began) or not client.batches


def test_batches_of_living_names_are_recognized_when_they_are_sent_again(played: list[NameExpiry]) -> None:
    assert sum(len(world.resent) for world in played) > len(SEEDS) // 2

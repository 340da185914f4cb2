"""Random worlds with a journal that is required, on a disk that is full every now and then: the outcome that a user got
is in it, and nothing is stored twice."""

from __future__ import annotations

import json
from dataclasses import replace
from random import Random

import pytest
from simulation.oracle import Oracle

from idemproxy.proxy import limits
from idemproxy.proxy.telemetry.journal import Journal
from testkit.virtual.client import EPOCH_MS, ClientSettings
from testkit.virtual.producer import Batch
from testkit.virtual.world import TOPIC, World, WorldSettings

Named = tuple[int, int, int, int, int]
"""Partition, producer id, epoch, base sequence, record count."""
SETTINGS = WorldSettings(brokers=1, partitions=2, clients=3, client=ClientSettings(request_timeout=3.0))
BATCHES = 300


class Disk:
    """Is full for some seconds, at random; the network's clock counts."""

    def __init__(self, world: World, seed: int) -> None:
        self.random = Random(f"{seed}/disk")
        self.network = world.network
        self.full_until = 0.0
        self.outages = 0
        self.answered: dict[Named, int] = {}
        """Offset of each batch that has a line which says that it is stored."""

    def write(self, line: bytes) -> None:
        if self.network.now >= self.full_until and self.random.random() < 0.02:
            self.full_until = self.network.now + self.random.uniform(0.2, 3.0)
            self.outages += 1
        if self.network.now < self.full_until:
            raise OSError(28, "No space left on device")
        said = json.loads(line)
        if said["event"] == "answered" and said["error_code"] in (0, 46):
            names = ("partition", "producer_id", "producer_epoch", "base_sequence", "record_count")
            self.answered[tuple(said[name] for name in names)] = said["base_offset"]


def keep_journal(world: World, disk: Disk) -> Journal:
    """As ``proxy/process/server.py`` and ``journal_upkeep.py`` do it."""
    (proxy,) = world.proxies
    engine = proxy.engine
    journal = Journal(disk.write, lambda: EPOCH_MS + int(world.network.now * 1000), lambda _: None)
    journal.is_required = True
    journal.lost = engine.drop_clients
    engine.refuses_all = lambda: ("journal", journal.why_refusing) if journal.why_refusing else None
    engine.context.observers.wants_outcomes = True
    proxy.on_event.append(lambda _, event: journal(event))

    def try_again() -> None:
        journal.try_again()
        proxy.host.later(limits.JOURNAL_AGAIN_SECONDS, try_again)

    try_again()
    return journal


@pytest.mark.promise("journal-required")
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("has_pass_through", [False, True])
def test_no_batch_is_acknowledged_without_its_journal_line(seed: int, has_pass_through: bool) -> None:
    settings = replace(SETTINGS, has_principals=True, has_pass_through=True) if has_pass_through else SETTINGS
    world = World(seed, settings)
    oracle = Oracle(world.cluster, world.clients)
    world.start()
    disk, random, untold = Disk(world, seed), Random(seed), list[Batch]()
    journal = keep_journal(world, disk)

    def look(batch: Batch) -> None:
        assert batch.identity is not None
        assert batch.acknowledged is not None
        if disk.answered.get((batch.partition[1], *batch.identity)) != batch.acknowledged[1]:
            untold.append(batch)

    for client in world.clients:
        client.on_acknowledged.append(look)
        for _ in range(BATCHES):
            client.send(TOPIC, random.randrange(2), random.randint(1, 3))
    assert world.network.run(600, lambda: world.is_done), world.story()
    assert untold == [], world.story()
    assert disk.outages > 0
    assert journal.missing_events > 0
    assert world.errors() == []
    assert oracle.finish() == []

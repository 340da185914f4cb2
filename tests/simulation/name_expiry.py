"""Random worlds in which producer names expire (rule R22), under active clients and under paused ones.

After a first time of chaos little happens for several times the expiry. Half of the clients send a batch now and then,
on one partition each: their names stay, and with them all that they have on other partitions. The names of the others
expire. What such a client still sends as what it was is stored nowhere, and no epoch is issued a second time when it
begins again. In the end nothing is in Redis without an expiry or a declared bound.

    PYTHONPATH=tests python -m simulation.name_expiry 1 300
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from dataclasses import replace
from functools import partial

from simulation.chaos import Chaos, Outcome
from simulation.shape import BACK_IN_TIME, BATCHES, DOUBLE, FLUSH, OLDER, THEFT, Shape, draw_shape

from idemproxy.proxy.events import InstanceBegan
from testkit.virtual.client import VirtualClient
from testkit.virtual.producer import RETRIABLE, Identity
from testkit.virtual.world import TOPIC

NAME_EXPIRY_SECONDS = 150.0
IDLE_EXPIRIES = 4
"""So long little happens."""
PAUSE_SHARE = 0.3
"""Of the expiry, between two batches of an active client."""
PROBE_SECONDS = 40.0
FENCED, DUPLICATE, CANNOT_BE_TOLD = 47, 46, 87


class NameExpiry(Chaos):
    """The plan of one seed, and its run."""

    program = "simulation.name_expiry"

    def __init__(self, seed: int, *, package: str = "idemproxy", batches: int = BATCHES) -> None:
        super().__init__(seed, package=package, batches=batches)
        for proxy in self.world.proxies:  # what expires with a name may expire as soon
            proxy._expiry_seconds = NAME_EXPIRY_SECONDS
        self._ids_get_old = True  # where a producer stopped whose name has expired is reported no more
        for client in self.world.clients:
            if self.random.random() < 0.5:
                client.producer_name = client.name
        clients = self.world.clients
        self.paused = [client for client in clients if self.random.random() < 0.5] or clients[:1]
        self.resent: list[tuple[Identity, int]] = []
        """Acknowledged batches of living clients that were sent once more, and their offsets."""

    def _draw(self, package: str) -> Shape:
        shape = draw_shape(self.seed, batches=self.batches_asked, package=package, as_drawn=True)
        settings = replace(
            shape.settings,
            has_names=True,
            has_principals=False,
            has_pass_through=False,
            wall_clock_rate=1.0,
            expiry_seconds=None,
            name_expiry_seconds=NAME_EXPIRY_SECONDS,
        )
        troubles = shape.troubles | {FLUSH: 0.0, DOUBLE: 0.0, THEFT: 0.0, OLDER: 0.0, BACK_IN_TIME: 0.0}
        idle = NAME_EXPIRY_SECONDS * IDLE_EXPIRIES
        return replace(shape, settings=settings, troubles=troubles, idle_seconds=idle, flushes=False)

    def _idle(self) -> None:
        """Some clients stay active, the names of the others expire, and what all of them had is sent once more."""
        random = self.random
        living = [client for client in self.world.clients if client not in self.paused]
        for client in living:
            at, partition = 0.0, random.randrange(self.settings.partitions)
            while at < self.shape.idle_seconds:
                at += random.uniform(0.1, PAUSE_SHARE) * NAME_EXPIRY_SECONDS
                self.world.network.schedule(at, partial(_send, client, partition))
        self._run_until(self.shape.idle_seconds + PAUSE_SHARE * NAME_EXPIRY_SECONDS, lambda: False)
        self._run_until(PROBE_SECONDS, lambda: self.world.is_done)
        for client in living:
            self._resend(client)
        for client in self.paused:
            self._go_on_as_before(client)
        self._run_until(PROBE_SECONDS, lambda: False)
        for client in self.paused:
            client.begin_again()
        self.world.unsettle()

    def _resend(self, client: VirtualClient) -> None:
        """The last batch that it had acknowledged on one of its partitions, once more."""
        last = {batch.partition: batch for batch in client.leaves if batch.acknowledged is not None}
        for place, batch in self.random.sample(sorted(last.items()), min(1, len(last))):
            told = next(answer for answer in batch.answers if answer.error_code in (0, DUPLICATE))
            if told.identity.producer_id == client.producer.producer_id and told.error_code == 0:
                proxy = self.random.choice(self.world.proxies)
                self.world.thief.produce(self.troubles._address_of(proxy), place, told.identity, batch.values)
                self.resent.append((told.identity, told.base_offset))

    def _go_on_as_before(self, client: VirtualClient) -> None:
        producer = client.producer
        if not producer.has_id():
            return
        for place in self.world.cluster.partitions:
            due = producer.state(place).next_sequence
            identity = Identity(producer.producer_id, producer.producer_epoch, self.random.choice((0, due)), 1)
            proxy = self.random.choice(self.world.proxies)
            self.world.zombie.produce(self.troubles._address_of(proxy), place, identity)

    def _judge(self, problems: list[str]) -> Outcome:
        return super()._judge([*problems, *self._issued_twice(), *self._unknown()])

    def _issued_twice(self) -> list[str]:
        began = Counter(
            (event.producer_id, event.producer_epoch)
            for proxy in self.world.proxies
            for _at, _instance, event in proxy.events
            if isinstance(event, InstanceBegan)
        )
        return [f"issued {count} times: {which}" for which, count in began.items() if count > 1]

    def _unknown(self) -> list[str]:
        """What is sent once more under a living name is known as what is stored."""
        expected = dict(self.resent)
        answers, self.world.thief.answers = self.world.thief.answers, []
        may_hear = (0, DUPLICATE, FENCED, CANNOT_BE_TOLD, *RETRIABLE)
        return [
            f"sent again under a living name, {identity} is told {code}, offset {offset}, not {expected[identity]}"
            for _at, identity, code, offset in answers
            if code not in may_hear or (code == 0 and offset != expected[identity])
        ]


def _send(client: VirtualClient, partition: int) -> None:
    client.send(TOPIC, partition)


def run_seed(seed: int, *, package: str = "idemproxy", batches: int = BATCHES) -> Outcome:
    """Run one seed."""
    return NameExpiry(seed, package=package, batches=batches).run()


def main(arguments: list[str]) -> int:
    """Run COUNT seeds from SEED on; tell the story of a single one that fails."""
    parser = argparse.ArgumentParser(description="Replay random worlds in which names expire by their seeds.")
    parser.add_argument("seed", type=int)
    parser.add_argument("count", type=int, nargs="?", default=1)
    options = parser.parse_args(arguments)
    failed = 0
    for seed in range(options.seed, options.seed + options.count):
        outcome = run_seed(seed)
        if outcome.problems:
            failed += 1
            print(outcome.explain(), flush=True)
            if options.count == 1:
                print(outcome.world.story())
    print(f"{options.count} seeds, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

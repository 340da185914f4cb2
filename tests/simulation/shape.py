"""What one seed makes of the world: its size, its settings, which kinds of trouble it meets, and how often.

Swarm testing: each seed turns on only a random subset of the kinds, at rates of its own, so that rare combinations get
runs of their own. Draws only; nothing runs here.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from testkit.virtual_broker_faults import CODES_WITHOUT_APPEND, CONTENT_CODES, BrokerFault, BrokerFaultRates
from testkit.virtual_client import ClientSettings
from testkit.virtual_cluster import ClusterSettings
from testkit.virtual_network import NetworkSettings
from testkit.virtual_redis import RedisFaultRates
from testkit.virtual_world import WorldSettings

CHAOS_SECONDS = 12.0
BATCHES = 25
"""About so many batches has a world when nobody says otherwise; each seed draws from a third of it to the double."""
BROKER_KINDS = tuple(kind for kind in BrokerFault if kind is not BrokerFault.NONE)

RARE, OFTEN = 4.0, 8.0
TROUBLES: dict[str, float] = {
    "proxy crash": RARE,
    "drain": RARE,
    "proxy pause": RARE,
    "redis restart": RARE,
    "redis pause": RARE,
    "broker crash": RARE,
    "broker pause": RARE,
    "leader move": OFTEN,
    "cut": OFTEN,
    "half open": OFTEN,
    "client disconnect": OFTEN,
}
"""Kind -> how many there are at most in the time of chaos. What each is, says ``troubles``."""


@dataclass(frozen=True, slots=True)
class Shape:
    """One world's plan."""

    settings: WorldSettings
    troubles: dict[str, float]
    """Kind -> how many, about, in the time of chaos."""
    batches: int
    burst_share: float
    """Of the batches that are sent together with others, so that they queue."""
    delivery: tuple[float | None, ...]
    """For each client after how many seconds it gives a batch up; None: never."""


class _Draw:
    """Random choices of one seed."""

    def __init__(self, random: Random) -> None:
        self.random = random

    def some(self, rate: float) -> float:
        """A rate that is zero for half of the seeds."""
        return rate * self.random.random() if self.random.random() < 0.5 else 0.0

    def subset(self, kinds: tuple[BrokerFault, ...]) -> tuple[BrokerFault, ...]:
        """Half of them."""
        return tuple(kind for kind in kinds if self.random.random() < 0.5) or kinds


def draw_shape(seed: int, *, batches: int = BATCHES, package: str = "idemproxy") -> Shape:
    """Return the plan of a seed. ``batches``: about how many batches its clients send."""
    random = Random(f"{seed}/shape")
    draw = _Draw(random)
    clients = random.choice((1, 1, 2, 3))
    settings = WorldSettings(
        proxies=random.choice((1, 1, 2, 3)),
        brokers=random.choice((1, 2, 3)),
        partitions=random.choice((1, 1, 2, 3)),
        clients=clients,
        network=NetworkSettings(split_chance=draw.some(0.4), partial_write_chance=draw.some(0.2)),
        cluster=_cluster(draw),
        broker_faults=_broker_faults(draw),
        redis_faults=_redis_faults(draw),
        client=ClientSettings(request_timeout=random.choice((2.0, 5.0, 10.0))),
        package=package,
    )
    # The first client is patient, so that every world demands that all is done in the end.
    delivery = [None, *(random.uniform(3, 30) if random.random() < 0.3 else None for _ in range(clients - 1))]
    return Shape(
        settings,
        {name: draw.some(most) for name, most in TROUBLES.items()},
        max(1, round(random.choice((0.3, 0.7, 1.0, 2.0)) * batches)),
        random.choice((0.0, 0.3, 0.9)),
        tuple(delivery),
    )


def _cluster(draw: _Draw) -> ClusterSettings:
    return ClusterSettings(
        replication_lag=(0.0005, draw.random.choice((0.002, 0.05))),
        stall_chance=draw.some(0.2),
    )


def _broker_faults(draw: _Draw) -> BrokerFaultRates:
    refusals = CODES_WITHOUT_APPEND + (CONTENT_CODES if draw.random.random() < 0.15 else ())
    return BrokerFaultRates(
        share=draw.some(0.8), kinds=draw.subset(BROKER_KINDS), refusals=refusals, cut_answer_share=draw.some(0.05)
    )


def _redis_faults(draw: _Draw) -> RedisFaultRates:
    return RedisFaultRates(
        lost_reply=draw.some(0.05),
        lost_command=draw.some(0.05),
        late=draw.some(0.05),
        slow=draw.some(0.1),
        refused=draw.some(0.05),
    )

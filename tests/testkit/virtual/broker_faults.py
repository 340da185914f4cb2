"""What can go wrong with one produce request at a broker, how often, and what a test learns of each. Only data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from testkit.virtual.kafka_bytes import ProduceBody

if TYPE_CHECKING:
    from testkit.virtual.cluster import VirtualCluster

CODES_AFTER_APPEND = (6, 7, 20, 3)
CODES_WITHOUT_APPEND = (19, 6, 3, 5)
CONTENT_CODES = (2, 10)
"""Refusals that blame the batch: the proxy may tell the user."""
FINAL_CODES = (17, 18, 21, 29, 32)
"""Refusals after which a client does not try again: the user gets the broker's error."""


class BrokerFault(Enum):
    """What can happen to one produce request."""

    NONE = "none"
    LOST_REQUEST = "lost request"
    """The connection breaks, nothing is appended."""
    LOST_ANSWER = "lost answer"
    """Appended, then the connection breaks."""
    LOST_AND_STALLED = "lost answer, replication stalls"
    """Appended, the connection breaks, and the high watermark stays below it for seconds."""
    STRAGGLER = "straggler"
    """The connection breaks, and the request, which had arrived, is appended later: within a quiescence check."""
    SLOW = "slow"
    """Appended late, and answered then."""
    LATE_ANSWER = "late answer"
    """Appended now, answered late."""
    REFUSED = "refused"
    """Not appended: an error with base offset -1."""
    ERROR_AFTER_APPEND = "error after append"
    """Appended: an error with its base offset; it stays in the log."""
    TRUNCATED = "truncated"
    """Appended, answered with an error and its base offset or not at all; the next leader may not have it."""
    UNKNOWN = "unknown"
    """Code -1 without an offset. Appended or not, by the seed."""
    WRONG_CORRELATION = "wrong correlation"
    """Appended, and answered with a correlation id that nobody asked for."""
    TORN_ANSWER = "torn answer"
    """Appended; the connection ends inside the answer."""
    INCOMPLETE_ANSWER = "incomplete answer"
    """Appended; the answer names no partition."""
    CRASH = "crash"
    """The broker dies, before or after the append by the seed."""


@dataclass(frozen=True, slots=True)
class BrokerFaultRates:
    """How often a produce request meets one of ``kinds``, and how long stragglers and slow ones take, in seconds."""

    share: float = 0.0
    kinds: tuple[BrokerFault, ...] = tuple(kind for kind in BrokerFault if kind is not BrokerFault.NONE)
    refusals: tuple[int, ...] = CODES_WITHOUT_APPEND
    straggle: tuple[float, float] = (0.001, 0.8)
    """Below the time of a quiescence check, less what a lost connection takes to be noticed: beyond it begins the hard
    limit."""
    slow: tuple[float, float] = (0.01, 3.0)
    stall: tuple[float, float] = (1.5, 6.0)
    cut_answer_share: float = 0.0
    """Of answers to other requests that are lost with their connection."""


class ProduceSeen(NamedTuple):
    """One produce request that arrived whole."""

    number: int
    broker: int
    broker_life: int
    connection: int
    peer: str
    body: ProduceBody
    principal: str = ""
    """Who sent it, where brokers ask."""
    client_id: str = ""


FaultChoice = Callable[[ProduceSeen], BrokerFault]


def seeded_choice(cluster: VirtualCluster) -> FaultChoice:
    """Faults by the cluster's rates."""

    def choose(seen: ProduceSeen) -> BrokerFault:
        rates = cluster.rates
        return cluster.network.random.choice(rates.kinds) if cluster.network.chance(rates.share) else BrokerFault.NONE

    return choose

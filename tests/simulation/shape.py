"""What one seed makes of the world: its size, its settings, which kinds of trouble it meets, and how often.

Swarm testing: each seed turns on only a random subset of the kinds, at rates of its own, so that rare combinations get
runs of their own. Draws only; nothing runs here.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from random import Random

from simulation.moments import (
    BREAK_OFF,
    BREAK_OFF_MAX,
    CLEAN_THE_LOG,
    LOSE_WRITES_OWNED,
    LOSE_WRITES_TOO,
    MOMENT_TROUBLES,
    OWNED_TROUBLES,
    TURNS,
)

from testkit.virtual.broker_faults import (
    CODES_WITHOUT_APPEND,
    CONTENT_CODES,
    FINAL_CODES,
    BrokerFault,
    BrokerFaultRates,
)
from testkit.virtual.client import ClientSettings
from testkit.virtual.client_bytes import ZSTD
from testkit.virtual.cluster import ClusterSettings
from testkit.virtual.log import MESSAGE_BYTES_MAX
from testkit.virtual.network import NetworkSettings
from testkit.virtual.redis import RedisFaultRates
from testkit.virtual.releases import RAISED_3_9, RAISED_4_3, UPGRADES, Release
from testkit.virtual.world import WorldSettings

CHAOS_SECONDS = 12.0
V1, V2, OWN, UPGRADED, ROLLED_BACK = "v1", "v2", "own", "upgraded", "rolled-back"
"""How the brokers of a world store batches: its form. ``OWN``: v2, with the clients' producer ids, which the brokers
check. The last two: v1 at first, then broker by broker v2, in half of the worlds with these ids, and at last v1
again."""
FORMS = {V1: 0.76, V2: 0.08, OWN: 0.08, UPGRADED: 0.05, ROLLED_BACK: 0.03}
"""Form -> share of the worlds."""
ZSTD_SHARE = 0.2
"""Of the worlds with brokers of format v2 whose clients use it."""
ISSUED_SHARE = 0.5
"""Of the same whose producer ids are the brokers'."""
RELEASES_OF_V2 = RAISED_3_9, RAISED_4_3
IDLE_SECONDS = (660.0, 1800.0)
IDLE_SHARE = 0.05
"""Of worlds that are idle for longer than anybody retries, and become active again."""
EXPIRY_SECONDS = 600.0
"""In half of them: what is known of a producer expires meanwhile."""
HORIZONS_SECONDS = (300.0, 600.0)
OLD_FORMAT_SHARE = 0.05
"""Of worlds whose topic stores messages of format 0."""
OLD_IDS_SHARE = 0.1
"""Of worlds in which producer ids are soon older than what may have expired."""
WALL_CLOCK_RATES = (6_000.0, 60_000.0)
"""A day in 14 s, or in 1.4."""
LATE_SHARES = (0.0, 0.1, 0.6)
"""Of batches that are converted in a later pass."""
TRACED_SHARES = (0.0, 0.0, 0.1, 0.5)
"""Of the batches whose span is wanted: flows prepare them, between others which none does."""
OWNED_SHARES = (0.0, 0.0, 0.0, 1.0, 1.0, 0.5)
"""Of the lives of proxies that take append reservations: in half of the worlds that do not have the shipped settings,
and in some of these only at times, as while proxies are replaced by newer ones."""
SHIPPED_SHARE = 0.75
"""Of worlds whose proxies have the settings that ``idemproxy run`` has without any."""
BATCHES = 25
"""About so many batches has a world when nobody says otherwise; each seed draws from a third of it to the double."""
BROKER_KINDS = tuple(kind for kind in BrokerFault if kind is not BrokerFault.NONE)
CROWD = 4
"""Clients more than usual in some of the worlds, all on one partition."""
CROWD_SHARE = 0.2
UP_SECONDS_MAX = 1e6
CLOCK_ERROR_MAX = 0.01
"""A clock is wrong by at most a hundredth."""

TROUBLES: dict[str, float] = {
    "proxy crash": 4.0,
    "crash at effect": 4.0,
    "pause at effect": 2.0,
    "drain": 4.0,
    "proxy pause": 4.0,
    "proxy takes no connections": 2.0,
    "redis restart": 4.0,
    "redis pause": 4.0,
    "redis failover": 3.0,
    "redis demoted": 2.0,
    "redis refuses writes": 3.0,
    "redis forgets scripts": 2.0,
    "redis takes no connections": 2.0,
    "leases not renewed": 1.0,
    "broker crash": 4.0,
    "broker pause": 4.0,
    "broker takes no connections": 3.0,
    "broker address changes": 2.0,
    "leader move": 8.0,
    "quota": 2.0,
    "cut": 8.0,
    "cut in frame": 12.0,
    "half open": 8.0,
    "client disconnect": 8.0,
    "slow reader": 4.0,
}
"""Kind -> how many there are at most in the time of chaos. What each is, says ``troubles``."""
FLUSH = "all state deleted"
STATE_TROUBLES = {"state damaged": 2.0, FLUSH: 2.0, "leases deleted": 1.0}
"""What happens to the data in Redis by other hands."""
LOG_TROUBLES = {
    "unclean election": 2.0,
    "retention": 3.0,
    "compaction": 4.0,
    "topic recreated": 1.0,
    "compression changed": 2.0,
}
"""What happens to the log by other hands, or by what the brokers' settings allow. ``allowed`` says what follows."""
EVICTION = "producers forgotten"
EVICTIONS_MAX = 6.0
"""What brokers that check sequences forget of producers, as after ``producer.id.expiration.ms``: in worlds of the form
``OWN``."""
NAMES_SHARE = 0.15
"""Of worlds in which client ids are names of producers."""
OLDER = "older instance"
OLDER_MAX = 8.0
"""Clients that begin again, and batches of what they were before, where client ids are names."""
DOUBLES_SHARE = 0.15
"""Of worlds in which somebody sends other records under numbers that are stored. Their logs keep what is stored."""
DOUBLE = "double"
DOUBLES_MAX = 10.0
INVENTIONS_SHARE = 0.1
"""Of worlds in which somebody sends batches under producer ids that nobody issued."""
INVENTION = "invention"
INVENTIONS_MAX = 60.0
TURNS_SHARE = 0.4
"""Of worlds whose clients hear of other leaders."""
REMAKES_SHARE = 0.2
"""Of worlds whose clients make a batch again for each try."""
THEFT = "theft"
THEFTS_MAX = 6.0
"""Requests of a client that has stolen a producer id, where clients have names."""
BREAKS_SHARE = 0.3
"""Of worlds in which a proxy that reads the log because of an unknown outcome does not come to the end of it."""
NEAR_SHARE = 0.04
NEAR_BYTES = range(118, 137)
"""A limit of brokers that a record of these worlds exceeds with its batch marker, by the length of its name and its
codec."""
OWNED_TROUBLES_SHARE = 0.5
"""Of the worlds with append reservations that have each kind of trouble with them."""
BACK_IN_TIME = "redis back in time"
BACK_IN_TIME_SHARE = 0.3
BACK_IN_TIME_MAX = 3.0
"""Redis's memory returns to an earlier state, in some worlds, so that nothing but a count in it tells."""
LOSE_WRITES = (
    *("redis restart", "redis failover", "redis demoted", BACK_IN_TIME),
    *(LOSE_WRITES_TOO, LOSE_WRITES_OWNED),
    *STATE_TROUBLES,
)
"""After these nothing is promised where no batch markers are stored."""


@dataclass(frozen=True, slots=True)
class Upgrade:
    """A broker is restarted as another release, ``at`` seconds after the chaos began."""

    at: float
    broker: int
    release: Release
    is_clean: bool


@dataclass(frozen=True, slots=True)
class Shape:
    """One world's plan."""

    settings: WorldSettings
    troubles: dict[str, float]
    """Kind -> how many, about, in the time of chaos."""
    batches: int
    burst_share: float
    """Of the batches that are sent together with others, so that they queue."""
    records_max: int
    """Of one batch."""
    delivery: tuple[float | None, ...]
    """For each client after how many seconds it gives a batch up; None: never."""
    idle_seconds: float
    """After the first time of chaos little happens for so long, and then a second one follows; 0: there is no second
    one."""
    flushes: bool
    """All data in Redis is deleted when the second time of chaos begins."""
    form: str = V1
    upgrades: tuple[Upgrade, ...] = ()


class _Draw:
    """Random choices of one seed."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self._share = random.choice((0.15, 0.3, 0.5))

    def some(self, rate: float) -> float:
        """A rate that is zero for many seeds."""
        return rate * self.random.random() if self.random.random() < self._share else 0.0

    def chance(self, probability: float) -> bool:
        """True so often."""
        return self.random.random() < probability

    def subset(self, kinds: tuple[BrokerFault, ...]) -> tuple[BrokerFault, ...]:
        """Half of them."""
        return tuple(kind for kind in kinds if self.chance(0.5)) or kinds


def draw_shape(
    seed: int, *, batches: int = BATCHES, package: str = "idemproxy", as_drawn: bool = False, form: str | None = None
) -> Shape:
    """Return the plan of a seed. ``batches``: about how many batches its clients send. ``as_drawn``: the proxies'
    settings are drawn in every world; else most worlds have the shipped ones, and only the rest is drawn. ``form``: of
    its brokers; None: by the seed."""
    is_shipped = not as_drawn and Random(f"{seed}/shipped").random() < SHIPPED_SHARE
    random = Random(f"{seed}/shape")
    draw = _Draw(random)
    clients, proxies = random.choice((1, 1, 2, 3, 3, 6)), random.choice((1, 1, 2, 3))
    is_crowded = Random(f"{seed}/crowd").random() < CROWD_SHARE
    if is_crowded:
        clients += CROWD
    troubles = {name: draw.some(most) for name, most in TROUBLES.items()}
    troubles |= {name: draw.some(most) if draw.chance(0.3) else 0.0 for name, most in STATE_TROUBLES.items()}
    troubles |= {name: draw.some(most) if draw.chance(0.2) else 0.0 for name, most in LOG_TROUBLES.items()}
    troubles |= {name: draw.some(most) for name, most in MOMENT_TROUBLES.items()}
    if not draw.chance(0.3):
        troubles[CLEAN_THE_LOG] = 0.0
    has_principals = draw.chance(0.3) and not is_shipped
    if has_principals:  # whom an id was issued to is known to Redis alone
        troubles |= {FLUSH: 0.0, THEFT: THEFTS_MAX * random.random()}
    old_ids = Random(f"{seed}/old ids")
    pass_through = Random(f"{seed}/guests")
    has_pass_through = has_principals and pass_through.random() < 0.5
    compression = random.choice((0, 1, 2, 3)) if draw.chance(0.06) else None
    message_format = 0 if Random(f"{seed}/format").random() < OLD_FORMAT_SHARE else 1
    keeps_batch_markers = compression is None and message_format == 1 and not troubles["compression changed"]
    forbidden = () if keeps_batch_markers else LOSE_WRITES
    of_names = {} if is_shipped else _troubles_of_names(seed, has_pass_through)
    troubles |= dict.fromkeys(forbidden, 0.0) | of_names
    settings = WorldSettings(
        proxies=proxies,
        brokers=random.choice((1, 2, 3)),
        partitions=random.choice((1, 1, 2, 3)) if not is_crowded else 1,
        clients=clients,
        network=_network(draw),
        cluster=_cluster(draw),
        broker_faults=_broker_faults(draw),
        redis_faults=_redis_faults(draw),
        client=replace(_client(draw), remakes=Random(f"{seed}/remade").random() < REMAKES_SHARE),
        clocks=tuple((random.uniform(0, UP_SECONDS_MAX), _clock_rate(draw)) for _ in range(proxies)),
        message_bytes_max=_message_bytes_max(seed, draw),
        compression=compression,
        message_format=message_format,
        horizon_seconds=random.choice(HORIZONS_SECONDS),
        has_principals=has_principals,
        has_pass_through=has_pass_through,
        thief_may_write=pass_through.random() < 0.5,
        wall_clock_rate=old_ids.choice(WALL_CLOCK_RATES) if old_ids.random() < OLD_IDS_SHARE else 1.0,
        has_names=bool(of_names),
        late_share=Random(f"{seed}/late").choice(LATE_SHARES),
        traced_share=Random(f"{seed}/traced").choice(TRACED_SHARES),
        package=package,
    )
    if has_pass_through:  # they know no leaders: of one partition it is found by trying
        settings = replace(settings, partitions=1)
    # The first client is patient, so that every world demands that all is done in the end.
    impatient = 0.7 if troubles["giving up in an unknown outcome"] else 0.3
    delivery = [None, *(random.uniform(3, 30) if draw.chance(impatient) else None for _ in range(clients - 1))]
    shape = Shape(
        settings,
        troubles,
        max(1, round(random.choice((0.3, 0.7, 1.0, 2.0)) * batches)),
        random.choice((0.0, 0.3, 0.9)),
        random.choice((1, 3, 3, 12)),
        tuple(delivery),
        random.uniform(*IDLE_SECONDS) if (has_idle := draw.chance(IDLE_SHARE)) else 0.0,
        has_idle and not (has_principals or of_names) and FLUSH not in forbidden and draw.chance(0.7),
    )
    if is_shipped:
        shipped = replace(settings, horizon_seconds=None, traced_share=0.0, shares_store=proxies > 1)
        shape = replace(shape, settings=shipped)
    elif shape.idle_seconds and old_ids.random() < 0.5:
        shape = replace(shape, settings=replace(settings, expiry_seconds=EXPIRY_SECONDS))
    shape = _with_doubles(seed, _with_append_reservations(seed, shape, forbidden, is_shipped=is_shipped))
    shape = _with_turns(seed, _with_journeys(seed, _with_breaks(seed, _with_inventions(seed, shape)), forbidden))
    return _with_form(seed, shape, form)


def _with_form(seed: int, shape: Shape, form: str | None) -> Shape:
    """Return the world with brokers that store other formats than v1, or as it is."""
    random = Random(f"{seed}/form")
    drawn = random.choices(list(FORMS), list(FORMS.values()))[0]
    release, (keeps, raised) = random.choice(RELEASES_OF_V2), random.choice(UPGRADES)
    form = form or drawn
    if form == V1:
        return shape
    upgrades: list[Upgrade] = []
    if form in (UPGRADED, ROLLED_BACK):
        release = keeps
        for number in range(1, shape.settings.brokers + 1):
            first, last = sorted(random.uniform(0, 0.9 * CHAOS_SECONDS) for _ in range(2))
            upgrades.append(Upgrade(first, number, raised, random.random() < 0.7))
            if form == ROLLED_BACK:
                upgrades.append(Upgrade(last, number, keeps, random.random() < 0.7))
    # From 3.0 on no topic has a message format of its own.
    with_ids = form == OWN or (form != V2 and Random(f"{seed}/ids").random() < 0.5)
    settings = replace(shape.settings, release=release, message_format=1, appends_with_ids=with_ids)
    if not (settings.has_names or settings.has_principals) and Random(f"{seed}/issued").random() < ISSUED_SHARE:
        settings = replace(settings, brokers_issue_ids=form in (V2, OWN))
    if form == OWN:
        rate = random.choice((0.0, EVICTIONS_MAX)) * random.random()
        shape = replace(shape, troubles=shape.troubles | {EVICTION: rate})
    if random.random() < ZSTD_SHARE:
        settings = replace(settings, client=replace(settings.client, codec=ZSTD))
    return replace(shape, settings=settings, form=form, upgrades=tuple(upgrades))


def _with_turns(seed: int, shape: Shape) -> Shape:
    """Return the world with clients that turn to other connections while batches are in flight, or as it is."""
    random = Random(f"{seed}/turns")
    most = TURNS if random.random() < TURNS_SHARE else dict.fromkeys(TURNS, 0.0)
    return replace(shape, troubles=shape.troubles | {name: rate * random.random() for name, rate in most.items()})


def _with_journeys(seed: int, shape: Shape, forbidden: Collection[str]) -> Shape:
    """Return the world with a Redis whose memory goes back in time, or as it is. To whom an id was issued, and which
    instance of a name is the newest, is known to Redis alone."""
    random, settings = Random(f"{seed}/back in time"), shape.settings
    known_to_redis = settings.has_principals or settings.has_names
    if random.random() >= BACK_IN_TIME_SHARE or BACK_IN_TIME in forbidden or known_to_redis:
        return shape
    return replace(shape, troubles=shape.troubles | {BACK_IN_TIME: BACK_IN_TIME_MAX * random.random()})


def _with_breaks(seed: int, shape: Shape) -> Shape:
    random = Random(f"{seed}/broken off")
    rate = BREAK_OFF_MAX * random.random() if random.random() < BREAKS_SHARE else 0.0
    return replace(shape, troubles=shape.troubles | {BREAK_OFF: rate})


def _with_inventions(seed: int, shape: Shape) -> Shape:
    """Return the world with a client that invents producer ids, or as it is."""
    random = Random(f"{seed}/invents")
    if random.random() >= INVENTIONS_SHARE or shape.settings.has_principals:
        return shape
    return replace(shape, troubles=shape.troubles | {INVENTION: INVENTIONS_MAX * random.random()})


def _with_doubles(seed: int, shape: Shape) -> Shape:
    """Return the world with a second program that sends as one of its clients, or as it is. What is stored stays known
    and in the log, or that program's batches would be new ones."""
    random, settings = Random(f"{seed}/doubles"), shape.settings
    forgets = shape.idle_seconds or settings.wall_clock_rate > 1
    if random.random() >= DOUBLES_SHARE or settings.has_principals or settings.has_names or forgets:
        return shape
    calm = dict.fromkeys((*LOG_TROUBLES, CLEAN_THE_LOG, FLUSH), 0.0)
    return replace(shape, troubles=shape.troubles | calm | {DOUBLE: DOUBLES_MAX * random.random()})


def _with_append_reservations(seed: int, shape: Shape, forbidden: Collection[str], *, is_shipped: bool) -> Shape:
    """Return the world with proxies that take append reservations, as those do that are shipped, and what happens then,
    or as it is."""
    random = Random(f"{seed}/reservation")
    share, troubles = random.choice(OWNED_SHARES), dict.fromkeys(OWNED_TROUBLES, 0.0)
    if is_shipped:
        share = 1.0
    if not share:
        return replace(shape, troubles=shape.troubles | troubles)
    for name, most in OWNED_TROUBLES.items():
        if random.random() < OWNED_TROUBLES_SHARE and name not in forbidden:
            troubles[name] = most * random.random()
    settings = replace(shape.settings, owned_share=share)
    return replace(shape, settings=settings, troubles=shape.troubles | troubles)


def _troubles_of_names(seed: int, has_pass_through: bool) -> dict[str, float]:
    """What happens where client ids are names; empty where they are none. Which instance of a name is the newest is
    known to Redis alone."""
    random = Random(f"{seed}/names")
    if random.random() >= NAMES_SHARE:
        return {}
    return {FLUSH: 0.0, OLDER: 0.0 if has_pass_through else OLDER_MAX * random.random()}


def _message_bytes_max(seed: int, draw: _Draw) -> int:
    """What brokers take: everything, or batches in parts, or some records not with a batch marker."""
    bytes_max = draw.random.choice((260, 400)) if draw.chance(0.1) else MESSAGE_BYTES_MAX
    near = Random(f"{seed}/near the limit")
    return near.choice(NEAR_BYTES) if near.random() < NEAR_SHARE else bytes_max


def _clock_rate(draw: _Draw) -> float:
    return 1 + draw.random.choice((0, -CLOCK_ERROR_MAX, CLOCK_ERROR_MAX)) * draw.random.random()


def _network(draw: _Draw) -> NetworkSettings:
    return NetworkSettings(
        latency=(0.000_2, draw.random.choice((0.000_5, 0.002, 0.002, 0.02))),
        split_chance=draw.some(0.4),
        partial_write_chance=draw.some(0.2),
        window_bytes=draw.random.choice((256 * 1024, 256 * 1024, 600)),
    )


def _client(draw: _Draw) -> ClientSettings:
    patience = draw.random.choice((2.0, 5.0, 10.0, 65.0))
    return ClientSettings(
        request_timeout=patience,
        timeout=draw.random.choice((1.0, 5.0, 30.0)) if patience > 60 else None,
        in_flight_max=draw.random.choice((1, 2, 5, 5)),
        acks=draw.random.choice((-1, -1, -1, 1)),
        codec=draw.random.choice((0, 0, 1, 2, 3)),
    )


def _cluster(draw: _Draw) -> ClusterSettings:
    return ClusterSettings(
        replication_lag=(0.0005, draw.random.choice((0.002, 0.05))),
        stall_chance=draw.some(0.2),
    )


def _broker_faults(draw: _Draw) -> BrokerFaultRates:
    refusals: tuple[int, ...] = CODES_WITHOUT_APPEND
    if draw.chance(0.15):
        refusals += CONTENT_CODES
    if draw.chance(0.08):
        refusals += FINAL_CODES
    return BrokerFaultRates(
        share=draw.some(0.8),
        kinds=draw.subset(BROKER_KINDS),
        refusals=refusals,
        slow=(0.01, draw.random.choice((3.0, 3.0, 20.0))),
        cut_answer_share=draw.some(0.05),
    )


def _redis_faults(draw: _Draw) -> RedisFaultRates:
    return RedisFaultRates(
        lost_reply=draw.some(0.05),
        lost_command=draw.some(0.05),
        late=draw.some(0.05),
        slow=draw.some(0.1),
        refused=draw.some(0.05),
        slow_seconds=(0.01, draw.random.choice((0.5, 3.0))),
    )

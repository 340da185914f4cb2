"""Which settings have no effect in a mode. An operator who sets one relies on it. Pure; knows no broker.

In front of brokers that give idempotence themselves (native) a start with one is refused. With engine topics these are
few, as the proxy gives it on those. ``redis`` and ``cluster_name`` are never among them: with ``auto`` they tell who
gives idempotence to the cluster. Where the proxy gives
it a start is refused if ``upstream.idempotence`` says so, and warns with ``auto``: such a setting may wait for brokers
that are to be upgraded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Final, NamedTuple

from .config import Settings


class WithoutEffect(NamedTuple):
    """``place``: as in the file. ``reason``: for people, the rest of a sentence that begins with the place."""

    place: tuple[str | int, ...]
    reason: str

    def __str__(self) -> str:
        return f"{self.name}: {self.reason}"

    @property
    def name(self) -> str:
        """The place as people write it."""
        return ".".join(map(str, self.place))


_BROKERS: Final = "where brokers give idempotence themselves"
_PLAIN: Final = f"has no effect {_BROKERS}"
_PLACES: Final[Mapping[str, WithoutEffect]] = {
    "topics.default_partitions": WithoutEffect(("topics", "default_partitions"), f"{_PLAIN}: they have num.partitions"),
    "topics.default_replication_factor": WithoutEffect(
        ("topics", "default_replication_factor"), f"{_PLAIN}: they have default.replication.factor"
    ),
    "hidden_ranges_topic": WithoutEffect(
        ("hidden_ranges", "topic"), "in front of brokers that give idempotence themselves there are no hidden ranges"
    ),
}
"""By the name of the field of ``Settings``: what never has an effect there."""
_ALL_PASSES: Final[Mapping[str, WithoutEffect]] = {
    "producer_expiry_seconds": WithoutEffect(
        ("producers", "expiry_seconds"), f"{_PLAIN}: they forget producers after producer.id.expiration.ms"
    ),
    "client_retry_seconds_max": WithoutEffect(("producers", "client_retry_seconds_max"), _PLAIN),
    "append_reservations": WithoutEffect(("producers", "append_reservations"), _PLAIN),
    "producer_names": WithoutEffect(
        ("producers", "names"), f"{_BROKERS}, no client id fences a producer: use transactional ids"
    ),
    "dropped_headers": WithoutEffect(("producers", "dropped_headers"), f"{_BROKERS}, all headers are stored"),
    "journal": WithoutEffect(("journal", "path"), f"{_BROKERS}, no batch has a line in the journal"),
    "limits.producers_max": WithoutEffect(("limits", "producers_max"), _PLAIN),
    "limits.produce_connections_per_broker_max": WithoutEffect(
        ("limits", "produce_connections_per_broker_max"), _PLAIN
    ),
}
"""What has none as long as there are no engine topics."""
_BY_TOPIC: Final[Mapping[str, WithoutEffect]] = {
    "upstream_idempotence": WithoutEffect(
        ("producers", "upstream_idempotence"), "has no effect with engine topics (topics.engine, topics.conditional)"
    ),
}
"""What has none as soon as there are some."""
_OWN_LOGIN: Final = (
    "clients that authenticate at a broker are not served where there are engine topics (topics.engine, "
    "topics.conditional)"
)

_OLD_CLIENTS: Final = "has no effect where the proxy gives idempotence: its brokers serve old clients themselves"
_PLACES_BY_PROXY: Final[Mapping[str, WithoutEffect]] = {
    **{
        f"old_clients.{name}": WithoutEffect(("old_clients", name), _OLD_CLIENTS)
        for name in ("translate", "fetch", "timestamps")
    },
    "upstream_idempotence": WithoutEffect(
        ("producers", "upstream_idempotence"),
        "has no effect where the proxy gives idempotence: Kafka 0.10 knows no producer ids",
    ),
    "engine_topics": WithoutEffect(
        ("topics", "engine"), "has no effect where the proxy gives idempotence: all topics are engine topics"
    ),
}
_DEFAULT: Final = Settings(upstream=(), listeners=())


SPANS_WITHOUT_EFFECT: Final = (
    f"{_BROKERS}, there are no spans: the variables OTEL_* that ask for them have no effect (OTEL_TRACES_EXPORTER=none)"
)
"""Only a warning: those variables are often set for all programs of a machine."""


def without_effect(settings: Settings) -> Sequence[WithoutEffect]:
    """Return what has another value than the default, and no effect, or is not served, where brokers give
    idempotence."""
    off = _changed(_PLACES, settings)
    if not settings.topics_of_engine:
        return [*off, *_changed(_ALL_PASSES, settings)]
    logins = [
        WithoutEffect(("listeners", index, "authentication"), _OWN_LOGIN)
        for index, one in enumerate(settings.listeners)
        if one.authentication == "pass_through"
    ]
    return [*off, *_changed(_BY_TOPIC, settings), *logins]


def missed_natively(settings: Settings) -> Sequence[WithoutEffect]:
    """Return of these what producers or operators rely on as long as the proxy gives idempotence: brokers do not take
    over by themselves from under it."""
    relied_on = {name: _ALL_PASSES[name] for name in ("producer_names", "dropped_headers", "journal")}
    relied_on["hidden_ranges_topic"] = _PLACES["hidden_ranges_topic"]
    return [] if settings.topics_of_engine else _changed(relied_on, settings)


def without_effect_by_proxy(settings: Settings) -> Sequence[WithoutEffect]:
    """The same where the proxy gives it."""
    return _changed(_PLACES_BY_PROXY, settings)


def _changed(places: Mapping[str, WithoutEffect], settings: Settings) -> Sequence[WithoutEffect]:
    return [found for name, found in places.items() if attrgetter(name)(settings) != attrgetter(name)(_DEFAULT)]

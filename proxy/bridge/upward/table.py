"""Which request is raised to which version, and which versions are announced then. Owns the choice, no
layout.

A ``Raised`` is made for one request. It is not a ``Bridge``: a request may become several, and all work is done in
steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Final, Protocol

from ....codecs.steps import Steps
from ....reactor import Buffer
from ...versions import KAFKA_4_FROM, ApiKey, BrokerRanges, served
from ..base import check_size
from ..fields import Reader
from . import list_offsets
from .apis import BY_LAYOUT
from .fetch import BROKER_VERSIONS, RAISED_VERSION_MAX, RaisedFetch
from .layouts import Rewriting
from .positions import FetchPositions

RAISED_VERSIONS: Final[Mapping[int, int]] = {key: KAFKA_4_FROM[key] for key in (ApiKey.LIST_OFFSETS, *BY_LAYOUT)}
"""API -> the version that all versions below it can be raised to."""


class Raised(Protocol):
    """One request on its way up, and its answer on the way down. WireError for garbage on either side."""

    @property
    def broker_version(self) -> int:
        """The version that the broker is spoken to in."""
        ...

    def requests(self, body: Buffer) -> Steps[Sequence[Buffer]]:
        """The bodies to ask the broker, one or more, made of the client's."""
        ...

    def response(self, bodies: Sequence[Buffer], elapsed_ms: int = 0) -> Steps[Buffer]:
        """The body for the client, made of the broker's answers to all of them, in the same order. ``elapsed_ms``:
        since the client's request came."""
        ...


class _ByLayout:
    """One request for one. LimitExceeded for a request above the limit of ``check_size``."""

    __slots__ = ("_api_key", "_client_version", "broker_version")

    def __init__(self, api_key: int, client_version: int) -> None:
        self._api_key = api_key
        self._client_version = client_version
        self.broker_version = RAISED_VERSIONS[api_key]

    def requests(self, body: Buffer) -> Steps[Sequence[Buffer]]:
        check_size(memoryview(body))
        up, _ = _rewritings(self._api_key, self._client_version)
        return [(yield from up.rewritten(body))]

    def response(self, bodies: Sequence[Buffer], elapsed_ms: int = 0) -> Steps[Buffer]:
        (body,) = bodies
        _, down = _rewritings(self._api_key, self._client_version)
        return (yield from down.rewritten(body))


@cache
def _rewritings(api_key: int, client_version: int) -> tuple[Rewriting, Rewriting]:
    api, version = BY_LAYOUT[api_key], RAISED_VERSIONS[api_key]
    return Rewriting(api.request, client_version, version), Rewriting(api.answer, version, client_version)


def plan(api_key: int, client_version: int, broker_ranges: BrokerRanges, *, always: bool = False) -> Raised | None:
    """Return what raises a request for a broker with these ranges. None: the broker serves the version itself, or it
    can not be raised to one that the broker serves. ``always``: also what the broker serves itself, as Kafka 4 would
    not."""
    if not _is_reached(api_key, broker_ranges):
        return None
    served_from = RAISED_VERSIONS[api_key] if always else broker_ranges[api_key][0]
    if not 0 <= client_version < served_from:
        return None
    return list_offsets.RaisedListOffsets() if api_key == ApiKey.LIST_OFFSETS else _ByLayout(api_key, client_version)


def plan_fetch(
    client_version: int,
    broker_ranges: BrokerRanges,
    positions: FetchPositions,
    *,
    always: bool = False,
    committed: bool = False,
) -> RaisedFetch | None:
    """As ``plan``, for a Fetch, which has more arguments: see ``RaisedFetch``."""
    broker_version = _fetch_version(client_version, broker_ranges, always)
    if broker_version is None:
        return None
    return RaisedFetch(client_version, positions, broker_version=broker_version, committed=committed)


def _fetch_version(client_version: int, broker_ranges: BrokerRanges, always: bool) -> int | None:
    first, last = broker_ranges.get(ApiKey.FETCH, (0, -1))
    if not 0 <= client_version <= RAISED_VERSION_MAX or (client_version >= first and not always):
        return None
    return next((version for version in BROKER_VERSIONS if first <= version <= last), None)


def is_raised(api_key: int, client_version: int, broker_ranges: BrokerRanges, *, always: bool = False) -> bool:
    """Is a request of this version raised for a broker with these ranges? ``always``: as of ``plan``."""
    if api_key == ApiKey.FETCH:
        return _fetch_version(client_version, broker_ranges, always) is not None
    if api_key == ApiKey.PRODUCE:
        first, last = served(broker_ranges).get(ApiKey.PRODUCE, (0, -1))
        floor = KAFKA_4_FROM[ApiKey.PRODUCE]
        return last >= floor and 0 <= client_version < (floor if always else min(first, floor))
    return plan(api_key, client_version, broker_ranges, always=always) is not None


def _is_reached(api_key: int, broker_ranges: BrokerRanges) -> bool:
    """Does raising lead to a version that the broker serves?"""
    first, last = broker_ranges.get(api_key, (0, -1))
    return first <= RAISED_VERSIONS.get(api_key, -1) <= last


def announced(listed: BrokerRanges) -> BrokerRanges:
    """Return the ranges for clients while requests are raised, given those that would be listed otherwise.

    Each API that can be raised begins with 0: librdkafka up to 1.7 reads a partition without a stored offset only where
    ListOffsets 0 is listed, and up to 1.0 commits only where OffsetCommit 1 is. Clients that take the highest version
    of a range see no difference, and sarama does not ask. No range begins later than in ``listed``, so Produce 0 stays
    in the list of Kafka 4.
    """
    floors = {key: 0 for key in RAISED_VERSIONS if _is_reached(key, listed)}
    floors |= {key: 0 for key in (ApiKey.PRODUCE, ApiKey.FETCH) if is_raised(key, 0, listed)}
    return {key: (min(first, floors.get(key, first)), last) for key, (first, last) in listed.items()}


_STORED_IN_ZOOKEEPER: Final = frozenset({(ApiKey.OFFSET_COMMIT, 0), (ApiKey.OFFSET_FETCH, 0)})


def group_of_any_broker(api_key: int, client_version: int, body: Buffer) -> str | None:
    """Return the group whose coordinator has to be asked, for a request that clients send to any broker: v0 of
    OffsetCommit and OffsetFetch was about ZooKeeper. None for all others. WireError for garbage.

    Any broker but the coordinator answers them with NOT_COORDINATOR, which clients of v0 do not expect.
    """
    if (api_key, client_version) not in _STORED_IN_ZOOKEEPER:
        return None
    return Reader(body).string("group_id")

"""Questions to servers: the effects that a flow awaits, the servers that are known, and what an answer's error means.
A shell performs the effects, by blocking or on trio. Pure: no sockets, no clock."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol, TypeVar

from ..codecs.error_codes import ErrorCode
from ..producing.backoff import backoff_seconds
from ..producing.cluster import METADATA, METADATA_VERSIONS, Address, Cluster, cluster_of, metadata_fields
from ..producing.errors import ClientError
from ..producing.limits import THROTTLE_SECONDS_MAX
from ..producing.numbered_batch import Place
from ..values import value
from . import limits
from .errors import AuthenticationFailed, ConnectionFailed, RequestRefused, UnsupportedServer

FETCH, LIST_OFFSETS = 1, 2
FETCH_VERSIONS: Final = (0, 4)
"""Below version 7, which brings fetch sessions (KIP-227); 4 is the first one with record batches."""
LIST_OFFSETS_VERSIONS: Final = (0, 1)
_ALL_TOPICS_VERSIONS: Final = (1, METADATA_VERSIONS[1])
"""From version 1 on a null list of topics means all of them; before that an empty one does."""
LEAVING_OUT_VERSIONS: Final = range(4, 7)
"""A highest version of Fetch in this range tells a proxy that leaves hidden messages out: brokers before 0.11 have
3 at most, and those from 1.1 on 7 or more. Brokers of 0.11 and 1.0 (5 and 6) are taken for such a proxy, too, which at
most costs fetches that bring nothing."""
LATEST, EARLIEST = -1, -2
"""Timestamps that ListOffsets takes for the end, and the start, of what consumers may read."""

Result = TypeVar("Result")


@value(frozen=True, slots=True)
class Ask:
    """Ask one server, over a connection that is kept. The result is the decoded answer. Raises ConnectionFailed,
    AuthenticationFailed, UnsupportedServer."""

    address: Address
    api_key: int
    versions: tuple[int, int]
    what: str
    fields: Mapping[str, Any]

    def __await__(self) -> Generator[Any, Any, Any]:
        return (yield self)


@value(frozen=True, slots=True)
class AskAtOnce:
    """Ask one server several requests of one API, which are all sent before the first answer is waited for. The results
    are the decoded answers, in the order of the requests. Raises as ``Ask``: AnswersOutOfOrder is one."""

    address: Address
    api_key: int
    versions: tuple[int, int]
    what: str
    requests: tuple[Mapping[str, Any], ...]

    def __await__(self) -> Generator[Any, Any, list[Any]]:
        answers: list[Any] = yield self
        return answers


@value(frozen=True, slots=True)
class Offered:
    """The result is which versions of each API a server has: (lowest, highest) by API key. Raises as ``Ask``."""

    address: Address

    def __await__(self) -> Generator[Any, Any, Mapping[int, tuple[int, int]]]:
        offered: Mapping[int, tuple[int, int]] = yield self
        return offered


@value(frozen=True, slots=True)
class Disconnect:
    """Close the connection that is kept to a server. What is asked next goes over another one."""

    address: Address

    def __await__(self) -> Generator[Any, Any, None]:
        yield self


@value(frozen=True, slots=True)
class Sleep:
    """Wait for so many seconds."""

    seconds: float

    def __await__(self) -> Generator[Any, Any, None]:
        yield self


@value(frozen=True, slots=True)
class Now:
    """The result is the time in seconds, of a clock that never jumps."""

    def __await__(self) -> Generator[Any, Any, float]:
        now: float = yield self
        return now


Effect = Ask | AskAtOnce | Offered | Disconnect | Sleep | Now


class Servers:
    """What is known of a cluster: addresses to ask (those that were given, and the brokers that were named since), who
    leads what, and what one fetch may ask for."""

    def __init__(self, bootstrap: Sequence[Address]) -> None:
        assert bootstrap
        self._bootstrap = tuple(bootstrap)
        self._named: tuple[Address, ...] = ()
        self._first: Address | None = None
        """The server to ask first: the one that answered last. After a request that no server answered it is the next
        one in turn, as a silent server may have used up all the time."""
        self.coordinators: dict[str, Address] = {}
        """By group: its coordinator, as found last."""
        self.leaders: dict[Place, Address] = {}
        """As they were reported last; forgotten where that turns out to be wrong."""
        self.replicas: dict[Place, tuple[Address, ...]] = {}
        self.told_at: dict[str, float] = {}
        """When the leaders of a topic were asked for: seconds of the clock that never jumps."""
        self.fetch_bytes_max = limits.WHOLE_FETCH_BYTES_MAX
        """Halved where a consumer quota lets no larger answer through."""

    def learned(self, cluster: Cluster) -> None:
        """These brokers can be asked, too, and lead these partitions."""
        self._named = tuple(cluster.brokers.values())
        self.leaders.update((place, cluster.brokers[broker]) for place, broker in cluster.leaders.items())
        self.replicas.update(cluster.replicas)

    def refused(self, place: Place, what: str, code: int) -> RequestRefused:
        """Return the error for a leader's answer. Whether it still leads is not believed any more."""
        self.leaders.pop(place, None)
        return RequestRefused(f"{what} of {place}", code)

    def lost(self, address: Address) -> None:
        """This server cannot be reached: others may lead its partitions by now."""
        self.leaders = {place: leader for place, leader in self.leaders.items() if leader != address}

    def __iter__(self) -> Any:
        all_of_them = [*dict.fromkeys((*self._bootstrap, *self._named))]
        at = all_of_them.index(self._first) if self._first in all_of_them else 0
        return iter((*all_of_them[at:], *all_of_them[:at]))

    def answered(self, address: Address) -> None:
        """This server has answered: ask it first."""
        self._first = address

    def nobody_answered(self) -> None:
        """Begin the next request with another server."""
        _, *others = self
        self._first = others[0] if others else None


class Tries(Protocol):
    """How often a question is asked."""

    async def again_after(self, error: ClientError, seconds: float | None = None) -> None:
        """Wait for the next try. ``seconds``: for how long, if the server has said it. Raises the error when there is
        to be no other try."""


class TimedTries:
    """Tries again with a growing pause, until the time is over."""

    def __init__(self, now: float, seconds_max: float) -> None:
        self._end = now + seconds_max
        self._failures = 0

    async def again_after(self, error: ClientError, seconds: float | None = None) -> None:
        """As of ``Tries``."""
        pause = backoff_seconds(self._failures) if seconds is None else min(seconds, THROTTLE_SECONDS_MAX)
        self._failures += 1
        if await Now() + pause >= self._end:
            raise error
        await Sleep(pause)


class CountedTries:
    """Tries again after each of ``READING_PAUSES_SECONDS``, however long a try takes; waits for quotas count apart."""

    def __init__(self) -> None:
        self._pauses = list(limits.READING_PAUSES_SECONDS)
        self._throttled_seconds = 0.0

    async def again_after(self, error: ClientError, seconds: float | None = None) -> None:
        """As of ``Tries``."""
        if seconds is None:
            if not self._pauses:
                raise error
            await Sleep(self._pauses.pop(0))
            return
        if self._throttled_seconds >= limits.THROTTLED_FETCH_SECONDS_MAX:
            raise error
        pause = min(seconds, THROTTLE_SECONDS_MAX)
        self._throttled_seconds += pause
        await Sleep(pause)


async def patiently(tries: Tries, ask: Callable[[], Awaitable[Result]]) -> Result:
    """Return what ``ask`` returns, after as many tries as there are to be. Raises its last error, and at once what no
    other try can change."""
    while True:
        error: ClientError
        try:
            return await ask()
        except AuthenticationFailed:
            raise
        except ConnectionFailed as failed:
            error = failed
        except RequestRefused as refused:
            if not is_retriable(refused.code):
                raise
            error = refused
        await tries.again_after(error)


async def ask_any(
    servers: Servers, api_key: int, versions: tuple[int, int], what: str, fields: Mapping[str, Any]
) -> Any:
    """Return the answer of the first server that gives one. Raises the last ConnectionFailed where none does; at once
    AuthenticationFailed and UnsupportedServer."""
    failed: ConnectionFailed | None = None
    for address in servers:
        try:
            answer = await Ask(address, api_key, versions, what, fields)
        except AuthenticationFailed:
            raise
        except ConnectionFailed as error:
            failed = error
        else:
            servers.answered(address)
            return answer
    servers.nobody_answered()
    assert failed is not None
    raise failed


async def ask_at(
    servers: Servers, address: Address, api_key: int, versions: tuple[int, int], what: str, fields: Mapping[str, Any]
) -> Any:
    """Return the answer of one server; where there is none, its partitions are looked up again. Raises what ``Ask``
    raises."""
    try:
        return await Ask(address, api_key, versions, what, fields)
    except ConnectionFailed:
        servers.lost(address)
        raise


async def fetch_cluster(servers: Servers, topics: Iterable[str]) -> Cluster:
    """Return what the first server that answers says of these topics. One try. Raises what ``Ask`` raises."""
    found = cluster_of(await ask_any(servers, METADATA, METADATA_VERSIONS, "Metadata", metadata_fields(topics)))
    servers.learned(found)
    return found


async def find_leader(servers: Servers, place: Place) -> Address:
    """Return the leader, from memory if it is known. One try. Raises RequestRefused where there is none, and what
    ``Ask`` raises."""
    if place not in servers.leaders:
        servers.told_at[place.topic] = await Now()
        found = await fetch_cluster(servers, [place.topic])
        if place not in servers.leaders:
            exists = place.partition in found.partitions.get(place.topic, ())
            absent = ErrorCode.LEADER_NOT_AVAILABLE if exists else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            raise RequestRefused(f"leader of {place}", found.errors.get(place.topic, absent))
    return servers.leaders[place]


async def ask_all_topics(servers: Servers) -> Cluster:
    """Return what the first server that answers says of all topics. None is named, as naming one may create it on
    brokers before 0.11. One try. Raises what ``Ask`` raises."""
    fields = {"topics": None, "allow_auto_topic_creation": False}
    try:
        return cluster_of(await ask_any(servers, METADATA, _ALL_TOPICS_VERSIONS, "Metadata", fields))
    except UnsupportedServer:
        return cluster_of(await ask_any(servers, METADATA, (0, 0), "Metadata", {**fields, "topics": []}))


def only_partition(topics: Any, what: str) -> Any:
    """Return what an answer says of the one partition that was asked for. Raises ConnectionFailed."""
    if not topics or not topics[0].partitions:
        raise ConnectionFailed(f"the answer to {what} lacks the partition")
    return topics[0].partitions[0]


def is_retriable(code: int) -> bool:
    """Whether Kafka's own clients send the request again after this code."""
    try:
        return ErrorCode(code).retriable
    except ValueError:
        return False


def leaves_out(offered: Mapping[int, tuple[int, int]]) -> bool:
    """Whether a server that offers this may be a proxy that leaves hidden messages out of fetches."""
    return offered.get(FETCH, (0, 0))[1] in LEAVING_OUT_VERSIONS


def empty_fetches_max(offered: Mapping[int, tuple[int, int]], offsets: int) -> int:
    """Return how many fetches in a row from one offset may be empty before it is certain that none of these ``offsets``
    below the high watermark is there any more.

    Each fetch continues after what a proxy left out of the last one (rule R24), at least one message with an offset of
    its own. So there are no more empty fetches than offsets, or than messages that the list of hidden ranges can name;
    twice as many, as a proxy begins again where the list changes meanwhile. For a broker it is one: the high watermark
    in an answer may be newer than the records in it."""
    if not leaves_out(offered):
        return min(offsets, 1)
    return 2 * min(offsets, limits.LEFT_OUT_MESSAGES_MAX)

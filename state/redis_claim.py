"""Whose state is stored under a cluster's name, and who gives idempotence there, the proxies or the brokers. Sans-IO.

``ClusterClaim`` compares both on every connection of a proxy that uses Redis, before it writes anything else.
``StoredLook`` reads both over a connection of its own. Neither ends a process: their owner does."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ..reactor import Address, Reactor
from ..values import value
from .inspection import EntryPlace, MemberPlace, parse_key, prefix
from .redis_greeting import Greeting, Login, Refuse, give_up_on
from .redis_link import RedisLink, Reply, pack
from .store import CHANGES, StoreAway, cluster_key, mode_key, verdict_key, without_ids_key

_SCAN_COUNT = b"500"
"""Keys that one SCAN looks at: with the longest topic names its reply is far below ``REPLY_BYTES_MAX``."""


@value(frozen=True, slots=True)
class Stored:
    """What is stored under a cluster's name. ``cluster_id``: of the brokers; ``mode``: of ``mode_key``; ``verdict``: of
    ``verdict_key``; None: absent.
    ``has_entries``: Does a producer have an entry? ``has_proxies``: Is a proxy registered, that is, does one run that
    gives idempotence? Both False where nobody asked. ``is_without_ids``: may a client send a batch again that a proxy
    has appended without its producer id (``without_ids_key``)?"""

    cluster_id: bytes | None = None
    mode: bytes | None = None
    has_entries: bool = False
    has_proxies: bool = False
    verdict: bytes | None = None
    is_without_ids: bool = False


class ClusterClaim:
    """The comparison of one process. The first proxy under a name writes both values; SET NX changes nothing that is
    there, so a proxy that does not belong there leaves no trace."""

    def __init__(
        self,
        cluster: str,
        cluster_id: Callable[[], str | None],
        is_anothers: Callable[[bytes, str], None],
        mode: Callable[[], bytes],
    ) -> None:
        """``cluster_id``: as the brokers tell it; None: they tell none (before 0.10.1), and are believed.
        ``is_anothers`` is called with the stored id and the brokers' own where they differ. ``mode``: this proxy's
        value of ``mode_key`` now."""
        self._cluster = cluster
        self._cluster_id = cluster_id
        self._is_anothers = is_anothers
        self._mode = mode
        self._compared: str | None = None

    @property
    def is_of_this_cluster(self) -> bool:
        """Was the cluster id that the brokers tell now compared on the present connection, or do they tell none? False:
        the store has to connect again."""
        return self._cluster_id() in (None, self._compared)

    def compare(self, link: RedisLink, refuse: Refuse, agreed: Callable[[], None]) -> None:
        """Compare on a connection that was greeted; ``agreed`` is called if the state is this cluster's, and its mode
        this proxy's. Else ``refuse`` was called, or the link was reset."""
        cluster_id = self._cluster_id()
        if cluster_id is None:
            self._compare_mode(link, refuse, agreed)
            return

        def take(expected: str, reply: Reply | StoreAway) -> None:
            if reply == expected.encode():
                self._compared = expected
                self._compare_mode(link, refuse, agreed)
            elif isinstance(reply, bytes):
                refuse("the state belongs to another cluster")
                self._is_anothers(reply, expected)
            else:
                _give_up(link, refuse, reply)

        self._claim(link, cluster_key(self._cluster), cluster_id.encode(), partial(take, cluster_id))

    def _compare_mode(self, link: RedisLink, refuse: Refuse, agreed: Callable[[], None]) -> None:
        own = self._mode()

        def take(reply: Reply | StoreAway) -> None:
            if reply == own:
                agreed()
            elif reply == CHANGES + own:
                link.reset("the mode is changing")
            elif isinstance(reply, bytes):
                said = reply.decode("utf-8", "backslashreplace")
                refuse(f"the mode of this cluster name is {said} in Redis, and this proxy's is {own.decode()}")
            else:
                _give_up(link, refuse, reply)

        self._claim(link, mode_key(self._cluster), own, take)

    def _claim(self, link: RedisLink, key: bytes, said: bytes, take: Callable[[Reply | StoreAway], None]) -> None:
        """Write the value if there is none, and read what is there: Redis executes both in a row."""
        link.call(pack(b"SET", key, said, b"NX"), lambda _reply: None)
        link.call(pack(b"GET", key), take)


class StoredLook:
    """One look, over a connection of its own. It begins at once."""

    def __init__(
        self,
        reactor: Reactor,
        address: Address,
        cluster: str,
        *,
        login: Login,
        needs_entries: bool,
        needs_proxies: bool = False,
        becomes: Callable[[Stored], bytes | None],
        done: Callable[[Stored | StoreAway], None],
        verdict: tuple[bytes, int] | None = None,
    ) -> None:
        """``needs_entries``: look for an entry, too; that may walk all keys. ``needs_proxies``: then also for a proxy
        that is registered, even if there is an entry. ``becomes``: asked once with what is stored; returns what the
        stored mode becomes; None: what it is. It is not written if there was none, or if another proxy has changed it
        or written ``without_ids_key`` during the look. ``verdict``: stored before the look, for so many
        seconds. Nothing else is ever written.
        ``done`` gets what was stored before, or why Redis cannot be asked."""
        self._cluster = cluster
        self._login = login
        self._verdict = verdict
        self._needs_entries = needs_entries
        self._needs_proxies = needs_proxies
        self._has_entries = self._has_proxies = False
        self._becomes = becomes
        self._done: Callable[[Stored | StoreAway], None] | None = done
        self._values: list[bytes | None] = []
        self._link = RedisLink(reactor, self._greet, self._end_away)
        reactor.connect(address, self._link)

    def _greet(self) -> None:
        Greeting(self._link, self._login, self._end_away, lambda _info: self._read())

    def _read(self) -> None:
        if self._verdict is not None:
            text, seconds = self._verdict
            self._link.call(pack(b"SET", verdict_key(self._cluster), text, b"EX", b"%d" % seconds), self._written)
        without_ids = without_ids_key(self._cluster)
        self._link.call(pack(b"WATCH", mode_key(self._cluster), without_ids), self._written)
        for key in (cluster_key(self._cluster), mode_key(self._cluster), verdict_key(self._cluster), without_ids):
            self._link.call(pack(b"GET", key), self._take_value)

    def _written(self, reply: Reply | StoreAway) -> None:
        if reply != b"OK":
            _give_up(self._link, self._end_away, reply)

    def _take_value(self, reply: Reply | StoreAway) -> None:
        if reply is not None and not isinstance(reply, bytes):
            _give_up(self._link, self._end_away, reply)
            return
        self._values.append(reply)
        if len(self._values) == 4 and self._needs_entries:
            self._scan(b"0")
        elif len(self._values) == 4:
            self._take()

    def _scan(self, cursor: bytes) -> None:
        pattern = prefix(self._cluster) + (b"*" if self._needs_proxies else b"{*")
        command = pack(b"SCAN", cursor, b"MATCH", pattern, b"COUNT", _SCAN_COUNT)
        self._link.call(command, self._take_page)

    def _take_page(self, reply: Reply | StoreAway) -> None:
        match reply:
            case [bytes(following), list(keys)]:
                places = [parse_key(self._cluster, key) for key in keys if isinstance(key, bytes)]
                self._has_entries |= any(isinstance(place, EntryPlace) for place in places)
                self._has_proxies |= any(isinstance(place, MemberPlace) for place in places)
                if following == b"0" or (self._has_entries and (self._has_proxies or not self._needs_proxies)):
                    self._take()
                else:
                    self._scan(following)
            case _:
                _give_up(self._link, self._end_away, reply)

    def _take(self) -> None:
        cluster_id, mode, verdict, without_ids = self._values
        has_proxies = self._needs_proxies and self._has_proxies
        stored = Stored(cluster_id, mode, self._has_entries, has_proxies, verdict, without_ids is not None)

        def written(reply: Reply | StoreAway) -> None:
            if reply == [b"OK"]:
                self._end(stored)
            elif reply is None:
                self._end_away("the mode was changed by another proxy during a look at it")
            else:
                _give_up(self._link, self._end_away, reply)

        becomes = self._becomes(stored)
        if becomes is not None and stored.mode not in (None, becomes):
            self._link.call(pack(b"MULTI"), self._written)
            self._link.call(pack(b"SET", mode_key(self._cluster), becomes), lambda _queued: None)
            self._link.call(pack(b"EXEC"), written)
        else:
            self._end(stored)

    def _end_away(self, reason: str) -> None:
        self._end(StoreAway(reason))

    def _end(self, result: Stored | StoreAway) -> None:
        done, self._done = self._done, None
        if done is not None:
            self._link.reset("looked at")
            done(result)


def _give_up(link: RedisLink, refuse: Refuse, reply: Reply | StoreAway) -> None:
    if reply is None:
        link.reset("Redis has lost what was just written")
    else:
        give_up_on(link, refuse, reply)

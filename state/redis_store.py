"""The store on Redis: the calls of ``Store`` over one link, its reconnects, data generation, heartbeat and lease.

Fails closed: whatever is not certain is StoreAway. Everything of one proxy instance goes over one ordered connection at
a time. A script that the server does not know (NOSCRIPT) is never loaded again on the same connection: the data may
have begun another data number (rule R10)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from ..reactor import Address, Reactor, Timer
from .lease import RENEW_SECONDS, Lease
from .redis_data_number import DataNumberCounter
from .redis_facts import (
    NOT_REGISTERED,
    data_generation_of,
    eviction_refusal_of,
    identity_of,
    refusal_of,
    warnings_of,
)
from .redis_greeting import Greeting, Login, Refuse, ask_info, give_up_on, load_swap_script
from .redis_link import RedisLink, Reply, ReplyError, SwapCommand, pack
from .store import (
    Conflict,
    NameCheck,
    NameMoved,
    StoreAway,
    StoreEmptied,
    StoreEvent,
    StoreLost,
    StoreReady,
    StoreRefused,
    StoreWarning,
    Swapped,
    SwapResult,
    is_cluster_name,
    member_key,
    partition_index_of,
)

BACKOFF_SECONDS_MIN = 0.05
BACKOFF_SECONDS_MAX = 1.0
BEATS_PER_CHECK = 15
"""Eviction policy and append-only file are checked again once in so many heartbeats: every 30 s."""

_SCAN_COUNT = b"500"
"""Members of an index in one reply. With topic names of 249 characters they are 150 KB: a reply has a limit
(``REPLY_BYTES_MAX``), and each page is one step of the event loop."""

_SWAPPED = Swapped()
_DATA_NUMBER_CODES = ("NOSCRIPT", "READONLY", NOT_REGISTERED)
"""Refusals that end this connection: the server may have another data generation, or has lost its data with our
registration. Which of these it is shows when the next connection is opened (rule R10)."""

_WENT_BACK = (
    "Redis's memory went back in time, as of a virtual machine that is reverted or a fail-over that a service hides: "
    "its state is not trusted, and producers wait until the logs have been read"
)


def _registration_of(beat: int) -> bytes:
    """Return the value of the registration: laid out like an entry, of which the number of the beat is the version."""
    return b"\x01" + beat.to_bytes(8, "big")


def _ignore(_reply: object) -> None:
    """Not looked at: commands are answered in order, so a lost connection shows in the reply to the last one."""


class RedisStore:
    """Implements ``store.Store``. ``start`` once, then ``stop`` once."""

    def __init__(
        self,
        reactor: Reactor,
        address: Address,
        *,
        cluster: str,
        instance_id: bytes,
        random_bytes: Callable[[int], bytes],
        on_data_generation: Callable[[bytes], None],
        on_lease_lost: Callable[[], None],
        report: Callable[[StoreEvent], None],
        username: str | None = None,
        password: str | None = None,
        database: int = 0,
        compare: Callable[[RedisLink, Refuse, Callable[[], None]], None] | None = None,
    ) -> None:
        """``on_data_generation``: called for the first data generation that is seen, then once for every change.
        ``on_lease_lost``: called once per loss. Other proxies may have taken over what this proxy instance had open. If
        its registration is gone, every call ends with StoreAway until ``begin_instance``. ``compare``: of a
        ``ClusterClaim``, asked on every connection before anything is written. ``random_bytes``: for data numbers.
        """
        assert is_cluster_name(cluster), cluster
        self.lease = Lease(instance_id)
        self.data_generation: bytes | None = None
        self.measure: Callable[[float], None] | None = None
        """Called with the seconds of each round trip. Set before ``start``."""
        self._reactor = reactor
        self._address = address
        self._cluster = cluster
        self._login = Login(username, password, database)
        self._own_key = member_key(cluster, instance_id)
        self._compare = compare
        self._is_refusing = False
        self._on_data_generation = on_data_generation
        self._on_lease_lost = on_lease_lost
        self._report = report
        self._link: RedisLink | None = None
        self._command = SwapCommand(b"0" * 40, self._own_key, b"0")
        self.data_number = DataNumberCounter(cluster, random_bytes, self._on_memory_went_back)
        self._identity = self._known_identity = ""
        self._went_back = False
        self._present_data_number = 0
        self._known_data_generation: bytes | None = None
        self._away = StoreAway("not connected to Redis yet")
        self._backoff = BACKOFF_SECONDS_MIN
        self._reported: StoreEvent | None = None
        self._warned: list[str] = []
        self._beats = 0
        self._beats_sent = 0
        """Registrations and renewals that this process has sent, over all connections and proxy instances."""
        self._lease_timer: Timer | None = None
        self._stopped: Callable[[], None] | None = None
        self._is_stopping = False
        self._registered: Callable[[], None] = lambda: None

    # ------------------------------------------------------------------ Store
    def read(self, key: bytes, done: Callable[[bytes | StoreAway | None], None]) -> None:
        """The stored value, None when absent."""
        self._ask(pack(b"GET", key), partial(self._finish_read, done), done)

    def swap(
        self,
        key: bytes,
        expected_version: int,
        value: bytes,
        ttl_ms: int,
        done: Callable[[Swapped | Conflict | StoreAway], None],
    ) -> None:
        """Store ``value`` if the stored version is ``expected_version``, 0: if the key is absent."""
        if self.data_generation is None or self._link is None:
            self._answer_away(done)
        else:
            command = self._command.pack(key, expected_version, value, ttl_ms)
            self._link.call(command, partial(self._finish_swap, done, value))

    def swap_named(
        self,
        key: bytes,
        expected_version: int,
        value: bytes,
        ttl_ms: int,
        name: NameCheck,
        done: Callable[[SwapResult], None],
    ) -> None:
        """The same, and only if ``name`` holds, too."""

        def take(reply: Reply | StoreAway) -> None:
            if isinstance(reply, list) and len(reply) == 1 and (reply[0] is None or isinstance(reply[0], bytes)):
                done(NameMoved(reply[0]))
            else:
                self._finish_swap(done, value, reply)

        self._ask(self._command.pack_named(key, expected_version, value, ttl_ms, name), take, done)

    def expire_all(
        self, index: bytes, ttl_ms: int, now_ms: int, renews: bool, done: Callable[[bool | StoreAway], None]
    ) -> None:
        """Let all keys in an index expire, and the index itself. The score of each key in its partition's index becomes
        the time when it expires (ms since 1970); keys that have expired by ``now_ms`` leave that index."""

        ttl, now, until = b"%d" % ttl_ms, b"%d" % now_ms, b"%d" % (now_ms + ttl_ms)
        only_if: tuple[bytes, ...] = () if renews else (b"LT",)

        def take(keys: Sequence[bytes]) -> bool:
            for key in keys:
                partition_index = partition_index_of(key)
                self._ask(pack(b"PEXPIRE", key, ttl, *only_if), _ignore, _ignore)
                self._ask(pack(b"ZREMRANGEBYSCORE", partition_index, b"-inf", now), _ignore, _ignore)
                self._ask(pack(b"ZADD", partition_index, b"XX", *only_if, until, key), _ignore, _ignore)
                if renews:
                    self._ask(pack(b"PEXPIRE", partition_index, ttl), _ignore, _ignore)
            return True

        def ended(away: StoreAway | None) -> None:
            if away is None:
                self._ask(pack(b"PEXPIRE", index, ttl, *only_if), partial(self._finish_count, done), done)
            else:
                done(away)

        self._scan(b"SSCAN", index, 1, take, ended)

    def list_name(
        self,
        names: bytes,
        member: bytes,
        ttl_ms: int,
        now_ms: int,
        count_max: int | None,
        done: Callable[[bool | StoreAway], None],
    ) -> None:
        """Add a name to the list of its principal's; those that have expired leave it first. The list itself expires
        with its last name."""

        def counted(reply: Reply | StoreAway) -> None:
            if type(reply) is not int:
                done(self._away_of(reply))
            elif count_max is not None and reply >= count_max:
                done(False)
            else:
                self._ask(pack(b"ZADD", names, b"%d" % (now_ms + ttl_ms), member), _ignore, _ignore)
                self._ask(pack(b"PEXPIRE", names, b"%d" % ttl_ms), partial(self._finish_count, done), done)

        self._ask(pack(b"ZREMRANGEBYSCORE", names, b"-inf", b"%d" % now_ms), _ignore, _ignore)
        self._ask(pack(b"ZCARD", names), counted, done)

    def named_entries(self, index: bytes, count_max: int, done: Callable[[list[bytes] | StoreAway], None]) -> None:
        """The keys in the index of a partition, at most so many."""
        found: dict[bytes, None] = {}  # a scan may return a key twice

        def take(keys: Sequence[bytes]) -> bool:
            found.update(dict.fromkeys(keys))
            return len(found) < count_max

        self._scan(b"ZSCAN", index, 2, take, lambda away: done(list(found)[:count_max] if away is None else away))

    def _scan(
        self,
        command: bytes,
        index: bytes,
        stride: int,
        take: Callable[[Sequence[bytes]], bool],
        ended: Callable[[StoreAway | None], None],
        cursor: bytes = b"0",
    ) -> None:
        """Hand the members of an index to ``take`` in pages, until it returns False; then call ``ended``. ``stride``:
        how many values the reply has for each member (ZSCAN: member and score)."""

        def page(reply: Reply | StoreAway) -> None:
            match reply:
                case [bytes(following), list(values)]:
                    keys = [key for key in values[::stride] if isinstance(key, bytes)]
                    if take(keys) and following != b"0":
                        self._scan(command, index, stride, take, ended, following)
                    else:
                        ended(None)
                case _:
                    ended(self._away_of(reply))

        self._ask(pack(command, index, cursor, b"COUNT", _SCAN_COUNT), page, ended)

    def claim(self, key: bytes, value: bytes, ttl_ms: int, done: Callable[[bool | StoreAway], None]) -> None:
        """Store ``value`` if the key is absent."""
        expiry = (b"PX", b"%d" % ttl_ms) if ttl_ms else ()
        self._ask(pack(b"SET", key, value, b"NX", *expiry), partial(self._finish_claim, done), done)

    def member_alive(self, instance_id: bytes, done: Callable[[bool | StoreAway], None]) -> None:
        """Does that proxy instance still hold its lease?"""
        key = member_key(self._cluster, instance_id)
        self._ask(pack(b"EXISTS", key), partial(self._finish_count, done), done)

    def end_member(self, instance_id: bytes, done: Callable[[bool | StoreAway], None]) -> None:
        """End the lease of an earlier proxy instance of this proxy that is certainly dead."""
        assert instance_id != self.lease.instance_id, "its own lease ends with stop"
        key = member_key(self._cluster, instance_id)
        self._ask(pack(b"DEL", key), partial(self._finish_count, done), done)

    @property
    def why_away(self) -> str:
        """Why Redis cannot be asked, or could not be the last time."""
        return self._away.reason

    # ------------------------------------------------------------------ data number
    def start(self) -> None:
        """Connect, and stay connected."""
        assert self._link is None, "started twice"
        self._connect()

    def begin_instance(self, instance_id: bytes, registered: Callable[[], None]) -> None:
        """From now on this process is another proxy instance: the connection is opened again, and nothing may be sent
        before the new registration is stored. ``registered`` is called then, before any command of the new proxy
        instance, unless yet another one has begun."""
        self.lease = Lease(instance_id)
        self._registered = registered
        self._own_key = member_key(self._cluster, instance_id)
        if self._lease_timer is not None:
            self._lease_timer.cancel()
            self._lease_timer = None
        away = self._away if self.data_generation is None else None
        self._drop("a new lease is being taken, over a new connection")
        if away is not None:  # Redis did not answer before, which says more than our own close
            self._away = away

    def compare_again(self) -> None:
        """Connect again, as what ``compare`` compares has changed."""
        self._drop("the brokers tell another cluster id")

    def stop(self, stopped: Callable[[], None]) -> None:
        """Give the lease back and disconnect (rule R15). ``stopped`` is called, also when Redis is away."""
        assert not self._is_stopping, "stopped twice"
        self._is_stopping = True
        self._stopped = stopped
        self._away = StoreAway("the proxy is being stopped")
        was_ready, self.data_generation = self.data_generation is not None, None
        self.lease.give_up()
        if self._lease_timer is not None:
            self._lease_timer.cancel()
        if was_ready and self._link is not None:
            self._link.call(pack(b"DEL", self._own_key), lambda reply: self._finish_stop())
        else:
            self._reactor.later(0, self._finish_stop)

    def _finish_stop(self) -> None:
        self._drop("the proxy is being stopped")
        stopped, self._stopped = self._stopped, None
        if stopped is not None:
            stopped()

    # ------------------------------------------------------------------ replies
    def _ask(
        self, command: bytes, answered: Callable[[Reply | StoreAway], None], done: Callable[[StoreAway], None]
    ) -> None:
        if self.data_generation is None or self._link is None:
            self._answer_away(done)
        else:
            self._link.call(command, answered)

    def _answer_away(self, done: Callable[[StoreAway], None]) -> None:
        away = self._away
        self._reactor.later(0, lambda: done(away))

    def _finish_swap(
        self, done: Callable[[Swapped | Conflict | StoreAway], None], value: bytes, reply: Reply | StoreAway
    ) -> None:
        if reply == 1:
            done(_SWAPPED)
        elif reply is None:
            done(Conflict(None))
        elif type(reply) is bytes:
            done(_SWAPPED if reply == value else Conflict(reply))
        else:
            done(self._away_of(reply))

    def _finish_read(self, done: Callable[[bytes | StoreAway | None], None], reply: Reply | StoreAway) -> None:
        if reply is None or isinstance(reply, bytes):
            done(reply)
        else:
            done(self._away_of(reply))

    def _finish_claim(self, done: Callable[[bool | StoreAway], None], reply: Reply | StoreAway) -> None:
        if reply is None or reply == b"OK":
            done(reply is not None)
        else:
            done(self._away_of(reply))

    def _finish_count(self, done: Callable[[bool | StoreAway], None], reply: Reply | StoreAway) -> None:
        if type(reply) is int:
            done(reply > 0)
        else:
            done(self._away_of(reply))

    def _away_of(self, reply: Reply | StoreAway) -> StoreAway:
        """Return the answer for a reply that is not a proper one. Ends the connection if it must not be trusted any
        longer."""
        if isinstance(reply, StoreAway):
            return reply
        if isinstance(reply, ReplyError):
            if any(reply.mentions(code) for code in _DATA_NUMBER_CODES):
                self._drop(f"Redis may have a new data generation, or lost its data: {reply.text}")
            return StoreAway(reply.text)
        self._drop("Redis gave a reply of the wrong kind")
        return StoreAway("Redis gave a reply of the wrong kind")

    # ------------------------------------------------------------------ connecting
    def _connect(self) -> None:
        if self._is_stopping:
            return
        link = RedisLink(self._reactor, lambda: self._greet(link), self._on_end)
        link.measure = self.measure
        self._link = link
        self._reactor.connect(self._address, link)

    def _greet(self, link: RedisLink) -> None:
        Greeting(link, self._login, self._refuse, partial(self._on_greeted, link))

    def _on_greeted(self, link: RedisLink, info: dict[str, str]) -> None:
        """The server may be used. Nothing is written to state that is another cluster's, neither data number nor
        registration; with the lease the store is ready."""
        self._warn(info)
        self._identity = identity_of(info) or ""

        # Compared again once it is registered: who changes the mode looks for registrations afterwards.
        def register() -> None:
            self._renew(link, count if self._compare is None else compare_again)

        def compare_again() -> None:
            assert self._compare is not None
            self._compare(link, self._refuse, count)

        # Counted after the registration: where the memory goes back between the two, the count shows it, and where
        # it does so later, no swap fits the registration that is there then.
        def count() -> None:
            self.data_number.count(link, self._identity, self._refuse, load)

        def load(data_number: int) -> None:
            self._present_data_number = data_number
            data_generation = data_generation_of(info, data_number)
            assert data_generation is not None, "refused by the greeting"
            load_swap_script(link, data_generation, self._refuse, partial(self._be_ready, link, data_generation))

        if self._compare is None:
            register()
        else:
            self._compare(link, self._refuse, register)

    def _be_ready(self, link: RedisLink, data_generation: bytes, sha: bytes) -> None:
        self._command = SwapCommand(sha, self._own_key, _registration_of(self._beats_sent))
        self.data_generation = data_generation
        self._backoff = BACKOFF_SECONDS_MIN
        self._beats = 0
        self._reactor.later(RENEW_SECONDS, lambda: self._beat(link))
        self._tell(StoreReady(data_generation))
        if data_generation != self._known_data_generation:
            # One server begins another data generation where these are gone, or have gone back.
            if self._identity == self._known_identity and not self._went_back:
                self._report(StoreEmptied())
            self._known_data_generation, self._known_identity, self._went_back = data_generation, self._identity, False
            self._on_data_generation(data_generation)

    def _on_end(self, reason: str) -> None:
        self._link = None
        self.data_generation = None
        is_refusal, self._is_refusing = self._is_refusing, False
        if self._is_stopping:
            return
        self._away = StoreAway(f"Redis is away: {reason}")
        self._tell(StoreRefused(reason) if is_refusal else StoreLost(reason))
        self._reactor.later(BACKOFF_SECONDS_MAX if is_refusal else self._backoff, self._connect)
        self._backoff = min(self._backoff * 2, BACKOFF_SECONDS_MAX)

    def _drop(self, reason: str) -> None:
        if self._link is not None:
            self._link.reset(reason)

    def _refuse(self, reason: str) -> None:
        self._is_refusing = True
        self._drop(reason)

    def _tell(self, event: StoreEvent) -> None:
        """Report an event once: a server that stays away for an hour is one event."""
        if event != self._reported:
            self._reported = event
            self._report(event)

    def _warn(self, info: dict[str, str]) -> None:
        warnings = warnings_of(info)
        for text in warnings:
            if text not in self._warned:
                self._report(StoreWarning(text))
        self._warned = warnings

    # ------------------------------------------------------------------ heartbeat and lease
    def _beat(self, link: RedisLink) -> None:
        if link is not self._link or self.data_generation is None:
            return
        self._beats += 1
        whole = self._beats % BEATS_PER_CHECK == 0
        ask_info(link, whole, self._refuse, lambda info: self._check_again(link, info, whole))
        self.data_number.count(link, self._identity, self._refuse, partial(self._check_data_number, link))
        self._renew_again(link)
        self._reactor.later(RENEW_SECONDS, lambda: self._beat(link))

    def _check_again(self, link: RedisLink, info: dict[str, str], whole: bool) -> None:
        refusal = refusal_of(info)
        if whole:
            refusal = refusal or eviction_refusal_of(info)
            self._warn(info)
        if refusal is not None:
            self._refuse(refusal)
        elif identity_of(info) != self._identity:
            link.reset("Redis has a new data generation")

    def _check_data_number(self, link: RedisLink, data_number: int) -> None:
        if data_number != self._present_data_number:
            link.reset("Redis has a new data generation")

    def _on_memory_went_back(self) -> None:
        """Nothing more is sent in this data generation."""
        self.data_generation = None
        self._went_back = True
        self._away = StoreAway("Redis's memory went back in time")
        self._report(StoreWarning(_WENT_BACK))

    def _renew_again(self, link: RedisLink) -> None:
        """Renew it on a connection that is in use, by a swap: where it is not the one that was written last, Redis's
        memory went back in time, and it stays as it is. Then all swaps are refused that are sent from now on, as each
        names the registration that has to be there."""
        sent_at, ttl_ms = self._reactor.now(), int(self.lease.ttl_seconds * 1000)
        before, self._beats_sent = self._beats_sent, self._beats_sent + 1
        written = _registration_of(self._beats_sent)

        def swapped(reply: Reply | StoreAway) -> None:
            if reply != 1 and not (isinstance(reply, ReplyError) and reply.mentions(NOT_REGISTERED)):
                give_up_on(link, self._refuse, reply)

        def take(reply: Reply | StoreAway) -> None:
            if reply is not None and not isinstance(reply, bytes):
                give_up_on(link, self._refuse, reply)
            elif self._is_stopping:
                return
            elif reply is None:
                self._end_instance(link)
            elif reply == written:
                self._extend(sent_at)
            elif self.data_generation is not None:  # else the next data number is being written, on this connection
                link.reset("the registration is an earlier one")

        link.call(self._command.pack(self._own_key, before, written, ttl_ms), swapped)
        link.call(pack(b"GET", self._own_key), take)
        self._command.renew(written)

    def _renew(self, link: RedisLink, renewed: Callable[[], None]) -> None:
        """Write the registration again on a new connection, over the existing one. One that is gone is never written
        again: earlier swaps that are still on their way would be valid again."""
        if not self.lease.is_registered:
            self._register(link, renewed)
            return
        sent_at = self._reactor.now()

        def take(reply: Reply | StoreAway) -> None:
            if reply is not None and reply != b"OK":
                give_up_on(link, self._refuse, reply)
            elif self._is_stopping:
                return
            elif reply is None:
                self._end_instance(link)
            elif self._extend(sent_at):
                renewed()

        link.call(self._registration(b"XX"), take)

    def _register(self, link: RedisLink, registered: Callable[[], None]) -> None:
        """Write the registration where there is none. If there is one, it is from a try of ours whose reply was lost:
        no other proxy has this proxy instance. If yet another try may still be executed, the proxy instance ends: that
        try could bring the registration back after it was lost."""
        lease, sent_at = self.lease, self._reactor.now()
        lease.tries_unanswered += 1

        def take(reply: Reply | StoreAway) -> None:
            if isinstance(reply, StoreAway):
                return
            lease.tries_unanswered -= 1
            if reply is not None and reply != b"OK":
                give_up_on(link, self._refuse, reply)
                return
            lease.is_registered = True
            self._registered()
            executed = 1 if reply is None else 0
            if self._is_stopping:
                return
            if lease.tries_unanswered > executed:
                self._end_instance(link)
            elif executed:
                self._renew(link, registered)
            elif self._extend(sent_at):
                registered()

        link.call(self._registration(b"NX"), take)

    def _registration(self, condition: bytes) -> bytes:
        self._beats_sent += 1
        value, ttl_ms = _registration_of(self._beats_sent), b"%d" % int(self.lease.ttl_seconds * 1000)
        return pack(b"SET", self._own_key, value, condition, b"PX", ttl_ms)

    def _end_instance(self, link: RedisLink) -> None:
        """Our registration is gone, or cannot be relied on: other proxies may believe that we are dead (rules R1,
        R10)."""
        self.lease.give_up()
        self._on_lease_lost()
        link.reset("the registration cannot be relied on")

    def _extend(self, sent_at: float) -> bool:
        """A renewal was confirmed. Returns False when the owner began another proxy instance because of it: this link
        has ended then."""
        lease, now = self.lease, self._reactor.now()
        if lease.notice_end(now):
            self._on_lease_lost()
        if self.lease is not lease:
            return False
        if now < sent_at + lease.ttl_seconds:  # else this process did not run meanwhile, and the next renewal counts
            lease.renewed(sent_at)
        if self._lease_timer is None:
            self._watch_lease()
        return True

    def _watch_lease(self) -> None:
        """Tell the owner when the lease runs out, also while Redis is away."""
        self._lease_timer = None
        now = self._reactor.now()
        if self.lease.notice_end(now):
            self._on_lease_lost()
        elif self.lease.is_held:
            self._lease_timer = self._reactor.later(self.lease.ends_at - now, self._watch_lease)

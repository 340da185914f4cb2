"""Who gives idempotence to the producers of one process, the proxy or the brokers: by what is configured, what the
brokers are, and what Redis says. Pure: ``served.py`` judges brokers, ``process/server.py`` asks Redis."""

from __future__ import annotations

from collections.abc import Iterable

from ...state.redis_claim import Stored
from ...state.store import CHANGES, MODE_PROXY, engine_topics_of, native_mode
from .probed import Probed
from .served import Idempotence

_REDIS_SAYS = (
    "Redis says that {} idempotence under cluster name {!r} (upstream.idempotence: {}), and this proxy's is {}"
)
_NATIVE_IS_STORED = (
    "say auto or native; to go back, stop all proxies and delete the key idem:{}:mode in Redis, then start them"
)
_PROXY_IS_STORED = (
    "Redis has entries of producers, and what these have in flight could be stored twice. Stop these producers, and "
    "wait until their entries have expired (producers.expiry_seconds), or remove them (idemproxy inspect, idemproxy "
    "forget). Or accept duplicates: upstream.allow_duplicates_in_flight"
)
_PROXIES_RUN = (
    "proxies that give it are running: stop all of them first, or say auto. One that was killed counts until its lease "
    "has ended"
)
_OTHER_TOPICS = (
    "Redis says that the engine topics under cluster name {0!r} are {1}, and this proxy's are {2} (topics.engine, "
    "topics.conditional): a partition has one kind of writer. Give all proxies the same patterns; to change them, stop "
    "all producers and proxies, set the key idem:{0}:mode in Redis to {3!r}, and start them"
)


class Mode:
    """``wanted``: what is configured; None: it is chosen once it is known whether all brokers have producer ids.
    ``by_brokers``: what the listed brokers can be served as now; None: that is not known. ``all_take_ids``: did all
    brokers, also those that are down, take unknown producer ids with any sequence when that was looked at last?
    ``chosen``: the mode now; None until it is chosen. ``engine_topics``: patterns of topics on which the proxy gives
    idempotence also where the brokers give it on all others. ``appends_with_ids``: what the proxy appends has the
    clients' producer ids in any mode. ``probed``: what is known of brokers that do not show that they are Kafka."""

    __slots__ = ("all_take_ids", "appends_with_ids", "by_brokers", "chosen", "engine_topics", "probed", "wanted")

    def __init__(
        self, wanted: Idempotence | None, engine_topics: Iterable[str] = (), *, appends_with_ids: bool = False
    ) -> None:
        self.wanted = wanted
        self.engine_topics = tuple(sorted(set(engine_topics)))
        self.appends_with_ids = appends_with_ids
        self.by_brokers: Idempotence | None = None
        self.all_take_ids = False
        self.probed: Probed | None = None
        self.chosen = wanted

    @classmethod
    def of_setting(cls, said: str, engine_topics: Iterable[str] = ()) -> Mode:
        """Return the mode of ``upstream.idempotence``: auto, native or proxy. With auto the brokers see the producer
        ids wherever they can, so that they can take over. ``engine_topics``: of ``topics.engine`` and
        ``topics.conditional``."""
        if said == "auto":
            return cls(None, engine_topics, appends_with_ids=True)
        return cls(Idempotence(said), engine_topics)

    @property
    def is_native(self) -> bool:
        """Do the brokers give it?"""
        return self.chosen is Idempotence.NATIVE

    @property
    def passes_all(self) -> bool:
        """Do the brokers give it on all topics? Then no request is the engine's, and Redis is not used."""
        return self.is_native and not self.engine_topics

    @property
    def native_value(self) -> bytes:
        """What Redis says of this proxy's cluster where the brokers give it."""
        return native_mode(self.engine_topics)

    @property
    def value(self) -> bytes:
        """What Redis has to say, in the mode that is chosen."""
        return self.native_value if self.is_native else MODE_PROXY

    @property
    def enough(self) -> Idempotence | None:
        """For what does it suffice that a broker has what that mode needs, whatever else it is? None: for nothing, as
        the mode is chosen by it, or as batches of engine topics are stored in the form that it has."""
        return None if self.wanted is Idempotence.NATIVE and self.engine_topics else self.wanted

    @property
    def appends_as(self) -> Idempotence:
        """The mode by which the form of what the proxy appends is chosen."""
        return Idempotence.NATIVE if self.is_native or self.appends_with_ids else Idempotence.PROXY

    @property
    def may_be_native(self) -> bool:
        """May the brokers give it, for all that is configured and that they tell?"""
        return self.wanted is not Idempotence.PROXY and Idempotence.NATIVE in (self.wanted, self.by_brokers)

    def agreed(
        self, cluster: str, stored: Stored, by_brokers: Idempotence | None, allows_duplicates: bool
    ) -> Idempotence | str:
        """Return who gives idempotence, so that all proxies with this Redis and cluster name do the same. A text: this
        proxy must not start, and that is why. ``by_brokers``: what it was when the look at ``stored`` began.
        ``allows_duplicates``: ``upstream.allow_duplicates_in_flight``.

        Once the proxies have given it, the brokers do only when they know the producers of all that may be in flight:
        else that could be stored twice, once by either. They do once no producer has an entry any more or, if all take
        any producer id, nothing is sent again that was appended without one. ``auto`` does what Redis says, as long as
        it may."""
        kept = stored.mode
        if kept is None and stored.has_entries:
            kept = MODE_PROXY
        topics = None if kept is None else engine_topics_of(kept)
        if kept not in (None, MODE_PROXY) and topics is None:
            unknown = kept.decode("utf-8", "backslashreplace")
            return f"Redis says that {unknown!r} gives idempotence under cluster name {cluster!r}: upgrade this proxy"
        if self.wanted is Idempotence.PROXY:
            if topics is not None:
                says = _REDIS_SAYS.format("the brokers give", cluster, "native", "proxy")
                return f"{says}: {_NATIVE_IS_STORED.format(cluster)}"
            return Idempotence.PROXY
        if topics is not None:
            if topics == self.engine_topics:
                return Idempotence.NATIVE
            is_said, is_own = shown_topics(topics), shown_topics(self.engine_topics)
            return _OTHER_TOPICS.format(cluster, is_said, is_own, self.native_value.decode())
        if self.wanted is Idempotence.NATIVE and stored.has_proxies:  # they would keep running next to this one
            return f"{_REDIS_SAYS.format('the proxies give', cluster, 'proxy', 'native')}: {_PROXIES_RUN}"
        is_known = self.wanted is None and self.all_take_ids and not stored.is_without_ids
        if Idempotence.NATIVE in (self.wanted, by_brokers) and (
            kept is None or not stored.has_entries or allows_duplicates or is_known
        ):
            return Idempotence.NATIVE
        if self.wanted is Idempotence.NATIVE:
            return f"{_REDIS_SAYS.format('the proxies give', cluster, 'proxy', 'native')}: {_PROXY_IS_STORED}"
        return Idempotence.PROXY

    def following(self, stored: Stored, *, is_alone: bool) -> bytes | None:
        """Return what the stored mode becomes where the brokers are to give it, None: what it is. It is changing until
        no proxy is registered that gives it on all topics. ``is_alone``: it was seen that none is."""
        if stored.mode in (None, self.native_value):
            return None
        is_changing = stored.mode == CHANGES + self.native_value
        return self.native_value if is_changing and is_alone else None if is_changing else CHANGES + self.native_value


def native_though_brokers_cannot(cluster: str) -> str:
    """Return what is said where Redis says native, and a broker cannot give idempotence: it was rolled back."""
    return (
        f"Redis says that the brokers give idempotence under cluster name {cluster!r}: those that cannot are not "
        f"served. To go back, stop producers and proxies, delete the key idem:{cluster}:mode in Redis, and start them"
    )


NATIVE_LATER = (
    "all brokers have producer ids, and Redis has entries of producers: the proxy keeps giving idempotence, until the "
    "entries have expired (producers.expiry_seconds) or are removed (idemproxy forget){}. Then the brokers give it"
)
"""What is said where the mode is going to change; see ``NATIVE_SOON``."""
NATIVE_SOON = ", or until the brokers know the producers of all that is in flight (producers.client_retry_seconds_max)"

CHANGING = "the brokers take over: clients are served again when no proxy of the cluster gives idempotence any more"
"""What is said until the mode has changed."""

RESET_WHILE_CHANGING = "the mode in Redis was reset while it was changing: the next start goes by what is there then"
"""Why a process ends that has ended the mode before."""

_NATIVE_NOW = (
    "all brokers have producer ids and know what is in flight: from now on they give idempotence{}; clients are "
    "disconnected once (upstream.idempotence: native)"
)


def native_now(engine_topics: Iterable[str]) -> str:
    """Return what is said when the mode has changed. ``engine_topics``: their patterns."""
    topics = tuple(engine_topics)
    but = f", but for {shown_topics(topics)}" if topics else ", requests pass through, and Redis is not used"
    return _NATIVE_NOW.format(but)


def shown_topics(engine_topics: Iterable[str]) -> str:
    """Return patterns of topics as people read them."""
    return ", ".join(engine_topics) or "none"

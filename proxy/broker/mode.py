"""Who gives idempotence to the producers of one process, the proxy or the brokers: by what is configured, what the
brokers are, and what Redis says. Pure: ``served.py`` judges brokers, ``process/server.py`` asks Redis."""

from __future__ import annotations

from ...state.redis_claim import Stored
from ...state.store import MODE_NATIVE, MODE_PROXY
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


class Mode:
    """``wanted``: what is configured; None: it is chosen once it is known whether all brokers have producer ids.
    ``by_brokers``: what the listed brokers can be served as now; None: that is not known. ``chosen``: the mode now;
    None until it is chosen. ``appends_with_ids``: what the proxy appends has the clients' producer ids in any mode.
    ``probed``: what is known of brokers that do not show that they are Kafka."""

    __slots__ = ("appends_with_ids", "by_brokers", "chosen", "probed", "wanted")

    def __init__(self, wanted: Idempotence | None, *, appends_with_ids: bool = False) -> None:
        self.wanted = wanted
        self.appends_with_ids = appends_with_ids
        self.by_brokers: Idempotence | None = None
        self.probed: Probed | None = None
        self.chosen = wanted

    @classmethod
    def of_setting(cls, said: str) -> Mode:
        """Return the mode of ``upstream.idempotence``: auto, native or proxy."""
        return cls(None if said == "auto" else Idempotence(said))

    @property
    def is_native(self) -> bool:
        """Do the brokers give it?"""
        return self.chosen is Idempotence.NATIVE

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

        Once the proxies have given it, the brokers do only when no producer has an entry any more: what is in flight
        could be stored twice, once by either. ``auto`` does what Redis says, as long as it may."""
        kept = stored.mode
        if kept is None and stored.has_entries:
            kept = MODE_PROXY
        if kept not in (None, MODE_PROXY, MODE_NATIVE):
            unknown = kept.decode("utf-8", "backslashreplace")
            return f"Redis says that {unknown!r} gives idempotence under cluster name {cluster!r}: upgrade this proxy"
        if self.wanted is Idempotence.PROXY:
            if kept == MODE_NATIVE:
                says = _REDIS_SAYS.format("the brokers give", cluster, "native", "proxy")
                return f"{says}: {_NATIVE_IS_STORED.format(cluster)}"
            return Idempotence.PROXY
        if kept == MODE_NATIVE:
            return Idempotence.NATIVE
        if self.wanted is Idempotence.NATIVE and stored.has_proxies:  # they would keep running next to this one
            return f"{_REDIS_SAYS.format('the proxies give', cluster, 'proxy', 'native')}: {_PROXIES_RUN}"
        if Idempotence.NATIVE in (self.wanted, by_brokers) and (
            kept is None or not stored.has_entries or allows_duplicates
        ):
            return Idempotence.NATIVE
        if self.wanted is Idempotence.NATIVE:
            return f"{_REDIS_SAYS.format('the proxies give', cluster, 'proxy', 'native')}: {_PROXY_IS_STORED}"
        return Idempotence.PROXY


def native_though_brokers_cannot(cluster: str) -> str:
    """Return what is said where Redis says native, and a broker cannot give idempotence: it was rolled back."""
    return (
        f"Redis says that the brokers give idempotence under cluster name {cluster!r}: those that cannot are not "
        f"served. To go back, stop producers and proxies, delete the key idem:{cluster}:mode in Redis, and start them"
    )


NATIVE_LATER = (
    "all brokers have producer ids, and Redis has entries of producers: the proxy keeps giving idempotence. Once these "
    "producers are stopped and their entries have expired (producers.expiry_seconds) or are removed (idemproxy "
    "forget), the brokers give it"
)
"""What is said where the mode is going to change."""

NATIVE_NOW = (
    "no producer has an entry any more, and all brokers have producer ids: from now on they give idempotence, requests "
    "pass through, and Redis is not used; clients are disconnected once (upstream.idempotence: native)"
)

"""A whole world on one virtual network: proxies, a cluster, Redis and producers, put together and run to their end.

Owns construction and what a person wants to see of a run that failed. What happens to the world is up to the tests.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from testkit.virtual.broker_faults import BrokerFaultRates
from testkit.virtual.client import ClientSettings, VirtualClient
from testkit.virtual.cluster import ClusterSettings, VirtualCluster
from testkit.virtual.kafka_bytes import FETCH
from testkit.virtual.log import MESSAGE_BYTES_MAX
from testkit.virtual.network import Network, NetworkSettings
from testkit.virtual.pass_through_client import PassThroughClient, VirtualIntruder
from testkit.virtual.proxy import OWN_NAME, VirtualProxy
from testkit.virtual.redis import BLOCK, NAME, RedisFaultRates, VirtualRedis
from testkit.virtual.releases import OLD, Release
from testkit.virtual.thief import VirtualThief

REDIS_ADDRESS = ("redis", 6379)
TOPIC = "t"
START_SECONDS_MAX = 30.0


@dataclass(frozen=True, slots=True)
class WorldSettings:
    """How many of everything, and how it behaves."""

    proxies: int = 1
    brokers: int = 2
    partitions: int = 1
    clients: int = 1
    network: NetworkSettings = field(default_factory=NetworkSettings)
    cluster: ClusterSettings = field(default_factory=ClusterSettings)
    broker_faults: BrokerFaultRates = field(default_factory=BrokerFaultRates)
    redis_faults: RedisFaultRates = field(default_factory=RedisFaultRates)
    client: ClientSettings = field(default_factory=ClientSettings)
    clocks: tuple[tuple[float, float], ...] = ()
    """Of each proxy: for how long its machine was up before the run (s), and how fast its clock goes."""
    message_bytes_max: int = MESSAGE_BYTES_MAX
    compression: int | None = None
    """Of the topic: a codec, 0 for uncompressed, None for the producer's."""
    message_format: int = 1
    """Of the topic: 0 or 1."""
    shares_store: bool = True
    """Other proxies may use the same Redis; False: it is private to the one proxy, as ``idemproxy run`` starts it."""
    horizon_seconds: float | None = None
    """The longest time after which a client retries, as the proxies are configured; None: as shipped."""
    has_principals: bool = False
    """Clients have names, as with certificates, and the proxies know them; one more is a thief."""
    has_pass_through: bool = False
    """Clients show the brokers themselves who they are, and the brokers judge what they write."""
    thief_may_write: bool = False
    """Where clients authenticate at the brokers: the thief may write as well, under his own name."""
    expiry_seconds: float | None = None
    """After which the state of an idle producer expires; None: as shipped."""
    name_expiry_seconds: float | None = None
    """After which a name that is not used expires; None: as shipped."""
    wall_clock_rate: float = 1.0
    """How fast the wall clocks go by which producer ids get old."""
    has_names: bool = False
    """Client ids are names of producers."""
    release: Release = OLD
    """What the brokers are at first."""
    is_conditional: bool = False
    """The topic takes conditional publishes only."""
    late_share: float = 0.0
    """Of batches that are converted in a later pass, as where much is to be done."""
    traced_share: float = 0.0
    """Of the batches whose span is wanted: flows prepare them; 0: no spans are wanted."""
    owned_share: float = 0.0
    """Of the proxies' lives in which they take append reservations."""
    brokers_issue_ids: bool = False
    """Producer ids are the brokers', and noted in Redis."""
    appends_with_ids: bool = False
    """What the proxies append has the clients' producer ids, which the brokers check."""
    package: str = "idemproxy"
    """Under which name the proxy is imported: the shipped one, or a patched copy."""


class World:
    """Everything, ready to run."""

    def __init__(self, seed: int, settings: WorldSettings | None = None) -> None:
        self.settings = settings = settings or WorldSettings()
        self.network = Network(seed, settings.network)
        self.redis = VirtualRedis(self.network, REDIS_ADDRESS)
        if settings.has_principals or settings.has_names:  # what is known to Redis alone
            self.redis.server.keeps = NAME if settings.has_names else BLOCK
        self.cluster = VirtualCluster(
            self.network,
            {TOPIC: settings.partitions},
            broker_count=settings.brokers,
            settings=settings.cluster,
            release=settings.release,
        )
        for partition in self.cluster.partitions.values():
            partition.log.message_bytes_max = settings.message_bytes_max
            partition.log.compression = settings.compression
            partition.log.message_format = settings.message_format
        clocks = settings.clocks or ((0.0, 1.0),) * settings.proxies
        self.proxies = [
            VirtualProxy(
                self.network,
                f"proxy-{number}",
                self.cluster.addresses[(number - 1) % settings.brokers],
                REDIS_ADDRESS,
                package=settings.package,
                shares_store=settings.shares_store,
                clock_offset=offset,
                clock_rate=rate,
                has_names=settings.has_names,
                late_share=settings.late_share,
                traced_share=settings.traced_share,
                owned_share=settings.owned_share,
                horizon_seconds=settings.horizon_seconds,
                has_principals=settings.has_principals,
                authenticating_brokers=tuple(self.cluster.brokers) if settings.has_pass_through else (),
                expiry_seconds=settings.expiry_seconds,
                name_expiry_seconds=settings.name_expiry_seconds,
                wall_clock_rate=settings.wall_clock_rate,
                broker_issues=self.cluster.issue_id if settings.brokers_issue_ids else None,
                appends_with_ids=settings.appends_with_ids,
            )
            for number, (offset, rate) in enumerate(clocks, 1)
        ]
        for proxy in self.proxies if settings.is_conditional else ():
            proxy.be_conditional()
        addresses = [address for proxy in self.proxies for address in proxy.addresses]
        make_client = PassThroughClient if settings.has_pass_through else VirtualClient
        self.clients = [
            make_client(self.network, f"client-{number}", addresses, settings.client)
            for number in range(1, settings.clients + 1)
        ]
        for client in self.clients:
            if isinstance(client, PassThroughClient):
                client.fetch_version = max(PassThroughClient.fetch_version, settings.release.ranges[FETCH][0])
        self.thief = (VirtualIntruder if settings.has_pass_through else VirtualThief)(self.network)
        self.zombie = VirtualThief(self.network, "zombie")
        """Where client ids are names: what is left of their earlier instances."""
        self.double = VirtualThief(self.network, "double")
        self.inventor = VirtualThief(self.network, "inventor")
        """A second program that believes itself to be one of the producers."""
        if settings.has_pass_through:
            self.cluster.users = {client.name: True for client in self.clients}
            self.cluster.users |= {OWN_NAME: False, self.thief.host.name: settings.thief_may_write}

    def start(self) -> None:
        """Run until every proxy listens; faults begin then."""
        ready = self.network.run(START_SECONDS_MAX, lambda: all(proxy.is_listening for proxy in self.proxies))
        assert ready, "a proxy does not come up in a calm world"
        self.unsettle()

    def unsettle(self) -> None:
        """From here on faults happen."""
        self.cluster.settings = self.settings.cluster
        self.cluster.rates = self.settings.broker_faults
        self.redis.rates = self.settings.redis_faults

    def calm(self) -> None:
        """No more faults from here on."""
        self.cluster.rates = BrokerFaultRates()
        self.cluster.settings = replace(self.cluster.settings, stall_chance=0.0)
        self.redis.rates = RedisFaultRates()
        for proxy in self.proxies:
            if not proxy.is_up:
                proxy.come_back(0.0)

    @property
    def is_done(self) -> bool:
        """Every user knows how each batch ended."""
        return all(client.is_done for client in self.clients)

    def errors(self) -> list[str]:
        """Errors of the proxies' own: there may be none, whatever happens."""
        return [error for proxy in self.proxies for error in proxy.errors]

    def story(self) -> str:
        """What the proxies reported, in order of time, and what is unfinished: for the one who reads a failure."""
        lines = [
            (at, f"{at:10.3f} {proxy.name}.{instance} {event}")
            for proxy in self.proxies
            for at, instance, event in proxy.events
        ]
        unfinished = [
            f"unfinished: {batch.values[0]!r} {batch.identity} answers {batch.answers[-3:]}"
            for client in self.clients
            for batch in client.leaves
            if not batch.is_done
        ]
        return "\n".join([line for _, line in sorted(lines, key=lambda line: line[0])] + unfinished)

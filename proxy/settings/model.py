"""The configuration file as pydantic models: sections, their fields and what each may hold. The docstrings are the
texts of the JSON schema. Reads no file but to see that a named one can be read; ``to_settings`` gives plain data."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    SecretStr,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)
from pydantic_settings import BaseSettings, SettingsConfigDict

from ...codecs.convert import TRACING_HEADERS
from ...state.redis_facts import RedisAddress, parse_redis_url
from .. import limits
from .addresses import (
    Advertised,
    Listener,
    clash_with,
    clashes,
    own_clash,
    parse_advertised,
    parse_broker_ids,
    parse_host_and_port,
)
from .config import (
    DEFAULT_CLUSTER,
    DEFAULT_DATA_DIRECTORY,
    DEFAULT_LISTEN,
    Caps,
    JournalSettings,
    OldClientSettings,
    Settings,
    TopicDefaults,
)
from .fields import (
    BYTES_MAX,
    SECONDS_MAX,
    AdvertisedTemplate,
    BrokerIds,
    ClusterName,
    HostAndPort,
    RedisUrl,
    Seconds,
    SecretFile,
    Section,
    TextList,
    from_text,
    secret_of,
)
from .sasl_section import SaslSection
from .tls_section import ClientTlsSection, ServerTlsSection, UpstreamTlsSection

ENVIRONMENT_PREFIX = "IDEMPROXY_"
DEFAULT_ADMIN = "127.0.0.1:9644"


class UpstreamSection(Section):
    """The cluster with the old brokers."""

    bootstrap: Annotated[TextList[HostAndPort], Field(min_length=1)]
    """Brokers to begin with, HOST:PORT each; all are tried at once, the others are found."""
    tls: UpstreamTlsSection | None = None
    sasl: SaslSection | None = None
    idempotence: Literal["auto", "native", "proxy"] = "auto"
    """Who gives producers their idempotence. native: the brokers, Kafka >= 0.11; requests pass as they are, but for
    those of old clients. proxy: idemproxy, for Kafka 0.10. auto: native if all brokers are Kafka >= 0.11 and none
    stores message format v0 or v1, else proxy. Once proxies have given it, auto stays with proxy as long as Redis has
    entries of producers."""
    allow_duplicates_in_flight: bool = False
    """Let the brokers give idempotence though Redis has entries of producers: records that these have in flight then
    may be stored twice. For the last step of an upgrade of the brokers."""
    allow_unauthenticated_clients: bool = False
    """Clients that do not authenticate may act with the rights that the proxy's principal has at the brokers."""

    @property
    def has_principal(self) -> bool:
        """Is the proxy authenticated at the brokers?"""
        return self.sasl is not None or (self.tls is not None and self.tls.cert_file is not None)


class ListenerSection(Section):
    """A listener for clients: a bootstrap port, and a port or a server name per broker."""

    name: Annotated[str, Field(pattern=r"^[a-zA-Z0-9][a-zA-Z0-9_-]{0,62}$")] = "clients"
    """What the listener is called in logs and metrics."""
    bind: HostAndPort = DEFAULT_LISTEN
    """Bootstrap address HOST:PORT; 0.0.0.0 and [::] stand for all addresses of the machine."""
    first_broker_port: Annotated[int, Field(ge=1, le=65_535)] | None = None
    """Port of broker 0, or of the first of `broker_ids`. Default: the bootstrap port plus one."""
    broker_ids: BrokerIds | None = None
    """Brokers that get a port here, such as `0-2,1001`, in the order of the ports; all are opened at the start, and
    brokers with other ids are not served. Default: broker N gets `first_broker_port` + N."""
    advertised: AdvertisedTemplate = "{host}:{port}"
    """The address that clients get, HOST:PORT. {id}: the broker's id; {port}: the port of its listener, both also
    with a number added as in {port+20000}; {host}: our address as the client reached it."""
    routing: Literal["port", "sni"] = "port"
    """port: a port per broker. sni: one port for all; the server name that a TLS client sends says which broker."""
    bootstrap_name: str | None = None
    """With sni: the server name by which clients reach any broker."""
    authentication: Literal["none", "pass_through"] = "none"
    """pass_through: clients authenticate at the broker itself (SASL), each over a connection of its own."""
    tls: ServerTlsSection | None = None

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        problems = []
        if self.routing == "sni":
            if self.tls is None:
                problems.append("routing sni needs tls")
            if not parse_advertised(self.advertised).names_brokers:
                problems.append("routing sni needs {id} in the host of advertised, one name per broker")
            if self.bootstrap_name is None:
                problems.append("routing sni needs bootstrap_name")
            if self.first_broker_port is not None:
                problems.append("routing sni has one port: first_broker_port has no meaning")
        elif self.bootstrap_name is not None:
            problems.append("bootstrap_name is for routing sni")
        if not problems and (clash := own_clash(self.to_settings())):
            problems.append(clash)
        if problems:
            raise ValueError("\n".join(problems))
        return self

    def to_settings(self) -> Listener:
        """Return plain data."""
        host, port = parse_host_and_port(self.bind)
        return Listener(
            self.name,
            host,
            port,
            self.first_broker_port or port + 1,
            parse_broker_ids(self.broker_ids) if self.broker_ids is not None else (),
            parse_advertised(self.advertised) if self.advertised != str(Advertised()) else Advertised(),
            self.routing,
            self.bootstrap_name,
            self.tls.to_settings() if self.tls is not None else None,
            self.authentication,
        )

    @property
    def requires_authentication(self) -> bool:
        """Does every client have to authenticate?"""
        return self.authentication != "none" or (self.tls is not None and self.tls.client_auth == "required")


class RedisSection(Section):
    """Where the state is kept."""

    url: RedisUrl | None = None
    """`redis://[user:password@]host[:port][/database]` or `unix:///path`. Default: a private server in
    `data_directory`, for one proxy alone."""
    username: str | None = None
    """User to log in as, if it is not in the URL."""
    password: SecretStr | None = None
    """Password, if it is not in the URL. Better in a file or in the environment."""
    password_file: SecretFile | None = None
    """File that holds the password."""
    tls: ClientTlsSection | None = None

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.url is None:
            if given := [name for name in ("username", "password", "password_file", "tls") if getattr(self, name)]:
                raise ValueError(f"{', '.join(given)} without a url: the private Redis needs none")
            return self
        said = parse_redis_url(self.url)
        if (said.password is not None) + (self.password is not None) + (self.password_file is not None) > 1:
            raise ValueError("the password is said twice: in url, password or password_file")
        if self.username is not None and said.username is not None:
            raise ValueError("the user name is said twice: in url and in username")
        if self.username is not None and not (said.password or self.password or self.password_file):
            raise ValueError("username without a password")
        return self

    def to_settings(self) -> RedisAddress | None:
        """Return where it is and how to log in. Reads the password's file."""
        if self.url is None:
            return None
        said = parse_redis_url(self.url)
        password = said.password or secret_of(self.password, self.password_file)
        return RedisAddress(said.address, said.username or self.username, password, said.database)


class ProducersSection(Section):
    """What is stored of producers, and how their batches are stored."""

    expiry_seconds: Seconds = limits.PRODUCER_EXPIRY_SECONDS
    """The state of a producer that is idle for so long expires."""
    client_retry_seconds_max: Annotated[int, Field(ge=limits.CLIENT_RETRY_SECONDS_MAX_LEAST, le=SECONDS_MAX)] = (
        limits.CLIENT_RETRY_SECONDS_MAX
    )
    """At least twice the clients' delivery timeout (delivery.timeout.ms): bounds how far back lost state is looked
    for."""
    append_reservations: bool = True
    """Reserve the appends of a busy producer for a time, not each of its batches: less CPU, shorter waits, hardly a
    write to Redis. false: each batch is in Redis before it leaves, so less depends on the log after a crash or a pause
    of the machine. The page "Guarantees and limits" says what may be duplicated then."""
    names: TextList[str] = Field(default=[])
    """Client ids that are names of producers; * stands for any text. A new producer fences the earlier one of
    its name. A transactional id that comes without a transaction is a name in any case."""
    dropped_headers: TextList[str] = Field(default=list(TRACING_HEADERS))
    """Record headers that may be dropped, as message format v1 has none; * stands for any text. Others are refused."""
    upstream_idempotence: TextList[str] = Field(default=[])
    """Client ids of producers without idempotence; * stands for any text. In front of Kafka >= 0.11 the proxy writes
    their batches with producer ids of its own. Clients with idempotence are left alone. A reload concerns connections
    that have not produced yet."""


class TopicsSection(Section):
    """What a topic gets that is created without a number (`-1`, CreateTopics 4): brokers before 2.4 cannot be asked to
    choose. Best what the brokers have in `num.partitions` and `default.replication.factor`. Can be reloaded, but for
    `conditional` and `engine`."""

    default_partitions: Annotated[int, Field(ge=1, le=limits.NEW_TOPIC_PARTITIONS_MAX)] = 1
    """Partitions of such a topic."""
    default_replication_factor: Annotated[int, Field(ge=1, le=32767)] = 1
    """Replicas of each of its partitions."""
    conditional: TextList[str] = Field(default=[])
    """Topics that take only batches which say at which offset they have to be; * stands for any text. All proxies of a
    cluster name need the same list. Not reloaded."""
    engine: TextList[str] = Field(default=[])
    """Topics on which the proxy gives idempotence, with Redis, where brokers give it on all others (native); * stands
    for any text. Those of `conditional` are such topics, too. All proxies of a cluster name need the same list. Not
    reloaded."""

    def to_settings(self) -> TopicDefaults:
        """Return plain data."""
        return TopicDefaults(**self.model_dump(exclude={"conditional", "engine"}))


class OldClientsSection(Section):
    """Clients that speak versions which Kafka 4 lacks, in front of brokers that give idempotence themselves. With
    `upstream.idempotence: proxy` these settings are refused, as they have no effect."""

    translate: Literal["auto", "always", "never"] = "auto"
    """auto: requests in versions that a broker lacks are rewritten to one that it has, and its answers back. always:
    also those that Kafka 4 would lack, so that they are tried before the brokers are upgraded. never: they are refused
    where a broker lacks them."""
    fetch: Literal["uncommitted", "committed"] = "uncommitted"
    """Which records Fetch 0 to 3 returns where it is rewritten. uncommitted: all, as Kafka did. committed: not those
    of open and aborted transactions."""
    timestamps: Literal["arrival", "missing"] = "arrival"
    """What records of message format v0 get, which have none. arrival: the time at which they came. missing: -1, as
    Kafka 0.10 to 3.9 stored; retention by time then goes by the file's time."""

    def to_settings(self) -> OldClientSettings:
        """Return plain data."""
        return OldClientSettings(**self.model_dump())


class HiddenRangesSection(Section):
    """Duplicates in a log that fetches leave out (`idemproxy hide`)."""

    topic: Annotated[str, Field(pattern=r"^[a-zA-Z0-9._-]{1,249}$")] | None = None
    """A topic with cleanup.policy=compact and one partition that gets a copy of each hidden range, from which Redis can
    be filled again. Default: none."""


class LimitsSection(Section):
    """What one process accepts before it refuses or makes clients wait. All of it can be reloaded."""

    connections_max: Annotated[int, Field(ge=1, le=1_000_000)] = limits.CONNECTIONS_MAX
    """Client connections at a time. Above it the connection that was idle for longest is closed for a new one."""
    connections_per_ip_max: Annotated[int, Field(ge=0, le=1_000_000)] = limits.CONNECTIONS_PER_IP_MAX
    """Of these, from one address (of IPv6: one /64). 0: no limit, as behind a load balancer that hides addresses."""
    connection_creation_rate_max: Annotated[int, Field(ge=0, le=1_000_000)] = limits.CONNECTION_CREATION_RATE_MAX
    """New connections; five seconds' worth may come at once, what is above waits and is not refused. 0: no limit."""
    unauthenticated_max: Annotated[int, Field(ge=0, le=1_000_000)] = limits.UNAUTHENTICATED_MAX
    """Connections to listeners with pass_through that have not authenticated; above it the oldest one is closed. 0: no
    limit."""
    unauthenticated_per_ip_max: Annotated[int, Field(ge=0, le=1_000_000)] = limits.UNAUTHENTICATED_PER_IP_MAX
    """Of these, from one address; above it the oldest one from there is closed. 0: no limit."""
    request_bytes_max: Annotated[int, Field(ge=1024, le=BYTES_MAX)] = limits.REQUEST_BYTES_MAX
    """The largest request."""
    requests_in_flight_max: Annotated[int, Field(ge=1, le=10_000)] = limits.REQUESTS_IN_FLIGHT_MAX
    """Requests of one connection that wait for their answer; more are read later."""
    client_response_bytes_max: Annotated[int, Field(ge=1024, le=BYTES_MAX)] = limits.CLIENT_RESPONSE_BYTES_MAX
    """Answers that one slow client has not read; above this nothing more is read from it."""
    request_bytes_total_max: Annotated[int, Field(ge=1024, le=2**40)] = limits.REQUEST_BYTES_TOTAL_MAX
    """Requests of all clients that wait anywhere in the process."""
    response_bytes_total_max: Annotated[int, Field(ge=1024, le=2**40)] = limits.RESPONSE_BYTES_TOTAL_MAX
    """Answers that all clients have not read; above this nothing is read from clients that have more than a little
    waiting."""
    idle_seconds: Annotated[int, Field(ge=60, le=SECONDS_MAX)] = int(limits.IDLE_SECONDS)
    """A connection without a request for so long is closed, as Kafka's connections.max.idle.ms says for a broker."""
    producers_max: Annotated[int, Field(ge=1, le=100_000_000)] = limits.SEQUENCERS_MAX
    """Producers and partitions held in memory; above it idle ones are dropped, and read again when they come back."""
    produce_connections_per_broker_max: Annotated[int, Field(ge=1, le=limits.PRODUCE_CONNECTIONS_PER_BROKER_MAX)] = (
        limits.PRODUCE_CONNECTIONS_PER_BROKER
    )
    """Connections that carry appends to one broker, opened as they are needed. Slow partitions have two more for
    themselves, and a request that waits for one of them does not count."""
    drain_seconds: Annotated[float, Field(ge=0, le=3600)] = limits.DRAIN_SECONDS
    """After SIGTERM: how long what is in flight may take to finish."""

    def to_settings(self) -> Caps:
        """Return plain data."""
        return Caps(**self.model_dump())


class AdminSection(Section):
    """Health, metrics and status page. Without this section there is no admin port; the image has one."""

    bind: HostAndPort = DEFAULT_ADMIN
    """HOST:PORT. Every client that reaches it may read: keep it inside."""


class LogSection(Section):
    """Lines on standard error."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """The least that is written."""
    format: Literal["text", "json"] = "text"
    """text for people, json for collectors: one object per line."""
    lines_per_minute_max: Annotated[int, Field(ge=0, le=1_000_000)] = limits.LINES_PER_MINUTE_MAX
    """Of each kind that clients can cause at will, such as refusals; one line says how many more there were. 0: all."""


class JournalSection(Section):
    """File that gets a JSON line for every append, its outcome and its answer. A path alone is short for `path`. All
    but the path can be reloaded."""

    path: Path
    """The current file; with several workers its name and the number of each. Older ones have the time at their end."""
    rotate_bytes: Annotated[int, Field(ge=0, le=2**40)] = limits.JOURNAL_ROTATE_BYTES
    """Above this size the file is renamed, and a new one begins. 0: never."""
    keep_files: Annotated[int, Field(ge=0, le=1_000_000)] = limits.JOURNAL_KEEP_FILES
    """Renamed files that are kept; above it the oldest are deleted. 0: all are kept."""
    fsync_seconds: Annotated[float, Field(ge=0, le=3600)] = limits.JOURNAL_FSYNC_SECONDS
    """How often lines are brought to the disk (fsync), by a thread: a power cut may lose the last ones. 0: all the
    time, as fast as the disk can."""
    required: bool = False
    """No idempotent client gets an answer without its line: while the journal cannot be written, clients are
    disconnected and refused. false: they are served, and what is missing is counted."""

    def to_settings(self) -> JournalSettings:
        """Return plain data."""
        return JournalSettings(**self.model_dump())


def _fit_together(listeners: list[ListenerSection], info: ValidationInfo) -> list[ListenerSection]:
    if problems := listener_problems(listeners, info.data.get("upstream")):
        raise ValueError("\n".join(problems))
    return listeners


def _is_apart(admin: AdminSection | None, info: ValidationInfo) -> AdminSection | None:
    if admin is not None and (problem := admin_problem(admin, info.data.get("listeners", ()))):
        raise ValueError(problem)
    return admin


Listeners = Annotated[
    list[ListenerSection],
    Field(min_length=1),
    BeforeValidator(from_text),
    AfterValidator(_fit_together),
]


def _path_alone(journal: object) -> object:
    return {"path": journal} if isinstance(journal, str | Path) else journal


Journal = Annotated[
    JournalSection | None,
    BeforeValidator(_path_alone, json_schema_input_type=JournalSection | Path | None),
]


def _workers(value: Any, read: ValidatorFunctionWrapHandler) -> Any:
    """One sentence: of a choice pydantic says what is wrong with each alternative."""
    try:
        return read(value)
    except ValidationError:
        raise ValueError(f"expected auto, or a number from 1 to {limits.WORKERS_MAX}") from None


Workers = Annotated[Annotated[int, Field(ge=1, le=limits.WORKERS_MAX)] | Literal["auto"], WrapValidator(_workers)]


class Configuration(BaseSettings):
    """Configuration of idemproxy."""

    model_config = SettingsConfigDict(
        extra="forbid",
        frozen=True,
        use_attribute_docstrings=True,
        hide_input_in_errors=True,
        validate_default=True,
        enable_decoding=False,
        env_prefix=ENVIRONMENT_PREFIX,
        env_nested_delimiter="__",
        env_ignore_empty=True,
        title="idemproxy",
    )

    upstream: UpstreamSection
    listeners: Listeners = [ListenerSection()]
    """One or several ways in."""
    redis: RedisSection = RedisSection()
    data_directory: Path = Path(DEFAULT_DATA_DIRECTORY)
    """This process's own directory; after a restart on it the proxy takes over at once what it left open before."""
    cluster_name: ClusterName = DEFAULT_CLUSTER
    """Name of the cluster, part of every key in Redis: proxies with the same name and Redis share their producers."""
    producers: ProducersSection = ProducersSection()
    topics: TopicsSection = TopicsSection()
    old_clients: OldClientsSection = OldClientsSection()
    hidden_ranges: HiddenRangesSection = HiddenRangesSection()
    limits: LimitsSection = LimitsSection()
    admin: Annotated[AdminSection | None, AfterValidator(_is_apart)] = None
    log: LogSection = LogSection()
    journal: Journal = None
    """File that gets a JSON line for every append, its outcome and its answer: a path, or a section. Default: none."""
    workers: Workers = 1
    """Processes that serve the same ports side by side. auto: one for each core that this process may use."""

    def to_settings(self) -> Settings:
        """Return plain data. Reads the files of passwords; raises OSError when one has gone, ValueError when it is no
        text."""
        return Settings(
            upstream=tuple(map(parse_host_and_port, self.upstream.bootstrap)),
            listeners=tuple(listener.to_settings() for listener in self.listeners),
            redis=self.redis.to_settings(),
            data_directory=self.data_directory,
            cluster=self.cluster_name,
            upstream_tls=self.upstream.tls.to_settings() if self.upstream.tls is not None else None,
            upstream_sasl=self.upstream.sasl.to_settings() if self.upstream.sasl is not None else None,
            idempotence=self.upstream.idempotence,
            allows_duplicates_in_flight=self.upstream.allow_duplicates_in_flight,
            allow_unauthenticated_clients=self.upstream.allow_unauthenticated_clients,
            redis_tls=self.redis.tls.to_settings() if self.redis.tls is not None else None,
            producer_expiry_seconds=self.producers.expiry_seconds,
            append_reservations=self.producers.append_reservations,
            client_retry_seconds_max=self.producers.client_retry_seconds_max,
            producer_names=tuple(self.producers.names),
            dropped_headers=tuple(self.producers.dropped_headers),
            upstream_idempotence=tuple(self.producers.upstream_idempotence),
            conditional_topics=tuple(self.topics.conditional),
            engine_topics=tuple(self.topics.engine),
            hidden_ranges_topic=self.hidden_ranges.topic,
            topics=self.topics.to_settings(),
            old_clients=self.old_clients.to_settings(),
            limits=self.limits.to_settings(),
            admin=parse_host_and_port(self.admin.bind) if self.admin is not None else None,
            log_level=self.log.level,
            log_format=self.log.format,
            log_lines_per_minute_max=self.log.lines_per_minute_max,
            journal=self.journal.to_settings() if self.journal is not None else None,
            workers=0 if self.workers == "auto" else self.workers,
        )


# Which sections, each of them right in itself, do not fit together.
def listener_problems(listeners: Sequence[ListenerSection], upstream: UpstreamSection | None) -> list[str]:
    """Return what is wrong with listeners among themselves and with these brokers (None: they are not known)."""
    found = clashes(tuple(listener.to_settings() for listener in listeners))
    return found if upstream is None else [*found, *_strangers(listeners, upstream)]


def _strangers(listeners: Sequence[ListenerSection], upstream: UpstreamSection) -> list[str]:
    """What the brokers allow the proxy's principal, all its clients can do: so they have to authenticate, too."""
    if upstream.sasl is None and any(one.authentication == "pass_through" for one in listeners):
        return ["authentication pass_through needs upstream.sasl: what is in doubt is read as our principal"]
    if upstream.allow_unauthenticated_clients or not upstream.has_principal:
        return []
    open_ones = [one.name for one in listeners if not one.requires_authentication]
    if not open_ones:
        return []
    return [
        f"any client that connects to {', '.join(map(repr, open_ones))} would act at the brokers with the rights of "
        "the proxy's own principal: have clients show who they are (in the listener tls with client_auth: required, or "
        "authentication: pass_through), or say upstream.allow_unauthenticated_clients: true"
    ]


def admin_problem(admin: AdminSection, listeners: Sequence[ListenerSection]) -> str | None:
    """Return a sentence if the admin port is one of these listeners', None if not."""
    return clash_with(parse_host_and_port(admin.bind), tuple(listener.to_settings() for listener in listeners))

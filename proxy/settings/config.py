"""The settings of one proxy process: plain, frozen, complete. Nothing is read or looked up here; ``load.py``
makes them from a file, the environment and the command line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ...codecs.convert import TRACING_HEADERS
from ...state.redis_facts import RedisAddress
from .. import limits
from .addresses import Listener
from .sasl import SaslClient
from .tls import TlsClient

CONFIG_VARIABLE = "IDEMPROXY_CONFIG"
"""The variable that names the file; empty counts as not set."""
DEFAULT_LISTEN = "127.0.0.1:9092"
DEFAULT_LISTEN_VARIABLE = "IDEMPROXY_DEFAULT_LISTEN"
DEFAULT_ADMIN_VARIABLE = "IDEMPROXY_DEFAULT_ADMIN_BIND"
"""Set by the container image: the addresses of the listener and of the admin port if neither file, variable nor option
sets them."""
DEFAULT_CLUSTER = "default"
DEFAULT_DATA_DIRECTORY = "data"


class ConfigError(Exception):
    """The settings cannot be used; one sentence per problem."""

    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(problems))
        self.problems: Sequence[str] = problems


@dataclass(frozen=True, slots=True)
class Caps:
    """The limits that an operator may set; the reasons for the defaults are in ``limits.py``."""

    connections_max: int = limits.CONNECTIONS_MAX
    connections_per_ip_max: int = limits.CONNECTIONS_PER_IP_MAX
    connection_creation_rate_max: int = limits.CONNECTION_CREATION_RATE_MAX
    unauthenticated_max: int = limits.UNAUTHENTICATED_MAX
    unauthenticated_per_ip_max: int = limits.UNAUTHENTICATED_PER_IP_MAX
    request_bytes_max: int = limits.REQUEST_BYTES_MAX
    requests_in_flight_max: int = limits.REQUESTS_IN_FLIGHT_MAX
    client_response_bytes_max: int = limits.CLIENT_RESPONSE_BYTES_MAX
    request_bytes_total_max: int = limits.REQUEST_BYTES_TOTAL_MAX
    response_bytes_total_max: int = limits.RESPONSE_BYTES_TOTAL_MAX
    idle_seconds: float = limits.IDLE_SECONDS
    producers_max: int = limits.SEQUENCERS_MAX
    produce_connections_per_broker_max: int = limits.PRODUCE_CONNECTIONS_PER_BROKER
    drain_seconds: float = limits.DRAIN_SECONDS


@dataclass(frozen=True, slots=True)
class TopicDefaults:
    """Partitions and replicas of a topic that is created with -1 for them (KIP-464); the defaults are Kafka's."""

    default_partitions: int = 1
    default_replication_factor: int = 1


@dataclass(frozen=True, slots=True)
class OldClientSettings:
    """What is done for clients of versions that Kafka 4 lacks. ``translate``: auto, always or never. ``fetch``:
    committed or uncommitted. ``timestamps``: arrival or missing."""

    translate: str = "auto"
    fetch: str = "uncommitted"
    timestamps: str = "arrival"


@dataclass(frozen=True, slots=True)
class JournalSettings:
    """Where the journal is, and how its files are kept. ``rotate_bytes``, ``keep_files`` 0: never, all. ``required``:
    no idempotent client gets an answer while it cannot be written."""

    path: Path
    rotate_bytes: int = limits.JOURNAL_ROTATE_BYTES
    keep_files: int = limits.JOURNAL_KEEP_FILES
    fsync_seconds: float = limits.JOURNAL_FSYNC_SECONDS
    required: bool = False


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of ``idemproxy run``. ``redis`` None: a private server in ``data_directory``; ``admin`` None: no
    admin port, a text: the path of a unix socket. ``workers``: processes, 0: one for each core that may be used."""

    upstream: tuple[tuple[str, int], ...]
    listeners: tuple[Listener, ...]
    redis: RedisAddress | None = None
    data_directory: Path = Path(DEFAULT_DATA_DIRECTORY)
    cluster: str = DEFAULT_CLUSTER
    upstream_tls: TlsClient | None = None
    upstream_sasl: SaslClient | None = None
    idempotence: str = "auto"
    allows_duplicates_in_flight: bool = False
    allow_unauthenticated_clients: bool = False
    redis_tls: TlsClient | None = None
    producer_expiry_seconds: int = limits.PRODUCER_EXPIRY_SECONDS
    append_reservations: bool = True
    client_retry_seconds_max: int = limits.CLIENT_RETRY_SECONDS_MAX
    producer_names: tuple[str, ...] = ()
    dropped_headers: tuple[str, ...] = TRACING_HEADERS
    upstream_idempotence: tuple[str, ...] = ()
    conditional_topics: tuple[str, ...] = ()
    engine_topics: tuple[str, ...] = ()
    hidden_ranges_topic: str | None = None
    log_lines_per_minute_max: int = limits.LINES_PER_MINUTE_MAX
    topics: TopicDefaults = TopicDefaults()
    old_clients: OldClientSettings = OldClientSettings()
    limits: Caps = Caps()
    admin: tuple[str, int] | str | None = None
    log_level: str = "info"
    log_format: str = "text"
    journal: JournalSettings | None = None
    workers: int = 1

    @property
    def topics_of_engine(self) -> tuple[str, ...]:
        """Patterns of the topics on which the proxy gives idempotence where brokers give it on all others."""
        return (*self.engine_topics, *self.conditional_topics)

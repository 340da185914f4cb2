"""The options of the sink: Spark's own names, and Kafka's with the prefix ``kafka.``. An unknown one is refused. Pure.

Spark plans each micro-batch in a fresh process, so the client, which takes half a second, is imported where it is used.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ...codecs.compression import Codec
from ...codecs.sasl import PLAIN, SCRAM_HASHES
from .problems import SinkProblem

if TYPE_CHECKING:
    from ...client import Client

EXPIRY_SECONDS: Final = 86_400
"""How long servers keep a producer without a new batch: ``producers.expiry_seconds`` of the proxy, and of brokers
``producer.id.expiration.ms``."""
BATCH_BYTES: Final = 256 * 1024
"""A batch before compression. Old consumers have to fetch it whole, with a fetch size of 1 MiB, and in message
format v1 it grows."""
BATCH_BYTES_MAX: Final = 8 << 20
RECORD_BYTES_MAX: Final = 1 << 20
"""Kafka's max.request.size. A record that the broker does not take would hold up the query for ever, so it is refused
before its batch is numbered."""
DELIVERY_SECONDS: Final = 120.0
REQUEST_SECONDS: Final = 30.0

_SPARK: Final = (
    "topic",
    "includeHeaders",  # of no effect, as in Spark's own sink: a column headers is always written
    "checkpointLocation",
    "queryName",
    "producerName",
    "stagingLocation",
    "producerExpirySeconds",
    "fencing",
)
_SHOWN: Final = {name.lower(): name for name in _SPARK}
"""Spark tells names in lower case."""
_KAFKA: Final = (
    "acks",
    "batch.size",
    "bootstrap.servers",
    "client.id",
    "compression.type",
    "delivery.timeout.ms",
    "enable.idempotence",
    "max.request.size",
    "request.timeout.ms",
    "sasl.jaas.config",
    "sasl.mechanism",
    "security.protocol",
    "ssl.key.password",
    "ssl.keystore.location",
    "ssl.keystore.type",
    "ssl.truststore.location",
    "ssl.truststore.type",
)
_CODECS: Final = {codec.name.lower(): codec for codec in Codec}
_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_FENCING: Final = ("NONE", "NAME")
_MECHANISMS: Final = (PLAIN, *SCRAM_HASHES)
_ADDRESS: Final = re.compile(r"\s*(\[[^\]]+\]|[^\s:,]+):[0-9]{1,5}\s*")
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,200}")
_JAAS_FIELD: Final = re.compile(r'\b(username|password)\s*=\s*"((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True, slots=True)
class Login:
    """The login by SASL."""

    mechanism: str
    username: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Connection:
    """How the cluster, or the proxy in front of it, is reached. Travels to the tasks."""

    bootstrap: str
    client_id: str
    protocol: str = "PLAINTEXT"
    login: Login | None = None
    ca_file: str | None = None
    cert_file: str | None = None
    key_password: str | None = field(default=None, repr=False)
    request_seconds_max: float = REQUEST_SECONDS

    def client(self) -> Client:
        """Return a client; nothing is connected yet. Raises SinkProblem."""
        from ...client import Client, Sasl, tls_context

        tls = None
        if self.protocol.endswith("SSL"):
            try:
                tls = tls_context(ca_file=self.ca_file, cert_file=self.cert_file, key_password=self.key_password)
            except OSError as error:
                raise SinkProblem(f"kafka.ssl.*: {error}") from None
        login = self.login
        return Client(
            self.bootstrap,
            client_id=self.client_id,
            tls=tls,
            sasl=None if login is None else Sasl(login.mechanism, login.username, login.password),
            request_seconds_max=self.request_seconds_max,
        )


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The options of a query. ``folder``: its checkpoint; for a batch write the folder of the run. ``topic`` None: it
    is in a column."""

    connection: Connection
    folder: str
    topic: str | None
    producer_name: str | None
    codec: Codec = Codec.NONE
    batch_bytes: int = BATCH_BYTES
    record_bytes_max: int = RECORD_BYTES_MAX
    delivery_seconds_max: float = DELIVERY_SECONDS
    expiry_seconds: int = EXPIRY_SECONDS
    is_fenced: bool = False
    """The server knows the producer by the query's name, whose newest instance alone may write."""
    is_run: bool = False
    """A batch write: one batch, whose name stands for its rows. False: a streaming query."""

    @property
    def location(self) -> str:
        """Where the sink's own files are, next to what Spark keeps in the folder."""
        return f"{self.folder}/sink"


def sink_options(given: Mapping[str, str], *, is_streaming: bool) -> SinkOptions:
    """Return what a query's options say. Raises SinkProblem."""
    options = {name.lower(): value for name, value in given.items()}
    _refuse_what_the_sink_is_not(options)
    _refuse_unknown(given)
    topic = options.get("topic")
    name = options.get("producername")
    if name is not None and not _NAME.fullmatch(name):
        raise SinkProblem(f"producerName {name!r}: letters, digits, dot, dash and underscore, up to 200")
    batch_bytes = _number(options, "kafka.batch.size", BATCH_BYTES, range(1024, BATCH_BYTES_MAX + 1))
    return SinkOptions(
        _connection(options),
        _checkpoint(options) if is_streaming else _run_folder(options),
        topic or None,
        name,
        _CODECS[_one_of(options, "kafka.compression.type", "none", _CODECS)],
        batch_bytes,
        _number(options, "kafka.max.request.size", RECORD_BYTES_MAX, range(1024, 1 << 30)),
        _number(options, "kafka.delivery.timeout.ms", int(DELIVERY_SECONDS * 1000), range(1, 1 << 31)) / 1000,
        _number(options, "producerexpiryseconds", EXPIRY_SECONDS, range(1, 1 << 31)),
        _one_of(options, "fencing", "NONE", _FENCING) == "NAME",
        not is_streaming,
    )


def known_options() -> list[str]:
    """Return the names of all options."""
    return [*_SPARK, *(f"kafka.{name}" for name in _KAFKA)]


def _refuse_unknown(given: Mapping[str, str]) -> None:
    known = {name.lower() for name in known_options()}
    unknown = sorted(name for name in given if name.lower() not in known)
    if unknown:
        raise SinkProblem(f"unknown options: {', '.join(unknown)}; known are {', '.join(known_options())}")


def _refuse_what_the_sink_is_not(options: Mapping[str, str]) -> None:
    if "path" in options:
        raise SinkProblem("a path was given, as to save(path) or start(path): the topic is set by the option topic")
    if options.get("kafka.acks", "all") not in ("all", "-1"):
        raise SinkProblem("kafka.acks: an exactly-once sink needs all, which is the default")
    if options.get("kafka.enable.idempotence", "true").lower() != "true":
        raise SinkProblem("kafka.enable.idempotence: an exactly-once sink needs true, which is the default")


def _checkpoint(options: Mapping[str, str]) -> str:
    if "staginglocation" in options:
        raise SinkProblem("stagingLocation is for batch writes; a streaming query has its checkpointLocation")
    checkpoint = options.get("checkpointlocation")
    if not checkpoint:
        raise SinkProblem(
            "checkpointLocation has to be an option of the query itself: what the session's "
            "spark.sql.streaming.checkpointLocation says does not reach a sink"
        )
    return checkpoint.rstrip("/")


def _run_folder(options: Mapping[str, str]) -> str:
    staging, name = options.get("staginglocation"), options.get("producername")
    if not staging or not name:
        raise SinkProblem(
            "a batch write has no checkpoint: give it a stagingLocation, which driver and executors share, and a "
            "producerName, which names this run: a run that is repeated under its name appends nothing twice"
        )
    return f"{staging.rstrip('/')}/{name}"


def _connection(options: Mapping[str, str]) -> Connection:
    bootstrap = options.get("kafka.bootstrap.servers")
    if not bootstrap:
        raise SinkProblem("kafka.bootstrap.servers is missing: host:port, or several with commas")
    protocol = _one_of(options, "kafka.security.protocol", "PLAINTEXT", _PROTOCOLS)
    for store in ("keystore", "truststore"):
        if f"kafka.ssl.{store}.location" in options and options.get(f"kafka.ssl.{store}.type", "JKS").upper() != "PEM":
            raise SinkProblem(f"kafka.ssl.{store}.type: PEM is read, no Java key stores; the default is JKS")
    if not all(_ADDRESS.fullmatch(address) for address in bootstrap.split(",")):
        raise SinkProblem(f"kafka.bootstrap.servers: {bootstrap!r} is not host:port, or several with commas")
    return Connection(
        bootstrap,
        options.get("kafka.client.id") or "idemproxy-spark",
        protocol,
        _login(options) if protocol.startswith("SASL") else None,
        options.get("kafka.ssl.truststore.location"),
        options.get("kafka.ssl.keystore.location"),
        options.get("kafka.ssl.key.password"),
        _number(options, "kafka.request.timeout.ms", int(REQUEST_SECONDS * 1000), range(1, 1 << 31)) / 1000,
    )


def _login(options: Mapping[str, str]) -> Login:
    said = dict(_JAAS_FIELD.findall(options.get("kafka.sasl.jaas.config", "")))
    if set(said) != {"username", "password"}:
        raise SinkProblem('kafka.sasl.jaas.config: \'... required username="..." password="...";\' is expected')
    unescaped = {name: re.sub(r"\\(.)", r"\1", text) for name, text in said.items()}
    mechanism = _one_of(options, "kafka.sasl.mechanism", "GSSAPI", _MECHANISMS)
    return Login(mechanism, unescaped["username"], unescaped["password"])


def _one_of(options: Mapping[str, str], name: str, default: str, known: Mapping[str, object] | tuple[str, ...]) -> str:
    said = options.get(name, default)
    spelled: Callable[[str], str] = str.lower if name == "kafka.compression.type" else str.upper
    if spelled(said) not in known:
        raise SinkProblem(f"{name}: {said!r} is none of {', '.join(known)}")
    return spelled(said)


def _number(options: Mapping[str, str], name: str, default: int, allowed: range) -> int:
    said = options.get(name, str(default))
    if not said.isascii() or not said.isdecimal() or int(said) not in allowed:
        shown = _SHOWN.get(name, name)
        raise SinkProblem(f"{shown}: {said!r} is no whole number from {allowed.start} to {allowed.stop - 1}")
    return int(said)

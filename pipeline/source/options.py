"""The options of ``format("idemproxy")`` for reading: names and values are those of Spark's Kafka source. Pure.

Spark hands options on with names in small letters; sentences for people have them as they are documented.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from ..reading.broker import EARLIEST, FETCH_BYTES, FETCH_BYTES_MAX, LATEST, Access, Address, Tls, TopicPartition
from .offsets import Offsets, parse_assignment, parse_offsets
from .problems import WrongOption

if TYPE_CHECKING:
    from ...client.security import Sasl

_BOTH: Final = (
    "kafka.bootstrap.servers",
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "minPartitions",
    "maxRecordsPerPartition",
    "failOnDataLoss",
    "includeHeaders",
    "rows",
    "kafka.client.id",
    "kafka.max.partition.fetch.bytes",
    "kafka.security.protocol",
    "kafka.sasl.mechanism",
    "kafka.sasl.jaas.config",
    "kafka.ssl.truststore.location",
    "kafka.ssl.truststore.type",
    "kafka.ssl.keystore.location",
    "kafka.ssl.keystore.type",
    "kafka.ssl.key.password",
    "kafka.ssl.endpoint.identification.algorithm",
    "kafka.isolation.level",
)
OF_BATCHES: Final = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
OF_STREAMS: Final = ("maxOffsetsPerTrigger",)
KNOWN: Final = (*_BOTH, *OF_BATCHES, *OF_STREAMS)
WITHOUT_USE: Final[Mapping[str, str]] = {
    "groupIdPrefix": "this source joins no consumer group",
    "kafka.group.id": "this source joins no consumer group",
    "kafka.auto.offset.reset": "startingOffsets says where to begin",
    "kafka.enable.auto.commit": "offsets are in the query's checkpoint",
    "kafka.key.deserializer": "keys are binary",
    "kafka.value.deserializer": "values are binary",
    "kafkaConsumer.pollTimeoutMs": "nothing is polled here",
    "fetchOffset.numRetries": "brokers that move are waited for, some eight seconds",
    "fetchOffset.retryIntervalMs": "brokers that move are waited for, some eight seconds",
    "minOffsetsPerTrigger": "PySpark has no such limit for sources in Python; a trigger with an interval gathers, too",
    "maxTriggerDelay": "PySpark has no such limit for sources in Python; a trigger with an interval gathers, too",
}
"""Options of Spark's Kafka source that mean nothing here, and why."""
_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_CLIENT_ID: Final = "idemproxy-spark"
_MS_MAX: Final = 1 << 53


class Rows(StrEnum):
    """What one row is."""

    RECORDS = "records"
    BATCHES = "batches"


@dataclass(frozen=True, slots=True)
class Topics:
    """Which partitions: exactly one of these."""

    names: tuple[str, ...] = ()
    pattern: re.Pattern[str] | None = None
    partitions: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True, slots=True)
class Position:
    """A place in each log: the same ``time`` for all (ms, ``EARLIEST`` or ``LATEST``), or a time for each partition, or
    an offset for each, where -1 is the latest and -2 the earliest. ``option``: the name of the option that gave it."""

    option: str
    time: int | None = None
    times: Offsets | None = None
    offsets: Offsets | None = None


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What a query asks for. ``end``: for a batch query only. ``may_begin_at_end``: begin at the end of a partition
    without a record as late as the starting time; false: that is an error."""

    bootstrap: tuple[Address, ...]
    access: Access
    topics: Topics
    start: Position
    end: Position
    may_begin_at_end: bool
    rows: Rows
    includes_headers: bool
    fails_on_data_loss: bool
    partitions_min: int | None
    records_per_task_max: int | None
    rows_per_trigger_max: int | None
    fetch_bytes: int


def check_names(given: Mapping[str, str]) -> None:
    """Raise WrongOption for one that is not known."""
    known = {name.lower() for name in KNOWN}
    without_use = {name.lower(): (name, why) for name, why in WITHOUT_USE.items()}
    for key in sorted(given):
        if key.lower() in without_use:
            name, why = without_use[key.lower()]
            raise WrongOption(f"{name}: {why}; leave the option out")
        if key.lower() not in known:
            raise WrongOption(f"{key}: no such option to read with; there are {', '.join(KNOWN)}")


def rows_of(given: Mapping[str, str]) -> tuple[Rows, bool]:
    """Return what the columns depend on: the kind of rows, and whether they have headers. Raises WrongOption."""
    options = _Options(given)
    rows, includes_headers = Rows(options.choice("rows", tuple(Rows))), options.boolean("includeHeaders", False)
    if includes_headers and rows is Rows.BATCHES:
        raise WrongOption("includeHeaders: a batch has no headers; its records have (rows=records)")
    return rows, includes_headers


def parse_options(given: Mapping[str, str], *, is_stream: bool) -> ReadOptions:
    """Return what the options say. Raises WrongOption."""
    check_names(given)
    options = _Options(given)
    for name in OF_BATCHES if is_stream else OF_STREAMS:
        if name in options:
            raise WrongOption(f"{name}: is for {'read' if is_stream else 'readStream'} only")
    rows, includes_headers = rows_of(given)
    start = _position(options, "starting", LATEST if is_stream else EARLIEST)
    if not is_stream and start.time == LATEST:
        raise WrongOption("startingOffsets: latest leaves a batch query nothing to read")
    if options.choice("kafka.isolation.level", ("read_uncommitted", "read_committed")) == "read_committed":
        raise WrongOption(
            "kafka.isolation.level: read_committed is not spoken here; brokers before 0.11 have no transactions, and "
            "for others there is Spark's own Kafka source"
        )
    return ReadOptions(
        bootstrap=_bootstrap(options),
        access=Access(options.text("kafka.client.id") or _CLIENT_ID, _tls(options), _sasl(options)),
        topics=_topics(options),
        start=start,
        end=_position(options, "ending", LATEST),
        may_begin_at_end=options.choice("startingOffsetsByTimestampStrategy", ("error", "latest")) == "latest",
        rows=rows,
        includes_headers=includes_headers,
        fails_on_data_loss=options.boolean("failOnDataLoss", True),
        partitions_min=options.number("minPartitions"),
        records_per_task_max=options.number("maxRecordsPerPartition"),
        rows_per_trigger_max=options.number("maxOffsetsPerTrigger"),
        fetch_bytes=min(options.number("kafka.max.partition.fetch.bytes") or FETCH_BYTES, FETCH_BYTES_MAX),
    )


class _Options:
    """Values by their documented names."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = {key.lower(): value.strip() for key, value in given.items()}

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._given

    def text(self, name: str) -> str | None:
        return self._given.get(name.lower())

    def boolean(self, name: str, default: bool) -> bool:
        return self.choice(name, ("true", "false"), str(default).lower()) == "true"

    def choice(self, name: str, allowed: tuple[str, ...], default: str = "") -> str:
        """Return one of these, in whatever case it was written; the first one if there is no other default."""
        value = self.text(name)
        if value is None:
            return default or allowed[0]
        for one in allowed:
            if one.lower() == value.lower():
                return one
        raise WrongOption(f"{name}: {value!r} is none of {', '.join(allowed)}")

    def number(self, name: str) -> int | None:
        value = self.text(name)
        if value is None:
            return None
        if not value.isdecimal() or not 0 < int(value) < _MS_MAX:
            raise WrongOption(f"{name}: {value!r} is no number above 0")
        return int(value)


def _bootstrap(options: _Options) -> tuple[Address, ...]:
    name = "kafka.bootstrap.servers"
    addresses = []
    for one in (options.text(name) or "").split(","):
        host, colon, port = one.strip().rpartition(":")
        if not colon or not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
            raise WrongOption(f"{name}: {one!r} is not host:port")
        addresses.append((host.strip("[]"), int(port)))
    return tuple(addresses)


def _topics(options: _Options) -> Topics:
    names = [name for name in ("subscribe", "subscribePattern", "assign") if name in options]
    if len(names) != 1:
        raise WrongOption(f"exactly one of subscribe, subscribePattern and assign is wanted, not {len(names)} of them")
    (name,) = names
    text = options.text(name) or ""
    if name == "assign":
        return Topics(partitions=tuple(parse_assignment(text, name)))
    if name == "subscribePattern":
        try:
            return Topics(pattern=re.compile(text))
        except re.error as problem:
            raise WrongOption(f"{name}: {text!r}: {problem}") from None
    topics = tuple(sorted({one.strip() for one in text.split(",") if one.strip()}))
    if not topics:
        raise WrongOption(f"{name}: no topic")
    return Topics(names=topics)


def _position(options: _Options, which: str, default: int) -> Position:
    """Return where to begin or to end; a time for all counts before times, and times before offsets, as in Spark."""
    for_all, by_time, by_offset = f"{which}Timestamp", f"{which}OffsetsByTimestamp", f"{which}Offsets"
    if (text := options.text(for_all)) is not None:
        if not text.isdecimal() or int(text) >= _MS_MAX:
            raise WrongOption(f"{for_all}: {text!r} is no time in ms")
        return Position(for_all, time=int(text))
    if (text := options.text(by_time)) is not None:
        times = parse_offsets(text, by_time)
        if any(time_ms < 0 for time_ms in times.values()):
            raise WrongOption(f"{by_time}: times are in ms, 0 or above")
        return Position(by_time, times=times)
    text = options.text(by_offset)
    words = {"latest": LATEST} | ({"earliest": EARLIEST} if which == "starting" else {})
    if text is None or text.lower() in words:
        return Position(by_offset, time=default if text is None else words[text.lower()])
    if not text.startswith("{"):
        raise WrongOption(f"{by_offset}: {text!r}: {' or '.join(words)}, or offsets as JSON")
    offsets = parse_offsets(text, by_offset)
    lowest = EARLIEST if which == "starting" else LATEST
    for (topic, partition), offset in offsets.items():
        if offset < lowest:
            raise WrongOption(f"{by_offset}: {topic}-{partition}: {offset} is no offset to {which[:-3]} at")
    return Position(by_offset, offsets=offsets)


# ------------------------------------------------------------------ security
def _protocol(options: _Options) -> str:
    return options.choice("kafka.security.protocol", _PROTOCOLS)


def _tls(options: _Options) -> Tls | None:
    if not _protocol(options).endswith("SSL"):
        return None
    for name in ("kafka.ssl.truststore", "kafka.ssl.keystore"):
        if options.text(f"{name}.location") and (options.text(f"{name}.type") or "JKS").upper() != "PEM":
            raise WrongOption(
                f"{name}.type: PEM is read, no Java key stores; the default is JKS. Make a file in PEM with keytool or "
                f"openssl pkcs12, and say {name}.type=PEM"
            )
    algorithm = options.text("kafka.ssl.endpoint.identification.algorithm")
    own = options.text("kafka.ssl.keystore.location")
    return Tls(
        ca_file=options.text("kafka.ssl.truststore.location"),
        cert_file=own,
        key_password=options.text("kafka.ssl.key.password"),
        checks_hostname=algorithm is None or algorithm.lower() == "https",
    )


def _sasl(options: _Options) -> Sasl | None:
    if not _protocol(options).startswith("SASL"):
        return None
    from ...client.security import Sasl

    jaas = options.text("kafka.sasl.jaas.config") or ""
    username, password = _of_jaas(jaas, "username"), _of_jaas(jaas, "password")
    try:
        return Sasl(options.text("kafka.sasl.mechanism") or "GSSAPI", username, password)
    except ValueError as problem:
        raise WrongOption(f"kafka.sasl.mechanism: {problem}; for others there is a proxy before the brokers") from None


def _of_jaas(jaas: str, name: str) -> str:
    found = re.search(rf'\b{name}\s*=\s*"((?:[^"\\]|\\.)*)"', jaas)
    if found is None:
        raise WrongOption('kafka.sasl.jaas.config: \'... required username="..." password="...";\' is wanted')
    return re.sub(r"\\(.)", r"\1", found[1])

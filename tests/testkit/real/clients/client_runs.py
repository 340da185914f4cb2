"""Starts every client of the tests the same way: which program, which settings, which packages. Knows no test.

Python clients run in a process each, so that their threads and warnings stay there. Brokers, proxies and relays are the
caller's.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from idemproxy.demo.child_processes import ChildProcess, ChildProcesses
from testkit.real.brokers.kafka_cluster import librdkafka_settings
from testkit.real.machine import pinned_packages

from . import foreign_clients, java_clients
from .java_clients import JavaProgram as ClientProgram
from .programs.librdkafka_calls import LIBRARY_VARIABLE

JAVA_3, JAVA_4 = f"java-{java_clients.LAST_3X_CLIENT}", f"java-{java_clients.MODERN_CLIENT}"
LIBRDKAFKA, KAFKA_PYTHON, AIOKAFKA = "confluent-kafka", "kafka-python", "aiokafka"
IDEMPOTENT_CLIENTS = (LIBRDKAFKA, KAFKA_PYTHON, JAVA_3, JAVA_4, AIOKAFKA)
"""What the tests run."""
JAVA_1, JAVA_2 = "java-1.1.1", "java-2.8.2"
OLD_LIBRDKAFKA = tuple(f"{LIBRDKAFKA}-{version}" for version in ("2.8.0", "2.3.0", "2.0.2"))
"""The wheel's version is that of the librdkafka in it."""
FRANZ, SARAMA = GO_CLIENTS = ("franz-go", "sarama")
KAFKA_GO, RSKAFKA = "kafka-go", "rskafka"
"""They have no idempotence, and kafkajs none by default."""
KAFKAJS, PLATFORMATIC, CONFLUENT_JS = NODE_CLIENTS = ("kafkajs", "platformatic", "confluent-kafka-javascript")
RUST = "rdkafka"
KCAT, OLD_KCAT = KCATS = ("kcat", "kcat-librdkafka-1.9.2")
"""As the system has it, and with an older library."""
_BARE_LIBRARY = "librdkafka-"
BARE_LIBRARIES = tuple(f"{_BARE_LIBRARY}{version}" for version in ("1.7.0", "1.4.2", "1.0.0", "0.11.6"))
"""Readers. They read a partition without a stored offset only where ListOffsets 0 is reported."""
OLD_SARAMA = "sarama-1.40.0"
"""Its groups commit by OffsetCommit 1."""
ALL_IDEMPOTENT_CLIENTS = (
    *(LIBRDKAFKA, *OLD_LIBRDKAFKA, *KCATS, KAFKA_PYTHON, AIOKAFKA),
    *(JAVA_4, JAVA_3, JAVA_2, JAVA_1, *GO_CLIENTS, *NODE_CLIENTS, RUST),
)
"""What the long runs over clients and brokers can start, in addition to those."""

_IN_FLIGHT = "max.in.flight.requests.per.connection"
ONE_IN_FLIGHT: Mapping[str, Mapping[str, object]] = {
    **{
        client: {_IN_FLIGHT: 1}
        for client in (LIBRDKAFKA, *OLD_LIBRDKAFKA, *KCATS, RUST, JAVA_1, JAVA_2, JAVA_3, JAVA_4)
    },
    KAFKA_PYTHON: {_IN_FLIGHT.replace(".", "_"): 1},
    **{client: {"in_flight": 1} for client in (FRANZ, CONFLUENT_JS)},
    **{client: {} for client in (AIOKAFKA, SARAMA, KAFKAJS, PLATFORMATIC)},  # they never have more for a partition
}
"""Settings by client. Kafka 0.11 recognises only the last batch of a producer, later ones the last five."""

OLD_JAVA, OLD_PYTHON = f"java-{java_clients.OLD_CLIENT}", "kafka-python-1.4.7"
OLD_CLIENTS = (OLD_JAVA, OLD_PYTHON)
"""They know nothing of producer ids."""
OLD_AIOKAFKA = "aiokafka-0.12.0"
"""Infers the broker's release from single versions of ApiVersions, and chooses other versions by that."""

_TESTS = Path(__file__).resolve().parents[3]
_MODULES = {
    LIBRDKAFKA: "confluent",
    **dict.fromkeys(KCATS, "kcat"),
    **dict.fromkeys(BARE_LIBRARIES, "librdkafka"),
    KAFKA_PYTHON: "kafka_python",
    OLD_PYTHON: "kafka_python",
    AIOKAFKA: "aiokafka",
    OLD_AIOKAFKA: "aiokafka",
    **dict.fromkeys(OLD_LIBRDKAFKA, "confluent"),
}
_PACKAGES: Mapping[str, tuple[str, ...]] = {
    OLD_PYTHON: pinned_packages.OLD_KAFKA_PYTHON,
    OLD_AIOKAFKA: pinned_packages.OLD_AIOKAFKA,
    **{client: ("==".join(client.rsplit("-", 1)),) for client in OLD_LIBRDKAFKA},
}
_READS_LIKE_OLD_JAVA = (OLD_JAVA, JAVA_1)
"""The calls of the modern reader came with 2.4."""
_BATCH_BYTES = 400
"""Small, so that a few thousand records are many requests."""
_RECORDS_AT_ONCE = {FRANZ: 30, SARAMA: 30, KAFKA_GO: 30, RSKAFKA: 10, KAFKAJS: 10, PLATFORMATIC: 10, CONFLUENT_JS: 40}
"""The same for those that count records: under way at a time, in a request, in a send."""
_LOOKS_AGAIN_MS = 5000
_LOOKS_AGAIN = {
    LIBRDKAFKA: "topic.metadata.refresh.interval.ms",
    **dict.fromkeys((KAFKA_PYTHON, AIOKAFKA), "metadata_max_age_ms"),
    **dict.fromkeys((JAVA_2, JAVA_3, JAVA_4), "metadata.max.age.ms"),
}
"""For new partitions, minutes apart if nothing is said. In the programs of Go and Node it is said."""
_PATIENT_MS = 30_000
"""For an answer, without idempotence: who sends again what a busy machine has only delayed has it stored twice."""
_NOTHING_WAITS = {"buffer.memory": 16 * _BATCH_BYTES, "max.in.flight.requests.per.connection": 1}
"""java-1.1.1 gives up what has waited for ``request.timeout.ms`` to be sent, but nothing of a partition that has a
request in flight, if one is all it may have; and ``send`` waits as long as it has to."""


def start_producer(
    children: ChildProcesses,
    directory: Path,
    client: str,
    *,
    bootstrap: str,
    topic: str,
    partitions: int,
    records: int,
    name: str | None = None,
    compression: str = "none",
    idempotent: bool = True,
    delivery_seconds: int = 60,
    header: str | None = None,
    settings: Mapping[str, object] | None = None,
    pace: Mapping[str, object] | None = None,
) -> ClientProgram:
    """Send ``records`` values ``<name>:<partition>:<n>``, partitions in turn; ``settings`` overrule the careful ones.
    Each has a header of this name, if there is one. ``pace``: ``records_per_second``, and ``until_file``, whose
    appearance ends the records.

    Its last line: sent, acked, failed, errors (the first 20), offsets_known, offsets_in_order.
    """
    name = name or client
    chosen = {**_producer_settings(client, idempotent, delivery_seconds), **(settings or {})}
    if client.startswith("java-"):
        return java_clients.start_producer(
            children,
            directory,
            version=client.removeprefix("java-"),
            bootstrap=bootstrap,
            topic=topic,
            partitions=partitions,
            records=records,
            name=name,
            compression=compression,
            header=header,
            records_per_second=int(str((pace or {}).get("records_per_second", 0))),
            settings={
                **{key: str(value) for key, value in chosen.items()},
                **({"program.until_file": str(pace["until_file"])} if pace else {}),
            },
        )
    told = directory / f"{name}.acknowledged"
    given: dict[str, object] = {"topic": topic, "partitions": partitions, "records": records, "name": name}
    given |= {"bootstrap": bootstrap, "compression": compression, "settings": chosen, "told_file": os.fspath(told)}
    given["headers"], given["pace"] = [] if header is None else [header], dict(pace or {})
    return ClientProgram(_start(children, directory, client, name, "producer", given), told)


def start_reader(
    children: ChildProcesses,
    directory: Path,
    client: str,
    *,
    bootstrap: str,
    topic: str,
    partitions: int,
    records: int,
    group: str | None = None,
    name: str | None = None,
    seconds_max: int = 120,
    follow: Mapping[str, object] | None = None,
) -> ClientProgram:
    """Read ``records`` records from the beginning, all partitions assigned by hand, or as a member of a group.
    ``follow``: the number is given later, as that of different values, by ``until_file``, whose text it is; commits are
    made every ``commit_every_seconds``, and new partitions are looked for every few seconds.

    Its last line: records; without a group: beginning and end (ListOffsets), with one: committed, all by partition.
    """
    name = name or f"{client}-reader"
    settings = {_LOOKS_AGAIN[client]: _LOOKS_AGAIN_MS} if follow and client in _LOOKS_AGAIN else {}
    if client.startswith("java-"):
        common: dict[str, Any] = {"bootstrap": bootstrap, "topic": topic, "records": records, "name": name}
        common |= {"version": client.removeprefix("java-"), "seconds_max": seconds_max}
        if client in _READS_LIKE_OLD_JAVA:
            assert group is not None, "the old program reads in groups only"
            assert not follow, "the old program is told at its start how much to read"
            return java_clients.start_group_reader(children, directory, group=group, **common)
        common["settings"] = {**settings, **{f"program.{key}": str(value) for key, value in (follow or {}).items()}}
        return java_clients.start_modern_reader(children, directory, group=group, **common)
    assert client not in (RUST, *KCATS) or not follow, "it is told at its start how much to read"
    told = directory / f"{name}.records"
    given: dict[str, object] = {"topic": topic, "partitions": partitions, "records": records, "group": group}
    given |= {"bootstrap": bootstrap, "records_file": os.fspath(told), "seconds_max": seconds_max, **(follow or {})}
    given["settings"] = settings
    return ClientProgram(_start(children, directory, client, name, "reader", given), told)


def read_plainly(
    children: ChildProcesses, directory: Path, *, bootstrap: str, topic: str, partitions: int, records: int, name: str
) -> list[tuple[int, int, str]]:
    """Return (partition, offset, value) of so many records as a consumer without a group gets them, in order."""
    reader = start_reader(
        children,
        directory,
        LIBRDKAFKA,
        bootstrap=bootstrap,
        topic=topic,
        partitions=partitions,
        records=records,
        name=name,
    )
    reader.wait()
    return sorted((one.partition, one.offset, one.value) for one in reader.consumed())


def _start(
    children: ChildProcesses, directory: Path, client: str, name: str, role: str, given: Mapping[str, object]
) -> ChildProcess:
    path = [_TESTS]
    if client in _PACKAGES:
        path.append(pinned_packages.folder_with(*_PACKAGES[client]))
    command = [*_command(client, role), json.dumps(given)]
    environment = {"PYTHONPATH": os.pathsep.join(map(os.fspath, path))}
    if client == OLD_KCAT:
        environment["LD_LIBRARY_PATH"] = os.fspath(foreign_clients.old_librdkafka_folder("1.9.2"))
    if client in BARE_LIBRARIES:
        library = foreign_clients.old_librdkafka(client.removeprefix(_BARE_LIBRARY))
        environment |= {LIBRARY_VARIABLE: os.fspath(library), "LD_LIBRARY_PATH": os.fspath(library.parent)}
    return children.start(f"{client} {name}", command, directory / f"{name}.out", environment=environment)


def _command(client: str, role: str) -> list[str]:
    if client in (*GO_CLIENTS, KAFKA_GO):
        return foreign_clients.go_command(client, role)
    if client == OLD_SARAMA:
        return foreign_clients.go_command(SARAMA, role, "old")
    if client == RUST:
        return foreign_clients.rust_command(client, role)
    if client == RSKAFKA:
        return foreign_clients.rskafka_command(role)
    if client == CONFLUENT_JS:
        return foreign_clients.compiled_node_command(client, role)
    if client in NODE_CLIENTS:
        return foreign_clients.node_command(client, role)
    if client in KCATS:
        foreign_clients.find_kcat()
    return [sys.executable, "-m", f"testkit.real.clients.programs.{_MODULES[client]}_{role}"]


def _producer_settings(client: str, idempotent: bool, delivery_seconds: int) -> dict[str, object]:
    """Everything is tried again until the delivery time is over; small batches; order kept without idempotence too."""
    if client.startswith("java-"):
        own: dict[str, object] = {"batch.size": _BATCH_BYTES}
        if not idempotent or client == JAVA_1:
            own["request.timeout.ms"] = _PATIENT_MS
        if client == JAVA_1:
            own |= _NOTHING_WAITS
        if client != OLD_JAVA:
            own |= {"enable.idempotence": str(idempotent).lower(), "delivery.timeout.ms": delivery_seconds * 1000}
        return own if idempotent else {**own, "max.in.flight.requests.per.connection": 1}
    if client in _RECORDS_AT_ONCE:
        return {
            "idempotent": idempotent,
            "delivery_seconds": delivery_seconds,
            "request_seconds": (5000 if idempotent else _PATIENT_MS) // 1000,
            "records_at_once": _RECORDS_AT_ONCE[client],
        }
    if client in (LIBRDKAFKA, *KCATS, RUST, *OLD_LIBRDKAFKA):
        own = librdkafka_settings("", delivery_seconds=delivery_seconds, enable_idempotence=idempotent)
        del own["bootstrap.servers"]
        alone = {"max.in.flight.requests.per.connection": 1, "request.timeout.ms": _PATIENT_MS}
        return own if idempotent else {**own, **alone}
    patience_ms = 5000 if idempotent else _PATIENT_MS
    common: dict[str, object] = {"acks": "all", "request_timeout_ms": patience_ms, "linger_ms": 5}
    if client == AIOKAFKA:
        return {**common, "enable_idempotence": idempotent, "max_batch_size": _BATCH_BYTES, "retry_backoff_ms": 100}
    common |= {"batch_size": _BATCH_BYTES, "retries": 2**31 - 1, "retry_backoff_ms": 100}
    common |= {"reconnect_backoff_max_ms": 500}
    if client == OLD_PYTHON:
        return {**common, "max_in_flight_requests_per_connection": 1}
    return {**common, "enable_idempotence": idempotent, "delivery_timeout_ms": delivery_seconds * 1000}

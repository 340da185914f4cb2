"""The configurations of old clients that are tried in front of Kafka 4: how each of them is started, and what it can
do. Judges nothing."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from idemproxy.demo.child_processes import ChildProcesses
from testkit.real.machine import pinned_packages

from . import foreign_clients, java_clients
from .java_clients import JavaProgram as ClientProgram
from .programs import lua_nginx_producer
from .programs.librdkafka_calls import LIBRARY_VARIABLE

Reading = Literal["group", "simple", "times"]
Role = Literal["producer", "reader"]
_TESTS = Path(__file__).resolve().parents[3]
_BATCH_BYTES = 400
"""Small, so that a few hundred records are many requests."""
_PATIENT_MS = 30_000
ALL = ("none", "gzip", "snappy", "lz4")
WITHOUT_LZ4 = ALL[:3]
WITH_ZSTD = (*ALL, "zstd")
ALL_READINGS: tuple[Reading, ...] = ("group", "simple", "times")


@dataclass(frozen=True, slots=True)
class Command:
    """What starts a program; the JSON of its task is added."""

    words: tuple[str, ...]
    environment: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class OldConfiguration:
    """``codecs``: those it produces with. ``readings``: in a group with commits, alone, and whether it finds offsets by
    time. ``settings``: of producer and reader alike, in the client's own words; ``producing``: of the producer, in
    addition. ``java``, ``scala``: the release, if it is started by ``java_clients``. ``tells_offsets``: does
    the producer learn the offset of each record? ``reads_zstd``: brokers refuse zstd to Fetch 4 to 9, which is not
    raised, and some later clients cannot decompress it. ``is_rewritten``: does it send versions that Kafka 4 lacks?
    ``repeats_alone``: does it read some records several times where there are several brokers? kafka-node's consumer
    without a group does, at 3.9.1 without a proxy as well: each broker's answer makes it fetch from all."""

    name: str
    codecs: tuple[str, ...]
    readings: tuple[Reading, ...]
    command: Callable[[Role], Command] | None = None
    settings: Mapping[str, object] | None = None
    producing: Mapping[str, object] | None = None
    java: str | None = None
    scala: str | None = None
    tells_offsets: bool = True
    reads_zstd: bool = True
    is_rewritten: bool = True
    repeats_alone: bool = False


def start_old_producer(
    children: ChildProcesses,
    directory: Path,
    configuration: OldConfiguration,
    *,
    bootstrap: str,
    topic: str,
    partitions: int,
    records: int,
    name: str,
    compression: str,
) -> ClientProgram:
    """Send numbered records, as ``client_runs.start_producer`` does."""
    settings = {**(configuration.settings or {}), **(configuration.producing or {})}
    if configuration.java is not None:
        own = {"batch.size": str(_BATCH_BYTES), "request.timeout.ms": str(_PATIENT_MS), "max.block.ms": "60000"}
        own["enable.idempotence"] = "false"  # from 0.11 on it is there
        return java_clients.start_producer(
            children,
            directory,
            version=configuration.java,
            bootstrap=bootstrap,
            topic=topic,
            partitions=partitions,
            records=records,
            name=name,
            compression=compression,
            settings={**own, "max.in.flight.requests.per.connection": "1"},
        )
    told = directory / f"{name}.acknowledged"
    if configuration.scala is not None:
        words = ["producer", bootstrap, topic, str(partitions), str(records), name, compression, os.fspath(told)]
        return java_clients.start_scala_client(
            children, directory, version=configuration.scala, name=name, arguments=words, told=told
        )
    task: dict[str, object] = {"bootstrap": bootstrap, "topic": topic, "partitions": partitions, "records": records}
    task |= {"name": name, "compression": compression, "settings": settings, "told_file": os.fspath(told)}
    task |= {"headers": [], "pace": {}}
    return _start(children, directory, configuration, "producer", name, task, told)


def start_old_reader(
    children: ChildProcesses,
    directory: Path,
    configuration: OldConfiguration,
    *,
    bootstrap: str,
    topic: str,
    partitions: int,
    records: int,
    group: str | None,
    name: str,
    seconds_max: int,
    time_ms: int | None = None,
) -> ClientProgram:
    """Read so many records, as ``client_runs.start_reader`` does. ``time_ms``: the first offsets of that time or later
    are in its last line, as ``times``."""
    if configuration.java is not None:
        return java_clients.start_group_reader(
            children,
            directory,
            version=configuration.java,
            bootstrap=bootstrap,
            topic=topic,
            group=group or "",
            records=records,
            name=name,
            seconds_max=seconds_max,
            settings={} if time_ms is None else {"program.time_ms": str(time_ms)},
        )
    told = directory / f"{name}.records"
    if configuration.scala is not None:
        words = ["reader", bootstrap, topic, str(partitions), str(records), str(seconds_max), os.fspath(told)]
        words.append(str(-1 if time_ms is None else time_ms))
        return java_clients.start_scala_client(
            children, directory, version=configuration.scala, name=name, arguments=words, told=told
        )
    task: dict[str, object] = {"bootstrap": bootstrap, "topic": topic, "partitions": partitions, "records": records}
    task |= {"group": group, "records_file": os.fspath(told), "seconds_max": seconds_max, "time_ms": time_ms}
    task["settings"] = dict(configuration.settings or {})
    return _start(children, directory, configuration, "reader", name, task, told)


def _start(
    children: ChildProcesses,
    directory: Path,
    configuration: OldConfiguration,
    role: Role,
    name: str,
    task: Mapping[str, object],
    told: Path,
) -> ClientProgram:
    assert configuration.command is not None
    command = configuration.command(role)
    words = [*command.words, json.dumps(task)]
    process = children.start(
        f"{configuration.name} {name}", words, directory / f"{name}.out", environment=dict(command.environment)
    )
    return ClientProgram(process, told)


# ---------------------------------------------------------------------- how each is started
def _module(module: str, *packages: str) -> Callable[[Role], Command]:
    """A program for the Python that runs the tests."""

    def command(role: Role) -> Command:
        path = [_TESTS, *([pinned_packages.folder_with(*packages)] if packages else [])]
        words = (sys.executable, "-m", f"testkit.real.clients.programs.{module}_{role}")
        return Command(words, {"PYTHONPATH": os.pathsep.join(map(os.fspath, path))})

    return command


def _librdkafka(version: str) -> Callable[[Role], Command]:
    def command(role: Role) -> Command:
        is_built = version == _BUILT_LIBRDKAFKA
        library = foreign_clients.built_librdkafka() if is_built else foreign_clients.old_librdkafka(version)
        plain = _module("librdkafka")(role)
        more = {LIBRARY_VARIABLE: os.fspath(library), "LD_LIBRARY_PATH": os.fspath(library.parent)}
        return Command(plain.words, {**plain.environment, **more})

    return command


def _sarama(role: Role) -> Command:
    return Command(tuple(foreign_clients.old_go_command(role)), {})


def _later_sarama(versions: str) -> Callable[[Role], Command]:
    def command(role: Role) -> Command:
        return Command(tuple(foreign_clients.go_command("sarama", role, versions)), {})

    return command


def _kafka_go(versions: str) -> Callable[[Role], Command]:
    def command(role: Role) -> Command:
        return Command(tuple(foreign_clients.old_kafka_go_command(role, versions)), {})

    return command


def _rust(role: Role) -> Command:
    return Command(tuple(foreign_clients.old_rust_command(role)), {})


def _old_python(library: str, *packages: str) -> Callable[[Role], Command]:
    def command(role: Role) -> Command:
        words, folder = foreign_clients.old_python_command(library, packages, role)
        return Command(tuple(words), {"PYTHONPATH": os.fspath(folder)})

    return command


def _lua(role: Role) -> Command:
    plain = _module("lua_nginx")(role)
    folder = os.fspath(foreign_clients.lua_nginx_folder())
    return Command(plain.words, {**plain.environment, lua_nginx_producer.FOLDER_VARIABLE: folder})


def _node(client: str) -> Callable[[Role], Command]:
    def command(role: Role) -> Command:
        return Command(tuple(foreign_clients.old_node_command(client, role)), {})

    return command


_BUILT_LIBRDKAFKA = "0.9.5"
_SIX, _SNAPPY = "six==1.16.0", "python-snappy==0.6.0"
_XXHASH = "xxhash==3.5.0"
"""Without it kafka-python 1.4.7 waits for ever in place of sending lz4 by Produce 1."""
_LIBRDKAFKA_PRODUCING: Mapping[str, object] = {
    "max.in.flight.requests.per.connection": 1,
    "batch.num.messages": 10,
    "request.required.acks": -1,
    "message.timeout.ms": 60_000,
    "request.timeout.ms": _PATIENT_MS,
}
_KAFKA_PYTHON_PRODUCING: Mapping[str, object] = {
    "acks": "all",
    "request_timeout_ms": _PATIENT_MS,
    "batch_size": _BATCH_BYTES,
    "linger_ms": 5,
    "retries": 5,
    "max_in_flight_requests_per_connection": 1,
}


def _java(version: str, *readings: Reading) -> OldConfiguration:
    return OldConfiguration(f"java-{version}", ALL, readings, java=version, reads_zstd=bool(readings))


def _scala(version: str) -> OldConfiguration:
    name = f"scala-{version}"
    return OldConfiguration(name, WITHOUT_LZ4, ("simple", "times"), scala=version, tells_offsets=False)


def _kafka_python(api_version: tuple[int, ...] | None, *readings: Reading) -> OldConfiguration:
    """Without a version it asks the broker for those that it has."""
    return OldConfiguration(
        "kafka-python-1.4.7" + ("" if api_version is None else "@" + ".".join(map(str, api_version))),
        ALL,
        readings,
        _module("kafka_python", *pinned_packages.OLD_KAFKA_PYTHON, _XXHASH),
        {} if api_version is None else {"api_version": list(api_version)},
        _KAFKA_PYTHON_PRODUCING,
    )


def _rdkafka(name: str, version: str, readings: tuple[Reading, ...], **settings: str) -> OldConfiguration:
    return OldConfiguration(
        name,
        ALL,
        readings,
        _librdkafka(version),
        {key.replace("_", "."): value for key, value in settings.items()},
        _LIBRDKAFKA_PRODUCING,
    )


SCALA_0_8, SCALA_0_9 = _scala("0.8.2.2"), _scala("0.9.0.1")
JAVA_0_8_2, JAVA_0_9 = _java("0.8.2.2"), _java("0.9.0.1", "group", "simple")
JAVA_0_10_0, JAVA_0_10_2 = _java("0.10.0.1", "group", "simple"), _java("0.10.2.2", *ALL_READINGS)
UNTOUCHED_JAVA = (
    *(
        replace(_java(one, *ALL_READINGS), reads_zstd=False, is_rewritten=False)
        for one in ("0.11.0.3", "1.1.1", "2.0.1")
    ),
    replace(_java("2.1.1", *ALL_READINGS), is_rewritten=False),
)
"""Kafka 4 has all that they send."""
KAFKA_PYTHON_ASKING = replace(_kafka_python(None, *ALL_READINGS), reads_zstd=False, is_rewritten=False)
KAFKA_PYTHON_0_9 = _kafka_python((0, 9), "group", "simple")
KAFKA_PYTHON_0_10 = _kafka_python((0, 10, 1), *ALL_READINGS)
RDKAFKA_0_11_AS_0_9 = _rdkafka(
    "librdkafka-0.11.6@0.9",
    "0.11.6",
    ("group", "simple"),
    api_version_request="false",
    broker_version_fallback="0.9.0.1",
)
RDKAFKA_0_11 = replace(_rdkafka("librdkafka-0.11.6", "0.11.6", ALL_READINGS), reads_zstd=False)
RDKAFKA_1_0 = replace(_rdkafka("librdkafka-1.0.0", "1.0.0", ALL_READINGS), reads_zstd=False)
RDKAFKA_1_4 = replace(_rdkafka("librdkafka-1.4.2", "1.4.2", ALL_READINGS), reads_zstd=False)
RDKAFKA_1_7 = replace(_rdkafka("librdkafka-1.7.0", "1.7.0", ALL_READINGS), reads_zstd=False)
RDKAFKA_2_16 = replace(_rdkafka("librdkafka-2.16.0", "2.16.0", ALL_READINGS), codecs=WITH_ZSTD, is_rewritten=False)

RDKAFKA_0_9 = _rdkafka("librdkafka-0.9.5", "0.9.5", ("group", "simple"))
RDKAFKA_0_9_ASKING = _rdkafka("librdkafka-0.9.5@api", "0.9.5", ("group", "simple"), api_version_request="true")
RDKAFKA_0_9_AS_0_8 = _rdkafka("librdkafka-0.9.5@0.8.2", "0.9.5", ("simple",), broker_version_fallback="0.8.2.2")
SARAMA_0_8 = OldConfiguration("sarama-1.19@0.8.2", WITHOUT_LZ4, ALL_READINGS, _sarama, {"version": "0.8.2.0"})
SARAMA_0_10 = OldConfiguration("sarama-1.19@0.10.2", ALL, ALL_READINGS, _sarama, {"version": "0.10.2.0"})
SARAMA_1_0 = OldConfiguration("sarama-1.19@1.0", ALL, ALL_READINGS, _sarama, {"version": "1.0.0"}, reads_zstd=False)
SARAMA_1_40 = OldConfiguration(
    "sarama-1.40.0",
    ALL,
    ("group",),
    _later_sarama("old"),
    producing={"idempotent": False, "request_seconds": 30, "records_at_once": 10},
)
SARAMA_1_45 = replace(
    SARAMA_1_40, name="sarama-1.45.2", codecs=WITH_ZSTD, command=_later_sarama("sarama_1_45"), is_rewritten=False
)
KAFKA_GO_0_2 = OldConfiguration(
    "kafka-go-0.2.0", ("none",), ALL_READINGS, _kafka_go("kafka_go_0_2"), tells_offsets=False, reads_zstd=False
)
KAFKA_GO_0_3 = OldConfiguration(
    "kafka-go-0.3.10", WITH_ZSTD, ALL_READINGS, _kafka_go("go"), tells_offsets=False, is_rewritten=False
)
RUST = OldConfiguration("rust-kafka-0.10", WITHOUT_LZ4, ("group", "simple"), _rust)
KAFKA_PYTHON_0_9_5 = OldConfiguration(
    "kafka-python-0.9.5",
    WITHOUT_LZ4,
    ("group", "simple"),
    _old_python("kafka-python-0.9.5", "kafka-python==0.9.5", _SIX, _SNAPPY),
)
KAFKA_PYTHON_1_0_2 = OldConfiguration(
    "kafka-python-1.0.2",
    WITHOUT_LZ4,
    ("group", "simple"),
    _old_python("kafka-python-1.0.2", "kafka-python==1.0.2", _SIX, _SNAPPY),
)
PYKAFKA = OldConfiguration(
    "pykafka-2.8.0",
    WITHOUT_LZ4,
    ALL_READINGS,
    _old_python("pykafka-2.8.0", "pykafka==2.8.0", "kazoo==2.8.0", "tabulate==0.8.10", _SIX, _SNAPPY),
)
AIOKAFKA = OldConfiguration(
    "aiokafka-0.5.2",
    ALL,
    ALL_READINGS,
    _old_python("aiokafka-0.5.2", "aiokafka==0.5.2", "kafka-python==1.4.6", "lz4==3.1.10", _SNAPPY),
    reads_zstd=False,
    is_rewritten=False,
)
KAFKA_NODE = OldConfiguration(
    "kafka-node-5.0.0", ("none", "gzip"), ALL_READINGS, _node("kafka-node"), repeats_alone=True
)
NO_KAFKA = OldConfiguration("no-kafka-3.4.3", ("none", "gzip"), ALL_READINGS, _node("no-kafka"))
KAFKAJS = OldConfiguration("kafkajs-1.0.1", ("none", "gzip"), ("group",), _node("kafkajs"))
KAFKAJS_1_12, KAFKAJS_1_16 = (
    replace(KAFKAJS, name=f"kafkajs-{one}.0", command=_node(f"kafkajs-{one}"), reads_zstd=False, is_rewritten=False)
    for one in ("1.12", "1.16")
)
LUA = OldConfiguration("lua-resty-kafka-0.07", ("none",), (), _lua, {"api_version": 0, "acks": 1}, reads_zstd=False)
LUA_1 = replace(LUA, name="lua-resty-kafka-0.07@1", settings={"api_version": 1, "acks": -1})
LUA_2 = replace(LUA, name="lua-resty-kafka-0.07@2", settings={"api_version": 2, "acks": 1})

WITHOUT_COMPILER = (JAVA_0_9, JAVA_0_10_2, KAFKA_PYTHON_0_10, RDKAFKA_0_11_AS_0_9, LUA, LUA_2)
"""These need little time, too."""
CONFIGURATIONS: Mapping[str, OldConfiguration] = {
    one.name: one
    for one in (
        *(JAVA_0_8_2, JAVA_0_9, JAVA_0_10_0, JAVA_0_10_2, *UNTOUCHED_JAVA),
        *(KAFKA_PYTHON_0_9, KAFKA_PYTHON_0_10, KAFKA_PYTHON_ASKING),
        *(RDKAFKA_0_11_AS_0_9, RDKAFKA_0_11, RDKAFKA_1_0, RDKAFKA_1_4, RDKAFKA_1_7, RDKAFKA_2_16),
        *(RDKAFKA_0_9, RDKAFKA_0_9_ASKING, RDKAFKA_0_9_AS_0_8),
        *(SARAMA_0_8, SARAMA_0_10, SARAMA_1_0, SARAMA_1_40, SARAMA_1_45, RUST),
        *(KAFKA_GO_0_2, KAFKA_GO_0_3),
        *(KAFKA_PYTHON_0_9_5, KAFKA_PYTHON_1_0_2, PYKAFKA, AIOKAFKA),
        *(KAFKA_NODE, NO_KAFKA, KAFKAJS, KAFKAJS_1_12, KAFKAJS_1_16),
        *(SCALA_0_8, SCALA_0_9),
        *(LUA, LUA_1, LUA_2),
    )
}

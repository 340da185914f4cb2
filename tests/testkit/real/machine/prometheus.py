"""A real Prometheus as a child process on loopback, and what its HTTP API says; promtool comes from the same place.

Both are taken from the PATH, else out of Debian's package, which is unpacked into .cache and not installed.
"""

from __future__ import annotations

import json
import os
import shutil
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from idemproxy.demo.child_processes import ChildProcesses
from idemproxy.demo.ports import HOST, free_ports
from testkit.real.proxies.proxy_process import wait_until

from .debian_packages import unpacked

_ANSWER_SECONDS_MAX = 60.0


class PrometheusUnavailable(Exception):
    """It is not there and could not be fetched; the message says what to do."""


def prometheus_program(name: str) -> Path:
    """Return the path of ``prometheus`` or ``promtool``."""
    if (installed := shutil.which(name)) is not None:
        return Path(installed)
    folder = unpacked("prometheus", ["prometheus"])
    if folder is None:
        raise PrometheusUnavailable(f"{name} is missing: put one on the PATH, or take Debian's package prometheus")
    return folder / "usr" / "bin" / name


class Prometheus:
    """A context manager: entering starts it. What it scraped stays in ``directory``; another one may continue there."""

    def __init__(
        self, directory: Path, configuration: Mapping[str, Any], rules: Mapping[str, Any] | None = None
    ) -> None:
        """``configuration``: as in its file. ``rules``: groups of alerts."""
        directory.mkdir(parents=True, exist_ok=True)
        (port,) = free_ports(1)
        self.address = f"http://{HOST}:{port}"
        self._directory = directory
        self._log = directory / "prometheus.log"
        written = dict(configuration)
        if rules is not None:
            (directory / "rules.yaml").write_text(yaml.safe_dump(dict(rules), sort_keys=False))
            written["rule_files"] = ["rules.yaml"]
        (directory / "prometheus.yaml").write_text(yaml.safe_dump(written, sort_keys=False))
        self._children = ChildProcesses()

    def __enter__(self) -> Prometheus:
        command = [
            *(os.fspath(prometheus_program("prometheus")), f"--config.file={self._directory / 'prometheus.yaml'}"),
            *(f"--storage.tsdb.path={self._directory / 'data'}", "--storage.tsdb.retention.time=1d"),
            *(f"--web.listen-address={self.address.removeprefix('http://')}", "--log.level=warn"),
        ]
        self._children.start("prometheus", command, self._log)
        try:
            wait_until(self._is_ready, f"Prometheus is ready:\n{self._log.read_text()}")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._children.close()

    def query(self, expression: str, at: float | None = None) -> list[Any]:
        """Return the result. Raises ValueError with what Prometheus says to an expression that it refuses."""
        answer = self.ask("query", query=expression, **({} if at is None else {"time": at}))
        if answer["status"] != "success":
            raise ValueError(answer["error"])
        return list(answer["data"]["result"])

    def ask(self, path: str, **parameters: str | float) -> Any:
        """Return the answer of one path of the API, an error as well."""
        url = f"{self.address}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=_ANSWER_SECONDS_MAX) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            return json.load(error)

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.address}/-/ready", timeout=_ANSWER_SECONDS_MAX) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

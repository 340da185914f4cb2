"""The configuration read by a process of its own: the same settings and the same complaints as by ``load``."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from idemproxy.proxy.settings import child_process
from idemproxy.proxy.settings.child_process import Reading, load_apart
from idemproxy.proxy.settings.config import ConfigError
from idemproxy.proxy.settings.load import load

EVERYTHING = """\
upstream: {bootstrap: [kafka-1:9092, 'kafka-2:9092'], tls: {server_name: kafka}, allow_unauthenticated_clients: true, sasl: {mechanism: PLAIN, username: u, password: 'p*ß'}}
listeners:
  - {name: inside, bind: '0.0.0.0:9092', advertised: 'broker-{id}.example:{port}'}
  - {name: outside, bind: '[::]:19092', broker_ids: '0-2'}
redis: {url: 'redis://:secret@redis:6380/2'}
limits: {connections_max: 77}
log: {format: json}
journal: journal.jsonl
"""  # noqa: E501


def complaints(read: Any, path: Path | None, options: Mapping[str, object]) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        read(path, options)
    return tuple(caught.value.problems)


def test_the_settings_are_those_that_load_gives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "with a space.yaml"
    path.write_text(EVERYTHING)
    options = {"data_directory": f"{tmp_path}/data", "workers": 2, "cluster_name": None}
    monkeypatch.setenv("IDEMPROXY_LIMITS__PRODUCERS_MAX", "123")
    monkeypatch.chdir(tmp_path)
    read = load_apart(Path(path.name), options)
    assert read == load(path, options)
    assert read.upstream_sasl is not None
    assert (read.upstream_sasl.password, read.limits.producers_max, read.workers) == ("p*ß", 123, 2)


def test_the_complaints_are_those_of_load(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("nonsense: 1\nupstream: {bootstrap: [nowhere]}\n")
    options = {"cluster_name": "a b"}
    assert complaints(load_apart, path, options) == complaints(load, path, options)
    assert len(complaints(load, path, options)) == 3
    missing = tmp_path / "missing.yaml"
    assert complaints(load_apart, missing, {}) == complaints(load, missing, {})


def test_a_folder_that_shadows_modules_is_not_imported_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("yaml", "pickle", "pydantic"):
        Path(f"{name}.py").write_text("raise SystemExit('imported from the folder')\n")
    assert load_apart(None, {"upstream": "k:1"}).upstream == (("k", 1),)


def test_a_reader_that_dies_is_told_with_its_status() -> None:
    reading = Reading(None, {"upstream": "k:1"})
    os.kill(reading._child.pid, signal.SIGKILL)
    with pytest.raises(ConfigError, match="the configuration was not read: what reads it ended with -9"):
        reading.settings()


def test_a_process_that_cannot_start_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(ConfigError, match="no process starts: No such file or directory"):
        Reading(None, {})


def test_nothing_is_kept_of_what_reads() -> None:
    program = (
        f"import sys; from {child_process.__name__} import load_apart; load_apart(None, {{'upstream': 'k:1'}}); "
        "print([name for name in sys.modules if name.partition('.')[0] in ('pydantic', 'pydantic_core', 'yaml')])"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=240).stdout == "[]\n"

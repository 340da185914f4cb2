"""What ``idemproxy check --connect`` finds and what ``idemproxy run`` logs are the same list."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
import yaml

from idemproxy.demo.legacy_cluster import LegacyCluster
from idemproxy.demo.ports import neighbouring_ports
from testkit.real.proxies.configured_proxy import ConfiguredProxy
from testkit.real.store.redis_process import RedisProcess
from testkit.real.tls.certificates import Authority

PROBLEMS = (
    "clients get the same address for several of 2 brokers (advertised: kafka.invalid:9092)",
    "expired on",
)
WARNINGS = (
    "producers expire so soon that the proxy may append a late retry as a new batch",
    "has no name kafka.invalid, which clients get (advertised); it has other.example",
)
NOTES = ("kafka.invalid (advertised) does not resolve here",)


def checked(directory: Path, settings: dict[str, object], *options: str, descriptors: int = 0) -> tuple[int, list[str]]:
    """The exit status of ``check``, and its lines. ``descriptors``: the limit under which it runs, 0: as it is."""
    path = directory / "checked.yaml"
    path.write_text(yaml.safe_dump(settings))
    command = [sys.executable, "-m", "idemproxy", "check", os.fspath(path), *options]
    limited = ["prlimit", f"--nofile={descriptors}", *command] if descriptors else command
    ended = subprocess.run(limited, capture_output=True, text=True, timeout=240)
    assert ended.stderr == ""
    return ended.returncode, ended.stdout.splitlines()


def test_check_and_run_tell_the_same_mistakes(tmp_path: Path) -> None:
    expired = Authority(tmp_path).issue("expired", "other.example", expires_in=timedelta(days=-30))
    port = neighbouring_ports(3)
    listener = {"bind": f"127.0.0.1:{port}", "advertised": "kafka.invalid:9092"}
    tls = {"cert_file": os.fspath(expired.cert), "key_file": os.fspath(expired.key)}
    with LegacyCluster(tmp_path / "kafka", brokers=2) as cluster:
        settings: dict[str, object] = {
            "upstream": {"bootstrap": ["{}:{}".format(*cluster.address(0))]},
            "listeners": [{**listener, "tls": tls}],
            "producers": {"expiry_seconds": 10},
            "data_directory": os.fspath(tmp_path / "data"),
        }
        status, lines = checked(tmp_path, settings, "--connect")
        with ConfiguredProxy(tmp_path, settings) as proxy:
            for text in (*PROBLEMS, *WARNINGS, *NOTES):
                proxy.wait_for_log(text.replace("(", r"\(").replace(")", r"\)"))
            logged = proxy.log.splitlines()
    assert status == 1
    for start, level, texts in (
        ("PROBLEM ", "ERROR", PROBLEMS),
        ("warning ", "WARNING", WARNINGS),
        ("note ", "INFO", NOTES),
    ):
        for text in texts:
            assert [line.startswith(start) for line in lines if text in line] == [True], lines
            assert [f" {level} " in line for line in logged if text in line] == [True], logged


def test_a_check_without_a_connection_tells_what_this_machine_tells(tmp_path: Path) -> None:
    settings: dict[str, object] = {"upstream": {"bootstrap": ["127.0.0.1:9"]}, "producers": {"expiry_seconds": 10}}
    status, lines = checked(tmp_path, settings, descriptors=200)
    assert status == 0
    assert lines[-1] == "configuration is valid; 2 warnings"
    (few,) = (line for line in lines if "file descriptors" in line)
    assert few.startswith("warning file descriptors: 200 descriptors are too few for limits.connections_max 10000")


@pytest.mark.parametrize(
    ("percent", "sign", "words"),
    [
        (1, "PROBLEM", "Redis is full and takes no writes"),
        (90, "warning", " % of its maxmemory; when it is full, nothing can be produced: "),
    ],
)
def test_check_finds_a_redis_that_is_full_or_soon_will_be(tmp_path: Path, percent: int, sign: str, words: str) -> None:
    with RedisProcess(tmp_path, port=neighbouring_ports(1)) as redis:
        used = int(redis.call("INFO", "memory").decode().partition("used_memory:")[2].split()[0])
        redis.call("CONFIG", "SET", "maxmemory", used * 100 // percent if percent > 1 else 1)
        settings = {"upstream": {"bootstrap": ["127.0.0.1:9"]}, "redis": {"url": f"redis://127.0.0.1:{redis.port}"}}
        _, lines = checked(tmp_path, settings, "--connect")
    (found,) = (line for line in lines if words in line)
    assert found.startswith(f"{sign} redis 127.0.0.1:{redis.port}: ")
    assert found.endswith("raise its maxmemory, or take out what others keep in it")

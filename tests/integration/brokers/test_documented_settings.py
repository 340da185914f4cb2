"""The defaults that the proxy reports for old brokers' settings are those that are in the brokers' own classes."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping

import pytest

from idemproxy.demo.jars import broker_class_path, java_runtime
from idemproxy.proxy.bridge.documented_settings import documented_of_brokers, documented_of_topics
from testkit.real.clients.java_clients import LAST_3X_CLIENT, compiled

RELEASES = {"0.10.0.1": "0.10.0", "0.10.1.1": "0.10.1", "0.10.2.2": "0.10.2"}
SECONDS_MAX = 180
HOURS_INSTEAD = {
    "log.retention.ms": "log.retention.hours",
    "log.roll.ms": "log.roll.hours",
    "log.roll.jitter.ms": "log.roll.jitter.hours",
}
"""Settings in milliseconds that have no default of their own: the one in hours has it."""


def defaults(version: str) -> dict[str, Mapping[str, str | None]]:
    class_path = f"{compiled('BrokerDefaults', LAST_3X_CLIENT)}:{broker_class_path(version)}"
    command = [str(java_runtime()), "-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", class_path, "BrokerDefaults"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    found: dict[str, Mapping[str, str | None]] = json.loads(ran.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("version", RELEASES)
def test_topics_and_brokers_have_these_defaults(version: str) -> None:
    found = defaults(version)
    topics = documented_of_topics(RELEASES[version])
    assert {name: one.default for name, one in topics.items()} == found["topics"]
    of_brokers = dict(found["brokers"])
    for name, hours in HOURS_INSTEAD.items():
        assert of_brokers[name] is None
        of_brokers[name] = str(int(of_brokers[hours] or 0) * 3_600_000)
    of_brokers["log.flush.interval.ms"] = of_brokers["log.flush.interval.ms"] or str(2**63 - 1)
    documented = {name: one.default for name, one in documented_of_brokers(RELEASES[version]).items()}
    assert documented == {name: of_brokers[name] for name in documented}

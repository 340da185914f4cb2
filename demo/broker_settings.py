"""Settings files for small old brokers and their ZooKeeper, by version. Pure, but for writing the file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

LOG4J = """log4j.rootLogger=INFO, console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=%d{ISO8601} %p %c %m%n
"""

Address = tuple[str, int]
Version = tuple[int, ...]


def parse_version(version: str) -> Version:
    """Return the numbers of a version."""
    return tuple(int(part) for part in version.split("."))


def zookeeper_settings(data: Path, address: Address, tick_ms: int, session_timeout_ms: int) -> dict[str, str]:
    """Return the settings of a single ZooKeeper server that allows sessions of this length."""
    return {
        "dataDir": str(data),
        "clientPort": str(address[1]),
        "clientPortAddress": address[0],
        "tickTime": str(tick_ms),
        "maxSessionTimeout": str(max(20 * tick_ms, session_timeout_ms)),
        "maxClientCnxns": "0",
        "admin.enableServer": "false",
        # Losing the newest writes in a power failure is fine here; a slow disk at each write is not.
        "forceSync": "no",
    }


def common_settings(version: Version, broker: int, replication: int) -> dict[str, str]:
    """Return what every broker of this version gets, but for directories, addresses and ZooKeeper's."""
    settings = {
        "broker.id": str(broker),
        # Broker and ZooKeeper are started at the same time, the broker tries until it is there.
        "zookeeper.connection.timeout.ms": "60000",
        "default.replication.factor": str(replication),
        "offsets.topic.replication.factor": str(replication),
        "offsets.topic.num.partitions": "4",
        "delete.topic.enable": "true",
        "unclean.leader.election.enable": "false",
        "num.io.threads": "4",
        "num.network.threads": "2",
        "log.cleaner.threads": "1",
        "log.cleaner.dedupe.buffer.size": "10485760",  # the default does not fit into a small heap
    }
    if version >= (0, 9):
        settings["log.retention.ms"] = "-1"  # records of tests may carry timestamps of 1970
    if version >= (1, 0):
        settings["transaction.state.log.replication.factor"] = str(replication)
        settings["transaction.state.log.min.isr"] = "1"
        settings["transaction.state.log.num.partitions"] = "4"
        settings["group.initial.rebalance.delay.ms"] = "0"
    return settings


def listener_settings(version: Version, own: Address, internal: Address, advertised: Address | None) -> dict[str, str]:
    """Return the settings of where a broker listens and what it tells clients.

    With another address advertised, brokers reach each other at ``internal`` where they can (0.10.2 and later).
    """
    told = advertised or own
    if version < (0, 9):
        return {
            "host.name": own[0],
            "port": str(own[1]),
            "advertised.host.name": told[0],
            "advertised.port": str(told[1]),
        }
    if version < (0, 10, 2):
        return {
            "listeners": "PLAINTEXT://{}:{}".format(*own),
            "advertised.listeners": "PLAINTEXT://{}:{}".format(*told),
        }
    between = "INTERNAL://{}:{}".format(*internal)
    return {
        "listeners": between + ",CLIENTS://{}:{}".format(*own),
        "advertised.listeners": between + ",CLIENTS://{}:{}".format(*told),
        "listener.security.protocol.map": "INTERNAL:PLAINTEXT,CLIENTS:PLAINTEXT",
        "inter.broker.listener.name": "INTERNAL",
    }


def write_properties(path: Path, settings: Mapping[str, str]) -> Path:
    """Write a properties file and return its path."""
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return path

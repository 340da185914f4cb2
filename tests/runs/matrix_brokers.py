"""The brokers of the matrix, and of its page. Data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from testkit.real.brokers.kraft_cluster import NEWEST


@dataclass(frozen=True, slots=True)
class BrokerKind:
    """A column of the table. ``is_native``: the proxy leaves idempotence to it. ``proxy_settings``: in YAML."""

    name: str
    version: str
    is_native: bool = False
    settings: Mapping[str, str] = field(default_factory=dict)
    proxy_settings: str = ""


_OLD_FORMAT = {"inter.broker.protocol.version": "0.10.2", "log.message.format.version": "0.10.2"}
BROKERS = (
    BrokerKind("0.10.0.1", "0.10.0.1"),
    BrokerKind("0.10.1.1", "0.10.1.1"),
    BrokerKind("0.10.2.2", "0.10.2.2"),
    BrokerKind("0.11.0.3", "0.11.0.3", is_native=True),
    BrokerKind("1.1.1, old format", "1.1.1", settings=_OLD_FORMAT),
    BrokerKind("2.8.2", "2.8.2", is_native=True),
    BrokerKind("3.9.1", "3.9.1", is_native=True),
    BrokerKind(NEWEST, NEWEST, is_native=True),
    *(
        BrokerKind(f"{version}, proxy", version, proxy_settings="upstream: {idempotence: proxy}")
        for version in ("0.11.0.3", "2.8.2", "3.9.1", NEWEST)
    ),
    *(
        BrokerKind(f"{version}, engine topics", version, proxy_settings="topics: {engine: ['*']}")
        for version in ("2.8.2", "3.9.1", NEWEST)
    ),
)

"""A real old cluster whose brokers have one listener more: over TLS, also with certificates of their clients."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from idemproxy.demo.legacy_cluster import LegacyCluster
from idemproxy.demo.ports import HOST, free_ports
from testkit.real.tls.certificates import PASSWORD, Authority, Files


class SecureCluster(LegacyCluster):
    """Brokers that speak TLS at ``tls_address``, and plainly at ``address``. ``client_auth``: as in Kafka's settings.
    ``told``: another address that clients over TLS are given, by broker id."""

    def __init__(
        self,
        directory: Path,
        authority: Authority,
        own: Files,
        *,
        client_auth: str = "none",
        told: Mapping[int, tuple[str, int]] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(directory, **options)
        self._told = dict(told or {})
        self._tls_ports = free_ports(len(self.broker_ids))
        self._tls_settings = {
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.location": str(authority.key_store(own)),
            "ssl.keystore.password": PASSWORD,
            "ssl.key.password": PASSWORD,
            "ssl.truststore.type": "PKCS12",
            "ssl.truststore.location": str(authority.trust_store()),
            "ssl.truststore.password": PASSWORD,
            "ssl.client.auth": client_auth,
        }

    def tls_address(self, broker: int) -> tuple[str, int]:
        """The broker's listener over TLS."""
        return HOST, self._tls_ports[broker]

    def _broker_settings(self, broker: int) -> dict[str, str]:
        settings = super()._broker_settings(broker) | self._tls_settings
        own = self.tls_address(broker)
        settings["listeners"] += ",TLS://{}:{}".format(*own)
        settings["advertised.listeners"] += ",TLS://{}:{}".format(*self._told.get(broker, own))
        settings["listener.security.protocol.map"] += ",TLS:SSL"
        return settings

"""Brokers of Kafka 4 that ask who is there: a listener for SASL/PLAIN, and rights. Their plain listener may do all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from idemproxy.demo.ports import HOST, free_ports

from .kraft_cluster import KraftCluster

_AUTHORIZED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"


class SaslKraftCluster(KraftCluster):
    """``users``: password by name."""

    def __init__(self, directory: Path, users: Mapping[str, str], **settings: Any) -> None:
        super().__init__(directory, **settings)
        self._users = dict(users)
        self._sasl_ports = free_ports(len(self.broker_ids))

    def sasl_address(self, broker: int) -> tuple[str, int]:
        """The broker's listener for SASL."""
        return HOST, self._sasl_ports[broker]

    def allow(self, topic: str, rights: Mapping[str, Sequence[AclOperation]]) -> None:
        """Allow operations on a topic, by user; brokers take them within moments."""
        self._allow(ResourceType.TOPIC, topic, rights)

    def allow_groups(self, rights: Mapping[str, Sequence[AclOperation]]) -> None:
        """The same for all groups."""
        self._allow(ResourceType.GROUP, "*", rights)

    def _allow(self, kind: ResourceType, name: str, rights: Mapping[str, Sequence[AclOperation]]) -> None:
        rules = [
            AclBinding(
                *(kind, name, ResourcePatternType.LITERAL, f"User:{user}", "*", operation, AclPermissionType.ALLOW)
            )
            for user, operations in rights.items()
            for operation in operations
        ]
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        for made in admin.create_acls(rules).values():
            made.result(60)

    def _broker_settings(self, broker: int) -> dict[str, str]:
        settings = super()._broker_settings(broker) | _AUTHORIZED | {"sasl.enabled.mechanisms": "PLAIN"}
        place = "SASL://{}:{}".format(*self.sasl_address(broker))
        for key in ("listeners", "advertised.listeners"):
            settings[key] += f",{place}"
        settings["listener.security.protocol.map"] += ",SASL:SASL_PLAINTEXT"
        users = "".join(f' user_{name}="{password}"' for name, password in self._users.items())
        settings["listener.name.sasl.plain.sasl.jaas.config"] = f"{_LOGIN}{users};"
        return settings

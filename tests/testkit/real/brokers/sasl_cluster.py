"""A real old cluster whose brokers ask who is there: listeners for SASL, plain and over TLS, users, and ACLs.

Everybody is refused everything that is not allowed; only the cluster's own plain listener may do all."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import time
from base64 import b64encode
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from idemproxy.demo.legacy_cluster import LegacyCluster
from idemproxy.demo.ports import HOST, free_ports
from idemproxy.demo.zookeeper import SEQUENTIAL, ZooKeeper
from testkit.real.tls.certificates import PASSWORD, Authority, Files

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
_ITERATIONS = 4096


def _scram_credential(hash_name: str, password: str) -> str:
    salt = os.urandom(16)
    salted = hashlib.pbkdf2_hmac(hash_name, password.encode(), salt, _ITERATIONS)
    stored_key = hashlib.new(hash_name, hmac.digest(salted, b"Client Key", hash_name)).digest()
    server_key = hmac.digest(salted, b"Server Key", hash_name)
    parts = {"salt": salt, "stored_key": stored_key, "server_key": server_key}
    texts = [f"{name}={b64encode(part).decode()}" for name, part in parts.items()]
    return ",".join([*texts, f"iterations={_ITERATIONS}"])


def _json(value: object) -> bytes:
    return json.dumps(value).encode()


def _put(keeper: ZooKeeper, path: str, data: bytes) -> None:
    """Replace a node's data; nodes above it are made when they are missing."""
    for end in (at for at, sign in enumerate(path) if sign == "/" and at > 0):
        if not keeper.exists(path[:end]):
            keeper.create(path[:end], b"")
    keeper.set(path, data)


AUTHORIZED: Mapping[str, str] = {
    "authorizer.class.name": "kafka.security.auth.SimpleAclAuthorizer",
    "allow.everyone.if.no.acl.found": "false",
    "super.users": "User:ANONYMOUS",
}
"""Settings of brokers that refuse everything that is not allowed, but for who comes plainly."""


_RENAMED_IN = 3
"""The authorizer that keeps ACLs in ZooKeeper."""
NOTICED_SECONDS = 1.0
"""A broker hears of it from ZooKeeper, and nobody can ask it whether it has; it only says when it begins to read."""
_NOTICED_SECONDS_MAX = 30.0
_CHANGES = "/kafka-acl-changes"


def allow(cluster: LegacyCluster, resource: str, rights: Mapping[str, Sequence[str]]) -> None:
    """Replace the ACLs of a resource of brokers with these settings: operations by user."""
    acls = [
        {"principal": f"User:{name}", "permissionType": "Allow", "operation": operation, "host": "*"}
        for name, operations in rights.items()
        for operation in operations
    ]
    kind, _, name = resource.partition(":")
    outputs = [cluster.output(broker) for broker in cluster.broker_ids]
    before = [_times_read(output) for output in outputs]
    with ZooKeeper(cluster.zookeeper_address) as keeper:
        _put(keeper, f"/kafka-acl/{kind}/{name}", _json({"version": 1, "acls": acls}))
        keeper.create(f"{_CHANGES}/acl_changes_", resource.encode(), SEQUENTIAL)
    end = time.monotonic() + _NOTICED_SECONDS_MAX
    while any(_times_read(output) <= earlier for output, earlier in zip(outputs, before, strict=True)):
        assert time.monotonic() < end, f"a broker does not hear of the rights of {resource}"
        time.sleep(0.05)
    time.sleep(NOTICED_SECONDS)


def _times_read(output: Path) -> int:
    """How often this broker has begun to read changes of ACLs."""
    return output.read_text(errors="replace").count(_CHANGES)


class SaslCluster(LegacyCluster):
    """Brokers that take SASL at ``sasl_address`` (with ``authority`` and ``own`` also over TLS at
    ``sasl_tls_address``). ``users``: password by name, for every mechanism. ``tells_rights``: the brokers' output
    has a line for everything that was allowed or denied."""

    def __init__(
        self,
        directory: Path,
        users: Mapping[str, str],
        *,
        mechanisms: Sequence[str] = MECHANISMS,
        authority: Authority | None = None,
        own: Files | None = None,
        tells_rights: bool = False,
        **options: Any,
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        login = directory / "jaas.conf"
        super().__init__(directory, java_options=[f"-Djava.security.auth.login.config={login}"], **options)
        self._users = dict(users)
        self._tells_rights = tells_rights
        plain = "".join(f' user_{name}="{password}"' for name, password in users.items())
        scram = [one for one in mechanisms if one in _HASHES]  # before 0.10.2 there is no such module
        login.write_text(
            "KafkaServer {\n"
            f"  org.apache.kafka.common.security.plain.PlainLoginModule required{plain};\n"
            + ("  org.apache.kafka.common.security.scram.ScramLoginModule required;\n" if scram else "")
            + "};\n"
        )
        self._sasl_ports = free_ports(2 * len(self.broker_ids))
        self._sasl_settings = {
            "sasl.enabled.mechanisms": ",".join(mechanisms),
            **AUTHORIZED,
        }
        if int(self.version.partition(".")[0]) >= _RENAMED_IN:
            self._sasl_settings["authorizer.class.name"] = "kafka.security.authorizer.AclAuthorizer"
        if "OAUTHBEARER" in mechanisms:  # tokens without a signature, from Kafka 2.0 on
            module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
            login_of_its_own = f'{module} required unsecuredLoginStringClaim_sub="broker";'
            self._sasl_settings["listener.name.sasl.oauthbearer.sasl.jaas.config"] = login_of_its_own
        self._has_tls = authority is not None
        if authority is not None:
            assert own is not None
            self._sasl_settings |= {
                "ssl.keystore.type": "PKCS12",
                "ssl.keystore.location": str(authority.key_store(own)),
                "ssl.keystore.password": PASSWORD,
                "ssl.key.password": PASSWORD,
            }

    def __enter__(self) -> SaslCluster:
        super().__enter__()
        for name, password in self._users.items():
            self.set_password(name, password)
        return self

    def sasl_address(self, broker: int) -> tuple[str, int]:
        """The broker's listener for SASL."""
        return HOST, self._sasl_ports[2 * broker]

    def sasl_tls_address(self, broker: int) -> tuple[str, int]:
        """The broker's listener for SASL over TLS."""
        return HOST, self._sasl_ports[2 * broker + 1]

    def set_password(self, name: str, password: str) -> None:
        """Give a user this password for SCRAM; brokers take it within moments. For PLAIN it stays what it was."""
        config = {mechanism: _scram_credential(hash_name, password) for mechanism, hash_name in _HASHES.items()}
        with ZooKeeper(self.zookeeper_address) as keeper:
            _put(keeper, f"/config/users/{name}", _json({"version": 1, "config": config}))
            change = _json({"version": 2, "entity_path": f"users/{name}"})
            keeper.create("/config/changes/config_change_", change, SEQUENTIAL)

    def allow(self, resource: str, rights: Mapping[str, Sequence[str]]) -> None:
        """Replace the ACLs of a resource (``Topic:name``, ``Cluster:kafka-cluster``, ``Group:*``): operations by user.
        Brokers take them within moments."""
        allow(self, resource, rights)

    def _start_zookeeper(self) -> None:
        super()._start_zookeeper()
        if self._tells_rights:
            with (self.directory / "log4j.properties").open("a") as settings:
                settings.write("log4j.logger.kafka.authorizer.logger=DEBUG\n")

    def _broker_settings(self, broker: int) -> dict[str, str]:
        settings = super()._broker_settings(broker) | self._sasl_settings
        named = "listener.security.protocol.map" in settings
        places = ["{}://{}:{}".format("SASL" if named else "SASL_PLAINTEXT", *self.sasl_address(broker))]
        if self._has_tls:
            places.append("{}://{}:{}".format("SASLTLS" if named else "SASL_SSL", *self.sasl_tls_address(broker)))
        for key in ("listeners", "advertised.listeners"):
            settings[key] = ",".join((settings[key], *places))
        if named:
            settings["listener.security.protocol.map"] += ",SASL:SASL_PLAINTEXT,SASLTLS:SASL_SSL"
        return settings

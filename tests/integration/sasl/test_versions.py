"""Brokers of other versions: the oldest with SASL that are served, and some that take tokens in requests and keep
message format v1, which our principal has to be allowed to see."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from kafka import KafkaProducer

from idemproxy.proxy.versions import ApiKey
from testkit.real.brokers.sasl_cluster import MECHANISMS, SaslCluster
from testkit.real.clients.raw_client import RawClient, batch
from testkit.real.clients.web_tokens import bearer, web_token
from testkit.real.proxies.configured_proxy import ConfiguredProxy

pytestmark = pytest.mark.long

RIGHTS = ("Read", "Write", "Describe")
USERS = {"idemproxy": "our secret", "alice": "alice's secret"}
OLD_FORMAT = {"log.message.format.version": "0.10.2"}
SEES_SETTINGS = {"idemproxy": ("DescribeConfigs",)}
RECORDS = 100


@pytest.mark.promise("compared-19")
@pytest.mark.parametrize(
    ("version", "mechanisms"), [("0.10.0.1", ("PLAIN",)), ("0.10.1.1", ("PLAIN",)), ("1.1.1", MECHANISMS)]
)
def test_proxy_and_clients_show_who_they_are(tmp_path: Path, version: str, mechanisms: tuple[str, ...]) -> None:
    settings = OLD_FORMAT if version == "1.1.1" else {}
    with SaslCluster(
        tmp_path / "kafka", USERS, mechanisms=mechanisms, version=version, broker_settings=settings
    ) as cluster:
        cluster.create_topic("topic", 1)
        cluster.allow("Topic:topic", {"idemproxy": RIGHTS, "alice": RIGHTS})
        sasl = {"mechanism": mechanisms[-1], "username": "idemproxy", "password": USERS["idemproxy"]}
        upstream = {"bootstrap": ["{}:{}".format(*cluster.sasl_address(0))], "sasl": sasl}
        if settings:
            assert "allow the principal of idemproxy DescribeConfigs on the cluster" in not_served(tmp_path, upstream)
            cluster.allow("Cluster:kafka-cluster", SEES_SETTINGS)
        with ConfiguredProxy(
            tmp_path / "proxy", {"upstream": upstream}, listener={"authentication": "pass_through"}
        ) as proxy:
            for handshake_version in (0, 1):
                with RawClient((proxy.address[0], proxy.address[1] + 1)) as client:
                    answer = client.ask(ApiKey.SASL_HANDSHAKE, handshake_version, mechanism="NONE")
                    assert (answer.error_code, sorted(answer.mechanisms)) == (33, sorted(mechanisms))
            with RawClient((proxy.address[0], proxy.address[1] + 1)) as client:
                assert client.ask(ApiKey.SASL_HANDSHAKE, 1, mechanism="PLAIN").error_code == 0
                answer = client.ask(ApiKey.SASL_AUTHENTICATE, 1, auth_bytes=b"\0alice\0wrong")
                assert (answer.error_code, client.is_closed()) == (58, True)
            producer = KafkaProducer(
                bootstrap_servers="{}:{}".format(*proxy.address),
                enable_idempotence=True,
                security_protocol="SASL_PLAINTEXT",
                sasl_mechanism=mechanisms[0],
                sasl_plain_username="alice",
                sasl_plain_password=USERS["alice"],
            )
            sent = [producer.send("topic", b"%d" % number) for number in range(RECORDS)]
            assert [one.get(30).offset for one in sent] == list(range(RECORDS))
            producer.close()


def not_served(directory: Path, upstream: dict[str, Any]) -> str:
    """What the proxy says that ends at its start."""
    proxy = ConfiguredProxy(directory / "denied", {"upstream": upstream}, listener={"authentication": "pass_through"})
    try:
        proxy.launch()
        assert proxy.wait() == 2
        return proxy.log
    finally:
        proxy.__exit__()


def test_proxy_and_clients_show_tokens(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_bytes(web_token("idemproxy", expires_in=-5))
    with SaslCluster(
        tmp_path / "kafka", USERS, mechanisms=("OAUTHBEARER",), version="2.8.2", broker_settings=OLD_FORMAT
    ) as cluster:
        cluster.create_topic("topic", 1)
        cluster.allow("Cluster:kafka-cluster", SEES_SETTINGS)
        cluster.allow("Topic:topic", {"idemproxy": RIGHTS, "alice": RIGHTS})
        sasl = {"mechanism": "OAUTHBEARER", "token_file": str(token)}
        upstream = {"bootstrap": ["{}:{}".format(*cluster.sasl_address(0))], "sasl": sasl}
        proxy = ConfiguredProxy(tmp_path / "proxy", {"upstream": upstream}, listener={"authentication": "pass_through"})
        try:
            proxy.launch()
            proxy.wait_for_log("upstream.sasl: .* OAUTHBEARER: the token is refused: 'invalid_token'", 30)
            token.write_bytes(web_token("idemproxy"))
            proxy.wait_for_log("point clients at", 30)
            with RawClient((proxy.address[0], proxy.address[1] + 1)) as client:
                assert client.ask(ApiKey.SASL_HANDSHAKE, 1, mechanism="OAUTHBEARER").error_code == 0
                late = bearer(web_token("alice", expires_in=-5))
                answer = client.ask(ApiKey.SASL_AUTHENTICATE, 1, auth_bytes=late)
                assert (answer.error_code, json.loads(answer.auth_bytes)["status"]) == (0, "invalid_token")
                assert client.ask(ApiKey.SASL_AUTHENTICATE, 1, auth_bytes=b"\x01").error_code == 58
                assert client.is_closed()
            with RawClient((proxy.address[0], proxy.address[1] + 1)) as client:
                assert client.ask(ApiKey.SASL_HANDSHAKE, 1, mechanism="OAUTHBEARER").error_code == 0
                right = bearer(web_token("alice"))
                assert client.ask(ApiKey.SASL_AUTHENTICATE, 1, auth_bytes=right).error_code == 0
                producer_id = client.new_producer_id()
                for sequence in (0, 1, 1):
                    records = batch([b"%d" % sequence], producer_id=producer_id, sequence=sequence)
                    answer = client.produce_one("topic", 0, records)
                    assert (answer.error_code, answer.base_offset) == (0, sequence)
            offsets: list[int] = []
            settings = {"security.protocol": "sasl_plaintext", "sasl.mechanism": "OAUTHBEARER"}
            producer = Producer(
                {
                    "bootstrap.servers": "{}:{}".format(*proxy.address),
                    "enable.idempotence": True,
                    "oauth_cb": lambda _: (web_token("alice").decode(), time.time() + 3600),
                    **settings,
                }
            )
            for number in range(RECORDS):
                value = b"%d" % number
                producer.produce("topic", value, on_delivery=lambda _e, message: offsets.append(message.offset()))
            assert producer.flush(30) == 0
            assert offsets == list(range(2, 2 + RECORDS))
            assert proxy.stop() == 0
        finally:
            proxy.__exit__()

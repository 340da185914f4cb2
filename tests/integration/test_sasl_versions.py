"""Brokers of other versions: the oldest with SASL that are served, and one that takes tokens in requests."""

from pathlib import Path

import pytest
from kafka import KafkaProducer

from idemproxy.proxy.versions import ApiKey
from testkit.raw_client import RawClient
from testkit.sasl_cluster import MECHANISMS, SaslCluster
from testkit.tls_proxy import ConfiguredProxy

RIGHTS = ("Read", "Write", "Describe")
USERS = {"idemproxy": "our secret", "alice": "alice's secret"}
RECORDS = 100


@pytest.mark.parametrize(
    ("version", "mechanisms"), [("0.10.0.1", ("PLAIN",)), ("0.10.1.1", ("PLAIN",)), ("1.1.1", MECHANISMS)]
)
def test_proxy_and_clients_show_who_they_are(tmp_path: Path, version: str, mechanisms: tuple[str, ...]) -> None:
    with SaslCluster(tmp_path / "kafka", USERS, mechanisms=mechanisms, version=version) as cluster:
        cluster.create_topic("topic", 1)
        cluster.allow("Topic:topic", {"idemproxy": RIGHTS, "alice": RIGHTS})
        sasl = {"mechanism": mechanisms[-1], "username": "idemproxy", "password": USERS["idemproxy"]}
        upstream = {"bootstrap": ["{}:{}".format(*cluster.sasl_address(0))], "sasl": sasl}
        with ConfiguredProxy(tmp_path / "proxy", {"authentication": "pass_through"}, {"upstream": upstream}) as proxy:
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

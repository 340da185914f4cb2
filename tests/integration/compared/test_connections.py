"""Clients that do not wait: for the broker's connection, or for an answer (compared.md). With a real broker."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from confluent_kafka import KafkaError, Message, Producer

from idemproxy.codecs import messages
from idemproxy.demo.legacy_cluster import LegacyCluster
from idemproxy.proxy.versions import ApiKey
from testkit.real.clients.raw_client import RawClient, batch
from testkit.real.proxies.configured_proxy import ConfiguredProxy
from testkit.real.proxies.proxy_process import ProxyProcess, wait_until
from testkit.real.tls.certificates import Authority
from testkit.real.tls.raw_client import TlsRawClient
from testkit.real.tls.settings import listener_tls

Place = tuple[str, int]
STORED_SECONDS_MAX = 30


@dataclass(frozen=True)
class Secure:
    """A proxy that speaks TLS."""

    authority: Authority
    proxy: ConfiguredProxy


@pytest.fixture(scope="module")
def secure(legacy_broker: LegacyCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secure]:
    directory = tmp_path_factory.mktemp("secure")
    authority = Authority(directory / "certificates")
    listener = {"tls": listener_tls(authority.issue("listener"))}
    settings = {"upstream": {"bootstrap": [legacy_broker.bootstrap]}}
    with ConfiguredProxy(directory / "proxy", settings, listener=listener) as proxy:
        yield Secure(authority, proxy)


class AllAtOnce:
    """Keeps what a client is to send until ``go``, and lets it send that in one piece."""

    def __init__(self, client: RawClient) -> None:
        self._client = client
        self._kept: list[bytes] = []
        self._send = client.send_bytes
        client.send_bytes = self._kept.append  # type: ignore[assignment, method-assign]

    def go(self) -> None:
        """Send it all."""
        self._send(b"".join(self._kept))


@pytest.mark.promise("compared-10")
def test_requests_in_one_piece_keep_their_order_before_the_broker_is_connected(
    shared_proxy: ProxyProcess, place: Place
) -> None:
    topic, partition = place
    questions = [
        (ApiKey.API_VERSIONS, 0, b""),
        (ApiKey.API_VERSIONS, 3, messages.encode_request(ApiKey.API_VERSIONS, 3)),
        (ApiKey.LIST_GROUPS, 0, b""),
        (ApiKey.PRODUCE, 3, RawClient.produce_body([(topic, partition, batch([b"plain"]))])),
        (ApiKey.METADATA, 4, messages.encode_request(ApiKey.METADATA, 4, topics=[])),
        (ApiKey.LIST_GROUPS, 0, b""),
        (ApiKey.API_VERSIONS, 0, b""),
    ]
    with RawClient(shared_proxy.address) as client:
        together = AllAtOnce(client)
        asked = [client.send(*question) for question in questions]
        together.go()
        answers = [client.answer() for _ in asked]
        assert [correlation_id for correlation_id, _ in answers] == asked
        for (api_key, version, _), (_, body) in zip(questions, answers, strict=True):
            messages.decode_response(api_key, version, body)
    with RawClient(shared_proxy.address) as reader:
        assert reader.values(topic, partition) == [b"plain"]


@pytest.mark.promise("compared-5")
@pytest.mark.parametrize("count", [3, 20, 1000])
@pytest.mark.parametrize("over_tls", [False, True], ids=["plain", "TLS"])
def test_batches_without_acks_are_all_stored_although_their_client_disconnects_at_once(
    shared_proxy: ProxyProcess, secure: Secure, client: RawClient, place: Place, over_tls: bool, count: int
) -> None:
    values = [str(number).encode() for number in range(count)]
    tls = TlsRawClient(secure.proxy.address, secure.authority) if over_tls else None
    with tls or RawClient(shared_proxy.address) as sender:
        together = AllAtOnce(sender)
        for value in values:
            sender.send_produce([(*place, batch([value]))], acks=0)
        together.go()
    wait_until(lambda: client.end_offset(*place, replica_id=-1) >= count, "all are stored", STORED_SECONDS_MAX)
    assert sorted(client.values(*place)) == sorted(values), "a broker itself changes their order when a client hangs up"


@pytest.mark.promise("compared-5")
@pytest.mark.parametrize("over_tls", [False, True], ids=["plain", "TLS"])
def test_a_producer_without_acks_may_flush_and_go(
    shared_proxy: ProxyProcess, secure: Secure, client: RawClient, place: Place, over_tls: bool
) -> None:
    count = 3000
    settings: dict[str, str | int | bool] = {"acks": 0, "linger.ms": 0, "batch.num.messages": 1}
    if over_tls:
        settings |= {"security.protocol": "ssl", "ssl.ca.location": str(secure.authority.ca_file)}
    address = secure.proxy.address if over_tls else shared_proxy.address
    failed: list[KafkaError] = []

    def told(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            failed.append(error)

    producer = Producer({"bootstrap.servers": "{}:{}".format(*address), **settings})
    topic, partition = place
    for number in range(count):
        producer.produce(topic, str(number).encode(), partition=partition, on_delivery=told)
    assert producer.flush(STORED_SECONDS_MAX) == 0
    producer.close()
    assert failed == []
    wait_until(lambda: client.end_offset(*place, replica_id=-1) >= count, "all are stored", STORED_SECONDS_MAX)
    assert sorted(client.values(*place), key=int) == [str(number).encode() for number in range(count)]


@pytest.mark.parametrize(
    "header",
    [b"PROXY TCP4 192.0.2.1 192.0.2.2 40000 9092\r\n", b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c" + bytes(12)],
    ids=["version 1", "version 2"],
)
def test_a_header_of_the_proxy_protocol_is_refused_at_once(shared_proxy: ProxyProcess, header: bytes) -> None:
    with RawClient(shared_proxy.address) as client:
        client.send_bytes(header)
        assert client.is_closed()
    assert f"frame size: {int.from_bytes(header[:4], 'big')} bytes, the limit is" in shared_proxy.log

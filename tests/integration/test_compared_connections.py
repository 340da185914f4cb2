"""Clients that do not wait: for the broker's connection, or for an answer (docs/COMPARED.md). With a real broker."""

from __future__ import annotations

import pytest

from idemproxy.codecs import messages
from idemproxy.proxy.versions import ApiKey
from testkit.proxy_process import ProxyProcess, wait_until
from testkit.raw_client import RawClient, batch

Place = tuple[str, int]


class AllAtOnce(RawClient):
    """Keeps what it is to send until it is told to, and sends it in one piece."""

    def __init__(self, address: tuple[str, int]) -> None:
        super().__init__(address)
        self._kept: list[bytes] = []

    def send_bytes(self, data: bytes) -> None:
        self._kept.append(data)

    def go(self) -> None:
        """Send it all."""
        kept, self._kept = self._kept, []
        super().send_bytes(b"".join(kept))


def test_requests_in_one_piece_are_answered_in_order_though_the_broker_is_not_connected_yet(
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
    with AllAtOnce(shared_proxy.address) as client:
        asked = [client.send(*question) for question in questions]
        client.go()
        answers = [client.answer() for _ in asked]
        assert [correlation_id for correlation_id, _ in answers] == asked
        for (api_key, version, _), (_, body) in zip(questions, answers, strict=True):
            messages.decode_response(api_key, version, body)
    with RawClient(shared_proxy.address) as reader:
        assert reader.values(topic, partition) == [b"plain"]


@pytest.mark.parametrize("count", [3, 20, 1000])
def test_batches_without_acks_are_all_stored_though_their_client_hangs_up_behind_the_last_one(
    shared_proxy: ProxyProcess, client: RawClient, place: Place, count: int
) -> None:
    values = [str(number).encode() for number in range(count)]
    with AllAtOnce(shared_proxy.address) as sender:
        for value in values:
            sender.send_produce([(*place, batch([value]))], acks=0)
        sender.go()
    wait_until(lambda: client.end_offset(*place, replica_id=-1) >= count, "all are stored", 20)
    assert sorted(client.values(*place)) == sorted(values), "a broker itself changes their order when a client hangs up"

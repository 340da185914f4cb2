"""Tokens with OAUTHBEARER, of which only the broker knows whether it has accepted them: it answers a wrong one as if it
were right, and refuses what comes next. Who is accepted may wait long for its first answer; nobody else may."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from idemproxy.codecs import messages
from idemproxy.codecs.framing import frame
from idemproxy.codecs.headers import encode_request_header
from idemproxy.proxy import limits
from idemproxy.proxy.versions import ApiKey
from testkit.real.brokers.sasl_cluster import SaslCluster
from testkit.real.clients.raw_client import RawClient
from testkit.real.clients.web_tokens import bearer, web_token
from testkit.real.proxies.configured_proxy import ConfiguredProxy

RIGHTS = ("Read", "Write", "Describe")
LONGER_MS = int(limits.SASL_SECONDS * 1000) + 3_000


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConfiguredProxy]:
    """One connection of an address may be unauthenticated at a time."""
    directory = tmp_path_factory.mktemp("native-tokens")
    token = directory / "token"
    token.write_bytes(web_token("idemproxy"))
    users = {"idemproxy": "", "alice": ""}
    with SaslCluster(directory / "kafka", users, mechanisms=("OAUTHBEARER",), version="2.8.2") as cluster:
        cluster.create_topic("topic", 1)
        cluster.allow("Cluster:kafka-cluster", {"idemproxy": ("DescribeConfigs",)})
        cluster.allow("Topic:topic", {"idemproxy": RIGHTS, "alice": RIGHTS})
        sasl = {"mechanism": "OAUTHBEARER", "token_file": str(token)}
        upstream = {"bootstrap": ["{}:{}".format(*cluster.sasl_address(0))], "sasl": sasl}
        settings = {"upstream": upstream, "limits": {"unauthenticated_per_ip_max": 1}}
        with ConfiguredProxy(directory / "proxy", settings, listener={"authentication": "pass_through"}) as running:
            running.wait_for_log("upstream.idempotence: native")
            yield running


def connected(proxy: ConfiguredProxy) -> RawClient:
    return RawClient((proxy.address[0], proxy.address[1] + 1))


def begins(client: RawClient) -> bool:
    """Is it admitted, and answered?"""
    try:
        return bool(client.ask(ApiKey.SASL_HANDSHAKE, 1, mechanism="OAUTHBEARER").error_code == 0)
    except ConnectionError:
        return False


@contextmanager
def introduced(proxy: ConfiguredProxy, token: bytes, told: bytes) -> Iterator[RawClient]:
    """A client that has shown a token. The broker's answer has no error code, whatever it is."""
    end = time.monotonic() + limits.SASL_SECONDS
    client = connected(proxy)
    while not begins(client):  # an earlier one has just gone
        client.close()
        assert time.monotonic() < end
        client = connected(proxy)
    with client:
        answer = client.ask(ApiKey.SASL_AUTHENTICATE, 1, auth_bytes=bearer(token))
        assert answer.error_code == 0
        assert told in bytes(answer.auth_bytes)
        yield client


def test_a_client_whose_first_answer_takes_long_is_not_taken_for_a_stranger(proxy: ConfiguredProxy) -> None:
    body = messages.encode_request(
        ApiKey.FETCH,
        4,
        replica_id=-1,
        max_wait_ms=LONGER_MS,
        min_bytes=1,
        max_bytes=1 << 20,
        topics=[
            {"topic": "topic", "partitions": [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}]}
        ],
    )
    with introduced(proxy, web_token("alice"), b"") as client:
        begun = time.monotonic()
        sent = client.send(ApiKey.FETCH, 4, body)
        time.sleep(1)
        with connected(proxy) as other:  # it would turn out the oldest that has not authenticated
            assert begins(other)
        assert client.answer()[0] == sent
        assert time.monotonic() - begun > limits.SASL_SECONDS


@pytest.mark.parametrize("is_begun_only", [True, False])
def test_a_request_after_a_wrong_token_does_not_authenticate_the_client(
    proxy: ConfiguredProxy, is_begun_only: bool
) -> None:
    """A request that has only begun is one that the broker cannot refuse yet."""
    body = messages.encode_request(ApiKey.METADATA, 1, topics=[])
    request = frame(encode_request_header(ApiKey.METADATA, 1, 77, "thief"), body)
    with introduced(proxy, web_token("alice", expires_in=-5), b"invalid_token") as client:
        begun = time.monotonic()
        client.send_bytes(request[:-1] if is_begun_only else request)
        if is_begun_only:
            assert client.is_closed()
            assert time.monotonic() - begun > limits.SASL_SECONDS / 2, "it may still come whole"
            assert time.monotonic() - begun < limits.SASL_SECONDS + 3
            proxy.wait_for_log("no authentication within 10 s")
        else:
            while not client.is_closed():  # the broker's answer, with its error code, may come before
                pass
            assert time.monotonic() - begun < limits.SASL_SECONDS / 2, "the broker refuses it"

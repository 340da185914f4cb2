"""Redis over TLS, with a certificate of ours: a proxy keeps its state there and says why it can not."""

from pathlib import Path
from typing import Any

from kafka import KafkaProducer

from idemproxy.demo.legacy_cluster import LegacyCluster
from testkit.real.proxies.configured_proxy import ConfiguredProxy
from testkit.real.proxies.proxy_process import wait_until
from testkit.real.store.two_proxies_redis import ExternalRedis
from testkit.real.tls.certificates import Authority
from testkit.real.tls.settings import client_tls
from testkit.real.tls.terminator import TlsTerminator

Place = tuple[str, int]


def test_the_state_is_kept_in_a_redis_that_is_reached_over_tls(
    legacy_broker: LegacyCluster, place: Place, tmp_path: Path
) -> None:
    authority, other = Authority(tmp_path / "ours"), Authority(tmp_path / "others")
    own = authority.issue("own")
    settings: dict[str, Any] = {
        "upstream": {"bootstrap": ["{}:{}".format(*legacy_broker.address(0))]},
        "redis": {"tls": client_tls(authority, own)},
    }
    with (
        ExternalRedis() as redis,
        TlsTerminator(redis.address, authority, authority.issue("redis")) as secured,
    ):
        settings["redis"]["url"] = f"redis://localhost:{secured.address[1]}"
        with ConfiguredProxy(tmp_path / "proxy", settings, listener={}) as proxy:
            producer = KafkaProducer(
                bootstrap_servers="{}:{}".format(*proxy.address), enable_idempotence=True, request_timeout_ms=60_000
            )
            producer.send(place[0], b"one", partition=place[1]).get(60)
            producer.close()
            wait_until(lambda: bool(redis.call("KEYS", "idem:*:{*")), "the producer is in Redis")
        settings["redis"]["tls"] = client_tls(other)
        stranger = ConfiguredProxy(tmp_path / "stranger", settings, listener={})
        try:
            stranger.launch()
            stranger.wait_for_log("Redis is away: TLS handshake: the peer's certificate is not accepted: ", 30)
        finally:
            stranger.__exit__()

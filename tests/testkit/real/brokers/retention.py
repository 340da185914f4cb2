"""A broker that deletes what is an hour old, as brokers of users do, and soon. The brokers of other tests keep
everything, also records with the timestamps of 1970.

Owns the wait until retention has run; who wrote what is the caller's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from idemproxy.client import Client
from idemproxy.codecs.message_set import encode_set
from idemproxy.codecs.record_batch import Record, encode_batch
from idemproxy.demo.legacy_cluster import LegacyCluster
from testkit.real.brokers.kafka_cluster import fresh_topic
from testkit.real.clients.raw_client import RawClient
from testkit.real.proxies.proxy_process import wait_until

DELETES_SOON: Final[Mapping[str, str]] = {
    "log.retention.ms": "3600000",
    "log.retention.check.interval.ms": "500",
    "log.segment.delete.delay.ms": "100",
}
"""``broker_settings`` of such a cluster. The first look comes 30 s after a broker has started."""
_RUN_SECONDS_MAX: Final = 120


def wait_for_retention(cluster: LegacyCluster) -> None:
    """Return when a whole pass over all logs has begun and ended since the call: two records of 1970 were deleted, one
    after the other, and the second one was written after the first was gone."""
    for _ in range(2):
        topic = fresh_topic(cluster, 1)
        with RawClient(cluster.address(cluster.leader(topic, 0))) as client:
            record, is_old = Record(0, 0, None, b"of 1970"), cluster.version.startswith("0.")
            records = encode_set([(None, b"of 1970", 0)], magic=1) if is_old else encode_batch([record])
            version = 2 if is_old else 7
            wait_until(lambda: client.produce_one(topic, 0, records, version=version).error_code == 0, "it is written")  # noqa: B023
        with Client(cluster.bootstrap) as reader:
            wait_until(lambda: reader.start_offset(topic, 0) > 0, "retention has run", _RUN_SECONDS_MAX)  # noqa: B023


def assert_retention_takes_nothing(cluster: LegacyCluster, *topics: str) -> None:
    """Wait for retention; all partitions of these topics have to begin at offset 0 then, and each topic has records."""
    wait_for_retention(cluster)
    with Client(cluster.bootstrap) as reader:
        for topic in topics:
            places = [(topic, partition) for partition in reader.partitions(topic)]
            assert [reader.start_offset(*place) for place in places] == [0] * len(places), topic
            assert any(reader.end_offset(*place) > 0 for place in places), topic

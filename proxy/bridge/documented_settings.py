"""Settings of brokers before 0.11 and of their topics, with the defaults that Kafka's documentation gives them. Data.

What a broker or a topic really has cannot be asked for. Source: kafka.log.LogConfig and kafka.server.KafkaConfig of
0.10.0.1, 0.10.1.1 and 0.10.2.2, with which a test compares these tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Documented:
    """One setting of a topic, or of a broker. ``broker_name``: the broker's setting that counts for a topic without one
    of its own. ``default``: as text; None: it has none."""

    broker_name: str
    default: str | None


_NEVER = str(2**63 - 1)
_WEEK_MS = str(7 * 24 * 3600 * 1000)

_TOPIC: Mapping[str, Documented] = {
    "cleanup.policy": Documented("log.cleanup.policy", "delete"),
    "compression.type": Documented("compression.type", "producer"),
    "delete.retention.ms": Documented("log.cleaner.delete.retention.ms", "86400000"),
    "file.delete.delay.ms": Documented("log.segment.delete.delay.ms", "60000"),
    "flush.messages": Documented("log.flush.interval.messages", _NEVER),
    "flush.ms": Documented("log.flush.interval.ms", _NEVER),
    "index.interval.bytes": Documented("log.index.interval.bytes", "4096"),
    "max.message.bytes": Documented("message.max.bytes", "1000012"),
    "message.timestamp.difference.max.ms": Documented("log.message.timestamp.difference.max.ms", _NEVER),
    "message.timestamp.type": Documented("log.message.timestamp.type", "CreateTime"),
    "min.cleanable.dirty.ratio": Documented("log.cleaner.min.cleanable.ratio", "0.5"),
    "min.insync.replicas": Documented("min.insync.replicas", "1"),
    "preallocate": Documented("log.preallocate", "false"),
    "retention.bytes": Documented("log.retention.bytes", "-1"),
    "retention.ms": Documented("log.retention.ms", _WEEK_MS),
    "segment.bytes": Documented("log.segment.bytes", "1073741824"),
    "segment.index.bytes": Documented("log.index.size.max.bytes", "10485760"),
    "segment.jitter.ms": Documented("log.roll.jitter.ms", "0"),
    "segment.ms": Documented("log.roll.ms", _WEEK_MS),
    "unclean.leader.election.enable": Documented("unclean.leader.election.enable", "true"),
}
_TOPIC_SINCE_0_10_1: Mapping[str, Documented] = {
    "follower.replication.throttled.replicas": Documented("follower.replication.throttled.replicas", ""),
    "leader.replication.throttled.replicas": Documented("leader.replication.throttled.replicas", ""),
    "min.compaction.lag.ms": Documented("log.cleaner.min.compaction.lag.ms", "0"),
}
_FORMAT_OF_RELEASE: Mapping[str, str] = {"0.10.0": "0.10.0-IV1", "0.10.1": "0.10.1-IV2", "0.10.2": "0.10.2-IV0"}
_NOT_OF_BROKERS = ("follower.replication.throttled.replicas", "leader.replication.throttled.replicas")
"""Only topics have these; no setting of the broker is their default."""
_BROKER_ALONE: Mapping[str, str | None] = {
    "advertised.listeners": None,
    "auto.create.topics.enable": "true",
    "auto.leader.rebalance.enable": "true",
    "background.threads": "10",
    "broker.rack": None,
    "controlled.shutdown.enable": "true",
    "default.replication.factor": "1",
    "delete.topic.enable": "false",
    "group.max.session.timeout.ms": "300000",
    "group.min.session.timeout.ms": "6000",
    "listeners": None,
    "log.cleaner.enable": "true",
    "num.io.threads": "8",
    "num.network.threads": "3",
    "num.partitions": "1",
    "num.recovery.threads.per.data.dir": "1",
    "num.replica.fetchers": "1",
    "offsets.retention.minutes": "1440",
    "offsets.topic.num.partitions": "50",
    "offsets.topic.replication.factor": "3",
    "replica.fetch.max.bytes": "1048576",
    "replica.lag.time.max.ms": "10000",
}


def documented_of_topics(release: str) -> Mapping[str, Documented]:
    """The settings that a topic has at brokers of this release (as in ``versions.KNOWN``), by name."""
    found = dict(_TOPIC)
    if release in _FORMAT_OF_RELEASE:
        found["message.format.version"] = Documented("log.message.format.version", _FORMAT_OF_RELEASE[release])
    if release != "0.10.0":
        found |= _TOPIC_SINCE_0_10_1
    return dict(sorted(found.items()))


def documented_of_brokers(release: str) -> Mapping[str, Documented]:
    """Settings of the broker itself, by name: those that count for topics without their own, and others that tools look
    for."""
    topics = (one for name, one in documented_of_topics(release).items() if name not in _NOT_OF_BROKERS)
    found = {one.broker_name: one for one in topics}
    found |= {name: Documented(name, default) for name, default in _BROKER_ALONE.items()}
    return dict(sorted(found.items()))

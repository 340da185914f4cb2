"""What a cluster looks like: brokers, topics, who leads what. Frozen, read from one Metadata answer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Any, Final

from ..codecs.error_codes import ErrorCode
from ..values import value
from .numbered_batch import Place

METADATA: Final = 3
METADATA_VERSIONS: Final = (0, 4)
"""From 4 on a client can say that a topic is not to be created."""

Address = tuple[str, int]


@value(frozen=True, slots=True)
class Cluster:
    """A cluster as one Metadata answer shows it. ``leaders``: broker ids; partitions without a leader are not in it.
    ``errors``: codes by topic. ``replicas``: of each partition, those that the answer has an address of."""

    brokers: Mapping[int, Address]
    leaders: Mapping[Place, int]
    partitions: Mapping[str, tuple[int, ...]]
    errors: Mapping[str, int]
    replicas: Mapping[Place, tuple[Address, ...]] = field(default_factory=dict)


NOTHING: Final = Cluster({}, {}, {}, {})


def metadata_fields(topics: Iterable[str]) -> dict[str, Any]:
    """Return the request for these topics. None of them is created where the version can say so."""
    return {"topics": [{"name": name} for name in sorted(topics)], "allow_auto_topic_creation": False}


def cluster_of(answer: Any) -> Cluster:
    """Return what an answer to Metadata says."""
    brokers = {one.node_id: (one.host, one.port) for one in answer.brokers or ()}
    leaders: dict[Place, int] = {}
    partitions: dict[str, tuple[int, ...]] = {}
    errors: dict[str, int] = {}
    replicas: dict[Place, tuple[Address, ...]] = {}
    for topic in answer.topics or ():
        if topic.error_code != ErrorCode.NONE:
            errors[topic.name] = topic.error_code
        partitions[topic.name] = tuple(sorted(one.partition_index for one in topic.partitions or ()))
        for one in topic.partitions or ():
            place = Place(topic.name, one.partition_index)
            if one.leader_id in brokers:
                leaders[place] = one.leader_id
            replicas[place] = tuple(brokers[node] for node in one.replica_nodes or () if node in brokers)
    return Cluster(brokers, leaders, partitions, errors, replicas)


def with_topics_of(older: Cluster, newer: Cluster) -> Cluster:
    """Return the newer view, completed with the older one for topics that the newer one does not mention. Leaders that
    have left the cluster are dropped: they have no address any more."""
    named = newer.partitions
    kept = {
        place: leader for place, leader in older.leaders.items() if place.topic not in named and leader in newer.brokers
    }
    return Cluster(
        newer.brokers,
        {**kept, **newer.leaders},
        {**older.partitions, **named},
        {**{topic: code for topic, code in older.errors.items() if topic not in named}, **newer.errors},
    )

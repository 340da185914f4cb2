"""The registry: which bridge serves which API in which version. Owns the choice, no layout.

``plan`` for everything that is forwarded to a broker; what the proxy answers itself (Produce, Metadata, ApiVersions,
InitProducerId, DescribeCluster, DescribeProducers, and DescribeConfigs where the brokers have none) never comes here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ...codecs.error_codes import ErrorCode
from ..settings.config import TopicDefaults
from ..versions import EXPLAINED, OWN_RANGES, PASSED_MAX, ApiKey, BrokerRanges, client_version_max
from .base import Addresses, Bridge, RequestRefused
from .explained import Explained
from .fetch import BRIDGED_TO_MAX, Fetch
from .find_coordinator import FindCoordinator
from .groups import JoinGroupWithoutRebalanceTimeout
from .ladder import Ladder, Same, Step, Throttle
from .list_offsets import ListOffsetsBySegment, ListOffsetsOfKnownKinds, ListOffsetsWithoutIsolation
from .offsets import OffsetCommitWithTimestamps, OffsetFetchOfNamedPartitions
from .topics import CreateTopicsWithNumbers, CreateTopicsWithoutValidateOnly

STEPS: Mapping[tuple[int, int], Callable[[], Step]] = {
    (ApiKey.LIST_OFFSETS, 2): ListOffsetsWithoutIsolation,
    (ApiKey.LIST_OFFSETS, 1): ListOffsetsBySegment,
    (ApiKey.OFFSET_COMMIT, 3): Throttle,
    (ApiKey.OFFSET_COMMIT, 2): OffsetCommitWithTimestamps,
    (ApiKey.OFFSET_FETCH, 3): Throttle,
    (ApiKey.OFFSET_FETCH, 2): OffsetFetchOfNamedPartitions,
    (ApiKey.JOIN_GROUP, 2): Throttle,
    (ApiKey.JOIN_GROUP, 1): JoinGroupWithoutRebalanceTimeout,
    (ApiKey.HEARTBEAT, 1): Throttle,
    (ApiKey.LEAVE_GROUP, 1): Throttle,
    (ApiKey.SYNC_GROUP, 1): Throttle,
    (ApiKey.DESCRIBE_GROUPS, 1): Throttle,
    (ApiKey.LIST_GROUPS, 1): Throttle,
    (ApiKey.CREATE_TOPICS, 3): Same,
    (ApiKey.CREATE_TOPICS, 2): Throttle,
    (ApiKey.CREATE_TOPICS, 1): CreateTopicsWithoutValidateOnly,
    (ApiKey.DELETE_TOPICS, 1): Throttle,
}
"""(API, version) -> the step from that version to the one below. Not here: CreateTopics 4, whose step needs the
defaults."""


_LEAVES_NUMBERS_SINCE = 4
"""Brokers that have this version of CreateTopics choose the number of partitions and the replication factor themselves
where a request says -1, in any version (KIP-464)."""
_KAFKAS_OWN = TopicDefaults()


def plan(
    api_key: int,
    client_version: int,
    broker_ranges: BrokerRanges,
    addresses: Addresses | None = None,
    topic_defaults: TopicDefaults = _KAFKAS_OWN,
) -> Bridge | RequestRefused:
    """Return a bridge for one request to a broker with these ranges, or why there is none (then see
    ``refusals.refusal``).

    ``addresses``: where this client reaches the brokers; only FindCoordinator looks at it, when its answer comes.
    ``topic_defaults``: for CreateTopics.
    """
    assert api_key not in OWN_RANGES, "answered by the proxy itself"
    if api_key not in broker_ranges and 0 <= client_version <= EXPLAINED.get(api_key, -1):
        return Explained(api_key)
    if api_key not in PASSED_MAX or api_key not in broker_ranges:
        return RequestRefused(ErrorCode.UNSUPPORTED_VERSION, f"API {api_key} is not served")
    first, last = broker_ranges[api_key]
    if not first <= client_version <= client_version_max(api_key, last):
        return RequestRefused(ErrorCode.UNSUPPORTED_VERSION, f"API {api_key} is not served in version {client_version}")
    broker_version = min(client_version, last)
    if api_key == ApiKey.FETCH:
        return Fetch(client_version, broker_version if client_version <= last else min(last, BRIDGED_TO_MAX))
    if api_key == ApiKey.FIND_COORDINATOR:
        return FindCoordinator(client_version, broker_version, addresses or {})
    first_steps: list[Step] = []
    if api_key == ApiKey.LIST_OFFSETS and client_version >= 1:
        first_steps = [ListOffsetsOfKnownKinds(client_version)]
    if api_key == ApiKey.CREATE_TOPICS and last < _LEAVES_NUMBERS_SINCE:
        first_steps = [CreateTopicsWithNumbers(topic_defaults, client_version)]
        client_version = min(client_version, _LEAVES_NUMBERS_SINCE - 1)
    steps = [STEPS[api_key, version]() for version in range(client_version, broker_version, -1)]
    return Ladder(broker_version, [*first_steps, *steps])

"""The question which operations the proxy's own principal may do: body out, typed answer in. Owns no connection.

Brokers tell it since Kafka 2.3 (KIP-430), of the cluster and of topics that the principal may describe. Numbers of the
operations: Kafka's ``AclOperation``."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from ...codecs import messages
from ...codecs.errors import UnsupportedVersion
from ...reactor import Buffer
from ..versions import ApiKey, BrokerRanges

_VERSION: Final = 8
"""Of Metadata: the first one that tells, and brokers of Kafka 4 have it still."""


class Operation(IntEnum):
    """What a right may allow."""

    READ = 3
    WRITE = 4
    IDEMPOTENT_WRITE = 12


@dataclass(frozen=True, slots=True)
class Rights:
    """``cluster``: what may be done there; ``topics``: the same by name, of those that were found. None: the broker
    does not tell."""

    cluster: frozenset[Operation] | None
    topics: Mapping[str, frozenset[Operation] | None]


@dataclass(frozen=True, slots=True)
class AskRights:
    """Metadata of these topics, with what the asking principal may do. Creates none."""

    topics: tuple[str, ...]

    @property
    def api_key(self) -> int:
        """Metadata."""
        return ApiKey.METADATA

    def version_for(self, ranges: BrokerRanges) -> int:
        """Raises UnsupportedVersion of a broker before 2.3."""
        first, last = ranges.get(ApiKey.METADATA, (0, 0))
        if not first <= _VERSION <= last:
            raise UnsupportedVersion(ApiKey.METADATA, _VERSION)
        return _VERSION

    def encode(self, api_version: int) -> bytes:
        """The request body."""
        return messages.encode_request(
            ApiKey.METADATA,
            api_version,
            topics=[{"name": name} for name in self.topics],
            allow_auto_topic_creation=False,
            include_cluster_authorized_operations=True,
            include_topic_authorized_operations=True,
        )

    def parse(self, api_version: int, body: Buffer) -> Rights:
        """What the broker reported."""
        found = messages.decode_response(ApiKey.METADATA, api_version, body)
        topics = {one.name: _operations(one.authorized_operations) for one in found.topics if not one.error_code}
        return Rights(_operations(found.authorized_operations), topics)


def _operations(told: Collection[int] | None) -> frozenset[Operation] | None:
    return None if told is None else frozenset(one for one in Operation if one in told)

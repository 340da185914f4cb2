"""The question which topics have these ids (KIP-516): Metadata 12, the first version that asks so. Decides nothing.

Source: MetadataRequest.json and MetadataResponse.json of Kafka."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from ...codecs import messages
from ...codecs.errors import UnsupportedVersion
from ...reactor import Buffer
from ..versions import ApiKey, BrokerRanges

VERSION: Final = 12


@dataclass(frozen=True, slots=True)
class NamesOfTopics:
    """``topic_ids``: the text of their 32 hexadecimal digits."""

    topic_ids: tuple[str, ...]

    @property
    def api_key(self) -> int:
        """Metadata."""
        return ApiKey.METADATA

    def version_for(self, ranges: BrokerRanges) -> int:
        """12."""
        first, last = ranges.get(ApiKey.METADATA, (0, -1))
        if not first <= VERSION <= last:
            raise UnsupportedVersion(ApiKey.METADATA, VERSION)
        return VERSION

    def encode(self, api_version: int) -> bytes:
        """The request body. No topic is created."""
        topics = [{"topic_id": UUID(hex=one), "name": None} for one in self.topic_ids]
        return messages.encode_request(ApiKey.METADATA, api_version, topics=topics, allow_auto_topic_creation=False)

    def parse(self, api_version: int, body: Buffer) -> Mapping[str, str]:
        """Names by id, of those topics that the broker knows."""
        answer = messages.decode_response(ApiKey.METADATA, api_version, body)
        return {one.topic_id.hex: one.name for one in answer.topics or () if one.name and not one.error_code}

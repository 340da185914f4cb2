"""The question for a broker's own settings: body out, typed answer in. Owns no connection and decides nothing.

Only the broker itself knows them, so it is asked with its id. Source: DescribeConfigs in the protocol guide, and the
answers of 0.11.0, 1.1, 2.8 and 3.9.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ...codecs.errors import Malformed, UnsupportedVersion
from ...reactor import Buffer
from ..versions import ApiKey, BrokerRanges
from .fields import INT8, INT32, Reader, string

_VERSION_MAX = 1
_BROKER = 4
"""The type of the resource."""
_ENTRY_BYTES_MIN = 7


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """``values``: by name, those that were asked for and that the broker has. They mean something only when
    ``error_code`` is 0."""

    error_code: int
    values: Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class AskSettings:
    """These settings of the broker that is asked. DescribeConfigs v0 or v1."""

    broker_id: int
    names: tuple[str, ...]

    @property
    def api_key(self) -> int:
        """DescribeConfigs."""
        return ApiKey.DESCRIBE_CONFIGS

    def version_for(self, ranges: BrokerRanges) -> int:
        """The highest that is spoken here. Raises UnsupportedVersion where the broker has neither."""
        first, last = ranges.get(ApiKey.DESCRIBE_CONFIGS, (_VERSION_MAX + 1, 0))
        if first > _VERSION_MAX:
            raise UnsupportedVersion(ApiKey.DESCRIBE_CONFIGS, _VERSION_MAX)
        return min(last, _VERSION_MAX)

    def encode(self, api_version: int) -> bytes:
        """The request body."""
        names = INT32.pack(len(self.names)) + b"".join(map(string, self.names))
        synonyms = b"\x00" if api_version >= 1 else b""
        return INT32.pack(1) + INT8.pack(_BROKER) + string(str(self.broker_id)) + names + synonyms

    def parse(self, api_version: int, body: Buffer) -> BrokerSettings:
        """What the broker reported."""
        reader = Reader(body)
        reader.int32("throttle_time_ms")
        if (count := reader.int32("results")) != 1:
            raise Malformed(f"results: {count} where one was asked for")
        error_code = reader.int16("error_code")
        reader.nullable_string("error_message")
        if (resource := (reader.int8("type"), reader.string("name"))) != (_BROKER, str(self.broker_id)):
            raise Malformed(f"resource before {reader.position}: {resource!r} was not asked for")
        values = dict(_entry(reader, api_version) for _ in range(reader.count("configs", _ENTRY_BYTES_MIN)))
        reader.finish()
        return BrokerSettings(error_code, values)


def _entry(reader: Reader, api_version: int) -> tuple[str, str | None]:
    name, value = reader.string("name"), reader.nullable_string("value")
    reader.boolean("read_only")
    reader.int8("source")  # v0: is it the default?
    reader.boolean("is_sensitive")
    if api_version >= 1:
        for _ in range(reader.count("synonyms", 5)):
            reader.string("name")
            reader.nullable_string("value")
            reader.int8("source")
    return name, value

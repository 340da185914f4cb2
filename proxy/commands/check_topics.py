"""What ``check --connect`` says of topics: the format in which they are stored, and what our principal may do there.
Reads one message of each, and writes nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final

from ... import DOCUMENTATION
from ...codecs.error_codes import ErrorCode
from ...codecs.errors import WireError
from ...codecs.record_batch import CODEC_MASK, MAGIC, magic_of
from .. import limits
from ..bridge.asks import FetchAnswer, FetchRecords, LatestOffset, OffsetAnswer
from ..bridge.cluster import Cluster, Topic
from ..bridge.rights import AskRights, Rights
from ..broker.broker import Broker
from ..broker.needed_rights import lacking
from ..process.findings import Finding

TOPICS_LOOKED_AT: Final = 50
_ATTRIBUTES_AT: Final = 17
"""The byte with the codec in a message of formats v0 and v1."""
_NEVER_COMPRESSED: Final = (
    "idemproxy stores every idempotent batch as one compressed message (gzip), also of producers that do not "
    "compress. Consumers that may never have met one: kafka-node 4.0 reads wrong offsets of it, and clients that ask "
    f"with Fetch 0 to 2 for less than such a message has read nothing: {DOCUMENTATION}/how-to/move-producers.html"
)
_FORMAT_V0: Final = "a batch whose outcome is unknown cannot be found there, as format v0 keeps no batch markers"
Answer = Callable[[Callable[[Callable[[Any], None]], None]], Awaitable[Any]]
"""Asks a question, and waits for its answer."""


async def look_at_topics(
    answer: Answer, cluster: Cluster, brokers: Mapping[int, Broker], *, writes: bool
) -> list[Finding]:
    """Return the findings. ``brokers``: those that can be asked. ``writes``: the proxy appends with its own
    principal."""
    looked = _Looked(answer, brokers)
    names = [name for name, topic in sorted(cluster.topics.items()) if not topic.is_internal]
    seen = names[:TOPICS_LOOKED_AT]
    formats: dict[int, list[str]] = {}
    for name in seen:
        magic = await looked.format_of(cluster.topics[name])
        if magic is not None:
            formats.setdefault(magic, []).append(name)
    what = f"topics, {len(names)}"
    findings = [Finding("warning", what, text) for text in await looked.lacks(seen, writes=writes)]
    for magic, found in sorted(formats.items()):
        text = f"message format v{magic} in {len(found)} of the {len(seen)} looked at"
        findings.append(
            Finding("ok", what, text) if magic else Finding("warning", what, f"{text} ({_some(found)}): {_FORMAT_V0}")
        )
    if looked.uncompressed:
        text = f"not compressed at its end: {_some(looked.uncompressed)}. {_NEVER_COMPRESSED}"
        findings.append(Finding("warning", what, text))
    return findings or [Finding("ok", what, "none has a message that would tell its format")]


class _Looked:
    """``unreadable``: topics that our principal may not read; ``uncompressed``: those whose newest message, of format
    v0 or v1, is not compressed."""

    def __init__(self, answer: Answer, brokers: Mapping[int, Broker]) -> None:
        self.unreadable: list[str] = []
        self.uncompressed: list[str] = []
        self._answer = answer
        self._brokers = brokers

    async def lacks(self, names: list[str], *, writes: bool) -> list[str]:
        """Return sentences about rights that are missing; of brokers that do not tell them, what was seen."""
        for broker in self._brokers.values():
            rights = await self._answer(partial(broker.ask, AskRights(tuple(names))))
            if isinstance(rights, Rights):
                return [str(one) for one in lacking(rights, broker.ranges, broker.form, writes=writes)]
        if not self.unreadable:
            return []
        return [f"our principal may not read {_some(self.unreadable)}: what is in doubt there could not be found out"]

    async def format_of(self, topic: Topic) -> int | None:
        """Return the format of the newest message of one partition; None if there is none, or no broker tells."""
        for number, partition in enumerate(topic.partitions):
            broker = self._brokers.get(partition.leader)
            if broker is None:
                continue
            end = await self._answer(partial(broker.ask, LatestOffset(topic.name, partition.index)))
            if not isinstance(end, OffsetAnswer) or end.error_code or (end.offset <= 0 and number):
                continue  # the first one is read though it is empty: reading may be forbidden
            question = FetchRecords(topic.name, partition.index, max(0, end.offset - 1), limits.FETCH_BYTES)
            found = await self._answer(partial(broker.ask, question))
            if isinstance(found, FetchAnswer) and found.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                self.unreadable.append(topic.name)
                return None
            if isinstance(found, FetchAnswer) and found.records:
                try:
                    magic = magic_of(found.records)
                except WireError:
                    continue
                attributes = found.records[_ATTRIBUTES_AT : _ATTRIBUTES_AT + 1]
                if magic < MAGIC and attributes and not attributes[0] & CODEC_MASK:
                    self.uncompressed.append(topic.name)
                return magic
        return None


def _some(names: list[str]) -> str:
    return f"{', '.join(names[:5])}{', ...' if len(names) > 5 else ''}"

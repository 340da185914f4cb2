"""``idemproxy hide restore``: reads the compacted topic to its end, and writes into Redis what Redis lacks. Where
Redis has a later state of a range, that stays. The topic is read by ``client``, with the proxy's own login."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TextIO

from ....state.hidden_ranges import HiddenRange, HiddenRanges, OffsetRange, State, merged, overlapping
from ....state.redis_inspection import RedisInspection
from ...hidden_ranges.records import UnreadableHiddenRange, read_record
from ...hidden_ranges.topic import PARTITION
from ...probing.broker_access import broker_access
from ...settings.addresses import join_host_and_port
from ...settings.config import ConfigError, Settings
from .hidden_ranges import table_of, where_is

if TYPE_CHECKING:
    from ....client import Client, StoredRecord

SECONDS_MAX: Final = 20.0
"""For one question to the brokers, with all its tries."""
RANGES_MAX: Final = 50_000
"""In the topic; Redis has room for some thousand."""


@dataclass(slots=True)
class TopicContents:
    """What the topic says. ``unreadable``: how many records with a key cannot be read as hidden ranges; ``problem``:
    why the first of them cannot."""

    hidden_ranges: dict[OffsetRange, HiddenRange] = field(default_factory=dict)
    unreadable: int = 0
    problem: str = ""

    def take_record(self, record: StoredRecord) -> None:
        """Take the next record. The last one of a key counts, and a null value deletes the range. A record without a
        key is a proxy's probe whether the topic is compacted. Raises ConfigError above ``RANGES_MAX``."""
        if record.key is None:
            return
        try:
            place, hidden_range = read_record(record.key, record.value)
        except UnreadableHiddenRange as error:
            self.unreadable += 1
            self.problem = self.problem or str(error)
            return
        if hidden_range is None:
            self.hidden_ranges.pop(place, None)
        elif len(self.hidden_ranges) >= RANGES_MAX and place not in self.hidden_ranges:
            raise ConfigError(f"it has more than {RANGES_MAX} ranges: check that it is the topic of the hidden ranges")
        else:
            self.hidden_ranges[place] = hidden_range


def contents_of(settings: Settings, topic: str) -> TopicContents:
    """Read it to its end. Raises ConfigError."""
    from ....client import ClientError

    contents = TopicContents()
    try:
        with _client(settings) as client:
            for record in _records(client, topic):
                contents.take_record(record)
    except ClientError as error:
        raise ConfigError(f"topic {topic} cannot be read: {error}") from None
    except ConfigError as error:
        raise ConfigError(f"topic {topic}: {error}") from None
    return contents


def _records(client: Client, topic: str) -> Iterator[StoredRecord]:
    if topic not in client.topics():
        raise ConfigError("it does not exist at the brokers, so there is nothing to restore from")
    start = client.start_offset(topic, PARTITION)
    if start < client.end_offset(topic, PARTITION):
        with client.reader(topic, PARTITION, start) as reader:
            yield from reader.read_to_end()


def _client(settings: Settings) -> Client:
    from ....client import Client

    tls, sasl = broker_access(settings)
    bootstrap = [join_host_and_port(*address) for address in settings.upstream]
    return Client(bootstrap, client_id="idemproxy-hide", tls=tls, sasl=sasl, seconds_max=SECONDS_MAX)


# ---------------------------------------------------------------------- into Redis
def restore_hidden_ranges(inspection: RedisInspection, contents: TopicContents, *, dry_run: bool, out: TextIO) -> int:
    """Write what Redis lacks; return the exit status. ``dry_run``: only tell it."""
    if contents.unreadable:
        print(f"{contents.unreadable} records of the topic cannot be read, the first: {contents.problem}", file=out)
    left: list[tuple[OffsetRange, OffsetRange]] = []
    news: HiddenRanges = {}

    def fill(known: dict[OffsetRange, HiddenRange], _now_ms: int) -> dict[OffsetRange, HiddenRange]:
        nonlocal news
        left.clear()
        filled, news = filled_from(known, contents.hidden_ranges, left)
        return filled

    if dry_run:
        fill(inspection.hidden_ranges(), 0)
    else:
        inspection.change_hidden_ranges(fill)
    for line in table_of(news):
        print(line, file=out)
    for place, other in left:
        print(f"not restored: {where_is(place)} overlap {where_is(other)}, which Redis has", file=out)
    if not news:
        print(f"nothing to restore: Redis has the {len(contents.hidden_ranges)} ranges of the topic", file=out)
    elif dry_run:
        print(f"{len(news)} ranges would be written into Redis; nothing was changed", file=out)
    elif inspection.has_proxies():
        print(f"{len(news)} ranges were written into Redis: every proxy applies them within seconds", file=out)
    else:
        print(
            f"{len(news)} ranges were written into Redis: no proxy uses it now, the next one to start applies them",
            file=out,
        )
    return 1 if left else 0


def filled_from(
    known: HiddenRanges, topic: HiddenRanges, left: list[tuple[OffsetRange, OffsetRange]]
) -> tuple[dict[OffsetRange, HiddenRange], HiddenRanges]:
    """Return what Redis is to have, and what of it is new. ``left`` gets the ranges that are not written, each with the
    asked or active range in Redis that it overlaps."""
    filled = dict(known)
    news: dict[OffsetRange, HiddenRange] = {}
    for place, hidden_range in topic.items():
        both = merged(filled, {place: hidden_range})
        if both == filled:
            continue
        if hidden_range.state is State.ACTIVE and (other := overlapping(filled, place)) is not None:
            left.append((place, other))
            continue
        filled, news[place] = both, hidden_range
    return filled, news

"""Looks at what was appended, as it is stored: whether the topic keeps markers, and what its broker compresses with.
Flows that nobody waits for; they note in ``context.py`` what they learn, and append nothing."""

from __future__ import annotations

from ...codecs import message_set
from ...codecs.compression import Codec
from ...codecs.marker import parse_marker
from ...reactor import Buffer
from .. import limits
from ..events import MarkerLost, OperatorMessage
from ..flow.effects import Leader, Wait
from ..partition_log.log_offsets import Later, Unreadable, message_at
from .context import Shared


async def probe_marker(shared: Shared, topic: str, partition: int, sent_set: Buffer, last_offset: int) -> None:
    """See whether the broker has kept the marker of an append, and let an append be looked at again after a while: the
    topic's settings and the brokers' message format change under a proxy that runs."""
    sent_codec = next(message_set.iterate_shallow(sent_set)).codec
    del sent_set  # nor anything that was fetched is kept while this waits
    if await _has_seen(shared, (topic, partition), sent_codec, last_offset):
        await Wait(limits.READ_BACK_SECONDS)
    shared.probed.discard((topic, partition))


async def _has_seen(shared: Shared, place: tuple[str, int], sent_codec: int, last_offset: int) -> bool:
    """If the broker compresses with another codec, that is used for the topic from now on, and its next append is
    looked at; if the marker is lost all the same, that is said. False: look at the next append."""
    leader = await Leader(*place)
    stored = Later("no leader is known") if leader is None else await message_at(leader, *place, last_offset)
    if isinstance(stored, Unreadable):  # as all that brokers store in message format 0.11 or later
        _note_lost(shared, place, f"something that cannot be read as message format 0.10 ({stored.reason})")
        return True
    if stored is None or isinstance(stored, Later):
        return False
    if stored.is_wrapper and parse_marker(stored.key) is not None:
        _note_kept(shared, place)
        return True
    if stored.is_wrapper and stored.codec != sent_codec:
        shared.forget_bound(*place)
        codec = shared.wrapper_codecs[place[0]] = Codec(stored.codec)
        shared.report(
            OperatorMessage(
                "info", f"topic {place[0]} is compressed with {codec.name.lower()} from now on: its broker does"
            )
        )
        return False
    what = "wrappers without a key" if stored.is_wrapper else "plain messages"
    _note_lost(shared, place, f"{what} of format v{stored.magic}")
    return True


def _note_kept(shared: Shared, place: tuple[str, int]) -> None:
    """That is so for the whole topic, unless another partition of it was seen to lose markers lately."""
    topic = place[0]
    shared.seen_unmarked.pop(place, None)
    recently = shared.recent_time - 2 * limits.READ_BACK_SECONDS
    others = (seen for other, seen in shared.seen_unmarked.items() if other[0] == topic)
    if topic in shared.unmarked and not any(seen > recently for seen in others):
        shared.unmarked.discard(topic)
        shared.report(OperatorMessage("info", f"topic {topic} keeps markers again"))


def _note_lost(shared: Shared, place: tuple[str, int], stored_as: str) -> None:
    """Bounds that were taken from what was sent do not fit what is stored; those that are taken from now on do."""
    topic = place[0]
    if place not in shared.seen_unmarked or topic not in shared.unmarked:
        shared.forget_bound(*place)
    shared.seen_unmarked[place] = shared.recent_time
    if topic not in shared.unmarked:
        shared.unmarked.add(topic)
        shared.report(MarkerLost(*place, stored_as))

"""How full Redis is: asked at intervals over the store's own connection, and reported. Decides nothing. A Redis that is
full takes no writes, and without writes no batch: an operator should know before."""

from __future__ import annotations

from collections.abc import Mapping

from ...state.redis_facts import parse_info
from ...state.redis_link import Reply, pack
from ...state.redis_store import RedisStore
from ...state.store import StoreAway
from .. import limits
from ..events import RedisMemoryMeasured, Report


class MeasuredStore(RedisStore):
    """The store, with the question for its server's memory."""

    def watch_memory(self, report: Report) -> None:
        """Ask from now on until ``stop``. ``report`` gets a RedisMemoryMeasured for each answer; none while Redis is
        away, or if it does not tell."""
        if not self._is_stopping:
            self._ask(
                pack(b"INFO", b"memory"),
                lambda reply: self._take_memory(report, reply),
                lambda away: self._take_memory(report, away),
            )

    def _take_memory(self, report: Report, reply: Reply | StoreAway) -> None:
        seconds = limits.REDIS_MEMORY_LOOK_SECONDS
        if isinstance(reply, StoreAway):
            seconds = limits.QUIESCENCE_SECONDS  # it may be back soon
        elif isinstance(reply, bytes) and (reported := memory_reported(reply)) is not None:
            report(reported)
        self._reactor.later(seconds, lambda: self.watch_memory(report))


def memory_reported(info: bytes) -> RedisMemoryMeasured | None:
    """Return what an INFO reply says of memory; None if one of the two numbers is missing or is not a number."""
    return memory_of(parse_info(info))


def memory_of(fields: Mapping[str, str]) -> RedisMemoryMeasured | None:
    """Return the same for the fields of one."""
    found = [fields.get(name, "") for name in ("used_memory", "maxmemory")]
    if all(text.isascii() and text.isdecimal() and len(text) <= 19 for text in found):
        return RedisMemoryMeasured(*map(int, found))
    return None

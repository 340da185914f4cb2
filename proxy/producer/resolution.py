"""The loop of rule R6: the log is searched for what is in doubt, again and again, until the outcome is known. The only
such loop: for a group that was sent (``recovery.py``), and for what is found open or unverified (``takeover.py``).

The outcome of an append belongs to the entry, not to a request. It ends when the log was read to its end, and when the
log cannot tell, whether or not a client still waits: the result is stored (rule R17). If brokers cannot be asked for
long, it ends once no request at this proxy waits for the producer, neither for what is out nor for what is queued: the
client may have gone to another proxy. The rebuild of an entry of which nothing is stored is for its clients alone: it
ends soon after the last one has left (``is_wanted``). What becomes of the entry is up to the caller."""

from __future__ import annotations

from collections.abc import Callable

from ...state.decide import BatchIdentity
from ...state.entry import NO_OFFSET
from ...values import value
from .. import limits
from ..events import UnknownOutcomeOpened, UnknownOutcomeResolved
from ..flow.effects import Now, Wait
from ..partition_log.log_offsets import Later
from ..partition_log.log_search import Further, LogSearch, Searched, Undecidable, covered, is_covered
from .stream import Stream


@value(frozen=True, slots=True)
class LeftOpen:
    """The outcome was not determined: no request at this proxy waits for it any longer, or a new lease epoch has begun
    and what was learned is void."""

    reason: str


Resolution = Searched | Undecidable | LeftOpen


async def resolve(
    stream: Stream,
    search: LogSearch,
    reason: str,
    wanted: BatchIdentity | None,
    lease_epoch: int,
    *,
    before_try: Callable[[], None] = lambda: None,
    is_too_little: Callable[[LogSearch, Searched | Later | Undecidable], bool] = lambda _search, _result: False,
) -> Resolution:
    """Search until the outcome is known; the unknown outcome is reported when it begins and when it ends. If the bound
    did not hold (rule R8), the partition's known bounds are forgotten, and ``search.moved_to`` says where the search
    began.

    ``reason``: why it is in doubt. ``wanted``: what is looked for; None: everything of the producer. ``lease_epoch``:
    in which the unknown outcome was opened. ``before_try``: called before each reading. ``is_too_little``: whether a
    wider search is needed (rule R10)."""
    sequence = -1 if wanted is None else wanted.base_sequence
    with stream.in_doubt(), stream.observers.in_doubt(UnknownOutcomeOpened(*stream.key, sequence, reason)):
        started = await Now()
        result = await _search(stream, search, lease_epoch, started, before_try, is_too_little)
        said, detail = _said(result, wanted), "" if isinstance(result, Searched) else result.reason
        stream.step("resolve", stream.out or stream.queue, started, said)
        seconds = await Now() - started
        stream.observers.report(UnknownOutcomeResolved(*stream.key, sequence, said, search.bytes_read, seconds, detail))
        return result


async def _search(
    stream: Stream,
    search: LogSearch,
    lease_epoch: int,
    started: float,
    before_try: Callable[[], None],
    is_too_little: Callable[[LogSearch, Searched | Later | Undecidable], bool],
) -> Resolution:
    undecided = 0
    while True:
        before_try()
        chunks_read = search.chunks_read
        result = await search.run()
        if search.moved_to != NO_OFFSET:
            stream.bounds.forget(stream.topic, stream.partition)
        if lease_epoch != stream.instance.lease_epoch:
            return LeftOpen("a new lease epoch has begun")
        if isinstance(result, Later) and not search.wanted.is_wanted():
            return LeftOpen(result.reason)
        if is_too_little(search, result):
            search.widen(known_from=search.bound.offset)
            continue
        if isinstance(result, Searched):
            return result
        if isinstance(result, Undecidable):
            undecided += 1
            if undecided > limits.UNDECIDED_MAX:
                return result
            search.begin_again()
        stream.drop_unwanted()  # the unknown outcome may last long
        # An undecidable unknown outcome ends by itself, and so does a search that comes further with each try. One that
        # begins again, as retention has overtaken it, does not.
        has_come_further = search.chunks_read > chunks_read and search.reached != NO_OFFSET
        comes_further = not search.wanted.follows_end and has_come_further and not stream.instance.is_draining
        if comes_further and isinstance(result, Further):
            continue  # at once, so that it stays with the others of its pass
        is_endless = isinstance(result, Later) and not comes_further
        if is_endless and not stream.is_awaited and await Now() - started > limits.HAND_OVER_SECONDS:
            return LeftOpen(result.reason)
        await Wait(limits.QUIESCENCE_SECONDS)


def _said(result: Resolution, wanted: BatchIdentity | None) -> str:
    """Return the name of the outcome in reports, metrics and spans: see ``metric_names.UNKNOWN_OUTCOME_RESULTS``."""
    match result:
        case Undecidable():
            return "unrecoverable"
        case LeftOpen():
            return "left_open"
    if wanted is None or is_covered(result.pieces, wanted):
        return "found" if result.pieces else "not_found"
    return "prefix" if covered(result.pieces, wanted) else "not_found"

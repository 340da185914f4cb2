"""Which answers a client may get that produces with a producer id of another client, or of an earlier instance of
itself, or that is one of two programs with the same producer id."""

from __future__ import annotations

from collections.abc import Container, Iterable

from simulation.allowed import CANNOT_BE_TOLD

from testkit.virtual.producer import RETRIABLE, Identity
from testkit.virtual.thief import VirtualThief

DUPLICATE, OUT_OF_ORDER, FENCED, NOT_YOURS, DENIED = 46, 45, 47, 49, 29
"""It may be too early to tell, but never anything of the owner's state."""


def judge_thief(thief: VirtualThief, *, is_denied: bool, may_be_denied: bool) -> list[str]:
    """Return the answers that a client must not get, when it produces with a producer id of another client.
    ``is_denied``: the brokers do not let it write at all, and it may hear nothing else. ``may_be_denied``: now and then
    they refuse any client with that code."""
    definite = (DENIED,) if is_denied else (NOT_YOURS, DENIED) if may_be_denied else (NOT_YOURS,)
    may_hear = (*definite, *RETRIABLE)
    return [
        f"{thief.host.name} is told {code}, offset {offset}, for {identity} at {at:.3f}"
        for at, identity, code, offset in thief.answers
        if code not in may_hear or offset >= 0
    ]


def judge_zombie(zombie: VirtualThief, values: Iterable[bytes | None], *, may_be_untold: bool = False) -> list[str]:
    """Return the answers that an earlier instance of a producer with a name must not get (rule R22), and what of it was
    stored: nothing is. A proxy that has not heard of the newer instance may report to it a batch that is stored, or a
    gap. ``values``: of all logs. ``may_be_untold``: other hands have changed the logs, so that a proxy may report a
    batch which was stored as not there any more."""
    may_hear = (0, OUT_OF_ORDER, FENCED, NOT_YOURS, *RETRIABLE, *((CANNOT_BE_TOLD,) if may_be_untold else ()))
    told = [
        f"{zombie.host.name} is told {code}, offset {offset}, for {identity} at {at:.3f}"
        for at, identity, code, offset in zombie.answers
        if code not in may_hear
    ]
    return told + _stored(zombie, values)


def judge_inventor(inventor: VirtualThief, values: Iterable[bytes | None]) -> list[str]:
    """Return the answers that a client must not get which sends batches under producer ids that nobody issued and not
    from their start on; and what of it was stored: nothing is (rule R10)."""
    may_hear = (OUT_OF_ORDER, CANNOT_BE_TOLD, *RETRIABLE)
    told = [
        f"{inventor.host.name} is told {code}, offset {offset}, for {identity} at {at:.3f}"
        for at, identity, code, offset in inventor.answers
        if code not in may_hear or offset >= 0
    ]
    return told + _stored(inventor, values)


def judge_double(
    double: VirtualThief, values: Iterable[bytes | None], by_numbers: Container[Identity] = ()
) -> tuple[list[str], int]:
    """Return the answers that a second program must not get which sends other records under sequences that are stored
    (rule R9): that they are in the log, where none of them is. And how often it got that answer for ``by_numbers``,
    batches of which no digest was stored."""
    told = [
        (identity in by_numbers, f"{double.host.name} is told {code}, offset {offset}, for {identity} at {at:.3f}")
        for at, identity, code, offset in double.answers
        if code in (0, DUPLICATE) or offset >= 0
    ]
    wrong = [what for is_allowed, what in told if not is_allowed]
    return wrong + _stored(double, values), len(told) - len(wrong)


def _stored(thief: VirtualThief, values: Iterable[bytes | None]) -> list[str]:
    own = f"{thief.host.name}/".encode()
    return [f"stored: {value!r}" for value in values if value is not None and value.startswith(own)]

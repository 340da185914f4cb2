"""What a client may be told that produces with a producer id of somebody else."""

from __future__ import annotations

from testkit.virtual.producer import RETRIABLE
from testkit.virtual.thief import VirtualThief

NOT_YOURS, DENIED = 49, 29
"""It may be too early to tell, but never anything of the owner's state."""


def judge_thief(thief: VirtualThief, *, is_denied: bool, may_be_denied: bool) -> list[str]:
    """Return what a client was told that it must not be told, when it produces with a producer id of somebody else.
    ``is_denied``: the brokers do not let it write at all, and it may hear nothing else. ``may_be_denied``: now and then
    they refuse with that code whoever asks."""
    definite = (DENIED,) if is_denied else (NOT_YOURS, DENIED) if may_be_denied else (NOT_YOURS,)
    may_hear = (*definite, *RETRIABLE)
    return [
        f"{thief.host.name} is told {code}, offset {offset}, for {identity} at {at:.3f}"
        for at, identity, code, offset in thief.answers
        if code not in may_hear or offset >= 0
    ]

"""All mutants, in the order of their rules."""

from __future__ import annotations

from mutants.answers import ANSWERS
from mutants.bounds import BOUNDS
from mutants.conditional import CONDITIONAL
from mutants.expired import EXPIRED
from mutants.fast import FAST
from mutants.intents import INTENTS
from mutants.lanes import LANES
from mutants.lives import LIVES
from mutants.log import LOG
from mutants.mutant import Mutant
from mutants.names import NAMES
from mutants.owned import OWNED
from mutants.parts import PARTS
from mutants.pass_through import PASS_THROUGH
from mutants.shell import SHELL
from mutants.tombstones import TOMBSTONES
from mutants.unissued import UNISSUED

MUTANTS: tuple[Mutant, ...] = tuple(
    sorted(
        (
            *ANSWERS,
            *BOUNDS,
            *EXPIRED,
            *PASS_THROUGH,
            *INTENTS,
            *LANES,
            *LIVES,
            *LOG,
            *NAMES,
            *PARTS,
            *SHELL,
            *FAST,
            *OWNED,
            *CONDITIONAL,
            *TOMBSTONES,
            *UNISSUED,
        ),
        key=lambda mutant: mutant.number,
    )
)

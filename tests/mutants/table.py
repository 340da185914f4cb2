"""All mutants, in the order of their rules."""

from __future__ import annotations

from mutants.intents import INTENTS
from mutants.mutant import Mutant

MUTANTS: tuple[Mutant, ...] = tuple(sorted(INTENTS, key=lambda mutant: mutant.number))

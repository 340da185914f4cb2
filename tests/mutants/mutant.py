"""What a mutant is: the shipped proxy with a line that keeps a rule taken out. Only data, and a search by name.

The lines themselves are in the tables beside this file, one table for each part of the protocol.
"""

from __future__ import annotations

from dataclasses import dataclass

from testkit.virtual.mutant import Patch

CHAOS = "simulation.chaos"


@dataclass(frozen=True, slots=True)
class Mutant:
    """``rule``: what is missing. ``test``: the scene in which it matters, as pytest names it below ``tests/``.

    ``deaths``: the beginnings of the oracle's complaints that are the right reason to die in a random world; empty
    where no random world can tell, because what is lost is not a promise to a client.
    """

    name: str
    rule: str
    patches: tuple[Patch, ...]
    test: str
    deaths: tuple[str, ...] = ()
    is_quick: bool = True
    """Its test takes less than five seconds to fail: it may be the one of its rule that every test run tries."""
    worlds: str = CHAOS
    """The module whose random worlds can tell."""

    @property
    def number(self) -> int:
        """Of the rule."""
        return int(self.rule.partition(":")[0].removeprefix("R"))


def mutant(
    name: str,
    rule: str,
    test: str,
    *patches: tuple[str, str, str],
    deaths: tuple[str, ...] = (),
    is_quick: bool = True,
    worlds: str = CHAOS,
) -> Mutant:
    """Put one together. Each patch: module without the package's name, the line that is there, what stands instead."""
    return Mutant(name, rule, tuple(Patch(*patch) for patch in patches), test, deaths, is_quick, worlds)

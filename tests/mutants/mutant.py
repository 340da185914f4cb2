"""What a mutant is: the shipped proxy with one expression that keeps a rule taken out."""

from __future__ import annotations

from dataclasses import dataclass

from testkit.virtual.mutant import Patch


@dataclass(frozen=True, slots=True)
class Mutant:
    """``rule``: its number, or ``old`` (clients), and what is missing. ``test``: the scene in which it matters, as
    pytest names it below ``tests/``.

    ``deaths``: the beginnings of the oracle's complaints that are the right reason to die in a random world; empty
    where no random world can tell, because what is lost is not a promise to a client.
    """

    name: str
    rule: str
    test: str
    patches: tuple[Patch, ...]
    deaths: tuple[str, ...] = ()

    @property
    def number(self) -> int:
        """Of the rule."""
        return int(self.whose.removeprefix("R"))

    @property
    def whose(self) -> str:
        """As it is printed."""
        return self.rule.partition(":")[0]

    @property
    def worlds(self) -> str:
        """The module whose random worlds can tell."""
        return "simulation.hidden_ranges" if self.whose == "R24" else "simulation.chaos"


def mutant(name: str, rule: str, test: str, *patches: Patch, deaths: tuple[str, ...] = ()) -> Mutant:
    """Put one together."""
    return Mutant(name, rule, test, patches, deaths)

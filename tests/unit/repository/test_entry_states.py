"""docs/ARCHITECTURE.md draws the table of an entry's states as it is, and the table names what is there. That entries
do what it says is shown in ``tests/simulation``."""

from __future__ import annotations

from pathlib import Path

from idemproxy.state import commit
from idemproxy.state.entry_states import STEPS, EntryState

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs/ARCHITECTURE.md").read_text()
RULES = (ROOT / "docs/RULES.md").read_text()


def drawing() -> str:
    """The table as a state diagram: an arrow for each pair of states, with all that leads from one to the other."""
    arrows: dict[tuple[EntryState, EntryState], list[str]] = {}
    for one in STEPS:
        arrows.setdefault((one.before, one.after), []).append(f"{one.cause} ({one.rule})")
    lines = ["stateDiagram-v2", f"    [*] --> {EntryState.QUIET.name}"]
    lines += [f'    state "{state.value}" as {state.name}' for state in EntryState]
    lines += [f"    {before.name} --> {after.name}: {', or '.join(why)}" for (before, after), why in arrows.items()]
    return "\n".join(("```mermaid", *lines, "```"))


def test_the_page_draws_the_table() -> None:
    assert drawing() in PAGE, f"put this into the section about an entry's states:\n{drawing()}"


def test_the_page_says_what_each_state_means() -> None:
    section = PAGE.split("\n## The states of an entry\n")[1].split("\n## ")[0]
    assert [state for state in EntryState if f"- *{state.value}*: " not in section] == []


def test_the_table_names_rules_and_functions_that_are_there() -> None:
    assert [one for one in STEPS if f"\n## {one.rule} " not in RULES] == []
    assert [one for one in STEPS if one.function and not hasattr(commit, one.function)] == []


def test_each_row_is_there_once_and_each_state_is_reached_and_left() -> None:
    assert len({(one.before, one.after, one.function) for one in STEPS}) == len(STEPS)
    assert {one.before for one in STEPS} == {one.after for one in STEPS} == set(EntryState)

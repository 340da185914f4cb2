"""The demo's result as tables for people. Judges nothing: ``result.py`` does."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from .result import Result, Run

_PIPE_COLUMNS = 120
"""The width that a file or a pipe gets: no table has to break a cell in it."""


def console_for_tables() -> Console:
    """Return a console on standard output, wide enough where it is not a terminal."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=_PIPE_COLUMNS)


def print_result(result: Result, console: Console) -> None:
    """Print the tables and one sentence at the end."""
    console.print(_runs(result))
    console.print(_faults(result))
    console.print(_work(result))
    console.print(_scene(result))
    for sentence in _remarks(result):
        console.print(sentence, markup=False)
    console.print(_last_sentence(result))


def _runs(result: Result) -> Table:
    table = Table(title="Read back from the broker, by a consumer and out of its segment files", title_justify="left")
    table.add_column("run")
    for name in ("sent", "acknowledged", "duplicates", "losses", "reorders", "seconds"):
        table.add_column(name, justify="right")
    for run in (result.direct, result.proxied):
        verdict = run.verdict
        wrong = [_wrong(count) for count in (verdict.duplicates, verdict.lost, verdict.reordered)]
        table.add_row(run.name, f"{run.sent:,}", f"{run.acknowledged:,}", *wrong, f"{run.seconds:.0f}")
    return table


def _wrong(count: int) -> Text:
    return Text(f"{count:,}", style="bold red" if count else "green")


def _faults(result: Result) -> Table:
    table = Table(title="Faults, each on a produce request that was not answered yet", title_justify="left")
    table.add_column("run")
    table.add_column("between")
    kinds = list(next(iter(result.proxied.faults.values())))
    for kind in (*kinds, "in all"):
        table.add_column(kind.replace("_", " "), justify="right")
    for run in (result.direct, result.proxied):
        for place, counts in run.faults.items():
            others = {"client": "client and proxy", "broker": "proxy and broker"}
            where = "client and broker" if run.proxy is None else others[place]
            cells = [str(counts[kind]) for kind in kinds]
            table.add_row(run.name, where, *cells, str(sum(counts.values())))
    return table


def _work(result: Result) -> Table:
    facts = result.proxied.proxy
    assert facts is not None
    table = Table(
        title="What the proxy did about them",
        title_justify="left",
    )
    columns = {
        "times killed": facts.kills,
        "unknown outcomes resolved as found": facts.unknown_outcomes_found,
        "as not found": facts.unknown_outcomes_not_found,
        "undecided": facts.unknown_outcomes_unrecoverable,
        "duplicates answered": facts.duplicates_answered,
        "producer ids": facts.producer_ids,
    }
    for name in columns:
        table.add_column(name, justify="right")
    table.add_row(*(f"{count:,}" for count in columns.values()))
    return table


def _scene(result: Result) -> Table:
    table = Table(title="Second scene: batches of one record by hand", title_justify="left")
    table.add_column("sent")
    table.add_column("sequence", justify="right")
    table.add_column("answered")
    table.add_column("offset", justify="right")
    for step in result.scene:
        answer = step.answer if step.is_right else f"{step.answer}, not {step.expected}"
        offset = "" if step.offset < 0 else str(step.offset)
        table.add_row(step.what, str(step.sequence), Text(answer, style="" if step.is_right else "bold red"), offset)
    return table


def _remarks(result: Result) -> list[str]:
    """Sentences about what is not as it should be."""
    remarks = [f"this run proved nothing: {what}" for what in result.unproven]
    if not result.scene_is_right:
        remarks.append("the second scene was not answered as Kafka does")
    if not result.direct.verdict.duplicates:
        remarks.append("without the proxy there was no duplicate this time: the contrast is missing")
    return remarks + _problems_of(result.proxied)


def _problems_of(run: Run) -> list[str]:
    problems = [f"{run.name}: {problem}" for problem in run.problems]
    if not run.readers_agree:
        problems.append(f"{run.name}: the consumer and the segment files do not show the same records")
    if run.verdict.misplaced:
        problems.append(f"{run.name}: {run.verdict.misplaced} records are not at their acknowledged offset")
    if run.verdict.foreign:
        problems.append(f"{run.name}: {run.verdict.foreign} records were never sent")
    problems += [f"{run.name}: {example}" for example in run.verdict.examples]
    return problems + [f"the proxy's log: {line}" for line in (run.proxy.errors if run.proxy else ())]


def _last_sentence(result: Result) -> Text:
    verdict = result.proxied.verdict
    row = f"{verdict.duplicates} duplicates, {verdict.lost} losses, {verdict.reordered} reorders"
    if result.exit_status == 0:
        before = result.direct.verdict.duplicates
        return Text(f"Through the proxy: {row}. Without it: {before:,} duplicates.", style="bold green")
    return Text(f"Not as promised. Through the proxy: {row}.", style="bold red")

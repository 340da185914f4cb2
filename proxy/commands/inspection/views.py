"""``idemproxy inspect``: walks the stored state and yields lines, a table for people or JSON for machines. One pass and
one page of memory per view, whatever the number of producers. Changes nothing."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ....state.entry import Entry
from ....state.redis_inspection import (
    EntryRow,
    NameRow,
    RedisInspection,
    ServerFacts,
    UnknownRow,
)
from .render import (
    ENTRY_TITLES,
    INTENT_TITLES,
    NAME_TITLES,
    entry_cells,
    entry_fields,
    entry_lines,
    intent_cells,
    name_cells,
    name_fields,
    server_line,
)
from .table import printable, table_lines

INTENTS_SHOWN_MAX = 20
DATA_GENERATIONS_COUNTED_MAX = 100
STATES = {
    "quiet": "nothing is under way",
    "open": "a living proxy has reserved something and not committed it yet",
    "append_reservation": "a living proxy may append any batches here, and writes their outcomes every 50 ms",
    "abandoned": "reserved by a proxy that is gone; resolved when the producer or another proxy looks at it",
    "rebuilding": "a living proxy reads the log for it",
    "unrecoverable": "an outcome of its epoch could not be determined; a newer epoch is unaffected",
    "unverified": "of an earlier data generation, or forgotten; the log is read when the producer comes back",
    "damaged": "cannot be read: its producer gets retriable errors until `idemproxy forget producer` removes it",
}


ClientOf = Callable[[int], str | None]
"""The client id of a producer, by its id; None: it is not known."""


def unknown_client(_producer_id: int) -> None:
    """Return None: no admin port was asked."""


@dataclass(slots=True)
class Counts:
    """What an overview counts."""

    states: Counter[str] = field(default_factory=Counter)
    data_generations: Counter[bytes] = field(default_factory=Counter)
    open_intents: int = 0
    names: int = 0
    cluster_id: str | None = None
    unknown_keys: int = 0
    entry_bytes: int = 0
    intents: list[EntryRow] = field(default_factory=list)

    @property
    def entries(self) -> int:
        """How many producers on partitions there are."""
        return self.states.total()

    def add_entry(self, row: EntryRow) -> None:
        """Count one producer on one partition."""
        self.states[row.state] += 1
        self.entry_bytes += len(row.stored)
        if isinstance(row.entry, Entry):
            if (
                row.entry.data_generation in self.data_generations
                or len(self.data_generations) < DATA_GENERATIONS_COUNTED_MAX
            ):
                self.data_generations[row.entry.data_generation] += 1
            if row.entry.has_open_intent:
                self.open_intents += 1
                if len(self.intents) < INTENTS_SHOWN_MAX:
                    self.intents.append(row)


def count(inspection: RedisInspection) -> Counts:
    """Walk everything once."""
    counts = Counts()
    for row in inspection.everything():
        if isinstance(row, EntryRow):
            counts.add_entry(row)
        elif isinstance(row, NameRow):
            counts.names += 1
        elif isinstance(row, UnknownRow):
            if row.cluster_id is None:
                counts.unknown_keys += 1
            else:
                counts.cluster_id = row.cluster_id.decode("utf-8", "backslashreplace")
    return counts


# ---------------------------------------------------------------------- overview
def overview(inspection: RedisInspection, server: ServerFacts, as_json: bool) -> Iterator[str]:
    """Yield the totals, and the first open intents."""
    counts = count(inspection)
    if as_json:
        yield json.dumps(_overview_fields(counts, server, inspection.cluster))
        return
    yield server_line(server, inspection.cluster)
    if counts.cluster_id is not None:
        yield f"the brokers' own cluster id: {printable(counts.cluster_id)}"
    if not (counts.entries or counts.names):
        known = ", ".join(inspection.cluster_names()) or "none"
        yield f"no producer is stored under this cluster name; cluster names in this Redis: {known}"
        return
    yield ""
    yield f"producers on partitions: {counts.entries} ({counts.entry_bytes} bytes of values)"
    for state, meaning in STATES.items():
        if counts.states[state]:
            yield f"  {counts.states[state]:>9} {state:<18}  {meaning}"
    if counts.names:
        yield f"producer names: {counts.names} (idemproxy inspect names)"
    if counts.unknown_keys:
        yield f"keys that this version does not know: {counts.unknown_keys}"
    data_generations = counts.data_generations.most_common()
    if len(data_generations) > 1 or (data_generations and data_generations[0][0] != server.data_generation):
        shown = ", ".join(
            f"{number} of {data_generation.hex()[:8]}" for data_generation, number in data_generations[:5]
        )
        yield f"producers by data generation: {shown}"
    if counts.intents:
        yield ""
        yield from table_lines(INTENT_TITLES, map(intent_cells, counts.intents))
        if (more := counts.open_intents - len(counts.intents)) > 0:
            yield f"... and {more} more: idemproxy inspect intents"


def _overview_fields(counts: Counts, server: ServerFacts, cluster: str) -> dict[str, Any]:
    return {
        "cluster": cluster,
        "cluster_id": counts.cluster_id,
        "redis": {
            "version": server.version,
            "role": server.role,
            "data_generation": None if server.data_generation is None else server.data_generation.hex(),
        },
        "entries": counts.entries,
        "entry_bytes": counts.entry_bytes,
        "states": {state: counts.states[state] for state in STATES},
        "data_generations": {
            data_generation.hex(): number for data_generation, number in counts.data_generations.most_common()
        },
        "names": counts.names,
        "unknown_keys": counts.unknown_keys,
        "open_intents": counts.open_intents,
        "intents": [entry_fields(row, server.data_generation) for row in counts.intents],
    }


# ---------------------------------------------------------------------- lists
def producers(
    rows: Iterable[EntryRow], server: ServerFacts, as_json: bool, client_of: ClientOf = unknown_client
) -> Iterator[str]:
    """Yield entries, one a line."""
    return _list(rows, server, as_json, client_of, ENTRY_TITLES, entry_cells)


def with_intent(rows: Iterable[EntryRow]) -> Iterator[EntryRow]:
    """Yield the entries with an intent; also those with one that was unrecoverable."""
    return (row for row in rows if isinstance(row.entry, Entry) and row.entry.intent is not None)


def intents(
    rows: Iterable[EntryRow], server: ServerFacts, as_json: bool, client_of: ClientOf = unknown_client
) -> Iterator[str]:
    """Yield entries with an intent, one a line."""
    return _list(rows, server, as_json, client_of, INTENT_TITLES, intent_cells)


def _list(
    rows: Iterable[EntryRow],
    server: ServerFacts,
    as_json: bool,
    client_of: ClientOf,
    titles: tuple[str, ...],
    cells: Callable[[EntryRow], tuple[object, ...]],
) -> Iterator[str]:
    if as_json:
        return (json.dumps(_fields(row, server, client_of)) for row in rows)
    # The last column, as it may contain spaces: scripts that split lines at spaces find all others at fixed places.
    with_client = ((*cells(row), client_of(row.place.producer_id) or "-") for row in rows)
    return table_lines((*titles, "CLIENT ID"), with_client)


def _fields(row: EntryRow, server: ServerFacts, client_of: ClientOf) -> dict[str, Any]:
    return entry_fields(row, server.data_generation) | {"client_id": client_of(row.place.producer_id)}


def names(rows: Iterable[NameRow], server: ServerFacts, as_json: bool) -> Iterator[str]:
    """Yield the names of producers, one a line."""
    if as_json:
        return (json.dumps(name_fields(row, server.data_generation)) for row in rows)
    return table_lines(NAME_TITLES, (name_cells(row, server.data_generation) for row in rows))


def producer(
    rows: Iterable[EntryRow], server: ServerFacts, as_json: bool, client_of: ClientOf = unknown_client
) -> Iterator[str]:
    """Yield everything about each entry of one producer."""
    for row in rows:
        if as_json:
            yield json.dumps(_fields(row, server, client_of))
        else:
            client = client_of(row.place.producer_id) or "-"
            yield from map(printable, entry_lines(row, server.data_generation, client))

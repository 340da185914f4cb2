"""Whether a query runs in micro-batches. Spark tells a sink nothing of its trigger, and a continuous query neither
calls a writer in Python nor fails: it would run for ever and write nothing. But it asks for the writer before it has
noted any offsets, whereas those of a micro-batch are in the checkpoint before its writer is asked for, and its commit
is not."""

from __future__ import annotations

from typing import Final

from .options import SinkOptions
from .problems import SinkProblem
from .storage import storage_at

_NO_BATCHES: Final = "continuous processing has no batches that could be committed: use a micro-batch trigger"
_OFFSETS: Final = "offsets"
_COMMITS: Final = "commits"


def refuse_continuous(options: SinkOptions) -> None:
    """Raise SinkProblem if the query that asks for a writer has noted no batch, or all that it has noted are over."""
    storage = storage_at(options.folder)
    noted = max((int(name) for name in storage.names(_OFFSETS) if name.isdecimal()), default=None)
    if noted is None or f"{noted}" in storage.names(_COMMITS):
        raise SinkProblem(_NO_BATCHES)

"""Whether a query runs in micro-batches. Spark tells a sink nothing of its trigger, and a continuous query neither
calls a writer in Python nor fails: it would run for ever and write nothing. But it asks for the writer before it has
noted any offsets, whereas those of a micro-batch are in the checkpoint before its writer is asked for."""

from __future__ import annotations

from typing import Final

from .options import SinkOptions
from .problems import SinkProblem
from .storage import storage_at

_NO_BATCHES: Final = "continuous processing has no batches that could be committed: use a micro-batch trigger"
_OFFSETS: Final = "offsets"


def refuse_continuous(options: SinkOptions) -> None:
    """Raise SinkProblem if the query that asks for a writer has noted no batch. One that goes on in the checkpoint of a
    micro-batch query is not seen."""
    if not any(name.isdecimal() for name in storage_at(options.folder).names(_OFFSETS)):
        raise SinkProblem(_NO_BATCHES)

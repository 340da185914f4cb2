"""Numbered batches by the product's own client, which saves its producer id and how many batches have receipts, and
continues from there when it is started again."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from idemproxy.client import ProducerId, Receipt, sequence_after
from testkit.real.clients.numbered_batches import SHELLS, new_producer_id, numbered
from testkit.real.clients.programs.program import arguments, finish

PER_BATCH = 3


def save(path: Path, state: dict[str, Any]) -> None:
    """Replace the file in one step."""
    unfinished = path.with_suffix(".unfinished")
    unfinished.write_text(json.dumps(state))
    os.replace(unfinished, path)


def main() -> None:
    """Send what has no receipt yet."""
    given = arguments()
    place, total, path = (given["topic"], given["partition"]), given["batches"], Path(given["state_file"])
    if path.exists():
        state = json.loads(path.read_text())
    else:
        producer = new_producer_id(given["bootstrap"])
        state = {"producer_id": producer.number, "epoch": producer.epoch, "done": 0}
        save(path, state)
    done = state["done"]

    def receipt(index: int, _receipt: Receipt) -> None:
        state["done"] = done + index + 1
        save(path, state)

    SHELLS[given["shell"]](
        given["bootstrap"],
        ProducerId(state["producer_id"], state["epoch"]),
        list(numbered(place, done, total - done, PER_BATCH)),
        next_sequences={place: sequence_after(0, done * PER_BATCH)},
        on_receipt=receipt,
    )
    finish({"acked": state["done"]}, ok=state["done"] == total)


if __name__ == "__main__":
    main()

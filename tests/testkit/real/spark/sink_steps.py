"""The steps of ``commit`` at which the process that commits ends itself, or stands still. The product has no switch for
it.

What is to happen is in the environment; it happens once for each folder."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from idemproxy.client import Producer
from idemproxy.pipeline.sink.storage import LocalStorage

MISHAP = "SINK_MISHAP"
STEPS = (
    "before the manifest",
    "behind the manifest",
    "before batch 1",
    "before batch 2",
    "before batch 7",
    "before published",
    "behind published",
    "before the removal",
    "behind the commit",
)

_armed = False
_sent = 0


def arm() -> None:
    """Watch the steps of the next commit."""
    global _armed, _sent
    _sent = 0
    if _armed:
        return
    _armed = True
    create, remove, send = LocalStorage.create, LocalStorage.remove, Producer.send

    def creating(self: LocalStorage, name: str, data: bytes) -> bool:
        step = "the manifest" if name.endswith(".json") else "published"
        reached(f"before {step}")
        created = create(self, name, data)
        reached(f"behind {step}")
        return created

    def removing(self: LocalStorage, name: str) -> None:
        reached("before the removal")
        remove(self, name)

    def sending(self: Producer, topic: str, partition: int, batch: Any, **options: Any) -> Any:
        global _sent
        _sent += 1
        reached(f"before batch {_sent}")
        return send(self, topic, partition, batch, **options)

    changed: tuple[tuple[type, str, Callable[..., Any]], ...] = (
        (LocalStorage, "create", creating),
        (LocalStorage, "remove", removing),
        (Producer, "send", sending),
    )
    for owner, name, replacement in changed:
        setattr(owner, name, replacement)


def reached(step: str) -> None:
    """Do what is planned for this step, if anything is."""
    told = json.loads(os.environ[MISHAP])
    if not _armed or not told["mishap"] or told["mishap"][1] != step:
        return
    how, _ = told["mishap"]
    mark = Path(told["folder"], f"{how} {step}")
    try:
        mark.touch(exist_ok=False)
    except FileExistsError:
        return
    number = signal.SIGKILL if how == "kill" else signal.SIGSTOP
    with Path(told["pids"]).open("a") as pids:
        pids.write(f" {os.getpid()}")
    for pid in Path(told["pids"]).read_text().split():  # this process is the last one
        os.kill(int(pid), number)

"""Another program of a benchmark, in a process of its own: it says READY, works until SIGTERM, and prints what it saw.
Measures nothing."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from contextlib import ExitStack


class Role:
    """What the script does when it is called with ``--role`` and these words. It ends with the stack."""

    def __init__(self, stack: ExitStack, script: str, *words: str) -> None:
        command = [sys.executable, script, "--role", *words]
        self.process = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        stack.callback(self.process.kill)
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "READY\n"

    def rows(self) -> list[list[float]]:
        """End it, and return what it wrote."""
        self.process.send_signal(signal.SIGTERM)
        assert self.process.stdout is not None
        rows: list[list[float]] = json.loads(self.process.stdout.read())
        return rows

"""A program of examples/ over all its lives: started, killed at random or at a step, started again.

``python -m testkit.real.example_lives PROGRAM STEP NUMBER ARGUMENT...`` is one life that ends by SIGKILL at a step: the
product and the examples have no switch for it."""

from __future__ import annotations

import os
import random
import runpy
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from idemproxy.client import Client, Producer
from idemproxy.client.trio_client import Delivery, TrioClient, TrioProducer
from idemproxy.demo.child_processes import ChildProcess, ChildProcesses

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = ROOT / "examples"
_BLOCKING: tuple[tuple[type, str], ...] = (
    (Client, "init_producer_id"),
    (Client, "commit_offsets"),
    (Producer, "send"),
    (Producer, "publish"),
)
_ON_TRIO: tuple[tuple[type, str], ...] = (
    (TrioClient, "init_producer_id"),
    (TrioClient, "commit_offsets"),
    (TrioProducer, "send"),
    (Delivery, "receipt"),
)


class Lives:
    """All lives of one program. A context manager: leaving it kills the one that runs."""

    def __init__(self, program: str, arguments: Sequence[str], output: Path) -> None:
        """``program``: its file's name in examples/, without the ending."""
        self._program = program
        self._arguments = tuple(arguments)
        self._output = output
        self._children = ChildProcesses()
        self._keeper: threading.Thread | None = None
        self._running: ChildProcess | None = None
        self._is_kept = False
        self.begun = 0
        self.killed = 0
        self.failed: list[str] = []
        """What lives have said that ended by themselves, with an error."""

    def __enter__(self) -> Lives:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()
        self._children.close()

    def run(self, *arguments: str, seconds_max: float = 120.0) -> str:
        """Live one life to its good end; return what it has said."""
        process = self._start([sys.executable, os.fspath(EXAMPLES / f"{self._program}.py"), *arguments])
        try:
            code = process.wait(seconds_max)
        except subprocess.TimeoutExpired:
            process.kill()
            raise AssertionError(f"not within {seconds_max:.0f} s:\n{process.last_output()}") from None
        assert code == 0, process.last_output()
        return process.last_output()

    def run_until_it_ends_well(self, *arguments: str, seconds_max: float = 300.0) -> None:
        """Start it again as often as it ends by itself with an error, as a supervisor does."""
        end = time.monotonic() + seconds_max
        while True:
            try:
                self.run(*(arguments or self._arguments), seconds_max=max(1.0, end - time.monotonic()))
                return
            except AssertionError as error:
                if time.monotonic() > end:
                    raise
                self.failed.append(f"{error}")

    def run_into(self, step: str, number: int, *arguments: str, seconds_max: float = 120.0) -> bool:
        """Live one life that is killed at a step; return whether it came to it, else it has ended well before."""
        command = [sys.executable, "-m", __name__, self._program, step, str(number), *(arguments or self._arguments)]
        process = self._start(command)
        code = process.wait(seconds_max)
        assert code in (0, -signal.SIGKILL), process.last_output()
        self.killed += code != 0
        return code != 0

    # ------------------------------------------------------------------ one that is started again and again
    def keep_alive(self) -> None:
        """From now on let it live again whenever it has ended, until ``stop``."""
        self._is_kept = True
        self._keeper = threading.Thread(target=self._keep, daemon=True)
        self._keeper.start()

    def kill(self) -> None:
        """End this life by SIGKILL, if there is one."""
        process = self._running
        if process is not None and process.exit_code is None:
            process.kill()
            self.killed += 1

    def stop(self) -> None:
        """Let it die for good."""
        self._is_kept = False
        if self._running is not None:
            self._running.kill()
        if self._keeper is not None:
            self._keeper.join(60)
            self._keeper = None

    def _keep(self) -> None:
        while self._is_kept:
            process = self._start([sys.executable, os.fspath(EXAMPLES / f"{self._program}.py"), *self._arguments])
            self._running = process
            if not self._is_kept:
                process.kill()
            code = process.wait(3600)
            if code != -signal.SIGKILL:
                self.failed.append(f"exit code {code}: {process.last_output(5)}")

    def _start(self, command: Sequence[str]) -> ChildProcess:
        self.begun += 1
        environment = {"PYTHONPATH": os.fspath(ROOT / "tests")}
        return self._children.start(self._program, command, self._output, environment=environment)


class RandomKills:
    """Kills at random moments, by threads, each as often as it is told. Raises what went wrong in any of them."""

    def __init__(self, seed: int) -> None:
        self._dice = random.Random(seed)
        self._errors: list[BaseException] = []

    def at_once(self, seconds_max: float, *kills: Callable[[], None]) -> None:
        """Do each of these, within so many seconds from now, and wait for all."""
        waits = [self._dice.uniform(0.0, seconds_max) for _ in kills]
        threads = [
            threading.Thread(target=self._do, args=(wait, kill)) for wait, kill in zip(waits, kills, strict=True)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self._errors:
            raise self._errors[0]

    def _do(self, wait: float, kill: Callable[[], None]) -> None:
        try:
            time.sleep(wait)
            kill()
        except BaseException as error:
            self._errors.append(error)


# ---------------------------------------------------------------------- inside of a life that is killed at a step
def _watched(owner: type, name: str, reached: Callable[[str], None], *, is_async: bool) -> None:
    called = getattr(owner, name)

    def blocking(*arguments: Any, **named: Any) -> Any:
        reached(f"before {name}")
        result = called(*arguments, **named)
        reached(f"behind {name}")
        return result

    async def on_trio(*arguments: Any, **named: Any) -> Any:
        reached(f"before {name}")
        result = await called(*arguments, **named)
        reached(f"behind {name}")
        return result

    setattr(owner, name, on_trio if is_async else blocking)


def main(program: str, step: str, number: str, *arguments: str) -> None:
    """Run the program; SIGKILL at the step, when it is reached for the so-manieth time."""
    left = int(number)

    def reached(what: str) -> None:
        nonlocal left
        left -= what == step
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)

    for owner, name in _BLOCKING:
        _watched(owner, name, reached, is_async=False)
    for owner, name in _ON_TRIO:
        _watched(owner, name, reached, is_async=True)
    path = EXAMPLES / f"{program}.py"
    sys.argv = [os.fspath(path), *arguments]
    sys.path.insert(0, os.fspath(EXAMPLES))
    runpy.run_path(os.fspath(path), run_name="__main__")


if __name__ == "__main__":
    main(*sys.argv[1:])

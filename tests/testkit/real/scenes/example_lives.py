"""A program of examples/ over all its runs: started, killed at random or at a step, started again.

A nursery process (``python -m testkit.real.scenes.example_lives``) has imported what they need, and forks each run:
an import takes longer than most runs. The product and the examples have no switch for the steps: a run watches its
calls."""

from __future__ import annotations

import io
import json
import os
import random
import runpy
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from idemproxy.client import Client, Producer
from idemproxy.client.trio_client import Delivery, TrioClient, TrioProducer
from idemproxy.demo.child_processes import stands_still

ROOT = Path(__file__).resolve().parents[4]
EXAMPLES = ROOT / "examples"
LIFE_SECONDS_MAX = 240.0
_KILL = b"kill\n"
_STOP = "stop "
"""Before the name of a step: SIGSTOP there."""
_POLL_SECONDS = 0.01
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
    """All runs of one program, one at a time. A context manager: leaving it kills the present one."""

    def __init__(self, program: str, arguments: Sequence[str], output: Path, *, ending: Sequence[str] = ()) -> None:
        """``program``: its file's name in examples/, without the suffix. ``arguments``: of each run, if it is given
        none; ``ending``: those that let it end by itself. ``output``: a file for all that they say."""
        self._program = program
        self._arguments = tuple(arguments)
        self._ending = tuple(ending)
        self._output = output
        self._keeper: threading.Thread | None = None
        self._is_kept = False
        self._ended: list[tuple[int, str]] = []
        self.killed = 0
        self.failed: list[str] = []
        """What runs have said that ended by themselves, with an error."""

    def __enter__(self) -> Lives:
        self._output.touch()
        command = [sys.executable, "-m", __name__, self._program, os.fspath(self._output)]
        environment = {**os.environ, "PYTHONPATH": os.fspath(ROOT / "tests")}
        self._nursery = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, bufsize=0
        )
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()
        with self._nursery as nursery:  # closes its pipes, at which it kills the present run, and ends
            assert nursery.stdin is not None
            nursery.stdin.close()

    def run(self, *arguments: str, seconds_max: float = LIFE_SECONDS_MAX) -> str:
        """Run it once to its good end; return what it has said."""
        code, said = self._live(arguments or self._to_its_end, seconds_max=seconds_max)
        assert code == 0, said
        return said

    def run_until_it_ends_well(self, seconds_max: float = LIFE_SECONDS_MAX) -> None:
        """Start it again as often as it ends by itself with an error, as a supervisor does."""
        end = time.monotonic() + seconds_max
        while True:
            code, said = self._live(self._to_its_end, seconds_max=max(1.0, end - time.monotonic()))
            if code == 0:
                return
            self.failed.append(said)
            assert time.monotonic() < end, said

    def run_into(self, step: str, number: int, *arguments: str) -> bool:
        """Run it once, and kill it when it comes to a step for the so-manieth time; return whether it was killed, else
        it has ended well before."""
        code, said = self._live(arguments or self._to_its_end, step, number)
        assert code in (0, -signal.SIGKILL), said
        self.killed += code != 0
        return code != 0

    # ------------------------------------------------------------------ one that stands still
    def stand_still(self, step: str, number: int) -> None:
        """Begin a run that stops (SIGSTOP) when it comes to a step for the so-manieth time; return when it has."""
        self._ended = []
        target = partial(self._live_apart, self._to_its_end, f"{_STOP}{step}", number)
        self._keeper = threading.Thread(target=target, daemon=True)
        self._keeper.start()
        end = time.monotonic() + LIFE_SECONDS_MAX
        while not self._has_stopped():
            assert time.monotonic() < end, f"it does not come to {step}"
            assert not self._ended, f"it did not come to {step}: {self._ended}"
            time.sleep(_POLL_SECONDS)

    def _has_stopped(self) -> bool:
        mark = _mark(self._output)
        pid = mark.read_text() if mark.exists() else ""
        return bool(pid) and stands_still(int(pid))

    def go_on(self) -> tuple[int, str]:
        """Resume it, and return how it ended: exit code, and what it has said."""
        os.kill(int(_mark(self._output).read_text()), signal.SIGCONT)
        assert self._keeper is not None
        self._keeper.join(LIFE_SECONDS_MAX)
        self._keeper = None
        (ended,) = self._ended
        return ended

    def _live_apart(self, arguments: Sequence[str], step: str, number: int) -> None:
        self._ended.append(self._live(arguments, step, number))

    # ------------------------------------------------------------------ one that is started again and again
    def keep_alive(self) -> None:
        """From now on start it again whenever it has ended, until ``stop``."""
        self._is_kept = True
        self._keeper = threading.Thread(target=self._keep, daemon=True)
        self._keeper.start()

    def kill(self) -> None:
        """End the run that ``keep_alive`` has begun by SIGKILL."""
        self._say(_KILL)
        self.killed += 1

    def stop(self) -> None:
        """Let the one that is kept alive die for good."""
        if self._keeper is not None:
            self._is_kept = False
            end = time.monotonic() + 60
            while self._keeper.is_alive():
                assert time.monotonic() < end, "it lives on"
                self._say(_KILL)  # again: one that came between two runs has ended none
                self._keeper.join(0.5)
            self._keeper = None

    # ------------------------------------------------------------------ inside
    @property
    def _to_its_end(self) -> tuple[str, ...]:
        return (*self._arguments, *self._ending)

    def _keep(self) -> None:
        while self._is_kept:
            code, said = self._live(self._arguments, seconds_max=24 * 3600.0)
            if code != -signal.SIGKILL:
                self.failed.append(f"exit code {code}: {said}")

    def _live(
        self, arguments: Sequence[str], step: str = "", number: int = 0, *, seconds_max: float = LIFE_SECONDS_MAX
    ) -> tuple[int, str]:
        before = self._output.stat().st_size
        self._say(json.dumps([step, number, *arguments]).encode() + b"\n")
        pipe = self._nursery.stdout
        assert pipe is not None
        is_late = not select.select([pipe], [], [], seconds_max)[0]
        if is_late:
            self._say(_KILL)
        code = int(pipe.readline())
        with self._output.open("rb") as output:
            output.seek(before)
            said = output.read().decode(errors="replace")[-2000:]
        assert not is_late, f"it goes on for more than {seconds_max:.0f} s, where {step or 'its end'} is due: {said}"
        return code, said

    def _say(self, line: bytes) -> None:
        assert self._nursery.stdin is not None
        self._nursery.stdin.write(line)


class RandomKills:
    """Kills at random moments, in threads. Raises what went wrong in one of them."""

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


# ---------------------------------------------------------------------- the nursery
def main(program: str, output: str) -> None:
    """Fork a run for each line, and say how it has ended. Anything said meanwhile, or the end of the input, kills."""
    commands = io.FileIO(0, closefd=False)
    while line := commands.readline():
        if line == _KILL:
            continue  # for one that had ended already
        step, number, *arguments = json.loads(line)
        child = os.fork()
        if not child:
            _live_in_child(program, output, step, number, arguments)
        print(_code_of(child, commands), flush=True)


def _code_of(child: int, commands: io.FileIO) -> int:
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        if select.select([commands], [], [], _POLL_SECONDS)[0]:
            commands.readline()
            os.kill(child, signal.SIGKILL)


def _live_in_child(program: str, output: str, step: str, number: int, arguments: Sequence[str]) -> None:
    descriptor = os.open(output, os.O_WRONLY | os.O_APPEND)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    _watch_for(step, number, _mark(Path(output)))
    path = EXAMPLES / f"{program}.py"
    sys.argv = [os.fspath(path), *arguments]
    sys.path.insert(0, os.fspath(EXAMPLES))
    runpy.run_path(os.fspath(path), run_name="__main__")
    sys.exit(0)


def _mark(output: Path) -> Path:
    """The file in which a run that stands still says its process id."""
    return output.with_suffix(".stopped")


def _watch_for(step: str, number: int, mark: Path) -> None:
    """SIGKILL when a step is reached for the so-manieth time, or SIGSTOP."""
    left = number

    def reached(what: str) -> None:
        nonlocal left
        if what == step.removeprefix(_STOP):
            left -= 1
            if not left and step.startswith(_STOP):
                unfinished = mark.with_suffix(".unfinished")
                unfinished.write_text(str(os.getpid()))
                unfinished.replace(mark)
                os.kill(os.getpid(), signal.SIGSTOP)
            elif not left:
                os.kill(os.getpid(), signal.SIGKILL)

    for owner, name in _BLOCKING:
        _watched(owner, name, reached, is_async=False)
    for owner, name in _ON_TRIO:
        _watched(owner, name, reached, is_async=True)


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


if __name__ == "__main__":
    main(*sys.argv[1:])

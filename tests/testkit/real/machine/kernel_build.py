"""The compiled libraries, built from their sources as the tests need them."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from idemproxy.codecs.kernel import KERNEL
from idemproxy.codecs.old_formats import LOWER, RAISE_SET

SOURCE = Path(__file__).resolve().parents[4] / "codecs/kernel/kernel.c"
LOWER_SOURCE = SOURCE.parents[1] / "old_formats/lower.c"
RAISE_SET_SOURCE = SOURCE.parents[1] / "old_formats/raise_set.c"
COMPILER = shutil.which("cc")
FLAGS = ("-std=c11", "-shared", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra", "-Wconversion", "-Werror")


def build(folder: Path, flags: Sequence[str] = ("-O2",), source: Path = SOURCE) -> Path:
    """Compile it; a warning is an error. Return the library."""
    assert COMPILER
    library = folder / "compiled.abi3.so"
    subprocess.run([COMPILER, *FLAGS, *flags, str(source), "-o", str(library)], check=True, timeout=120)
    return library


def load(library: Path, name: str = "compiled") -> ModuleType:
    """Import a library that may lie anywhere. ``name``: as its source has it."""
    loader = ExtensionFileLoader(name, str(library))
    spec = spec_from_file_location(name, library, loader=loader)
    assert spec
    return module_from_spec(spec)


@cache
def current() -> Any:
    """The kernel of the source as it is, where that can be built; else the one that is installed, or None."""
    if not COMPILER:
        return KERNEL
    with tempfile.TemporaryDirectory() as folder:
        return load(build(Path(folder)))


@cache
def current_lower() -> Any:
    """The same, for what lowers records to the message formats v0 and v1."""
    if not COMPILER:
        return LOWER
    with tempfile.TemporaryDirectory() as folder:
        return load(build(Path(folder), source=LOWER_SOURCE), "lower")


@cache
def current_raise_set() -> Any:
    """The same, for what raises message sets to format v2."""
    if not COMPILER:
        return RAISE_SET
    with tempfile.TemporaryDirectory() as folder:
        return load(build(Path(folder), source=RAISE_SET_SOURCE), "raise_set")

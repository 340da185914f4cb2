"""The kernel, built from its source as the tests need it."""

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

SOURCE = Path(__file__).resolve().parents[4] / "codecs/kernel/kernel.c"
COMPILER = shutil.which("cc")
FLAGS = ("-std=c11", "-shared", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra", "-Wconversion", "-Werror")


def build(folder: Path, flags: Sequence[str] = ("-O2",), source: Path = SOURCE) -> Path:
    """Compile it; a warning is an error. Return the library."""
    assert COMPILER
    library = folder / "compiled.abi3.so"
    subprocess.run([COMPILER, *FLAGS, *flags, str(source), "-o", str(library)], check=True, timeout=120)
    return library


def load(library: Path) -> ModuleType:
    """Import a library that may lie anywhere."""
    loader = ExtensionFileLoader("compiled", str(library))
    spec = spec_from_file_location("compiled", library, loader=loader)
    assert spec
    return module_from_spec(spec)


@cache
def current() -> Any:
    """The kernel of the source as it is, where that can be built; else the one that is installed, or None."""
    if not COMPILER:
        return KERNEL
    with tempfile.TemporaryDirectory() as folder:
        return load(build(Path(folder)))

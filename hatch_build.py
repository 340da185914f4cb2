"""What a build of the package adds: the compiled libraries (``LIBRARIES``), where that can be done, and a README that
can be read away from the repository. Without the libraries the package is one of pure Python.

Run by hatchling, outside of the package: it imports nothing of it. ``KERNEL_COMPILER`` says what to compile with:

- not set: the machine's own C compiler (``CC``, else ``cc``) if there is one. Nothing fails if there is none.
- ``zig``, or ``zig:<machine>`` (``x86_64``, ``aarch64``): the compiler in PyPI's ``ziglang``, for the old glibc that
  makes the wheel one for nearly every Linux. It must succeed.
- ``none``: nothing is compiled.

An editable installation, which is what a checkout has, gets each library next to its source.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

CHOICE: Final = "KERNEL_COMPILER"
ZIG: Final = "ziglang==0.13.0"
LIBRARIES: Final = (
    ("codecs/kernel", "kernel.c", "compiled.abi3.so"),
    ("codecs/old_formats", "lower.c", "lower.abi3.so"),
    ("codecs/old_formats", "raise_set.c", "raise_set.abi3.so"),
)
"""Folder, source, and the library that is made of it."""
FLAGS: Final = ("-std=c11", "-O2", "-shared", "-fPIC", "-fvisibility=hidden")
_GLIBC: Final = "2.17"  # of 2012: what manylinux2014 promises
_PYTHON: Final = "cp311"  # the first whose stable ABI has buffers


class KernelBuildHook(BuildHookInterface[Any]):
    """What hatchling calls."""

    def dependencies(self) -> list[str]:
        """What must be installed for the build."""
        return [ZIG] if _zig_machine() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and put the libraries into the wheel or next to their sources."""
        if self.target_name != "wheel":
            return
        included = {}
        for folder, source, name in LIBRARIES:
            home = Path(self.root) / folder
            library = (home if version == "editable" else Path(tempfile.mkdtemp())) / name
            if not build(home / source, library):
                return
            included[str(library)] = f"idemproxy/{folder}/{name}"
        if version != "editable":
            build_data["force_include"] |= included
        build_data["pure_python"] = False
        build_data["tag"] = f"{_PYTHON}-abi3-{_platform()}"


class ReadmeMetadataHook(MetadataHookInterface):
    """What hatchling calls for the field ``readme``."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the README, with links that lead to the project's own addresses."""
        text = (Path(self.root) / "README.md").read_text()
        metadata["readme"] = {"content-type": "text/markdown", "text": absolute(text, metadata["urls"])}


def absolute(text: str, addresses: Mapping[str, str]) -> str:
    """Return a page of the repository with absolute links: to the site for what is in docs/, else to the source."""

    def to_site(match: re.Match[str]) -> str:
        return f"]({addresses['Documentation']}/{re.sub(r'[.]md(?=$|#)', '.html', match[1])})"

    text = re.sub(r"\]\(docs/([^)\s]+)\)", to_site, text)
    return re.sub(r"\]\((?![a-z]+:|#)([^)\s]+)\)", rf"]({addresses['Source']}/\1)", text)


def build(source: Path, library: Path) -> bool:
    """Return whether the library was made. Raises CalledProcessError if it was asked for by name and cannot be."""
    machine = _zig_machine()
    if machine:
        target = f"--target={machine}-linux-gnu.{_GLIBC}"
        _compile([sys.executable, "-m", "ziglang", "cc", target, "-s"], source, library)
        return True
    if os.environ.get(CHOICE) == "none" or not sys.platform.startswith("linux"):
        return False
    compiler = os.environ.get("CC") or shutil.which("cc")
    if not compiler:
        return False
    try:
        _compile(compiler.split(), source, library)
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"idemproxy is installed without its compiled kernel: {error}", file=sys.stderr)
        return False
    return True


def _compile(compiler: Sequence[str], source: Path, library: Path) -> None:
    """Through a side file: a process that runs has the old library mapped."""
    unfinished = library.with_suffix(".unfinished")
    subprocess.run([*compiler, *FLAGS, str(source), "-o", str(unfinished)], check=True)
    unfinished.replace(library)


def _zig_machine() -> str:
    """Return the machine to compile for with zig; empty: not with zig."""
    name, _, machine = os.environ.get(CHOICE, "").partition(":")
    return machine or os.uname().machine if name == "zig" else ""


def _platform() -> str:
    machine = _zig_machine()
    if machine:
        return f"manylinux_{_GLIBC.replace('.', '_')}_{machine}"
    return sysconfig.get_platform().replace("-", "_").replace(".", "_")

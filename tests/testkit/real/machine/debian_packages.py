"""Debian's packages, unpacked into a folder below .cache and not installed: programs that no other registry has."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from idemproxy.demo.jars import cache_lock

from .pinned_packages import ROOT

_DOWNLOAD_SECONDS_MAX, _UNPACK_SECONDS_MAX = 300, 120


def unpacked(name: str, packages: Sequence[str]) -> Path | None:
    """Return the folder with the files of all of these packages; it is filled at the first call. None: they can not be
    had here."""
    folder = ROOT / ".cache" / f"{name}-debian"
    with cache_lock(folder.name):
        if not folder.is_dir():
            fresh = folder.with_name(f"{folder.name}.{os.getpid()}")
            fresh.mkdir(parents=True)
            if not _filled(fresh, packages):
                shutil.rmtree(fresh)
                return None
            fresh.rename(folder)
    return folder


def _filled(folder: Path, packages: Sequence[str]) -> bool:
    download = ["apt-get", "--quiet", "download", *packages]
    found: list[Path] = []
    for command in (download, ["apt-get", "--quiet", "update"], download):
        found = list(folder.glob("*.deb"))
        if len(found) == len(packages) or shutil.which("apt-get") is None:
            break
        subprocess.run(command, cwd=folder, capture_output=True, timeout=_DOWNLOAD_SECONDS_MAX, check=False)
    found = list(folder.glob("*.deb"))
    for package in found:
        subprocess.run(["dpkg-deb", "--extract", package, folder], check=True, timeout=_UNPACK_SECONDS_MAX)
        package.unlink()
    return len(found) == len(packages)

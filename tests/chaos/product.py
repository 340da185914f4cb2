"""A copy of the product for one run: proxies are started again and again, and all of them have to be the same one,
whatever is edited meanwhile."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import idemproxy
from testkit.real.machine.archives import unpack_tar

_FOLDERS = ("proxy", "state", "codecs", "demo")
_PACKAGE = Path("src") / "idemproxy"
_START_SECONDS_MAX = 30


def copy(directory: Path, *, committed: bool) -> Path:
    """Return a folder for PYTHONPATH with the package: as it is imported here, or as it was committed last.

    Raises AssertionError when what was copied cannot be started.
    """
    folder = directory / "product"
    package = folder / "idemproxy"
    if committed:
        _copy_commit(folder)
    else:
        shutil.copytree(Path(idemproxy.__path__[0]), package, ignore=shutil.ignore_patterns("__pycache__"))
    outcome = subprocess.run(
        [sys.executable, "-m", "idemproxy", "run", "--help"],
        env={**os.environ, "PYTHONPATH": os.fspath(folder)},
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=_START_SECONDS_MAX,
        check=False,
    )
    assert outcome.returncode == 0, f"the proxy cannot be started: {outcome.stderr[-2000:]}"
    return folder


def _copy_commit(folder: Path) -> None:
    root = Path(__file__).resolve().parents[2]
    git = ["git", "archive", "HEAD", "--", os.fspath(_PACKAGE), *_FOLDERS]
    archive = subprocess.run(git, cwd=root, capture_output=True, check=True).stdout
    unpack_tar(archive, folder)
    # In the repository the folders are links from the package; here they are moved into it.
    package = folder / "idemproxy"
    (folder / _PACKAGE).rename(package)
    for name in _FOLDERS:
        link = package / name
        if link.is_symlink():
            link.unlink()
        (folder / name).rename(link)

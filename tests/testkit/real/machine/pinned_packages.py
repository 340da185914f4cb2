"""Python packages that cannot live in the tests' own environment: pinned, each set in a folder of its own below .cache.

Two versions of one distribution never share an environment, so a client program gets such a folder through PYTHONPATH.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from idemproxy.demo.jars import cache_lock

ROOT = Path(__file__).resolve().parents[4]
OLD_KAFKA_PYTHON = ("kafka-python==1.4.7", "six==1.17.0")
"""The last 1.x; it is asked to use this six, since the one it carries stopped working in Python 3.12."""
OLD_AIOKAFKA = ("aiokafka==0.12.0", "async-timeout==5.0.1", "packaging==25.0", "typing-extensions==4.15.0")
"""Infers a broker's release from single versions that the broker reports, and chooses other versions by that."""
_INSTALL_SECONDS_MAX = 180


class PackagesUnavailable(Exception):
    """They could not be installed; the message says what was tried."""


def folder_with(*requirements: str, of_python: str | None = None) -> Path:
    """Return a folder that holds exactly these packages; it is filled at the first call. ``of_python``: wheels that
    were built for another Python, for the libraries in them."""
    identity = hashlib.sha256("\n".join([of_python or sys.version, *requirements]).encode()).hexdigest()[:16]
    folder = ROOT / ".cache" / "python-packages" / identity
    with cache_lock("python-packages"):
        if not folder.is_dir():
            folder.parent.mkdir(parents=True, exist_ok=True)
            fresh = Path(tempfile.mkdtemp(dir=folder.parent))
            other = [] if of_python is None else ["--python-version", of_python, "--only-binary", ":all:"]
            command = [*_installer(), *other, "--target", os.fspath(fresh), "--no-deps", *requirements]
            outcome = subprocess.run(command, capture_output=True, text=True, timeout=_INSTALL_SECONDS_MAX, check=False)
            if outcome.returncode:
                shutil.rmtree(fresh)
                raise PackagesUnavailable(f"{' '.join(command)}:\n{outcome.stdout}{outcome.stderr}")
            fresh.rename(folder)
    return folder


def _installer() -> list[str]:
    # "uv run" names itself in UV; the Makefile keeps a private one.
    for uv in (os.environ.get("UV"), shutil.which("uv"), os.fspath(ROOT / ".cache" / "uv" / "bin" / "uv")):
        if uv and os.access(uv, os.X_OK):
            return [uv, "pip", "install", "--quiet", "--python", sys.executable]
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    raise PackagesUnavailable("neither uv nor pip is there to install packages for the old clients: try make test")

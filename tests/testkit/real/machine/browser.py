"""A real Chromium for pages: found on the machine, or installed from Debian's packages where that is possible.

A browser cannot come through the Python package index, so it is the one thing that a test takes from the system."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, sync_playwright

from idemproxy.demo.jars import cache_lock

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_INSTALL_SECONDS_MAX = 600
_QUIET = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
"""Without a sandbox, as tests run as root in containers; and without calls home."""


class NoBrowser(Exception):
    """There is none, and it could not be installed; the message says what to do."""


def chromium() -> str:
    """Return the path of a Chromium; it is installed at the first call where it can be."""
    found = _found()
    if found is None and os.geteuid() == 0 and shutil.which("apt-get"):
        with cache_lock("chromium"):
            environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
            for command in (["apt-get", "update"], ["apt-get", "install", "-y", "--no-install-recommends", "chromium"]):
                subprocess.run(command, env=environment, capture_output=True, timeout=_INSTALL_SECONDS_MAX, check=False)
        found = _found()
    if found is None:
        raise NoBrowser("the tests of the status page need Chromium: install the package chromium of your system")
    return found


@contextmanager
def open_browser() -> Iterator[Browser]:
    """A browser without a window; it ends with the block."""
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium(), args=list(_QUIET))
        try:
            yield browser
        finally:
            browser.close()


def _found() -> str | None:
    return next((path for path in map(shutil.which, _NAMES) if path is not None), None)

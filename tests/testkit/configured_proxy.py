"""``idemproxy run --config FILE`` as a child process whose file a test writes, and writes again."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from .proxy_process import ProxyProcess


class ConfiguredProxy(ProxyProcess):
    """A proxy that gets all it knows from a file; only the data directory comes by option."""

    def __init__(self, directory: Path, settings: Mapping[str, Any]) -> None:
        """``settings``: as in the file. The first listener, if there is one, is where it is waited for."""
        super().__init__(directory, ("127.0.0.1", 0))
        self.file = directory / "idemproxy.yaml"
        self.write(settings)
        for listener in settings.get("listeners", [])[:1]:
            host, _, port = str(listener["bind"]).rpartition(":")
            self.address = ("127.0.0.1" if host.startswith("[") else host, int(port))
        self._command = [
            *(sys.executable, "-m", "idemproxy", "run"),
            *("--config", os.fspath(self.file), "--data-dir", os.fspath(self.data_directory)),
        ]

    def write(self, settings: Mapping[str, Any]) -> None:
        """Replace the file."""
        self.file.write_text(yaml.safe_dump(dict(settings), sort_keys=False))

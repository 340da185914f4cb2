"""``idemproxy run --config FILE`` as a child process whose file a test writes, and writes again."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from idemproxy.proxy.settings.addresses import parse_host_and_port

from .proxy_process import ProxyProcess


class ConfiguredProxy(ProxyProcess):
    """A proxy that gets all it knows from a file; only the data directory comes by option."""

    def __init__(self, directory: Path, settings: Mapping[str, Any]) -> None:
        """``settings``: as in the file. The first listener, if there is one, is where it is waited for."""
        super().__init__(directory, ("127.0.0.1", 0))
        self.file = directory / "idemproxy.yaml"
        self.write(settings)
        for listener in settings.get("listeners", [])[:1]:
            host, port = parse_host_and_port(listener["bind"])
            self.address = ("::1" if ":" in host else host, port)
        self._command = [
            *(sys.executable, "-m", "idemproxy", "run"),
            *("--config", os.fspath(self.file), "--data-directory", os.fspath(self.data_directory)),
        ]

    def _is_listening(self) -> bool:
        assert self._process is not None
        assert self._process.exit_code is None, f"the proxy ended:\n{self._process.last_output()}"
        try:
            socket.create_connection(self.address, 5).close()
        except OSError:
            return False
        return True

    def write(self, settings: Mapping[str, Any]) -> None:
        """Replace the file."""
        self.file.write_text(yaml.safe_dump(dict(settings), sort_keys=False))

"""``idemproxy run --config FILE`` as a child process whose file a test writes, and writes again."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from idemproxy.demo.ports import HOST
from idemproxy.proxy.settings.addresses import parse_host_and_port

from .proxy_process import ProxyProcess


class ConfiguredProxy(ProxyProcess):
    """A proxy that gets all it knows from a file; only the data directory comes by option."""

    def __init__(
        self,
        directory: Path,
        settings: Mapping[str, Any],
        *,
        listener: Mapping[str, Any] | None = None,
        brokers: int = 1,
    ) -> None:
        """``settings``: as in the file, with listeners of which the first one is where it is waited for. Or with none,
        and ``listener`` is the only one, but for its address, which leaves room for so many brokers."""
        super().__init__(directory, (HOST, 0), brokers=brokers)
        self.file = directory / "idemproxy.yaml"
        self.configuration = dict(settings)
        if listener is not None:
            self.configuration["listeners"] = [{"bind": f"{HOST}:{self.address[1]}", **listener}]
        for first in self.configuration.get("listeners", [])[:1]:
            host, port = parse_host_and_port(first["bind"])
            self.address = ("::1" if ":" in host else host, port)
        self.write(self.configuration)
        self._command = [
            *(sys.executable, "-m", "idemproxy", "run"),
            *("--config", os.fspath(self.file), "--data-directory", os.fspath(self.data_directory)),
        ]

    def launch(self) -> None:
        """Start the process with the file as ``configuration`` has it."""
        self.write(self.configuration)
        super().launch()

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
        self.configuration = dict(settings)
        self.file.write_text(yaml.safe_dump(self.configuration, sort_keys=False))

"""A proxy as a child process whose settings stand in a file, as an operator writes it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from .certificates import Authority, Files
from .proxy_process import ProxyProcess


class ConfiguredProxy(ProxyProcess):
    """One proxy. ``listener``: its one listener, but for the address; ``settings``: the rest of the file, but for the
    data directory."""

    def __init__(
        self, directory: Path, listener: Mapping[str, Any], settings: Mapping[str, Any], *, brokers: int = 1
    ) -> None:
        super().__init__(directory, ("127.0.0.1", 1), brokers=brokers)
        host, port = self.address
        self.configuration = {
            "listeners": [{"bind": f"{host}:{port}", **listener}],
            "data_directory": str(self.data_directory),
            **settings,
        }
        self._file = directory / "idemproxy.yaml"
        self._command = [sys.executable, "-m", "idemproxy", "run", "--config", str(self._file)]

    def launch(self) -> None:
        """Write the file and begin a life."""
        self._file.write_text(yaml.safe_dump(self.configuration))
        super().launch()


def listener_tls(own: Files, clients: Authority | None = None, client_auth: str = "required") -> dict[str, str]:
    """Return the ``tls`` of a listener; ``clients``: the authority of their certificates."""
    found = {"cert_file": str(own.cert), "key_file": str(own.key)}
    if clients is not None:
        found |= {"client_ca_file": str(clients.ca_file), "client_auth": client_auth}
    return found


def client_tls(authority: Authority, own: Files | None = None) -> dict[str, str]:
    """Return the ``tls`` of something that is connected to."""
    found = {"ca_file": str(authority.ca_file)}
    if own is not None:
        found |= {"cert_file": str(own.cert), "key_file": str(own.key)}
    return found

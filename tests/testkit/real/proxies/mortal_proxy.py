"""The proxy as a child process that kills itself at a chosen point of a produce, once, and lives on afterwards."""

from __future__ import annotations

import sys
from pathlib import Path

from . import crashing_proxy
from .crashing_proxy import CrashPoint
from .proxy_process import ProxyProcess


class MortalProxy(ProxyProcess):
    """A proxy whose next process ends by itself at a point, or is the shipped one."""

    def __init__(self, directory: Path, upstream: tuple[str, int]) -> None:
        super().__init__(directory, upstream)
        host, port = self.address
        self._shipped_command = self._command
        self._crashing_command = [sys.executable, crashing_proxy.__file__]
        self._addresses = [f"{upstream[0]}:{upstream[1]}", f"{host}:{port}", str(self.data_directory)]

    def __enter__(self) -> MortalProxy:
        """Nothing runs yet: how the first process ends has to be said before."""
        return self

    def dies_at(self, point: CrashPoint, nth: int) -> None:
        """The next process ends at this point of its n-th produce."""
        self._command = [*self._crashing_command, point, str(nth), *self._addresses]

    def lives_on(self) -> None:
        """The next process is the shipped command."""
        self._command = self._shipped_command

"""Notes the requests of old clients for one process: who sent them, as its connection knows it, and which are
reported. Decides nothing about a request."""

from __future__ import annotations

from collections.abc import Callable

from ..connection.handler import Handler
from ..connection.shell import ConnectionShell
from ..events import OldClientSeen, OldRequestRefused, Report
from .inventory import OldClient, OldClients


class OldClientWatch:
    """``inventory``: what was noted so far."""

    def __init__(self, wall_clock_ms: Callable[[], int], report: Report) -> None:
        self.inventory = OldClients()
        self._wall_clock_ms = wall_clock_ms
        self._report = report

    def note_request(
        self,
        handler: Handler,
        shell: ConnectionShell,
        api_key: int,
        api_version: int,
        *,
        is_refused: bool = False,
        is_raised: bool = False,
    ) -> None:
        """Note a request of a version that ``versions.is_dropped``. ``is_refused``: its broker does not serve it, so
        the proxy returns an error, or closes the connection. ``is_raised``: the proxy rewrites it."""
        client = OldClient(handler.name, shell.address, handler.software, shell.principal_name)
        now = self._wall_clock_ms() / 1000
        if is_refused:
            self._report(OldRequestRefused(api_key, api_version))
        if self.inventory.note(client, (api_key, api_version), now, is_refused=is_refused):
            self._report(OldClientSeen(*client.cut(), api_key, api_version, is_refused, is_raised))

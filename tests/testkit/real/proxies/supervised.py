"""A proxy of two workers and their supervisor, with an admin port."""

from __future__ import annotations

import urllib.error
import urllib.request
from pathlib import Path

from idemproxy.demo.ports import HOST, free_ports
from testkit.real.proxies.proxy_process import ProxyProcess, wait_until

WORKERS = 2


class Supervised(ProxyProcess):
    """A proxy with workers and an admin port."""

    def __init__(self, directory: Path, upstream: tuple[str, int], *options: str) -> None:
        (self.admin,) = free_ports(1)
        admin = ("--admin-bind", f"{HOST}:{self.admin}", "--workers", str(WORKERS))
        super().__init__(directory, upstream, options=(*admin, *options))

    def get(self, path: str) -> tuple[int, str]:
        """Status and text of a page of the admin port; status 0 while nobody is there."""
        try:
            with urllib.request.urlopen(f"http://{HOST}:{self.admin}{path}", timeout=10) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def wait_until_ready(self) -> None:
        wait_until(
            lambda: self.get("/readyz")[0] == 200 and len(self.workers) == WORKERS, f"ready:\n{self.log[-2000:]}"
        )

    def metric(self, series: str) -> float:
        _, text = self.get("/metrics")
        return next((float(line.split()[-1]) for line in text.splitlines() if line.split(" ")[0] == series), 0.0)

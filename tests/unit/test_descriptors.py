"""How many descriptors a process has after it has asked for enough, within what the system allows."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

PROGRAM = """
import json, resource, sys
from idemproxy.proxy.descriptors import raise_descriptors
soft, hard, clients = map(int, sys.argv[1:])
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
print(json.dumps([raise_descriptors(clients), *resource.getrlimit(resource.RLIMIT_NOFILE)]))
"""
FEW = "400 descriptors are too few for limits.connections_max 201: 402 are wanted (ulimit -n)"


@pytest.mark.parametrize(
    ("soft", "hard", "clients", "now", "warning"),
    [
        (100, 400, 200, 400, None),
        (100, 400, 201, 400, FEW),
        (100, 400, 1, 400, None),
        (400, 400, 1, 400, None),
    ],
)
def test_as_many_are_had_as_clients_may_need_and_the_system_allows(
    soft: int, hard: int, clients: int, now: int, warning: str | None
) -> None:
    """With one client, too: brokers, logs and the admin port need some as well."""
    command = [sys.executable, "-c", PROGRAM, *map(str, (soft, hard, clients))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert json.loads(done.stdout) == [warning, now, hard]

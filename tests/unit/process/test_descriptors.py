"""How many descriptors a process has after it has asked for enough, within what the system allows; and the last of
them, which clients do not get."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

PROGRAM = """
import json, resource, sys
from idemproxy.proxy.process import descriptors
soft, hard, clients, descriptors._WANTED_MIN = map(int, sys.argv[1:])
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
print(json.dumps([descriptors.raise_descriptors(clients), *resource.getrlimit(resource.RLIMIT_NOFILE)]))
"""


@pytest.mark.parametrize(
    ("soft", "hard", "clients", "wanted_min", "now"),
    [
        (100, 400, 200, 65_536, 400),
        (100, 400, 201, 65_536, 400),
        (100, 400, 1, 65_536, 400),
        (400, 400, 1, 65_536, 400),
        (100, 4_000, 500, 100, 2_000),
    ],
)
def test_as_many_are_had_as_clients_may_need_and_the_system_allows(
    soft: int, hard: int, clients: int, wanted_min: int, now: int
) -> None:
    """With one client, too: brokers, logs and the admin port need some as well. Each may be an old producer."""
    command = [sys.executable, "-c", PROGRAM, *map(str, (soft, hard, clients, wanted_min))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=True)
    assert json.loads(done.stdout) == [now, now, hard]


LAST_ONES = """
import json, os, resource, sys
from idemproxy.proxy.process.descriptors import Descriptors, ForClients
have, brokers, quiet = map(int, sys.argv[1:])
resource.setrlimit(resource.RLIMIT_NOFILE, (have, have))
taken, asked, connected, lost = [], [], [], []

def make_room(why):
    asked.append(why)
    if len(asked) > quiet:
        return False
    os.close(taken.pop(0))
    return True

descriptors = Descriptors(lambda: 20 * brokers, make_room)
said = None
while said is None and len(taken) < have:
    taken.append(os.dup(1))
    said = descriptors.why_no_room()
in_use = len(os.listdir("/proc/self/fd")) - 1

class Below:
    now = at_flush = None
    later = staticmethod(lambda seconds, callback: callback())
    connect = staticmethod(lambda address, endpoint: connected.append(address))

class End:
    lost = staticmethod(lost.append)

reactor = ForClients(Below, descriptors.why_no_room)
reactor.connect(("broker", 1), End)
for one in taken:
    os.close(one)
reactor.connect(("broker", 2), End)
print(json.dumps([said, in_use, len(asked), connected, lost]))
"""


@pytest.mark.parametrize(
    ("have", "brokers", "in_use"),
    [(300, 1, 216), (300, 3, 176), (300, 50, 150)],
    ids=["one broker", "three", "at most half are kept"],
)
@pytest.mark.parametrize("quiet", [0, 3])
def test_the_last_ones_are_not_for_clients_and_first_somebody_quiet_leaves(
    have: int, brokers: int, in_use: int, quiet: int
) -> None:
    command = [sys.executable, "-c", LAST_ONES, *map(str, (have, brokers, quiet))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=True)
    kept = f"the last {have - in_use} are kept for Redis and the brokers (ulimit -n)"
    why = f"{in_use} file descriptors are in use, and {kept}"
    said = json.loads(done.stdout)
    assert said == [why, in_use, quiet + 2, [["broker", 2]], [f"cannot connect: {why}"]]


def test_a_process_without_standard_input_counts_as_well() -> None:
    program = (
        "from idemproxy.proxy.process.descriptors import Descriptors; print(Descriptors(lambda: 1, None).why_no_room())"
    )
    command = ["bash", "-c", 'exec "$@" <&-', "bash", sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=True)
    assert done.stdout == "None\n"

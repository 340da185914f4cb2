"""A worker learns that its supervisor has gone."""

from __future__ import annotations

import socket
import subprocess
import sys

PROGRAM = """
import sys, trio
from idemproxy.proxy.process.worker import beat, until_alone

async def work():
    async with trio.open_nursery() as nursery:
        nursery.start_soon(beat)
        await trio.sleep(0.05)
        print("has beaten", flush=True)
        await until_alone()
        nursery.cancel_scope.cancel()

trio.run(work)
"""


def test_a_worker_ends_cleanly_when_its_supervisor_died_with_beats_unread() -> None:
    supervisor, worker = socket.socketpair()
    with worker, supervisor:
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM],
            stdin=worker.fileno(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "has beaten\n"
        supervisor.close()
        told = process.communicate(timeout=60)[1]
    assert (process.returncode, told) == (0, "")

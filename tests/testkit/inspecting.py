"""``idemproxy inspect`` and ``idemproxy forget`` as tests call them, and producers that fill Redis for them."""

from __future__ import annotations

import io
import json
import sys
import time
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from typing import Any

import pytest

from idemproxy.proxy.main import main
from idemproxy.state.entry import Entry, unpack
from idemproxy.state.store import entry_key

from .proxy_process import wait_until
from .raw_client import RawClient, batch
from .two_proxies_redis import ExternalRedis

Place = tuple[str, int]
COMMAND_SECONDS_MAX = 60


@dataclass(frozen=True)
class Done:
    """What a run of the command line left behind."""

    returncode: int
    stdout: str
    stderr: str


def idemproxy(*arguments: str | int, typed: str = "") -> Done:
    """Run the command line, in this process: a new one takes most of a second to begin."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "stdin", io.StringIO(typed))
        status = main([str(argument) for argument in arguments])
    return Done(status, out.getvalue(), err.getvalue())


def lines_of(*arguments: str | int) -> list[str]:
    """Return what an ``inspect`` that goes well prints."""
    done = idemproxy("inspect", *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def objects_of(*arguments: str | int) -> list[dict[str, Any]]:
    """Return what it prints for machines."""
    return [json.loads(line) for line in lines_of("--json", *arguments)]


def stored(redis: ExternalRedis, producer_id: int, place: Place) -> Entry:
    """Return an entry as it is now."""
    value = redis.call("GET", entry_key("default", producer_id, *place))
    assert isinstance(value, bytes)
    return unpack(value)


def send(client: RawClient, place: Place, producer_id: int, sequence: int) -> tuple[int, int]:
    """Return code and offset of a batch of two records."""
    values = [b"%d" % sequence, b"%d" % (sequence + 1)]
    answer = client.produce_one(*place, batch(values, producer_id=producer_id, sequence=sequence))
    return answer.error_code, answer.base_offset


def insist(client: RawClient, place: Place, producer_id: int, sequence: int, seconds_max: float = 20) -> int:
    """Send the same batch until it is taken, and return its offset."""
    end = time.monotonic() + seconds_max
    while True:
        code, offset = send(client, place, producer_id, sequence)
        if code == 0:
            return offset
        assert code in (6, 7, 19), code
        assert time.monotonic() < end, code
        time.sleep(0.1)


def begin(client: RawClient, redis: ExternalRedis, place: Place, batches: int = 3) -> int:
    """Return a new producer id that has some batches of two in the log, all committed."""
    producer_id = client.new_producer_id()
    for number in range(batches):
        assert send(client, place, producer_id, 2 * number) == (0, 2 * number)
    wait_until(lambda: stored(redis, producer_id, place).intent is None, "the last commit is written")
    return producer_id


def member_names(redis: ExternalRedis) -> list[str]:
    """Return the living incarnations of the default cluster, in hexadecimal."""
    return sorted(key.decode().rpartition(":")[2] for key in redis.call("KEYS", "idem:default:member:*"))

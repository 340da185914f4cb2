"""Duplicates in a log, the commands that name them, and what consumers see then."""

from __future__ import annotations

import json
from collections.abc import Sequence

from idemproxy.pipeline.reading.decode import containers
from testkit.real.clients.raw_client import RawClient, batch
from testkit.real.store.inspecting import Place, idemproxy


def append(client: RawClient, log: Place, *values: bytes, **options: object) -> int:
    """Append one batch without a producer id; return its first offset."""
    answer = client.produce_one(*log, batch(values, **options))  # type: ignore[arg-type]
    assert answer.error_code == 0
    return answer.base_offset


def hide(url: str, log: Place, first: int, last: int, *more: str) -> None:
    done = idemproxy("hide", "add", *log, first, last, "--yes", "--redis", url, *more)
    assert done.returncode == 0, done.stdout + done.stderr


def rows(url: str, log: Place) -> list[dict[str, object]]:
    done = idemproxy("hide", "list", "--topic", log[0], "--json", "--redis", url)
    return [json.loads(line) for line in done.stdout.splitlines()]


def read(client: RawClient, log: Place, wanted: int, version: int = 4) -> list[bytes]:
    """Fetch as a consumer does, each time from after what came last, until so many records have come."""
    found: list[bytes] = []
    offset = tries = 0
    while len(found) < wanted:
        tries += 1
        assert tries < 50, (found, offset)
        for at, value in records_of(client.fetch(*log, offset, version)):
            if at >= offset:
                found.append(value)
                offset = at + 1
    return found


def records_of(data: bytes) -> Sequence[tuple[int, bytes]]:
    found: list[tuple[int, bytes]] = []
    for one in containers(data):
        assert not one.unreadable
        for offset, content in zip(one.offsets.tolist(), one.contents, strict=True):
            value_at = 4 + max(int.from_bytes(content[:4], "big", signed=True), 0) + 4  # none has headers
            found.append((offset, bytes(content[value_at:])))
    return found

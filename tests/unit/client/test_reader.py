"""The client's readers, in both shells, where fetches bring nothing for a while: hidden ranges, quotas."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import trio

from idemproxy.client import Client
from idemproxy.client.trio_client import TrioClient
from idemproxy.codecs.message_set import encode_message
from testkit.stage.reading_server import ReadingServer

LOG = [encode_message(b"k", b"v" * 600_000, magic=1, offset=offset, timestamp=7) for offset in range(12)]
"""Of partitions with hidden ranges a fetch brings 1 MiB: one of these."""


SHORT_SECONDS = 0.8


def blocking(server: ReadingServer, request_seconds_max: float = 30.0) -> list[int]:
    address = "{}:{}".format(*server.address)
    with (
        Client(address, seconds_max=5, request_seconds_max=request_seconds_max) as client,
        client.reader("t", 0) as reader,
    ):
        return [one.offset for one in reader.read_to_end()]


def on_trio(server: ReadingServer, request_seconds_max: float = 30.0) -> list[int]:
    address = "{}:{}".format(*server.address)

    async def main() -> list[int]:
        async with (
            TrioClient(address, seconds_max=5, request_seconds_max=request_seconds_max) as client,
            client.reader("t", 0) as reader,
        ):
            return [one.offset async for one in reader.read_to_end()]

    return trio.run(main)


pytestmark = [
    pytest.mark.timeout(30),
    pytest.mark.parametrize("read", [blocking, on_trio]),
]
Read = Callable[..., list[int]]


def test_a_reader_continues_after_records_that_are_left_out(read: Read) -> None:
    with ReadingServer(LOG, range(2, 10), throttled=(2, 7), ends_at=(9,)) as server:
        assert read(server) == [0, 1, 10, 11]


def test_a_fetch_that_is_above_the_quota_asks_for_less_from_then_on(read: Read) -> None:
    with ReadingServer(LOG, quota_bytes=600_000) as server:
        assert read(server) == [*range(12)]
        assert server.fetches == 3 + len(LOG)


@pytest.mark.parametrize("named", [range(2, 12), range(12)])
def test_a_log_whose_end_is_left_out_ends(read: Read, named: range) -> None:
    with ReadingServer(LOG, named) as server:
        assert read(server) == [*range(named.start)]


def test_a_log_whose_end_was_compacted_away_ends(read: Read) -> None:
    with ReadingServer([*LOG[:3], *[None] * 9]) as server:
        assert read(server) == [0, 1, 2]


def test_a_broker_that_leaves_nothing_out_is_asked_twice_at_a_compacted_end(read: Read) -> None:
    with ReadingServer([*LOG[:3], *[None] * 20], fetch_versions=(4, 12)) as server:
        assert read(server) == [0, 1, 2]
        assert server.fetches <= 4


def test_an_answer_that_comes_in_parts_may_take_longer_than_one_is_waited_for(read: Read) -> None:
    with ReadingServer(LOG[:1], seconds_between_parts=0.25) as server:
        assert read(server, SHORT_SECONDS) == [0]

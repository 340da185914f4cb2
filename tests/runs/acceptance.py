"""A producer that is idle while foreign records pass on its partition, and then loses an answer: what its unknown
outcome costs.

``python -m runs.acceptance`` is ``make acceptance``: a gigabyte passes, and a line of JSON says what was read of it.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from idemproxy.codecs.message_set import encode_set
from idemproxy.demo.segments import read_partition
from idemproxy.proxy import limits
from testkit.real.brokers.kafka_cluster import fresh_topic
from testkit.real.clients.raw_client import RawClient, batch
from testkit.real.scenes.lossy import LossyScene, insist, resolved_in

from .results import append_result

READ_BYTES_MAX = 2 * limits.FETCH_BYTES
ANSWER_SECONDS_MAX = 5.0
_FOREIGN_SET_BYTES = 900_000
_IN_FLIGHT = 4


@dataclass(frozen=True, slots=True)
class IdleProducer:
    """What the lost answer cost. ``copies``: of the batch in the segment files."""

    foreign_bytes: int
    foreign_seconds: float
    idle_seconds: float
    result: str
    bytes_read: int
    resolved_seconds: float
    answered_seconds: float
    told_offset: int
    copies: int
    stored_offset: int


def pass_by(address: tuple[str, int], place: tuple[str, int], wanted_bytes: int) -> float:
    """Append so many bytes of records that nobody marked, straight to the broker; return the seconds that took."""
    values = [os.urandom(_FOREIGN_SET_BYTES // 9) for _ in range(9)]
    records = encode_set([(None, value, 1_700_000_000_000) for value in values], magic=1)
    begun = time.monotonic()
    with RawClient(address) as client:
        unanswered: deque[int] = deque()
        for _ in range(-(-wanted_bytes // len(records))):
            unanswered.append(client.send_produce([(*place, records)], version=2, acks=1))
            if len(unanswered) == _IN_FLIGHT:
                _taken(client, unanswered)
        while unanswered:
            _taken(client, unanswered)
    return time.monotonic() - begun


def idle_producer(scene: LossyScene, foreign_bytes: int, idle_seconds: float) -> IdleProducer:
    """Let a producer be idle while so many bytes pass, at least so long, and then lose the answer to its next batch."""
    place = (fresh_topic(scene.cluster, 1), 0)
    with RawClient(scene.proxy.address, timeout_seconds=60) as client:
        producer_id = client.new_producer_id()
        first = batch([b"first"], producer_id=producer_id)
        insist(client, place, first)
        idle_since = time.monotonic()
        foreign_seconds = pass_by(scene.cluster.address(0), place, foreign_bytes)
        time.sleep(max(0.0, idle_seconds - (time.monotonic() - idle_since)))
        idle = time.monotonic() - idle_since
        answered_seconds = scene.lose_answer(client, place, batch([b"second"], producer_id=producer_id, sequence=1))
    (resolved,) = (one for one in resolved_in(scene.proxy.log) if (one.producer_id, one.sequence) == (producer_id, 1))
    stored = [
        record.offset
        for record in read_partition(scene.cluster.log_directories[0], *place)
        if record.value == b"second"
    ]
    return IdleProducer(
        foreign_bytes,
        round(foreign_seconds, 2),
        round(idle, 2),
        resolved.result,
        resolved.bytes_read,
        resolved.seconds,
        round(answered_seconds, 2),
        scene.told,
        len(stored),
        stored[0] if stored else -1,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print and save; exit status 1 unless the unknown outcome was resolved in seconds by reading next to
    nothing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=1000, help="that pass (default: %(default)s)")
    parser.add_argument("--idle", type=float, default=limits.BOUND_AGE_SECONDS + 2, help="seconds at least")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as name, LossyScene(Path(name)) as scene:
        found = idle_producer(scene, options.megabytes * 1_000_000, options.idle)
    right = is_right(found)
    print(asdict(found))
    append_result("acceptance", {"right": right, "idle_producer": asdict(found)})
    return 0 if right else 1


def is_right(found: IdleProducer) -> bool:
    """Was the batch found, once, at the offset of its answer, quickly and without reading what had passed?"""
    once = (found.result, found.copies, found.told_offset) == ("found", 1, found.stored_offset)
    return once and found.bytes_read <= READ_BYTES_MAX and found.answered_seconds <= ANSWER_SECONDS_MAX


def _taken(client: RawClient, unanswered: deque[int]) -> None:
    (answer,) = client.produce_answer(2)
    unanswered.popleft()
    assert answer.error_code == 0, answer


if __name__ == "__main__":
    sys.exit(main())

"""What is kept of batches while they are compared with each other does not grow with the number of producers."""

from __future__ import annotations

import gc
import tracemalloc
from typing import Any

from idemproxy.codecs.compression import Codec
from idemproxy.codecs.record_batch import Record, encode_batch, parse_single_batch
from idemproxy.proxy.producer.batch import Batch
from idemproxy.proxy.producer.sequencer import Sequencer
from idemproxy.state.decide import BatchIdentity
from testkit.stage.sequencer import PARTITION, PRODUCER_ID, TOPIC, Client, Request, Stage

RECORDS = 30_000


def sent(stage: Stage, client: Client, records: memoryview) -> Request:
    header = parse_single_batch(records)
    identity = BatchIdentity(0, 0, header.record_count)
    request = Request(client, identity)
    stage.sequencer.submit(Batch(identity, records, header, 30_000, stage.now, [request], client.principal))
    return request


def peak_of(producers: int) -> float:
    """Each has one record stored, and two other batches with its sequence: a few KB, which hold many records."""
    stage, client = Stage(), Client()
    sequencers = []
    for number in range(producers):
        stage.producer_id = PRODUCER_ID + number
        stage.sequencer = Sequencer(stage.context, stage.runner, PRODUCER_ID + number, TOPIC, PARTITION)
        sequencers.append(stage.sequencer)
        stage.send(client, 0)
        stage.run(1)
    made = []
    for timestamp in (1, 2):
        records = [Record(index, timestamp, None, None) for index in range(RECORDS)]
        whose: dict[str, Any] = {"producer_id": PRODUCER_ID, "producer_epoch": 0, "base_sequence": 0}
        made.append(memoryview(encode_batch(records, **whose, codec=Codec.GZIP)))
    del records
    assert sum(map(len, made)) < RECORDS * 8
    gc.collect()
    tracemalloc.start()
    requests = []
    for stage.sequencer in sequencers:
        requests += [sent(stage, Client(), one) for one in made]
    stage.run(60)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert stage.failures() == []
    assert {request.code for request in requests} == {45}
    return peak / 1e6


def test_what_is_compared_at_one_time_does_not_grow_with_the_producers() -> None:
    few, many = peak_of(1), peak_of(8)
    assert many < 1.5 * few, (few, many)

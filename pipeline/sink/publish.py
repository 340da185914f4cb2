"""Publishes a manifest: the same batches under the same producer id, epoch and sequences, however often and by whom.

Sends through ``idemproxy.client``: one thread for each leader, five batches of a partition in flight. Chooses no
sequence, and stops after an answer that leaves an unknown outcome. A publication that was begun resumes where the
server says that it stopped (DescribeProducers), and where it does not say that, where a search by halves finds it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Final

from ... import DOCUMENTATION
from ...client import (
    AuthenticationFailed,
    Client,
    ClientError,
    OutOfOrder,
    ProduceError,
    Producer,
    ProducerId,
    Receipt,
    RequestRefused,
    Stopped,
)
from ...codecs.error_codes import ErrorCode
from .manifest import Manifest, Place, PlannedBatch, in_turns
from .options import SinkOptions
from .problems import SinkProblem
from .storage import Storage

_log: Final = logging.getLogger(__name__)
_HINTS: Final[Mapping[int | None, str]] = {
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: (
        " Brokers before 0.11 store no record headers: leave out the column headers, or let the proxy drop them."
    ),
    ErrorCode.INVALID_PRODUCER_EPOCH: (
        " Another query has begun under its producerName and fences this one for good; or the proxies' Redis has lost "
        f"this producer name. What to do: {DOCUMENTATION}/how-to/spark-sink.html"
    ),
    ErrorCode.MESSAGE_TOO_LARGE: " A record is larger than the topic takes (max.message.bytes).",
}


def allocate(options: SinkOptions, name: str | None) -> ProducerId:
    """Return a producer id for the query; asked for with its first batch only, then the manifests keep it. With
    ``fencing=name`` it is that of the query's name, in a higher epoch than any issued before. Raises SinkProblem, and
    ClientError."""
    wanted = name if options.is_fenced else None
    with options.connection.client() as client:
        try:
            return client.init_producer_id(wanted)
        except RequestRefused as error:
            if wanted is None:
                raise
            raise SinkProblem(
                f"fencing: no producer id for the name {wanted!r}: {error}; names are given by the proxy, and belong "
                "to the user that made them"
            ) from error


def publish(
    manifest: Manifest,
    storage: Storage,
    options: SinkOptions,
    *,
    was_begun: bool,
    check: Callable[[], None] = lambda: None,
) -> None:
    """Return when every batch is in the log. ``was_begun``: some may be there already. ``check``: called before each
    batch is sent; raises SinkProblem where it must not be any more. Raises SinkProblem and ClientError."""
    if not manifest.planned:
        return
    begin = {place: batches[0].base_sequence for place, batches in manifest.planned.items()}
    with (
        options.connection.client() as client,
        client.producer(
            manifest.writer.producer_id,
            next_sequences=begin,
            delivery_seconds_max=options.delivery_seconds_max,
        ) as producer,
    ):
        waiting: Mapping[Place, tuple[PlannedBatch, ...]] = manifest.planned
        if was_begun:
            waiting = _left(client, producer, manifest, storage, check)
        receipts: list[Future[Receipt]] = []
        try:
            for place, batch in in_turns(waiting):
                content = _content(storage, batch)
                check()
                receipts.append(producer.send(*place, content))
        finally:
            for receipt in receipts:  # raises the first failure, not one that follows from it
                receipt.result()


def first_missing(count: int, is_stored: Callable[[int], bool]) -> int | None:
    """Return how many of ``count`` consecutive batches are in the log, by sending some of them. ``is_stored`` sends
    one, and returns False if the server expects another sequence, so that nothing was appended. None: it is False for
    all.

    The first batch is sent first: once it is stored, now or earlier, the server knows the producer, and appends none of
    the others but the one that is due. Only then is a binary search right. If the first one is out of order, a broker
    may have stored it too long ago to recognise it: then they are tried from the last one on."""
    if is_stored(0):
        low, high = 1, count
        while low < high:
            middle = (low + high) // 2
            if is_stored(middle):
                low = middle + 1
            else:
                high = middle
        return low
    return next((index + 1 for index in range(count - 1, 0, -1) if is_stored(index)), None)


def _left(
    client: Client, producer: Producer, manifest: Manifest, storage: Storage, check: Callable[[], None]
) -> dict[Place, tuple[PlannedBatch, ...]]:
    """Return the batches of a manifest that are still to be sent, and set the producer's sequences accordingly."""
    try:
        told = client.where_it_stopped(manifest.writer.number, manifest.planned)
    except AuthenticationFailed:
        raise
    except ClientError as error:
        _log.warning("batch %d: where it stopped is looked for, as no server tells: %s", manifest.batch_id, error)
        told = {}
    left: dict[Place, tuple[PlannedBatch, ...]] = {}
    found_out = 0
    for place, batches in manifest.planned.items():
        begin = resumes_at(batches, manifest.writer.producer_id, told.get(place))
        if begin is None:
            found_out += 1
            begin = _search_border(producer, place, batches, storage, check)
        left[place] = batches[begin:]
        producer.start_at(*place, batches[begin].base_sequence if left[place] else batches[-1].next_sequence)
    _log.info(
        "batch %d was begun before: %d partitions resume where the server says that they stopped; on %d that was found "
        "out by sending batches again",
        manifest.batch_id,
        len(left) - found_out,
        found_out,
    )
    return left


def resumes_at(batches: Sequence[PlannedBatch], producer_id: ProducerId, told: Stopped | None) -> int | None:
    """Return the index of a partition's batch to be sent next, by what a server says (DescribeProducers). None: that
    cannot be concluded, and it has to be found by sending batches.

    Only states are believed that the manifest itself can lead to: its own epoch, and a next sequence that is the base
    sequence of its first batch or the end of one of its batches. A broker (its answer has a timestamp) also counts
    records that its followers lack, which an election can take away; so its last batch is sent again, as the answer to
    that waits for the followers."""
    if told is None or told.producer_id != producer_id:
        return None
    borders = [batches[0].base_sequence, *(batch.next_sequence for batch in batches)]
    if told.last_sequence < 0:  # nothing of the epoch is stored: not the end of a batch up to the last sequence
        return 0 if borders[0] == 0 else None
    if borders.count(told.next_sequence) != 1:
        return None
    stored = borders.index(told.next_sequence)
    return stored if told.last_timestamp_ms < 0 else max(stored - 1, 0)


def _search_border(
    producer: Producer,
    place: Place,
    batches: tuple[PlannedBatch, ...],
    storage: Storage,
    check: Callable[[], None],
) -> int:
    """Return how many of a partition's batches are in the log, by sending some of them. Raises SinkProblem."""

    def is_stored(index: int) -> bool:
        producer.start_at(*place, batches[index].base_sequence)
        content = _content(storage, batches[index])
        check()
        try:
            producer.publish(*place, content)
        except OutOfOrder:
            return False
        return True

    stored = first_missing(len(batches), is_stored)
    if stored is None:
        raise SinkProblem(
            f"{place[0]}-{place[1]}: the server expects another sequence than {batches[0].base_sequence} and those "
            "after it, so records of an earlier batch are missing in the log, or the server has lost what it knew; "
            "nothing of this partition was sent"
        )
    return stored


def _content(storage: Storage, batch: PlannedBatch) -> bytes:
    """Return a batch out of its stage file. Raises SinkProblem: it is not there, or not what the manifest says."""
    try:
        data = storage.read_range(batch.file, batch.position, batch.size_bytes)
    except FileNotFoundError:
        raise SinkProblem(
            f"{batch.file} is gone, though the batch may not be in the log yet; stage files are kept until two "
            "batches later, so another driver may run this query and be ahead of this one"
        ) from None
    if len(data) != batch.size_bytes or crc_of(data) != batch.crc:
        raise SinkProblem(f"{batch.file} at {batch.position}: this is not what was staged; nothing of it was sent")
    return data


def crc_of(batch: bytes) -> int:
    """Return the checksum that a finished batch carries; whether it is right is seen when it is numbered."""
    return int.from_bytes(batch[17:21], "big")


def explained(error: ProduceError, batch_id: int) -> SinkProblem:
    """Return why a publication ended, as a sentence for a person."""
    hint = _HINTS.get(error.code, "")
    return SinkProblem(
        f"batch {batch_id} could not be published: {error}.{hint} Nothing is lost and nothing was sent under other "
        "numbers: when the reason is fixed, the query, started again, resumes with the same batches"
    )

"""Publishes a manifest: the same batches under the same numbers, however often and by whom.

Sends through ``idemproxy.client``: one thread for each leader, five batches of a partition in flight. Chooses no
number, and never goes on after an answer that leaves a doubt."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Final

from ...client import (
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
        "who has the name (docs/SPARK_SINK.md says what to do)."
    ),
    ErrorCode.MESSAGE_TOO_LARGE: " A record is larger than the topic takes (max.message.bytes).",
}


def allocate(options: SinkOptions, name: str | None) -> ProducerId:
    """Return a producer id for the query: of its first batch only, the manifests keep it. Where the query is to be
    fenced, it is that of its name, in a higher epoch than any that was issued before. Raises SinkProblem."""
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


def publish(manifest: Manifest, storage: Storage, options: SinkOptions, *, was_begun: bool) -> None:
    """Return when every batch is in the log. ``was_begun``: some may be there already. Raises SinkProblem and
    ClientError."""
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
            waiting = {
                place: batches[_stored(client, producer, manifest.writer.producer_id, place, batches, storage) :]
                for place, batches in manifest.planned.items()
            }
        receipts: list[Future[Receipt]] = []
        try:
            for place, batch in in_turns(waiting):
                receipts.append(producer.send(*place, _content(storage, batch)))
        finally:
            for receipt in receipts:  # the first failure, not what came of it
                receipt.result()


def first_missing(count: int, is_stored: Callable[[int], bool]) -> int | None:
    """Return how many of ``count`` batches in a row are in the log. ``is_stored`` sends one: False if the server
    expects another sequence, so that nothing was appended. None: the server says that of all of them.

    The first one goes first: once it is stored, whether now or long ago, the server knows the producer, and takes of
    the others none but the one that is due. Only then can the border be searched for by halves. Where the first one is
    out of order, a broker may have stored it so long ago that it cannot tell any more: the last ones are asked for
    then."""
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


def told_to_be_stored(stopped: Stopped | None, producer_id: ProducerId, batches: Sequence[PlannedBatch]) -> int | None:
    """Return how many of a partition's batches are in the log by what the server tells of producers. None: it does not
    tell that, or nothing that fits: no border between two of them, or another epoch."""
    if stopped is None or stopped.producer_id != producer_id:
        return None
    borders = [batches[0].base_sequence, *(batch.next_sequence for batch in batches)]
    return borders.index(stopped.next_sequence) if stopped.next_sequence in borders else None


def _stored(
    client: Client,
    producer: Producer,
    producer_id: ProducerId,
    place: Place,
    batches: tuple[PlannedBatch, ...],
    storage: Storage,
) -> int:
    """Return how many of a partition's batches are in the log, and let the producer go on behind them.

    A proxy tells it of producers with a name and of those that were at work at it, brokers from 2.8 on of all that they
    know (DescribeProducers, KIP-664). Else it is searched for. A driver that publishes the same meanwhile is ahead of
    what was told: what it has sent is a duplicate then."""
    try:
        stopped = client.where_producers_stopped(*place).get(producer_id.number)
    except ClientError as error:
        _log.info("%s-%d: where the producer stopped is searched for, the server does not tell: %s", *place, error)
        stopped = None
    stored = told_to_be_stored(stopped, producer_id, batches)
    if stored is None:
        stored = _searched(producer, place, batches, storage)
    following = batches[stored].base_sequence if stored < len(batches) else batches[-1].next_sequence
    producer.start_at(*place, following)
    return stored


def _searched(producer: Producer, place: Place, batches: tuple[PlannedBatch, ...], storage: Storage) -> int:
    """Find it out by sending some of them. Raises SinkProblem: no one of them is due."""

    def is_stored(index: int) -> bool:
        producer.start_at(*place, batches[index].base_sequence)
        try:
            producer.publish(*place, _content(storage, batches[index]))
        except OutOfOrder:
            return False
        return True

    stored = first_missing(len(batches), is_stored)
    if stored is None:
        raise SinkProblem(
            f"{place[0]}-{place[1]}: the server expects another sequence than {batches[0].base_sequence} and those "
            "behind it, so records of an earlier batch are missing in the log, or the server has lost what it knew; "
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
        "numbers: when the reason is mended, the query started again goes on with the same batches"
    )

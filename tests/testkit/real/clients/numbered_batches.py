"""Batches whose records tell their number, sent by the product's own client in either of its shells."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import trio

from idemproxy.client import Client, ProducerId, Receipt, Record, finish
from idemproxy.client.trio_client import TrioClient

TIMESTAMP_MS = 1_700_000_000_000
Place = tuple[str, int]
OnReceipt = Callable[[int, Receipt], None]


class ToSend(NamedTuple):
    """One finished batch and where it goes."""

    topic: str
    partition: int
    batch: bytes


def numbered(place: Place, first: int, count: int, per_batch: int = 3, **options: Any) -> Iterator[ToSend]:
    """Yield batches from the number ``first`` on: always the same bytes for the same number."""
    for index in range(first, first + count):
        values = values_of(index, 1, per_batch)
        records = [Record(value, timestamp_ms=TIMESTAMP_MS + index) for value in values]
        yield ToSend(*place, finish(records, **options))


def values_of(first: int, count: int, per_batch: int = 3) -> list[bytes]:
    """Return the values in so many batches."""
    return [b"%d.%d" % (index, record) for index in range(first, first + count) for record in range(per_batch)]


def send_blocking(
    bootstrap: str,
    producer: ProducerId,
    todo: Sequence[ToSend],
    *,
    next_sequences: Mapping[Place, int] | None = None,
    on_receipt: OnReceipt = lambda _index, _receipt: None,
    producer_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> list[Receipt]:
    """Send all and return the receipts, in the order of the batches."""
    receipts = []
    with (
        Client(bootstrap, **options) as client,
        client.producer(producer, next_sequences=next_sequences, **(producer_options or {})) as sender,
    ):
        for index, future in enumerate([sender.send(*one) for one in todo]):
            receipts.append(future.result())
            on_receipt(index, receipts[-1])
    return receipts


def send_on_trio(
    bootstrap: str,
    producer: ProducerId,
    todo: Sequence[ToSend],
    *,
    next_sequences: Mapping[Place, int] | None = None,
    on_receipt: OnReceipt = lambda _index, _receipt: None,
    producer_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> list[Receipt]:
    """The same, on trio."""

    async def main() -> list[Receipt]:
        receipts = []
        async with (
            TrioClient(bootstrap, **options) as client,
            client.producer(producer, next_sequences=next_sequences, **(producer_options or {})) as sender,
        ):
            for index, delivery in enumerate([await sender.send(*one) for one in todo]):
                receipts.append(await delivery.receipt())
                on_receipt(index, receipts[-1])
        return receipts

    return trio.run(main)


SHELLS: Mapping[str, Callable[..., list[Receipt]]] = {"blocking": send_blocking, "trio": send_on_trio}


def new_producer_id(bootstrap: str, **options: Any) -> ProducerId:
    """Return a fresh one."""
    with Client(bootstrap, **options) as client:
        return client.init_producer_id()


def read_values(bootstrap: str, place: Place, **options: Any) -> list[bytes]:
    """Return all values of a partition, in the order of their offsets, which have no hole."""
    with Client(bootstrap, **options) as client, client.reader(*place) as reader:
        records = list(reader.read_to_end())
        assert len(records) == client.end_offset(*place)
    assert [one.offset for one in records] == list(range(len(records)))
    return [one.value or b"" for one in records]

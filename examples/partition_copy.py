"""The loop of mirror.py and pristine.py: one output partition is made of one input partition, each record once.

Before a window of at most five batches is sent, one OffsetCommit saves how far the input is through, the producer id
and the next sequence of the output, and where these five begin and end (idemproxy.client.Progress). After a crash the
same batches are made of the same input and sent with the same sequences: what the log has is not appended again.

Promises: each input record has its effect once and in order, wherever this program, proxies or brokers are killed, and
if there are two instances: a sequence stands for the same input in both, and the log takes it once. An instance that
finds that another one has committed ends.
Does not promise it, and stops with an error message instead, where the input changes: compaction or retention of what
is not through yet, an unclean leader election."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from idemproxy.client import PlannedBatch, Progress, Record, StoredRecord, finish
from idemproxy.client.trio_client import TrioClient, TrioProducer, TrioReader

BATCH_RECORDS, BATCH_BYTES = 500, 64 * 1024
WINDOW_BATCHES = 5
"""So many of a producer's last batches every server knows again, with their offsets."""

Place = tuple[str, int]
Change = Callable[[str, Sequence[StoredRecord]], tuple[str, list[Record]]]
"""From the state before some input and this input to the state after it and the output: a pure function, as it is
called again with the same input after a crash. The state is saved with the offset: some 3,500 characters at most."""


class CopyStopped(Exception):
    """Continuing would be a guess, or another instance has continued."""


class PartitionCopy:
    """One input partition, of which one output partition is made."""

    def __init__(
        self,
        source: TrioClient,
        producer: TrioProducer,
        group: str,
        places: tuple[Place, Place],
        progress: Progress,
        change: Change,
    ) -> None:
        """``places``: input and output. ``producer`` has the producer id of ``progress``, and begins the output with
        its next sequence. ``group``: under which the progress is committed, at the input's cluster."""
        self._source = source
        self._producer = producer
        self._group = group
        self._input, self._output = places
        self._progress = self._saved = progress
        self._change = change

    async def run(self, until: int | None = None) -> None:
        """Continue where an earlier run stopped, up to this input offset; None: for ever. Raises CopyStopped, and what
        the client raises: then end, and start again from what is committed."""
        async with self._source.reader(*self._input, self._progress.offset) as reader:
            records = await self._finish_window(reader)
            while True:
                for window in in_windows(records):
                    chunks = [(chunk[-1].offset + 1, chunk) for chunk in window]
                    note, batches, planned = self._made_of(chunks)
                    await self._commit(replace(self._progress, batches=planned))
                    await self._send(batches, note)
                if until is not None and reader.offset >= until:
                    break
                records = await reader.read()
                if not records and self._progress != self._saved:
                    await self._commit(self._progress)  # nothing is waiting: consumer group tools then show no lag
        if self._progress != self._saved:
            await self._commit(self._progress)

    async def _finish_window(self, reader: TrioReader) -> list[StoredRecord]:
        """Send the batches again that an earlier run had planned; return what was read after them."""
        progress = self._progress
        if not progress.batches:
            return []
        end = progress.batches[-1].end_offset
        records: list[StoredRecord] = []
        while reader.offset < end:
            more = await reader.read()
            if not more and reader.offset < end:
                raise CopyStopped(f"{self._input}: there is nothing at offset {reader.offset}, and was up to {end}")
            records += more
        chunks, start = [], 0
        for one in progress.batches:
            stop = next((at for at in range(start, len(records)) if records[at].offset >= one.end_offset), len(records))
            chunks.append((one.end_offset, records[start:stop]))
            start = stop
        note, batches, planned = self._made_of(chunks)
        if planned != progress.batches:
            raise CopyStopped(f"{self._input}: from offset {progress.offset} to {end} it is not what it was")
        await self._send(batches, note)
        return records[start:]

    def _made_of(
        self, chunks: Sequence[tuple[int, Sequence[StoredRecord]]]
    ) -> tuple[str, list[bytes], tuple[PlannedBatch, ...]]:
        """Return the state after some input, the batches that come of it, and the plan that says where each ends."""
        note, batches, planned = self._progress.note, [], []
        for end_offset, records in chunks:
            note, made = self._change(note, records)
            batch = finish(made) if made else None
            planned.append(PlannedBatch.of(end_offset, batch))
            batches += [] if batch is None else [batch]
        return note, batches, tuple(planned)

    async def _commit(self, progress: Progress) -> None:
        """Save the progress, if what was saved last is still there: another instance's plan must not be overwritten."""
        found = (await self._source.committed_offsets(self._group, [self._input])).get(self._input)
        if found is not None and Progress.committed(found) != self._saved:
            raise CopyStopped(f"{self._input}: another instance of {self._group} has committed offset {found.offset}")
        await self._source.commit_offsets(self._group, {self._input: progress.to_commit()})
        self._progress = self._saved = progress

    async def _send(self, batches: Sequence[bytes], note: str) -> None:
        deliveries = [await self._producer.send(*self._output, batch) for batch in batches]
        for delivery in deliveries:
            await delivery.receipt()
        self._progress = self._progress.after_batches(note)


def in_windows(records: Sequence[StoredRecord]) -> Iterator[list[list[StoredRecord]]]:
    """Yield what goes into a window, batch by batch."""
    window: list[list[StoredRecord]] = []
    size = 0
    for record in records:
        size += len(record.key or b"") + len(record.value or b"") + 20
        if not window or size > BATCH_BYTES or len(window[-1]) >= BATCH_RECORDS:
            if len(window) == WINDOW_BATCHES:
                yield window
                window = []
            window.append([])
            size = len(record.key or b"") + len(record.value or b"") + 20
        window[-1].append(record)
    if window:
        yield window

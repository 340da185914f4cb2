"""A batch of the query is decided once, published, and noted as published: what ``commit`` does, apart from Spark.

The steps, and what holds after each of them, also after a crash (docs/how-to/spark-sink.md has the whole proof):

1. The stage files of the winners are durable: Spark runs the batch again, and other files win.
2. ``<batch>.json``, the manifest, is created, by exactly one of the drivers that try: from here on it alone says what
   the batch is. Rows that Spark makes for the same batch again are thrown away.
3. Its batches are published under the manifest's numbers: sent again they are duplicates, which the server answers.
4. ``<batch>.published`` is created: nothing of the batch is ever sent again.
5. Stage files of two batches before, and manifests of a hundred before, are removed.

Writes to the topic only what a manifest says, which is durable then. Removes nothing that a manifest without its
``published`` still needs."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Sequence
from hashlib import sha256
from typing import Final

from ... import DOCUMENTATION
from ...client import ProduceError
from . import manifest as manifests
from .manifest import Manifest, Run, StageFile, Writer
from .options import SinkOptions
from .problems import SinkProblem
from .publish import allocate, explained, publish
from .storage import Storage, storage_at

MANIFESTS_KEPT: Final = 100
"""As many as the batches whose offsets Spark keeps (spark.sql.streaming.minBatchesToRetain)."""
STAGED_KEPT: Final = 2
"""Batches whose stage files are kept: the newest one, and the one before, which a slower driver may be publishing."""
STAGE: Final = "stage"
_OFFSETS: Final = "offsets"
"""Where Spark notes what it reads in a batch, next to the sink's folder."""
_log: Final = logging.getLogger(__name__)


class Batches:
    """All batches of a query that a sink's folder tells of."""

    def __init__(self, storage: Storage, options: SinkOptions, name: str | None) -> None:
        """``name``: of the query or the run; batches that were decided under another name are refused."""
        self._storage = storage
        self._options = options
        self._name = name

    def commit(self, batch_id: int, messages: Sequence[StageFile | None], micro_batch: str | None = None) -> None:
        """Return when this batch is in the log, once. ``micro_batch``: in whose ``foreachBatch`` a batch write was
        made. Raises SinkProblem, ClientError."""
        files = manifests.winners(messages)
        run = manifests.run_of(files, micro_batch) if self._options.is_run else None
        manifest = self._read(batch_id)
        was_begun = True
        if manifest is None:
            manifest, was_begun = self._decide(batch_id, files, run)
        else:
            self._check_not_behind(batch_id, self._known_batches())
        if was_begun:
            self._check_replay(manifest, files)
        if not self._is_published(batch_id):
            self._publish(manifest, was_begun=was_begun)
        if was_begun and run is not None:
            self._check_same(manifest, files, run)
        self._remove_old(batch_id)

    def forget_staged(self, batch_id: int) -> None:
        """Remove the stage files of a batch, if nothing of it is ever sent again."""
        if self._is_published(batch_id):
            self._storage.remove(stage_folder(batch_id))

    def _is_published(self, batch_id: int) -> bool:
        return self._storage.size(_published_name(batch_id)) is not None

    def _check_replay(self, manifest: Manifest, files: Sequence[StageFile]) -> None:
        """Raise SinkProblem if somebody else has decided this batch, or it was decided as another one."""
        batch_id = manifest.batch_id
        self._check_name(manifest.writer)
        if manifest.offsets not in (None, self._offsets(batch_id)):
            raise SinkProblem(
                f"batch {batch_id} was decided with other offsets of its sources than {_OFFSETS}/{batch_id} has: "
                "the checkpoint was put back in part, and rows would be lost; nothing was sent"
            )
        self._tell_of_replay(manifest, files)

    def _check_same(self, stored: Manifest, files: Sequence[StageFile], run: Run) -> None:
        """Raise SinkProblem if a batch write has other rows than the one that its name stands for. That one is whole in
        the log by now: what was decided and begun is always finished, as its rows may not come again."""
        differs = manifests.difference(stored, run, manifests.record_count_of(files))
        if differs is not None:
            raise SinkProblem(
                f"producerName {self._name!r} names a run that is stored: {stored.record_count} records, all of them "
                f"are in the log; {differs}. None of its rows was sent. Give other rows another producerName (in "
                "foreachBatch: one with the id of the batch); a run is repeated with the very same rows"
            )

    def _tell_of_replay(self, manifest: Manifest, files: Sequence[StageFile]) -> None:
        records = manifests.record_count_of(files)
        level = logging.INFO if records == manifest.record_count else logging.WARNING
        _log.log(
            level,
            "batch %d comes again: it was decided with %d records, which count; the %d of now are thrown away",
            manifest.batch_id,
            manifest.record_count,
            records,
        )

    # ------------------------------------------------------------------ deciding
    def _decide(self, batch_id: int, files: Sequence[StageFile], run: Run | None) -> tuple[Manifest, bool]:
        """Return the batch's manifest, and whether another driver made it, so that the batch may have been begun."""
        self._check_files(files)
        previous = self._previous(batch_id)
        if previous is None:
            self._storage.check()
            if self._known_batches():  # another driver has begun meanwhile: a new epoch of its name would fence it
                theirs = self._read(batch_id)
                if theirs is None:
                    raise SinkProblem(
                        f"batch {batch_id}: another driver runs this query and is ahead; nothing was sent"
                    )
                return theirs, True
            writer = self._new_writer()
        else:
            writer = previous.writer
            self._check_name(writer)
            if not self._is_published(previous.batch_id):
                self._publish(previous, was_begun=True)
        following = {} if previous is None else previous.next_sequences
        ours = manifests.numbered(batch_id, files, writer, following, _now_ms(), self._offsets(batch_id), run)
        if self._storage.create(_manifest_name(batch_id), manifests.pack(ours)):
            return ours, False
        theirs = self._read(batch_id)
        assert theirs is not None
        _log.warning("batch %d: another driver has decided what it is; ours is thrown away", batch_id)
        return theirs, True

    def _previous(self, batch_id: int) -> Manifest | None:
        """Return the manifest before this one; None: this is the first batch of all. Raises SinkProblem."""
        known = self._known_batches()
        if not known:
            if batch_id:
                raise SinkProblem(
                    f"batch {batch_id} is to be written, and the checkpoint has no folder sink/ with the batches "
                    "before it: it was removed, or another sink has written them. What of this batch is in the topic "
                    "is not known, and nothing was sent. Put sink/ back from a copy of the checkpoint, or begin with a "
                    "new checkpoint whose source starts after what the topic has"
                )
            return None
        self._check_not_behind(batch_id, known)
        previous = self._read(batch_id - 1)
        if previous is None:
            raise SinkProblem(
                f"batch {batch_id} is to be written, and {_manifest_name(batch_id - 1)} is missing, though there is "
                f"{_manifest_name(known[-1])}: its numbers are not known, and nothing was sent"
            )
        return previous

    def _check_not_behind(self, batch_id: int, known: Sequence[int]) -> None:
        """Spark repeats a batch only as long as no later batch was begun. Raises SinkProblem."""
        if known and known[-1] > batch_id:
            raise SinkProblem(
                f"batch {batch_id} is to be written, and batch {known[-1]} is decided already: another driver runs "
                "this query and is ahead, or the checkpoint was put back; nothing was sent"
            )

    def _offsets(self, batch_id: int) -> str | None:
        """Return a digest of the source offsets that Spark has noted for the batch; None: a batch write has none."""
        noted = storage_at(self._options.folder).read(f"{_OFFSETS}/{batch_id}")
        # A version and the time of the batch come first, then a line for each source.
        return None if noted is None else sha256(b"\n".join(noted.split(b"\n")[2:])).hexdigest()

    def _new_writer(self) -> Writer:
        producer_id = allocate(self._options, self._name)
        return Writer(producer_id.number, producer_id.epoch, self._name, self._options.is_fenced)

    def _check_name(self, writer: Writer) -> None:
        if writer.name != self._name:
            raise SinkProblem(
                f"this is {self._name!r}, and what was written so far belongs to {writer.name!r}: the name is "
                "producerName, or else the id of the query, and both stay as long as the checkpoint; nothing was sent"
            )
        self._check_fencing(writer)

    def _check_fencing(self, writer: Writer) -> None:
        if writer.is_named != self._options.is_fenced:
            began, said = ("name" if one else "none" for one in (writer.is_named, self._options.is_fenced))
            raise SinkProblem(
                f"fencing is {said!r}, and was {began!r} when this checkpoint began: it stays as long as the "
                "checkpoint; nothing was sent"
            )

    def _check_files(self, files: Sequence[StageFile]) -> None:
        for file in files:
            if file.batches and self._storage.size(file.name) != file.size_bytes:
                raise SinkProblem(
                    f"the driver does not see {file.name} as an executor has written it: the checkpoint has to be on a "
                    "file system that all of them share; nothing was sent"
                )

    # ------------------------------------------------------------------ publishing
    def _publish(self, manifest: Manifest, *, was_begun: bool) -> None:
        batch_id = manifest.batch_id
        started = time.monotonic()
        self._check_age(manifest)
        try:
            publish(
                manifest, self._storage, self._options, was_begun=was_begun, check=lambda: self._check_age(manifest)
            )
        except ProduceError as error:
            raise explained(error, batch_id) from error
        seconds = time.monotonic() - started
        self._storage.create(_published_name(batch_id), json.dumps({"published_ms": _now_ms()}).encode())
        _log.info("batch %d: %d records published in %.3f s", batch_id, manifest.record_count, seconds)

    def _check_age(self, manifest: Manifest) -> None:
        """Raise SinkProblem if the manifest is too old to be published. Called before each batch is sent, as this
        driver may have been paused while another one published it."""
        batch_id = manifest.batch_id
        is_too_old = manifests.is_too_old(manifest.created_ms, _now_ms(), self._options.expiry_seconds)
        if is_too_old and not manifest.writer.is_named:
            raise SinkProblem(
                f"batch {batch_id} was begun more than {(_now_ms() - manifest.created_ms) // 1000} s ago and not "
                f"finished. After {self._options.expiry_seconds} s (producerExpirySeconds) the server no longer knows "
                "what of it is in the log, and would append it again, so nothing is sent. "
                f"What to do: {DOCUMENTATION}/how-to/spark-sink.html"
            )

    # ------------------------------------------------------------------ files
    def _read(self, batch_id: int) -> Manifest | None:
        name = _manifest_name(batch_id)
        data = self._storage.read(name)
        return None if data is None else manifests.unpack(data, name)

    def _known_batches(self) -> list[int]:
        names = (name.removesuffix(".json") for name in self._storage.names("") if name.endswith(".json"))
        return sorted(int(name) for name in names if name.isdecimal())

    def _remove_old(self, batch_id: int) -> None:
        """Remove old files, the oldest first: then no manifest is older than a removed one, and a removed batch cannot
        be decided again."""
        for name in self._storage.names(STAGE):
            if name.isdecimal() and int(name) <= batch_id - STAGED_KEPT:
                self._storage.remove(f"{STAGE}/{name}")
        for known in self._known_batches():
            if known <= batch_id - MANIFESTS_KEPT:
                self._storage.remove(_manifest_name(known))
                self._storage.remove(_published_name(known))


def stage_folder(batch_id: int) -> str:
    """Return the folder of a batch's stage files."""
    return f"{STAGE}/{batch_id}"


def _manifest_name(batch_id: int) -> str:
    return f"{batch_id}.json"


def _published_name(batch_id: int) -> str:
    return f"{batch_id}.published"


def _now_ms() -> int:
    return time.time_ns() // 1_000_000

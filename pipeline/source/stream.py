"""``spark.readStream.format("idemproxy")``: what each trigger reads. Spark keeps one of these for a query's life."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from ..reading.broker import EARLIEST, LATEST, BrokerProblem, Cluster, TopicPartition
from ..reading.patience import Patience
from . import tasks
from .offsets import Offsets, StreamOffset, as_json, named, parse_stream_offset, stream_offset_json
from .options import ReadOptions
from .planning import limited, ranges_between
from .positions import look_for, offsets_of
from .problems import DataLost, WrongOption
from .reader import task_partitions

_LOG: Final = logging.getLogger(__name__)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Spark gets offsets as ``offsets.py`` says. A stream begins without any: the first trigger finds out where
    each partition begins, and a later one that finds a new partition begins at its first offset."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._latest: Offsets = {}
        self._target: Offsets | None = None
        """With ``Trigger.AvailableNow``: the ends when the query began."""
        self._missing: str | None = None
        """A sentence about named topics that are missing and were never read, empty: none are; None: not looked for
        yet."""
        self._told_missing = ""

    def initialOffset(self) -> dict[str, Any]:
        """Return no offset for any partition."""
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return ``maxOffsetsPerTrigger``."""
        rows_max = self._options.rows_per_trigger_max
        return ReadAllAvailable() if rows_max is None else ReadMaxRows(rows_max)

    def prepareForTriggerAvailableNow(self) -> None:
        """Note the present ends, after which the query reads nothing. Missing topics are reported by the first
        trigger, as only that knows what was read before."""
        self._target = self._look({})
        self._missing = None

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return where the next trigger ends. Raises WrongOption, DataLost, BrokerProblem."""
        before = parse_stream_offset(start).ends
        self._latest = latest = self._ends(before)
        self._check_names(is_first=not start)
        self._check(before, latest)
        new = latest.keys() - before.keys()
        begins = self._begins(new, is_first=not start) if new else {}
        ends: Offsets = latest
        if isinstance(limit, ReadMaxRows):
            ends = limited({**before, **begins}, latest, limit.max_rows)
        return start if ends == before else stream_offset_json(StreamOffset(ends, begins))

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the latest offsets that were seen, for the query's progress."""
        return as_json(self._latest) if self._latest else None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the tasks of a trigger, which may be one of an earlier run of the query."""
        before = parse_stream_offset(start).ends
        ends, begins = parse_stream_offset(end)
        return task_partitions(self._options, ranges_between({**begins, **before}, ends))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """What a task does."""
        return tasks.read(partition.value)

    def _ends(self, before: Offsets) -> Offsets:
        """Return the end of each partition. Where one is below what was read already, ask again for a while: a new
        leader may lag."""
        if self._target is not None and self._missing is None:
            with Cluster(self._options.bootstrap, self._options.access) as cluster:
                self._places(cluster, before)
        patience = Patience()
        while True:
            found = self._look(before) if self._target is None else self._target
            if not _shorter(before, found) or not patience.waits():
                return found
            if self._target is not None:
                self._target = self._look(before)

    def _look(self, before: Offsets) -> Offsets:
        with Cluster(self._options.bootstrap, self._options.access) as cluster:
            places = self._places(cluster, before)
            while True:
                try:
                    return cluster.offsets_at(dict.fromkeys(places, LATEST))
                except BrokerProblem:
                    there = self._places(cluster, before)
                    if {*places} <= {*there}:
                        raise
                    places = [one for one in places if one in there]  # a topic was deleted meanwhile

    def _places(self, cluster: Cluster, before: Offsets) -> list[TopicPartition]:
        places, self._missing = look_for(cluster, self._options.topics, before, is_patient=not self._told_missing)
        return places

    def _begins(self, new: set[TopicPartition], *, is_first: bool) -> Offsets:
        options = self._options
        with Cluster(options.bootstrap, options.access) as cluster:
            if is_first:
                return offsets_of(cluster, new, options.start, falls_back_to_end=options.may_begin_at_end)
            return cluster.offsets_at(dict.fromkeys(new, EARLIEST))

    def _check_names(self, *, is_first: bool) -> None:
        """Report named topics that are missing. Raises WrongOption, with ``failOnDataLoss=false`` only in the first
        trigger: later such a topic may have been missing before, which an earlier trigger has passed over."""
        missing = self._missing or ""
        if missing and (is_first or self._options.fails_on_data_loss):
            raise WrongOption(missing)
        if missing != self._told_missing:
            self._told_missing = missing
            if missing:
                _LOG.warning("%s, or not any more. The query continues with what is there", missing)

    def _check(self, before: Offsets, latest: Offsets) -> None:
        """Report partitions that are gone, or whose end is below what was read. Raises DataLost."""
        gone = before.keys() - latest.keys()
        for places, what in ((gone, "not there any more"), (_shorter(before, latest), "shorter than what was read")):
            if places:
                sentence = f"{named(places)}: {what}; was the topic deleted or recreated, or has a leader lost records?"
                if self._options.fails_on_data_loss:
                    raise DataLost(f"{sentence} With failOnDataLoss=false the query continues with what is there")
                _LOG.warning("%s The query continues with what is there", sentence)


def _shorter(before: Offsets, latest: Offsets) -> list[TopicPartition]:
    return [place for place, offset in before.items() if latest.get(place, offset) < offset]

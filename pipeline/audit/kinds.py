"""What an audit can find: the kinds, what each means, and which make it fail. Data only, without the extra."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class Finding(StrEnum):
    """Kinds, in the order of the report."""

    DUPLICATE = "duplicate"
    SUSPECTED_DUPLICATE = "suspected_duplicate"
    REPEATED_RECORD = "repeated_record"
    SEQUENCE_REUSED = "sequence_reused"
    MISSING_OFFSETS = "missing_offsets"
    GAP = "gap"
    COMPACTED_GAP = "compacted_gap"
    INVERSION = "inversion"
    EPOCH_REGRESSION = "epoch_regression"
    FOREIGN_WRITER = "foreign_writer"
    ACKNOWLEDGED_ABSENT = "acknowledged_absent"
    ACKNOWLEDGED_UNKNOWN = "acknowledged_unknown"
    UNREADABLE = "unreadable"
    OFFSET_HOLE = "offset_hole"


FAILING: Final = (
    Finding.DUPLICATE,
    Finding.SUSPECTED_DUPLICATE,
    Finding.SEQUENCE_REUSED,
    Finding.MISSING_OFFSETS,
    Finding.GAP,
    Finding.INVERSION,
    Finding.EPOCH_REGRESSION,
    Finding.ACKNOWLEDGED_ABSENT,
    Finding.UNREADABLE,
)
"""With one of these the exit status is 1, unless the user says otherwise."""

MEANINGS: Final[Mapping[Finding, str]] = {
    Finding.DUPLICATE: "Certain: the same producer, epoch and sequence, or the same batch marker, is in the partition "
    "again, with the same bytes.",
    Finding.SUSPECTED_DUPLICATE: "Suspected: the same key, value and headers again, made in the same millisecond; "
    "where the format has no such time, within the distance. No sequence numbers prove it.",
    Finding.REPEATED_RECORD: "The same key, value and headers again within the distance, but made at another time or "
    "sent under another sequence number: an application that sent it twice, or records that are simply equal.",
    Finding.SEQUENCE_REUSED: "The same producer, epoch and sequence again, with other bytes.",
    Finding.MISSING_OFFSETS: "Offsets that no record has, though the topic is not compacted: a part of the log, such "
    "as a segment, is lost.",
    Finding.GAP: "Sequences of a producer that are not in the partition, and that compaction does not explain.",
    Finding.COMPACTED_GAP: "Missing sequences where as many offsets are missing: compaction, as a rule.",
    Finding.INVERSION: "Records that follow records with higher sequences of their producer.",
    Finding.EPOCH_REGRESSION: "Records of an epoch that follow records of a later epoch of the same producer.",
    Finding.FOREIGN_WRITER: "Records without producer id or batch marker in a partition where others have one.",
    Finding.ACKNOWLEDGED_ABSENT: "The proxy's journal says that these records were acknowledged; they are not there.",
    Finding.ACKNOWLEDGED_UNKNOWN: "Acknowledged, and nobody can tell: deleted by retention or compaction, written "
    "after the audit began, or there without a batch marker.",
    Finding.UNREADABLE: "A part of the log that is damaged, or has no Kafka format.",
    Finding.OFFSET_HOLE: "Offsets without a record, as compaction leaves them.",
}

"""Why a batch has no receipt, and what is known then. Each ProduceError says by ``in_log`` whether its batch is in the
log: False: certainly not; None: not known. If it is, there is a receipt and no error, unless it is in another place
than it had to be: ``Displaced``."""

from __future__ import annotations

from ..codecs.error_codes import ErrorCode
from .numbered_batch import Place


class ClientError(Exception):
    """The root of all that a client of Kafka can meet, also where it produces nothing."""


class ProduceError(ClientError):
    """A batch has no receipt. ``code`` is the server's, None where it said nothing; ``message`` is its sentence, where
    the version has one."""

    in_log: bool | None = None
    """False: the batch is not in the log. None: it is not known."""

    def __init__(
        self,
        place: Place,
        base_sequence: int,
        record_count: int,
        what: str,
        *,
        code: int | None = None,
        message: str | None = None,
    ) -> None:
        said = "" if code is None else f" ({shown_code(code)}{'' if message is None else f': {message}'})"
        super().__init__(f"{place}, {record_count} records from sequence {base_sequence} on: {what}{said}")
        self.topic, self.partition = place
        self.base_sequence = base_sequence
        self.record_count = record_count
        self.code = code
        self.message = message


class NotAppended(ProduceError):
    """It is certain that the batch is not in the log, and that it will not come there."""

    in_log = False


class Refused(NotAppended):
    """The server will never take the batch: it is too large, not allowed, or not for this topic."""


class NotDelivered(NotAppended):
    """The batch was not delivered, mostly because its time was over, and no try can have appended it."""


class BehindFailed(NotAppended):
    """A batch before this one has failed, so it was not sent, or was refused as out of order. Nothing of the partition
    is sent until ``start_at`` says where to continue."""


class Undecided(ProduceError):
    """The time is over, and the batch may be in the log. To find out, send the same batch under the same numbers again
    later."""


class Undeterminable(ProduceError):
    """The server says INVALID_RECORD: it takes the batch no more, and nobody can tell whether it is in the log. Final:
    the same batch gets the same answer again."""


class OutOfOrder(ProduceError):
    """The server expects another sequence. Either records before this batch are missing, or the batch was appended long
    ago, before the producer's last five: brokers answer both with the same code."""


class Conflict(NotAppended):
    """The log does not end at the expected offset: somebody else has appended; or a batch before this one in the same
    pipeline has had a conflict. ``next_offset``: where the log ends; None: the server's version does not tell."""

    next_offset: int | None = None


class Displaced(ProduceError):
    """A conditional batch was expected elsewhere than at ``base_offset``. Either the server says that it lies there
    (INVALID_RECORD): another writer bypasses the rules, or the log has lost records. Or it says success for that
    offset, where this batch or another writer's may be. Final: sent again it would not be anywhere else."""

    in_log = None
    base_offset: int = -1


class UnknownProducer(ProduceError):
    """The server has no state of this producer any more, and the sequence is not 0."""


class Fenced(ProduceError):
    """A newer epoch of this producer id has written, or the id belongs to somebody else. The producer sends nothing
    more."""


def shown_code(code: int) -> str:
    """Return a code with its name."""
    try:
        return f"code {code}, {ErrorCode(code).name}"
    except ValueError:
        return f"code {code}"

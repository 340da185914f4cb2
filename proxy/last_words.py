"""What a client wants no answer to, and may have sent right before it hung up: it counts, as at a broker (rule R16).

Of all else nothing is taken from a client that has gone (rule R17). Only looks; the session does with it what it does
with every request."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ..codecs.errors import WireError
from ..codecs.headers import parse_request_header
from ..codecs.produce import API_KEY as PRODUCE_KEY
from ..codecs.produce import ProduceRequest, parse_request
from ..codecs.record_batch import parse_single_batch


def hear_out(waiting: Iterable[bytes], handle: Callable[[bytes], None], is_closed: Callable[[], bool]) -> None:
    """Handle, of the requests that wait, those that have no answer; the first bad one is the end."""
    try:
        for frame in list(waiting):  # which may be emptied meanwhile
            if is_closed():
                return
            if _has_no_answer(frame):
                handle(frame)
    except WireError:
        return


def names_a_producer(request: ProduceRequest) -> bool:
    """Would the proxy itself append any of it, and not the client's own connection? What cannot be read is refused by
    whoever looks at it next."""
    for item in request.partitions:
        try:
            if item.records is not None and parse_single_batch(item.records).producer_id >= 0:
                return True
        except WireError:
            continue
    return False


def _has_no_answer(frame: bytes) -> bool:
    header = parse_request_header(frame)
    if header.api_key != PRODUCE_KEY:
        return False
    return parse_request(frame, header.body_offset, header.api_version).acks == 0

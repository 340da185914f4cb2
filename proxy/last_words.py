"""What a client sent right before it hung up, and wants no answer to: it counts, as at a broker (rule R16).

Of all else nothing is taken from a client that has gone (rule R17). Only looks; the session does with it what it does
with every request."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ..codecs.errors import WireError
from ..codecs.headers import parse_request_header
from ..codecs.produce import API_KEY as PRODUCE_KEY
from ..codecs.produce import parse_request


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


def _has_no_answer(frame: bytes) -> bool:
    header = parse_request_header(frame)
    if header.api_key != PRODUCE_KEY:
        return False
    return parse_request(frame, header.body_offset, header.api_version).acks == 0

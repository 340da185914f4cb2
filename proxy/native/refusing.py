"""Answers in place of the broker's, for requests that are not passed on: in the client's own layout, with the reason.
Pure. Each raises WireError where no answer exists that could say so: then the connection ends, as at a broker."""

from __future__ import annotations

from contextlib import suppress

from ...codecs.errors import Truncated, WireError
from ...codecs.headers import RequestHeader
from ...codecs.produce_walk import ProduceWalk
from ...reactor import Buffer
from ..bridge.refusals import refusal
from ..versions import api_title
from .conditional import NOT_SERVED, refused

CONDITIONAL = f"Produce: {NOT_SERVED.message}"


def unknown_reason(key: int, version: int) -> str:
    """Return what is reported of a request of ``unknown``."""
    return f"API {key} is not served in version {version}"


def unknown(key: int, version: int) -> bytes:
    """An API, or a version, that is never passed on."""
    body = refusal(key, version)
    if body is None:
        raise WireError(unknown_reason(key, version))
    return body


def unserved(header: RequestHeader | None, key: int, version: int, request: Buffer, size: int) -> bytes:
    """A version that Kafka 4 has dropped: its brokers close the connection without a response, and nobody learns why.
    ``header``: None where it, or the request, which has ``size`` bytes, is not there as a whole."""
    body = None
    with suppress(Truncated):
        body = None if header is None else refusal(key, version, request[header.body_offset :])
    if body is None:
        raise WireError(
            f"{api_title(key)} {version} is not served by the broker, and these {size} bytes have no response that "
            "could say so"
        )
    return body


def conditional(walk: ProduceWalk, version: int, has_answer: bool) -> bytes:
    """A conditional publish: the broker would take the batch for another writer's retry, or append it where the log
    ends."""
    if walk.left or not has_answer:
        raise WireError(CONDITIONAL)
    return refused(version, walk.parts)

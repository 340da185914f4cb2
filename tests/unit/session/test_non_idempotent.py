"""Message sets of clients without a producer id: what is looked for in them, and in how many steps."""

from __future__ import annotations

from typing import Any

import pytest

from idemproxy.codecs.batch_marker import Identity, encode_batch_marker
from idemproxy.codecs.compression import Codec
from idemproxy.codecs.message_set import encode_message, encode_set
from idemproxy.codecs.steps import STEP_BYTES, at_once
from idemproxy.proxy.session import non_idempotent

finding_batch_marker: Any = vars(non_idempotent)["_finding_batch_marker"]
BATCH_MARKER = encode_batch_marker([Identity(7, 0, 0, 1)])


def wrapper_behind(size_bytes: int) -> bytes:
    """A wrapper with somebody's batch marker, that begins so many bytes after the start."""
    front = encode_message(None, None, magic=1)
    filling = encode_message(None, bytes(size_bytes - len(front)), magic=1)
    inside = encode_set([(None, b"x", 0)], magic=1)
    return filling + encode_message(BATCH_MARKER, inside, magic=1, codec=Codec.GZIP)


@pytest.mark.parametrize("behind", range(-40, 10, 3))
def test_a_batch_marker_is_found_wherever_a_step_ends(behind: int) -> None:
    assert at_once(finding_batch_marker(wrapper_behind(STEP_BYTES + behind)))


def test_a_large_message_set_is_searched_in_steps() -> None:
    steps = sum(1 for _ in finding_batch_marker(encode_message(None, bytes(10 * STEP_BYTES), magic=1)))
    assert steps == 10

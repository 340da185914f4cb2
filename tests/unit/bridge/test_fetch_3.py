"""A Fetch v3 at a broker of 0.10.0 (Fetch v2) is rewritten in one step: there is a limit to it, as from v4 on."""

from __future__ import annotations

import struct

import pytest

from idemproxy.codecs.errors import LimitExceeded
from idemproxy.proxy.bridge.fetch import ANSWERED_PARTITIONS_MAX, Fetch

_HEAD = struct.pack(">iiiiih1s", -1, 100, 1, 1 << 20, 1, 1, b"t")


def asking_for(partitions: int) -> memoryview:
    return memoryview(_HEAD + struct.pack(">i", partitions) + struct.pack(">iqi", 0, 0, 1000) * partitions)


def test_a_fetch_of_very_many_partitions_is_not_rewritten_in_one_step() -> None:
    Fetch(3, 2).request(asking_for(ANSWERED_PARTITIONS_MAX - 1))
    with pytest.raises(LimitExceeded):
        Fetch(3, 2).request(asking_for(900_000))  # 14 MB: 1.4 s

"""Consumer groups: JoinGroup below v2. The other group APIs only get throttle_time_ms (see ``table``).

Source: KIP-62 (rebalance timeout, JoinGroup v1), JoinGroupRequest.
"""

from __future__ import annotations

from ...reactor import Buffer
from .base import RequestRefused
from .fields import Reader


class JoinGroupWithoutRebalanceTimeout:
    """v1 to v0: rebalance_timeout_ms is left out; such a broker waits one session timeout for a rebalance instead."""

    __slots__ = ()

    def down(self, request: Buffer) -> Buffer | RequestRefused:
        """group_id and session_timeout_ms, then what comes after the rebalance timeout."""
        reader = Reader(request)
        reader.string("group_id")
        reader.int32("session_timeout_ms")
        kept = reader.position
        reader.int32("rebalance_timeout_ms")
        return b"".join((reader.data[:kept], reader.data[reader.position :]))

    def up(self, answer: Buffer) -> Buffer:
        """The same."""
        return answer

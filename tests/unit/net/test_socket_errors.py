"""What an operator reads where a machine is silent, as behind a firewall that drops packets."""

import errno

from idemproxy.proxy.net.socket_errors import NOTHING_CAME_BACK, why_broken
from idemproxy.proxy.telemetry.redis_hints import NEW_LEASE, redis_reason


def test_a_broken_connection_says_more_than_that_it_timed_out() -> None:
    assert why_broken(OSError(errno.ETIMEDOUT, "Connection timed out")).endswith(NOTHING_CAME_BACK)
    assert why_broken(OSError(errno.ECONNRESET, "Connection reset by peer")) == "Connection reset by peer"


def test_a_connection_to_redis_that_the_proxy_ends_itself_is_not_called_away() -> None:
    assert redis_reason(f"Redis is away: {NEW_LEASE}") == f"Redis: {NEW_LEASE}"
    assert redis_reason("no connection within 2 s").endswith(NOTHING_CAME_BACK)
    assert redis_reason("Redis has lost what was just written").endswith(
        ": is it full (maxmemory)? `idemproxy check --connect` tells"
    )

"""What the reader of logs has in common with the proxy, which it does not import."""

from __future__ import annotations

import pytest

from idemproxy.pipeline.reading import broker
from idemproxy.proxy.bridge import asks


@pytest.mark.parametrize("name", ["HIGH_WATERMARK_REPLICA_ID", "LOG_END_REPLICA_ID"])
def test_the_end_of_a_log_is_asked_for_as_the_proxy_asks(name: str) -> None:
    assert getattr(broker, name) == getattr(asks, name)

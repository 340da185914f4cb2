"""A bridge between a client and a broker: the request that the broker gets, and the answer that the client gets."""

from __future__ import annotations

from typing import Any

from idemproxy.codecs import messages
from idemproxy.proxy.bridge.base import Bridge, RequestRefused
from idemproxy.proxy.bridge.table import plan
from idemproxy.proxy.versions import KNOWN

ADDRESSES = {2: ("proxy.example", 19092)}
"""Of each broker, where clients reach it."""


def bridge_for(key: int, version: int, release: str) -> Bridge:
    """The bridge, which has to exist."""
    bridge = plan(key, version, KNOWN[release], ADDRESSES)
    assert not isinstance(bridge, RequestRefused)
    return bridge


def ask(bridge: Bridge, key: int, version: int, /, **fields: Any) -> Any:
    """What the broker is asked, decoded; or the refusal."""
    result = bridge.request(memoryview(messages.encode_request(key, version, **fields)))
    if isinstance(result, RequestRefused):
        return result
    return messages.decode_request(key, bridge.broker_version, b"".join(result))


def tell(bridge: Bridge, key: int, version: int, /, **fields: Any) -> Any:
    """What the client gets when the broker answers this, decoded."""
    answer = messages.encode_response(key, bridge.broker_version, **fields)
    return messages.decode_response(key, version, b"".join(bridge.response(memoryview(answer))))

"""FindCoordinator v0 to v2: the coordinator's address becomes the proxy's; coordinators of transactions are not found.

Always rewrites, also where both sides speak the same version. Source: KIP-98 (v1: coordinator type, error message).
"""

from __future__ import annotations

from ...codecs.error_codes import ErrorCode
from .base import THROTTLE_NONE, Addresses, Chunks, RequestRefused
from .fields import INT16, INT32, Reader, nullable_string, string

CLIENT_VERSION_MAX = 2
GROUP = 0
TRANSACTION = 1
_NOBODY = INT32.pack(-1) + string("") + INT32.pack(-1)


class FindCoordinator:
    """One question for a coordinator. v2 has the layout of v1."""

    __slots__ = ("_addresses", "_client_version", "broker_version")

    def __init__(self, client_version: int, broker_version: int, addresses: Addresses) -> None:
        assert 0 <= broker_version <= client_version <= CLIENT_VERSION_MAX
        self.broker_version = broker_version
        self._client_version = client_version
        self._addresses = addresses

    def request(self, body: memoryview) -> Chunks | RequestRefused:
        """The key, and the type where the broker knows types. Refused for transactions, as for all but groups."""
        if self._client_version == 0:
            return (body,)
        reader = Reader(body)
        reader.string("key")
        key_bytes = reader.position
        key_type = reader.int8("key_type")
        reader.finish()
        if key_type == TRANSACTION:
            return self._refused(
                ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "transactions are not served by this proxy"
            )
        if key_type != GROUP:
            return self._refused(ErrorCode.INVALID_REQUEST, f"coordinators of type {key_type} are not known")
        return (body[:key_bytes],) if self.broker_version == 0 else (body,)

    def response(self, body: memoryview) -> Chunks:
        """The same coordinator at the proxy's address. One that has none is "not available" (15): ask again later."""
        reader = Reader(body)
        message = None
        if self.broker_version >= 1:
            reader.int32("throttle_time_ms")
        error_code = reader.int16("error_code")
        if self.broker_version >= 1:
            message = reader.nullable_string("error_message")
        node_id = reader.int32("node_id")
        reader.string("host")
        reader.int32("port")
        reader.finish()
        if error_code:
            return (self._encode(error_code, message, _NOBODY),)
        address = self._addresses.get(node_id)
        if address is None:
            return (self._encode(ErrorCode.COORDINATOR_NOT_AVAILABLE, None, _NOBODY),)
        host, port = address
        return (self._encode(ErrorCode.NONE, message, INT32.pack(node_id) + string(host) + INT32.pack(port)),)

    def _refused(self, error_code: int, reason: str) -> RequestRefused:
        return RequestRefused(error_code, reason, self._encode(error_code, reason, _NOBODY))

    def _encode(self, error_code: int, message: str | None, coordinator: bytes) -> bytes:
        if self._client_version == 0:
            return INT16.pack(error_code) + coordinator
        return THROTTLE_NONE + INT16.pack(error_code) + nullable_string(message) + coordinator

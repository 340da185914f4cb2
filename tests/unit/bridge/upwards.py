"""A request of a version that Kafka 4 lacks, on its way up, and its answer on the way down."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from idemproxy.codecs import messages
from idemproxy.codecs.steps import at_once
from idemproxy.proxy.bridge.upward.table import Raised, plan
from idemproxy.proxy.versions import ApiKey, BrokerRanges

KAFKA_4: BrokerRanges = {
    ApiKey.PRODUCE: (0, 13),
    ApiKey.FETCH: (4, 18),
    ApiKey.LIST_OFFSETS: (1, 11),
    ApiKey.METADATA: (0, 13),
    ApiKey.OFFSET_COMMIT: (2, 10),
    ApiKey.OFFSET_FETCH: (1, 10),
    ApiKey.SASL_HANDSHAKE: (0, 1),
    ApiKey.CREATE_TOPICS: (2, 7),
    ApiKey.DELETE_TOPICS: (1, 6),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (2, 4),
    ApiKey.WRITE_TXN_MARKERS: (1, 2),
    ApiKey.DESCRIBE_ACLS: (1, 3),
    ApiKey.CREATE_ACLS: (1, 3),
    ApiKey.DELETE_ACLS: (1, 3),
    ApiKey.DESCRIBE_CONFIGS: (1, 4),
    ApiKey.ALTER_REPLICA_LOG_DIRS: (1, 2),
    ApiKey.DESCRIBE_LOG_DIRS: (1, 5),
    ApiKey.CREATE_DELEGATION_TOKEN: (1, 3),
    ApiKey.RENEW_DELEGATION_TOKEN: (1, 2),
    ApiKey.EXPIRE_DELEGATION_TOKEN: (1, 2),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: (1, 3),
}
"""What 4.3.1 lists of the APIs that lost versions, and of some that did not."""
RAISED = [
    (key, version)
    for key, (first, _) in KAFKA_4.items()
    if key not in (ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.WRITE_TXN_MARKERS)
    for version in range(first)
]
"""(API, client version) for all that is raised."""
TOKENS = range(ApiKey.CREATE_DELEGATION_TOKEN, ApiKey.DESCRIBE_DELEGATION_TOKEN + 1)
"""APIs that the protocol library does not have."""


def raised(key: int, version: int) -> Raised:
    """What raises the request, which has to exist."""
    found = plan(key, version, KAFKA_4)
    assert found is not None
    return found


def sent(one: Raised, body: bytes) -> list[bytes]:
    """What the broker is asked."""
    return [bytes(request) for request in at_once(one.requests(body))]


def answered(one: Raised, *bodies: bytes) -> bytes:
    """What the client gets when the broker answers these."""
    return bytes(at_once(one.response(bodies)))


def ask(one: Raised, key: int, version: int, /, **fields: Any) -> Any:
    """The only request that the broker gets, decoded."""
    (body,) = sent(one, messages.encode_request(key, version, **fields))
    return messages.decode_request(key, one.broker_version, body)


def tell(key: int, version: int, /, **fields: Any) -> Any:
    """The client's answer, decoded, when the broker answers this."""
    one = raised(key, version)
    body = answered(one, messages.encode_response(key, one.broker_version, **fields))
    return messages.decode_response(key, version, body)


def steps_of(work: Generator[None, None, Any]) -> int:
    """How many steps it takes."""
    return 1 + sum(1 for _ in work)

"""One produce request without a connection: its client, and the request itself, as a session would have parsed it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from idemproxy.codecs.headers import RequestHeader
from idemproxy.codecs.produce import API_KEY, PartitionRecords
from idemproxy.codecs.steps import Steps, at_once
from idemproxy.proxy.admission.memory_budget import Held
from idemproxy.proxy.broker.served import Idempotence
from idemproxy.proxy.producer.batch import Answer
from idemproxy.proxy.session.conditional_topics import ConditionalTopics
from idemproxy.proxy.session.produce import PlainPart, ProduceCall, ProducePrefix
from idemproxy.proxy.session.routing import BatchKind, Way, way_of
from testkit.stage.sequencer import Client
from testkit.virtual.client_bytes import parse_produce


class DoorClient(Client):
    """A client whose requests are begun at once. ``plain``: what it has sent without a producer id."""

    is_idempotent = is_at_work = False

    def __init__(self) -> None:
        super().__init__("somebody")
        self.plain: list[PartitionRecords] = []

    def abort(self, _reason: str) -> None:
        """A batch with acks=0 was refused."""

    def produce_plainly(self, _acks: int, _timeout_ms: int, parts: list[PlainPart], _held: Held) -> None:
        self.plain += [item for item, _ in parts]

    def take_in_turns(self, steps: Steps[None]) -> None:
        at_once(steps)

    def part_if_gone(self) -> None:
        """It stays."""

    def answer_is_ready(self) -> None:
        """It is read from ``call.chunks``."""


def call_of(
    host: object,
    client: DoorClient,
    items: Sequence[tuple[str, int, bytes | memoryview]],
    *,
    acks: int = -1,
    version: int = 3,
    timeout_ms: int = 30_000,
) -> ProduceCall:
    """A request with these batches: topic, partition and records. ``host``: has what the test needs of it."""
    door = cast(Any, host)
    places = [(topic, partition) for topic, partition, _ in items]
    prefix = ProducePrefix(door, RequestHeader(API_KEY, version, 1, None, 0), None, acks, timeout_ms, places)
    return ProduceCall(door, client, prefix, bytes(4), [memoryview(records) for _, _, records in items], 0)


def code_of(call: ProduceCall, topic: str, partition: int = 0) -> int | None:
    """The error code that a partition is answered; None: there is no answer, or none is sent."""
    return int(parse_produce(bytes(call.chunks[-1]))[topic, partition][0]) if call.chunks else None


def way_by_proxy(conditional_topics: ConditionalTopics, topic: str, kind: BatchKind) -> Way | Answer:
    """Where a batch goes if the proxy gives idempotence on all topics."""
    is_conditional = conditional_topics.has(topic)
    return way_of(Idempotence.PROXY, matches=is_conditional, is_conditional=is_conditional, kind=kind)

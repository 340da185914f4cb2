"""One old producer in front of real brokers: what ``RaisedProduce`` asks for is done at once, over sockets.

Connections can be made to break after a request was sent, and before its answer is read.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType

from idemproxy.codecs import messages
from idemproxy.codecs.framing import frame
from idemproxy.codecs.headers import encode_request_header
from idemproxy.codecs.produce import PartitionAnswer, encode_request, parse_response
from idemproxy.codecs.steps import at_once
from idemproxy.producing.cluster import METADATA, Cluster, cluster_of, metadata_fields
from idemproxy.proxy.bridge.upward.departed_clients import ClientIdentity, DepartedClients
from idemproxy.proxy.bridge.upward.produce import RaisedProduce, RaisedProduceSettings
from idemproxy.proxy.bridge.upward.produce_effects import (
    AnswerClient,
    AskLeaders,
    AskProducerId,
    CloseClient,
    DisconnectBroker,
    Effect,
    RunSteps,
    SendProduce,
)
from idemproxy.proxy.bridge.upward.producer_ids import ProducerIdPool, ProducerIdPools
from idemproxy.proxy.bridge.upward.topic_limits import TopicLimits
from idemproxy.proxy.versions import ApiKey

from .raw_client import RawClient

UNPACKED_BYTES_MAX = 64 << 20
TIMEOUT_MS = 8_000
PRODUCE_VERSION_MAX = 8
_METADATA_VERSION = 4
OldSets = Sequence[tuple[str, int, bytes]]


@dataclass
class Shared:
    """What all connections of a proxy have in common."""

    pools: ProducerIdPools = field(default_factory=lambda: ProducerIdPools(ProducerIdPool(), ProducerIdPool()))
    departed: DepartedClients = field(default_factory=DepartedClients)
    limits: TopicLimits = field(default_factory=TopicLimits)


class RaisedProducer:
    """A context manager. ``loses``: asked about each Produce that was sent; True: its connection ends before the answer
    is read."""

    def __init__(
        self,
        addresses: Mapping[int, tuple[str, int]],
        broker: int = 0,
        shared: Shared | None = None,
        *,
        client: ClientIdentity = ClientIdentity("127.0.0.1", "old"),  # noqa: B008
        loses: Callable[[SendProduce], bool] = lambda _: False,
        cuts: Callable[[SendProduce], bool] = lambda _: False,
        keeps_missing_timestamps: bool = False,
        connections: dict[int, RawClient] | None = None,
        produce_version_max: int = PRODUCE_VERSION_MAX,
    ) -> None:
        """``cuts``: as ``loses``, but its connection ends when a half of it has left. ``connections``: by broker, where
        several are to share them; then they are the caller's."""
        self.shared = shared or Shared()
        self.client = client
        self.sent: list[SendProduce] = []
        self.closed: str | None = None
        settings = RaisedProduceSettings(broker, produce_version_max, UNPACKED_BYTES_MAX, keeps_missing_timestamps)
        self.machine = RaisedProduce(
            settings, client, self.shared.pools, self.shared.departed, self.shared.limits, lambda: None
        )
        self._addresses = addresses
        self._loses = loses
        self._cuts = cuts
        self._connections = {} if connections is None else connections
        self._answer: bytes | None = None

    def __enter__(self) -> RaisedProducer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for broker in list(self._connections):
            self._disconnect(broker)

    def produce(
        self, sets: OldSets, *, version: int = 0, acks: int = -1, timeout_ms: int = TIMEOUT_MS
    ) -> dict[tuple[str, int], PartitionAnswer]:
        """Send one request and return the answers by partition; none without acks."""
        answer = self.call(b"".join(encode_request(version, acks, timeout_ms, sets)), version)
        if answer is None:
            return {}
        answers, _ = parse_response(answer, 0, version)
        return {(one.topic, one.partition): one for one in answers}

    def produce_one(self, topic: str, message_set: bytes, **options: int) -> PartitionAnswer:
        """The same for partition 0 of a topic."""
        (answer,) = self.produce([(topic, 0, message_set)], **options).values()
        return answer

    def call(self, body: bytes, version: int) -> bytes | None:
        """Send the body of a request, and return that of its answer."""
        self._answer = None
        todo = self.machine.begin(body, version, time.monotonic(), int(time.time() * 1000))
        while not self.machine.is_idle or todo:
            todo = self._do(todo)
        return self._answer

    def _do(self, effects: list[Effect]) -> list[Effect]:
        """Do what is asked for; return what is asked for next."""
        machine: RaisedProduce = self.machine
        following: list[Effect] = []
        for effect in effects:
            match effect:
                case RunSteps(number, start):
                    following += machine.worked(number, at_once(start()), time.monotonic())
                case SendProduce():
                    following += self._send(effect)
                case AskProducerId(broker, version, body):
                    try:
                        answer = self._connection(broker).call(ApiKey.INIT_PRODUCER_ID, version, body)
                    except OSError:
                        following += self._lost(broker)
                    else:
                        following += machine.answered_id(answer, time.monotonic())
                case AskLeaders(topics):
                    found = self._leaders(topics)
                    now = time.monotonic()
                    following += machine.not_learned(now) if found is None else machine.learned(topics, found, now)
                case DisconnectBroker(broker):
                    self._disconnect(broker)
                case AnswerClient(body):
                    self._answer = body
                case CloseClient(reason):
                    self.closed = reason
        if not following and machine.wakes_at is not None:
            time.sleep(max(0.0, machine.wakes_at - time.monotonic()))
            following = machine.woken(time.monotonic())
        return following

    def _send(self, effect: SendProduce) -> list[Effect]:
        self.sent.append(effect)
        try:
            connection = self._connection(effect.broker)
        except OSError:
            return self.machine.lost(effect.broker, time.monotonic(), was_sent=False)
        try:
            if self._cuts(effect):
                header = encode_request_header(ApiKey.PRODUCE, effect.api_version, 1, None)
                whole = frame(header, *effect.body)
                connection.send_bytes(whole[: len(whole) // 2])
                return self._lost(effect.broker)
            connection.send(ApiKey.PRODUCE, effect.api_version, b"".join(effect.body))
            if self._loses(effect):
                return self._lost(effect.broker)
            _, answer = connection.answer()
        except OSError:
            return self._lost(effect.broker)
        return self.machine.answered(effect.number, answer, time.monotonic())

    def _lost(self, broker: int) -> list[Effect]:
        self._disconnect(broker)
        return self.machine.lost(broker, time.monotonic())

    def _connection(self, broker: int) -> RawClient:
        if broker not in self._connections:
            self._connections[broker] = RawClient(self._addresses[broker])
        return self._connections[broker]

    def _disconnect(self, broker: int) -> None:
        if broker in self._connections:
            self._connections.pop(broker).close()

    def _leaders(self, topics: Sequence[str]) -> Cluster | None:
        for address in self._addresses.values():
            with suppress(OSError), RawClient(address) as asked:
                body = messages.encode_request(METADATA, _METADATA_VERSION, **metadata_fields(topics))
                answer = asked.call(METADATA, _METADATA_VERSION, body)
                return cluster_of(messages.decode_response(METADATA, _METADATA_VERSION, answer))
        return None

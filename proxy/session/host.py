"""What a session needs of the engine: typing only."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol

from ...codecs.convert import HeaderPolicy
from ...reactor import Reactor
from ..admission.long_work import LongWork
from ..admission.loop_budget import LoopBudget
from ..admission.memory_budget import MemoryBudget
from ..admission.noted_failures import NotedFailures
from ..bridge.base import Addresses
from ..bridge.describe_producers import Place
from ..bridge.init_producer_id import InitProducerIdRequest
from ..bridge.metadata import ClientQuestion
from ..broker.broker import Broker
from ..connection.shell import ConnectionHost
from ..hidden_ranges.known import KnownHiddenRanges
from ..old_clients.watch import OldClientWatch
from ..producer.batch import Answer
from ..producer.retry_notes import Key
from ..producer.sequencer import Sequencer
from ..settings.addresses import PlaceOf
from ..settings.config import TopicDefaults
from .conditional_topics import ConditionalTopics
from .describe_producers import Told
from .names import NamesClient
from .routing import BatchKind, Way
from .sweeper import Sweepable, Sweeper


class ProduceHost(Protocol):
    """The engine, as produce requests see it."""

    def now(self) -> float: ...

    @property
    def reactor(self) -> Reactor: ...

    @property
    def memory(self) -> MemoryBudget: ...

    @property
    def conditional_topics(self) -> ConditionalTopics:
        """They are the same for as long as the process lives."""
        ...

    def way_of(self, topic: str, kind: BatchKind) -> Way | Answer:
        """Return where a batch for this topic goes, or its refusal (``routing.py``)."""
        ...

    @property
    def known_sequencer(self) -> Callable[[Key], Sequencer | None]: ...

    def sequencer(self, producer_id: int, topic: str, partition: int) -> Sequencer | None: ...

    def has_partition(self, topic: str, partition: int) -> bool: ...

    def look_for_topic(self, topic: str, done: Callable[[], None]) -> None: ...

    def sweep(self, call: Sweepable, parts: Sequence[Any]) -> None: ...

    def swept(self, call: Sweepable) -> None: ...

    @property
    def sweeper(self) -> Sweeper: ...

    def report(self, event: object) -> None: ...

    @property
    def is_draining(self) -> bool: ...

    @property
    def requests_by_key(self) -> dict[int, int]: ...


class SessionHost(ProduceHost, ConnectionHost, Protocol):
    """The engine, as sessions see it."""

    @property
    def policy(self) -> HeaderPolicy: ...

    @property
    def topic_defaults(self) -> TopicDefaults: ...

    @property
    def old_clients(self) -> OldClientWatch: ...

    @property
    def hidden_ranges(self) -> KnownHiddenRanges: ...

    @property
    def for_clients(self) -> Reactor:
        """Opens connections to brokers that belong to one client."""
        ...

    @property
    def loop_budget(self) -> LoopBudget: ...

    @property
    def long_work(self) -> LongWork: ...

    @property
    def noted_failures(self) -> NotedFailures: ...

    def advertised(self) -> Mapping[int, tuple[int, int]]: ...

    def addresses(self, place_of: PlaceOf, local_host: str) -> Addresses: ...

    def target(self, broker_id: int | None) -> Broker | None: ...

    def topics_changed(self, gone: Collection[str] = (), created: Collection[str] = ()) -> None: ...

    def init_producer_id(
        self,
        request: InitProducerIdRequest,
        version: int,
        client_id: str | None,
        client: NamesClient,
        done: Callable[[int, int, int], None],
    ) -> None: ...

    @property
    def describe_producers(self) -> Callable[[Sequence[Place], bytes, Told], None]:
        """Gets the partitions, and the principal that asks."""
        ...

    def metadata(
        self, version: int, question: ClientQuestion, addresses: Callable[[], Addresses], done: Callable[[bytes], None]
    ) -> None: ...

    def count_request(self, api_key: int) -> None: ...

    @property
    def measure_request(self) -> Callable[[int, float], None] | None:
        """Called for each request that was answered: API key and seconds. Not for produce where the proxy gives
        idempotence. None: nobody measures."""
        ...

"""The backend of a client that has authenticated at the broker: its own connection there, and what the broker lets it
do. Sans-IO.

The broker authorizes all that is sent over that connection, batches with a producer id too
(``produce_connections.py``). Before such a batch changes any state, and before an answer tells anything of that state,
the broker is asked over the same connection whether the client may write there (``write_acl.py``): an empty Produce is
authorized like any other and stores nothing."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from ...codecs import messages
from ...codecs import produce as produce_codec
from ...codecs.error_codes import ErrorCode
from ...codecs.errors import WireError
from ...codecs.steps import Steps
from .. import limits
from ..admission.turns import in_turns
from ..bridge import api_versions
from ..bridge.base import Addresses
from ..bridge.cluster import Cluster, Topic
from ..bridge.metadata import ClientQuestion, encode_question, read_answer, tell_client
from ..broker.broker import Broker
from ..session.pipe import RequestUpstream
from ..session.produce import ProduceCall
from ..versions import ApiKey
from .connection import ClientConnection
from .host import PassThroughHost
from .produce import PassThroughProduce
from .produce_connections import ClientProduceConnections
from .write_acl import DENIED, WriteAcl

SASL_RANGES: Mapping[int, tuple[int, int]] = {ApiKey.SASL_HANDSHAKE: (0, 1), ApiKey.SASL_AUTHENTICATE: (0, 1)}
_EMPTY_PRODUCE_VERSION = 2
"""The lowest version that is sent; brokers without it answer an empty produce with ``INVALID_RECORD`` to a client that
may write, and with the authorization error to one that may not (Kafka 4: KafkaApis.handleProduceRequest)."""
_EMPTY_PRODUCE_TIMEOUT_MS = 1000


def refuse_sasl(api_key: int, api_version: int, message: str) -> bytes:
    """Return the answer to a SASL request that is not due now."""
    code = ErrorCode.ILLEGAL_SASL_STATE
    if api_key == ApiKey.SASL_HANDSHAKE:
        return messages.encode_response(api_key, api_version, error_code=code, mechanisms=[])
    return messages.encode_response(api_key, api_version, error_code=code, error_message=message, auth_bytes=b"")


def _nobody_to_tell(_reason: str) -> None:
    """The session has ended."""


class ClientBackend:
    """The backend of one client. ``connection``: to ``broker``, over which the client has authenticated. ``broker_id``:
    the broker whose listener it came to, None for the bootstrap port."""

    calls = PassThroughProduce

    def __init__(
        self, host: PassThroughHost, broker: Broker, connection: ClientConnection, broker_id: int | None
    ) -> None:
        self.abort: Callable[[str], None] = _nobody_to_tell
        """Ends the session."""
        self._host = host
        self._broker = broker
        self._broker_id = broker_id
        self._connection = connection
        self._is_over = False
        self._waiting: deque[PassThroughProduce] = deque()
        """Produce requests that may have to wait until the broker has said what the client may write."""
        self.write_acl = WriteAcl(host.now, self._ask_write_acl)

        def is_there() -> bool | None:
            return None if host.topology.broker(broker.id) is not broker else broker.is_ready

        self.route = ClientProduceConnections(
            host.reactor,
            broker.id,
            connection,
            self.write_acl,
            may_send=host.may_send,
            is_there=is_there,
            is_over=lambda produce_connections: host.pass_through_produce_connections.pop(produce_connections, None),
            report=host.report,
            batch_version=lambda: broker.pool.batch_version,
            confirm=broker.confirm,
        )
        host.pass_through_produce_connections[self.route] = None

    def answer(self, api_key: int, api_version: int) -> bytes | None:
        """Answer ApiVersions, and requests to authenticate again."""
        if api_key == ApiKey.API_VERSIONS:
            return api_versions.answer(api_version, {**self._host.advertised(), **SASL_RANGES})
        if api_key not in SASL_RANGES:
            return None
        first, last = SASL_RANGES[api_key]
        if not first <= api_version <= last:
            raise WireError(f"API {api_key} is not served in version {api_version}")
        return refuse_sasl(api_key, api_version, "this connection is authenticated already")

    def upstream(self, broker: Broker, broken: Callable[[str], None]) -> RequestUpstream:
        """There is only the one connection, which the session has from the beginning."""
        raise WireError("the client's own connection has ended")

    def go_on(self) -> None:
        """The requests that came after it may begin."""
        self._admit()

    def end(self) -> None:
        """The client has gone: nothing of it waits any more."""
        self._is_over = True
        self.abort = _nobody_to_tell  # or the session and this would refer to each other
        self._waiting.clear()
        self.write_acl.end()

    # ------------------------------------------------------------------ produce
    def begin(self, call: ProduceCall) -> None:
        """Begin a request once it is known what the client may write."""
        assert isinstance(call, PassThroughProduce)
        call.wait(self.write_acl)
        self._waiting.append(call)
        self._admit()

    def _admit(self, reported: Collection[str] = ()) -> None:
        """Begin requests in their order, as far as it is known what the client may write. ``reported``: topics that the
        broker has just denied to it. That answer counts now, even if it took longer than a denial is remembered
        (``DENIAL_SECONDS``); otherwise a slow broker would be asked again for ever."""
        while self._waiting and not self._is_over and not (call := self._waiting[0]).client.is_at_work:
            topics = call.topics
            missing = self.write_acl.missing({topic: topics[topic] for topic in topics if topic not in reported})
            denied: Mapping[str, int] = {}
            # A request with acks=0 is not asked about: no batch in it is served with a producer id, and the others go
            # over the client's own connection, where the broker authorizes them. The client may be gone before the
            # broker answers us.
            if not missing:
                denied = {topic: code for topic in topics if (code := self.write_acl.code_of(topic))}
            elif call.prefix.acks != 0:
                self.write_acl.want(missing)
                return
            self._waiting.popleft()
            call.denied = denied
            call.begin()
            call.client.part_if_gone()
        if not self._waiting:
            self.write_acl.forget_oldest()

    def _ask_write_acl(self, topics: Mapping[str, int]) -> None:
        """Ask by an empty produce to one partition of each topic."""
        parts = [(topic, partition, b"") for topic, partition in topics.items()]
        version = max(_EMPTY_PRODUCE_VERSION, self._broker.ranges.get(ApiKey.PRODUCE, (0, 0))[0])
        body = produce_codec.encode_request(version, 1, _EMPTY_PRODUCE_TIMEOUT_MS, parts)
        self._timer = self._host.reactor.later(limits.ASK_SECONDS_MAX, self._has_no_answer)

        def answered(response: memoryview) -> None:
            self._timer.cancel()
            found, _ = produce_codec.parse_response(response, 0, version)
            self.write_acl.answered({one.topic: one.error_code for one in found})
            self._admit({one.topic for one in found if one.error_code in DENIED})

        self._connection.request(ApiKey.PRODUCE, version, body, answered)

    def _has_no_answer(self) -> None:
        """The question may wait for a batch, which may take long: its produce connection ends the connection when that
        takes too long."""
        if self._is_over:
            return
        if self._connection.is_lent:
            self._timer = self._host.reactor.later(limits.ASK_SECONDS_MAX, self._has_no_answer)
        else:
            self.abort("the broker does not answer")

    # ------------------------------------------------------------------ Metadata
    def metadata(
        self, version: int, question: ClientQuestion, addresses: Callable[[], Addresses], done: Callable[[bytes], None]
    ) -> None:
        """Answer from memory, but only of what the broker shows the client itself."""
        # For the bootstrap port ``target`` may return another broker than the client's own, of another release.
        broker = self._broker if self._broker_id is None else self._host.target(self._broker_id)
        if broker is None:
            self.abort("the broker is away")
            return
        if self._connection.is_closed:
            raise WireError("the client's own connection has ended")
        topology, names = self._host.topology, question.topics
        if names is not None and not question.allow_auto_topic_creation:
            is_new, now = self._host.new_topics.has, self._host.reactor.now()
            names = tuple(name for name in names if name in topology.cluster.topics or is_new(name, now))
        asked_version, body = encode_question(broker.ranges, names)

        def tell(codes: Mapping[str, int]) -> None:
            self._tell(version, question.topics, codes, addresses(), done)

        def shown(seen: Cluster | None) -> None:
            if seen is None or self._is_over:
                return
            codes = {name: topic.error_code for name, topic in seen.topics.items()}
            wanted = None if names is None else [name for name, code in codes.items() if code not in DENIED]
            topology.refresh_if_stale(wanted, False, lambda: tell(codes))

        def answered(response: memoryview) -> None:
            in_turns(self._host.reactor, self._read_metadata(asked_version, response), shown)

        self._connection.request(ApiKey.METADATA, asked_version, [body], answered)

    def _read_metadata(self, version: int, response: memoryview) -> Steps[Cluster | None]:
        try:
            return (yield from read_answer(version, response, self._host.topology.cluster.topics))
        except WireError as error:
            self.abort(f"the broker's answer to Metadata cannot be read: {error}")
            return None

    def _tell(
        self,
        version: int,
        asked: tuple[str, ...] | None,
        shown: Mapping[str, int],
        addresses: Addresses,
        done: Callable[[bytes], None],
    ) -> None:
        cluster, cluster_id = self._host.topology.cluster, self._host.fallback_cluster_id
        denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        topics = {name: topic for name, topic in cluster.topics.items() if shown.get(name, denied) not in DENIED}
        topics |= {name: Topic(name, denied, False) for name, code in shown.items() if code == denied}
        theirs = tuple(name for name in asked or () if shown.get(name, denied) not in DENIED)
        topics |= self._host.new_topics.not_listed(topics, theirs, self._host.reactor.now())
        steps = tell_client(version, replace(cluster, topics=topics), asked, addresses, cluster_id)
        in_turns(self._host.reactor, steps, done)

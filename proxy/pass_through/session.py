"""A client that shows the broker itself who he is: a session whose connection upstream is his own. Sans-IO.

Until the broker has accepted him only ApiVersions and the exchange of tokens are answered. Afterwards the broker
judges all that goes on over his connection, his batches with a producer id too (``lane.py``). Before one of them
moves any state, and before anything is told from it, the broker is asked on that same connection whether he may write
there (``write_acl.py``): an empty Produce is judged like any other and stores nothing."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import partial

from ...codecs import messages
from ...codecs import produce as produce_codec
from ...codecs.error_codes import ErrorCode
from ...codecs.errors import WireError
from ...codecs.framing import Frame, FrameSplitter, frame
from ...codecs.headers import parse_request_header
from ...codecs.produce import ProduceRequest
from ...codecs.steps import Steps
from ...reactor import Reactor, Wire
from ...state.entry import NO_PRINCIPAL, principal_of
from .. import limits
from ..admission.connection_quotas import AdmittedConnection
from ..admission.memory_budget import Held
from ..admission.turns import in_turns
from ..bridge import api_versions
from ..bridge.cluster import Cluster, Topic
from ..bridge.metadata import encode_question, parse_client_request, read_answer, tell_client
from ..broker.broker import Broker
from ..broker.sasl_mechanisms import SaslError, shown_text
from ..events import ClientRefused
from ..session.pipe import Upstream
from ..session.session import Session, _Slot
from ..settings.addresses import PlaceOf
from ..versions import ApiKey
from .connection import ClientConnection
from .host import Host
from .lanes import ClientLanes
from .principal import MECHANISMS, Conversation
from .produce import PassThroughProduce
from .sasl_relay import SaslRelay
from .write_acl import DENIED, WriteAcl

SASL_RANGES: Mapping[int, tuple[int, int]] = {ApiKey.SASL_HANDSHAKE: (0, 1), ApiKey.SASL_AUTHENTICATE: (0, 1)}
_EMPTY_PRODUCE_VERSION = 2
_EMPTY_PRODUCE_TIMEOUT_MS = 1000


class PassThroughSession(Session):
    """The endpoint of one client connection. ``below``: opens connections upstream on which nobody has shown anything
    yet."""

    def __init__(
        self,
        below: Reactor,
        host: Host,
        broker_id: int | None,
        place_of: PlaceOf,
        principal: bytes = NO_PRINCIPAL,
        admitted: AdmittedConnection | None = None,
    ) -> None:
        super().__init__(host, broker_id, place_of, principal, admitted)
        self._admitted = admitted
        self._engine = host
        self._below = below
        self._splitter = FrameSplitter(min(limits.SASL_FRAME_BYTES_MAX, host.caps.request_bytes_max))
        self._relay: SaslRelay | None = None
        self._conversation: Conversation | None = None
        self._handshakes = 0
        self._handshake_version = -1
        self._broker: Broker | None = None
        self._token_slot: _Slot | None = None
        """Of the SaslAuthenticate that waits for the broker's answer."""
        self._is_token_out = False
        self.write_acl = WriteAcl(host.now, self._ask_write_acl)
        self._lanes: ClientLanes | None = None
        self._produces: deque[tuple[_Slot, ProduceRequest, float]] = deque()

    @property
    def is_authenticated(self) -> bool:
        """Has the broker accepted him?"""
        return self._pipe is not None

    # ------------------------------------------------------------------ endpoint
    def connected(self, wire: Wire) -> None:
        """The client is there."""
        super().connected(wire)
        self._host.reactor.later(limits.SASL_SECONDS, self._look_whether_authenticated)

    def _end(self, leaves_upstream: bool = False) -> None:
        if self._relay is not None and not self.is_authenticated:
            self._relay.close()
        self._relay = None
        super()._end(leaves_upstream)
        self.write_acl.end()
        self._produces.clear()

    def _look_whether_authenticated(self) -> None:
        if not self.is_closed and not self.is_authenticated:
            self._refuse_connection(f"no authentication within {limits.SASL_SECONDS:.0f} s")

    # ------------------------------------------------------------------ requests
    def _handle(self, frame: Frame) -> None:
        if self._speaks_bare_tokens:
            self._say(bytes(frame))
            return
        key = int.from_bytes(frame[:2], "big")
        if key in (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE):
            self._handle_before(key, frame)
        elif not self.is_authenticated:
            raise WireError(f"API {key} before authentication: this listener wants SASL")
        elif key == ApiKey.METADATA:
            self._metadata(frame)
        else:
            super()._handle(frame)

    @property
    def _speaks_bare_tokens(self) -> bool:
        return self._handshake_version == 0 and not self.is_authenticated

    def _open_slot(self, frame: Frame) -> _Slot:
        header = parse_request_header(frame)
        if header.client_id:
            self.name = header.client_id[:64]
        slot = _Slot(header, Held(self._host.memory.hold_bytes, len(frame) + limits.REQUEST_OBJECTS_BYTES))
        self._slots.append(slot)
        self._backpressure.was_active = True
        self._host.count_request(header.api_key)
        return slot

    def _handle_before(self, key: int, frame: Frame) -> None:
        slot = self._open_slot(frame)
        version = slot.header.api_version
        if key == ApiKey.API_VERSIONS:
            self._answer(slot, api_versions.answer(version, {**self._host.advertised(), **SASL_RANGES}))
            return
        first, last = SASL_RANGES[key]
        if not first <= version <= last:
            raise WireError(f"API {key} is not served in version {version}")
        request = messages.decode_request(key, version, memoryview(frame)[slot.header.body_offset :])
        if self.is_authenticated or self._is_token_out:
            self._answer_sasl(slot, ErrorCode.ILLEGAL_SASL_STATE, "this connection is authenticated already")
        elif key == ApiKey.SASL_HANDSHAKE:
            self._handshake(slot, request.mechanism)
        elif self._conversation is None:
            self._answer_sasl(slot, ErrorCode.ILLEGAL_SASL_STATE, "a SaslHandshake is due")
        else:
            self._token_slot = slot
            self._say(bytes(request.auth_bytes))

    def _answer_sasl(self, slot: _Slot, code: int, message: str | None = None, token: bytes = b"") -> None:
        key, version = slot.header.api_key, slot.header.api_version
        if key == ApiKey.SASL_HANDSHAKE:
            body = messages.encode_response(key, version, error_code=code, mechanisms=[])
        else:
            body = messages.encode_response(key, version, error_code=code, error_message=message, auth_bytes=token)
        self._answer(slot, body)

    # ------------------------------------------------------------------ authentication
    def _handshake(self, slot: _Slot, mechanism: str) -> None:
        self._handshakes += 1
        if self._handshakes > limits.SASL_HANDSHAKES_MAX:
            raise WireError("SaslHandshake again and again")
        broker = self._host.target(self._broker_id)
        if broker is None:
            self.abort("the broker is away")
            return
        if self._relay is not None:
            self._relay.close()
        self._broker = broker
        self._conversation = None
        self._is_token_out = True  # nothing else before the broker has answered
        version = slot.header.api_version

        def has_begun(code: int, mechanisms: list[str]) -> None:
            self._is_token_out = False
            common = [one for one in mechanisms if one in MECHANISMS]
            if code == 0 and mechanism in MECHANISMS:
                self._conversation = Conversation(mechanism)
                self._handshake_version = version
            elif code == 0:
                code = ErrorCode.UNSUPPORTED_SASL_MECHANISM
            body = messages.encode_response(ApiKey.SASL_HANDSHAKE, version, error_code=code, mechanisms=common)
            self._answer(slot, body)

        self._relay = SaslRelay(
            self._below,
            broker.address,
            broker.ranges,
            mechanism,
            version,
            has_begun=has_begun,
            answered=self._broker_says,
            refused=self._refused,
        )

    def _say(self, token: bytes) -> None:
        assert self._relay is not None
        assert self._conversation is not None
        if self._is_token_out:
            raise WireError("a token before the answer to the last one")
        try:
            self._conversation.client_says(token)
        except SaslError as error:
            self._relay.close()
            self._end_refused(str(error), is_certain=True)
            return
        self._is_token_out = True
        self._relay.say(token)

    def _broker_says(self, token: bytes) -> None:
        assert self._conversation is not None
        assert self._wire is not None
        self._is_token_out = False
        accepted = self._conversation.broker_says(token)
        if self._token_slot is not None:
            slot, self._token_slot = self._token_slot, None
            self._answer_sasl(slot, ErrorCode.NONE, None, token)
        else:
            self._wire.send(frame(token))
        if accepted:
            self._accepted()

    def _accepted(self) -> None:
        assert self._relay is not None
        assert self._conversation is not None
        if self._splitter.buffered_bytes:
            self._refuse_connection("a request before authentication was over")
            return
        self.principal = principal_of(f"User:{self._conversation.name}")
        self._splitter = FrameSplitter(self._host.caps.request_bytes_max)
        self._pipe = connection = ClientConnection(self._host.reactor, self.abort)
        connection.share(self._host, self._backpressure)
        self._relay.hand_over(connection.pipe)
        self.way = self._lanes = self._own_lanes(connection)
        if self._admitted is not None:
            self._admitted.is_known()

    def _own_lanes(self, connection: ClientConnection) -> ClientLanes:
        engine, broker = self._engine, self._broker
        assert broker is not None

        def is_there() -> bool | None:
            return None if engine.topology.broker(broker.id) is not broker else broker.is_ready

        lanes = ClientLanes(
            engine.reactor,
            broker.id,
            connection,
            self.write_acl,
            may_send=engine.may_send,
            is_there=is_there,
            is_over=lambda lanes: engine.pass_through_lanes.pop(lanes, None),
            report=engine.report,
        )
        engine.pass_through_lanes[lanes] = None
        return lanes

    def _refused(self, reason: str, is_certain: bool) -> None:
        """The broker said no, or the connection ended. From an old broker that is a no as well, if it lives on: clients
        that are told of a no do not try again."""
        if is_certain or self._token_slot is None:
            self._end_refused(reason, is_certain)
        if not is_certain:
            self._host.reactor.later(limits.SETTLE_SECONDS, lambda: self._look_whether_refused(reason))

    def _look_whether_refused(self, reason: str) -> None:
        is_certain = self._broker is not None and self._broker.is_ready
        if not self.is_closed:
            self._end_refused(reason, is_certain)
        elif is_certain:
            self._count_failure()

    def _end_refused(self, reason: str, is_certain: bool) -> None:
        name = "" if self._conversation is None else f" of {self._conversation.name!r}"
        self._host.report(ClientRefused(self.name, f"authentication{name} failed: {shown_text(reason)}"))
        self._is_token_out = True  # and nothing more is taken
        if is_certain:
            self._count_failure()
        self._host.reactor.later(limits.LOGIN_REFUSAL_SECONDS, lambda: self._say_no(is_certain))

    def _count_failure(self) -> None:
        if self._admitted is not None and self._conversation is not None:
            self._admitted.login_failed()

    def _say_no(self, is_certain: bool) -> None:
        if self._token_slot is not None and is_certain and not self.is_closed:
            self._answer_sasl(self._token_slot, ErrorCode.SASL_AUTHENTICATION_FAILED, "authentication failed")
        self.close()

    # ------------------------------------------------------------------ what the broker is asked first
    def _upstream(self, broker: Broker) -> Upstream:
        if self._pipe is None or self._pipe.is_closed:
            raise WireError("his own connection has ended")
        return self._pipe

    def _produce(self, slot: _Slot, frame: Frame) -> None:
        header = slot.header
        request = produce_codec.parse_request(frame, header.body_offset, header.api_version)
        if any(len(item.topic) > limits.TOPIC_CHARACTERS_MAX for item in request.partitions):
            raise WireError("no topic has so long a name")  # it would not fit into a question to the broker
        slot.has_parts(len(request.partitions))
        self._produces.append((slot, request, self._engine.now()))
        self._admit()

    def _went_on(self) -> None:
        super()._went_on()
        self._admit()

    def _admit(self, told: Collection[str] = ()) -> None:
        """Let requests on in their order, as far as it is known what he may do. ``told``: topics that the broker has
        just closed to him. That counts now, however long it took to say it; else a slow one would be asked for ever."""
        lanes = self._lanes
        while self._produces and not self.is_closed and lanes is not None and not self.is_at_work:
            slot, request, came_at = self._produces[0]
            topics = {item.topic: item.partition for item in request.partitions}
            missing = self.write_acl.missing({topic: topics[topic] for topic in topics if topic not in told})
            denied: Mapping[str, int] = {}
            # Nothing of one that wants no answer has a producer id: it passes over his own connection, where the broker
            # judges it. He may be gone before it has said anything to us.
            if not missing:
                denied = {topic: code for topic in topics if (code := self.write_acl.code_of(topic))}
            elif request.acks != 0:
                self.write_acl.want(missing)
                return
            self._produces.popleft()
            version, done = slot.header.api_version, partial(self._answer, slot)
            call = PassThroughProduce(self._host, self, request, version, done)
            call.held = slot.held
            call.judge(self.write_acl, denied, came_at)
            self.take_in_turns(call.starting())

    def _ask_write_acl(self, topics: Mapping[str, int]) -> None:
        """Ask by an empty produce to one partition of each topic."""
        parts = [(topic, partition, b"") for topic, partition in topics.items()]
        body = produce_codec.encode_request(_EMPTY_PRODUCE_VERSION, 1, _EMPTY_PRODUCE_TIMEOUT_MS, parts)
        assert self._pipe is not None
        self._waits_for_rights = self._host.reactor.later(limits.ASK_SECONDS_MAX, self._has_no_answer)

        def answered(response: memoryview) -> None:
            self._waits_for_rights.cancel()
            found, _ = produce_codec.parse_response(response, 0, _EMPTY_PRODUCE_VERSION)
            self.write_acl.answered({one.topic: one.error_code for one in found})
            self._admit({one.topic for one in found if one.error_code in DENIED})

        self._pipe.request(ApiKey.PRODUCE, _EMPTY_PRODUCE_VERSION, body, answered)

    def _has_no_answer(self) -> None:
        """A batch in front of the question may take long: its lane says when it takes too long."""
        if self.is_closed:
            return
        if isinstance(self._pipe, ClientConnection) and self._pipe.is_lent:
            self._waits_for_rights = self._host.reactor.later(limits.ASK_SECONDS_MAX, self._has_no_answer)
        else:
            self.abort("the broker does not answer")

    def _metadata(self, frame: Frame) -> None:
        """Answer from memory, but only of what the broker shows him itself."""
        slot = self._open_slot(frame)
        version = slot.header.api_version
        first, last = self._host.advertised()[ApiKey.METADATA]
        if not first <= version <= last:
            self._refuse(slot, frame, f"API {ApiKey.METADATA} is not served in version {version}")
            return
        broker = self._host.target(self._broker_id)
        if broker is None:
            self.abort("the broker is away")
            return
        question = parse_client_request(version, memoryview(frame)[slot.header.body_offset :])
        topology, names = self._engine.topology, question.topics
        if names is not None and not question.allow_auto_topic_creation:
            names = tuple(name for name in names if name in topology.cluster.topics)
        asked_version, body = encode_question(broker.ranges, names)

        def answered(response: memoryview) -> None:
            in_turns(self._host.reactor, self._read_metadata(asked_version, response), shown)

        def shown(seen: Cluster | None) -> None:
            if seen is None or self.is_closed:
                return
            codes = {name: topic.error_code for name, topic in seen.topics.items()}
            wanted = None if names is None else [name for name, code in codes.items() if code not in DENIED]
            topology.refresh_if_stale(wanted, False, lambda: self._tell(slot, question.topics, codes))

        self._upstream(broker).request(ApiKey.METADATA, asked_version, [body], answered)

    def _read_metadata(self, version: int, response: memoryview) -> Steps[Cluster | None]:
        try:
            return (yield from read_answer(version, response, self._engine.topology.cluster.topics))
        except WireError as error:
            self.abort(f"the broker's answer to Metadata cannot be read: {error}")
            return None

    def _tell(self, slot: _Slot, asked: tuple[str, ...] | None, shown: Mapping[str, int]) -> None:
        cluster = self._engine.topology.cluster
        denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        topics = {name: topic for name, topic in cluster.topics.items() if shown.get(name, denied) not in DENIED}
        topics |= {name: Topic(name, denied, False) for name, code in shown.items() if code == denied}
        steps = tell_client(
            slot.header.api_version,
            replace(cluster, topics=topics),
            asked,
            self._addresses(),
            self._engine.fallback_cluster_id,
        )
        in_turns(self._host.reactor, steps, lambda body: self._answer(slot, body))

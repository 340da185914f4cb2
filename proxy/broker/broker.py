"""One broker as the proxy sees it: a control connection for questions, another one for reading its logs, its version,
and its produce connections. Sans-IO.

The control connection finds out the broker's version and cluster first, again on every connect: a rolling upgrade
changes the version, and an address may be given to a broker of another cluster. The produce connections are usable only
while both are certain, as a wrong guess would poison an old log. Owns no topology."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from ...codecs.errors import WireError
from ...codecs.framing import Frame, FrameSplitter
from ...codecs.headers import encode_request_header, parse_response_header
from ...codecs.produce import BATCH_VERSIONS
from ...codecs.steps import Steps
from ...reactor import Address, Reactor, Wire
from .. import limits
from ..admission.long_work import LongWork
from ..admission.loop_budget import LoopBudget
from ..admission.turns import in_turns, tell_all
from ..bridge.asks import (
    FIRST_FETCH_OF_BATCHES,
    HIGH_WATERMARK_REPLICA_ID,
    EarliestOffset,
    FetchRecords,
    LatestOffset,
    Metadata,
    Question,
)
from ..bridge.configs import AskSettings, BrokerSettings
from ..bridge.metadata import CLUSTER_ID_VERSION_MIN
from ..events import OperatorMessage, Report
from ..flow.effects import Unanswered
from ..flow.form import Form
from ..partition_log.log_chunk import ReadLog
from ..partition_log.log_reader import LogReader
from ..settings.addresses import shown
from ..versions import FIRST_PROBE, ApiKey, BrokerRanges, Detected, Probe, detect
from .mode import Mode
from .probed import needs_probe
from .produce_connection_pool import ProduceConnectionPool, ProduceConnectionStatistics
from .served import SETTINGS, Idempotence, Judgement, Kind, Refusal, by_version, judge_wanted, needs_settings

BOOTSTRAP_ID = -1
"""The id of an address that was configured: which broker is there is not known."""
_CLIENT_ID = "idemproxy-control"


@dataclass(slots=True)
class _Pending:
    """A question that waits for its answer."""

    api_key: int
    api_version: int
    correlation_id: int
    asked_at: float
    answered: Callable[[memoryview | None, str], None]


class ControlConnection:
    """One connection for questions; answers come in the order of the questions."""

    def __init__(self, reactor: Reactor, on_open: Callable[[], None], on_lost: Callable[[str], None]) -> None:
        self._reactor = reactor
        self._on_open = on_open
        self._on_lost = on_lost
        self._wire: Wire | None = None
        self._splitter = FrameSplitter(limits.RESPONSE_BYTES_MAX)
        self._pending: deque[_Pending] = deque()
        self._correlation_id = 0
        self._heard_at = 0.0
        """Reactor seconds when bytes of an answer came last. A large answer, or one over a slow link, takes long; asked
        for again it would take as long, so it is waited for as long as bytes arrive."""
        self._is_watched = False
        self._is_closed = False

    @property
    def is_open(self) -> bool:
        """Can questions be asked over it?"""
        return self._wire is not None

    def request(
        self, api_key: int, api_version: int, body: bytes, answered: Callable[[memoryview | None, str], None]
    ) -> None:
        """Ask; ``answered`` is called with the body, or with None and the reason why there is none."""
        assert self._wire is not None
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        header = encode_request_header(api_key, api_version, self._correlation_id, _CLIENT_ID)
        pending = _Pending(api_key, api_version, self._correlation_id, self._reactor.now(), answered)
        self._pending.append(pending)
        self._wire.send((len(header) + len(body)).to_bytes(4, "big"), header, body)
        if not self._is_watched:
            self._is_watched = True
            self._reactor.later(limits.ASK_SECONDS_MAX, self._watch)

    def close(self) -> None:
        """Close the connection; no question is answered any more."""
        self._is_closed = True
        if self._wire is not None:
            self._wire.reset()
            self._wire = None
        self._fail("closed")

    # ------------------------------------------------------------------ endpoint
    def connected(self, wire: Wire) -> None:
        """The connection is open."""
        if self._is_closed:  # closed while it was being opened
            wire.reset()
            return
        self._wire = wire
        self._on_open()

    def received(self, data: bytes) -> None:
        """Bytes of answers."""
        self._heard_at = self._reactor.now()
        try:
            for frame in self._splitter.feed(data):
                self._answer(frame)
            if self._splitter.error is not None:
                raise self._splitter.error
            if self._splitter.missing_bytes > limits.RECEIVE_BYTES and self._wire is not None:
                self._wire.expect(self._splitter.missing_bytes)
        except WireError as error:
            self._give_up(f"an answer cannot be read: {error}")

    def lost(self, reason: str) -> None:
        """The connection ended: every question on it remains unanswered."""
        self._wire = None
        if self._is_closed:
            return
        self._on_lost(reason)  # first: who learns that a question is unanswered may ask again at once
        self._fail(reason)

    # ------------------------------------------------------------------ inside
    def _answer(self, frame: Frame) -> None:
        if not self._pending:
            raise WireError("an answer that nobody asked for")
        pending = self._pending[0]
        correlation_id, body_offset = parse_response_header(frame, pending.api_key, pending.api_version)
        if correlation_id != pending.correlation_id:
            raise WireError(f"correlation id {correlation_id} where {pending.correlation_id} is due")
        self._pending.popleft()
        pending.answered(memoryview(frame)[body_offset:], "")

    def _watch(self) -> None:
        self._is_watched = False
        if self._pending:
            if self._reactor.now() - max(self._pending[0].asked_at, self._heard_at) >= limits.ASK_SECONDS_MAX:
                self._give_up("no answer in time")
            else:
                self._is_watched = True
                self._reactor.later(limits.PROBE_SECONDS, self._watch)

    def _give_up(self, reason: str) -> None:
        if self._wire is not None:
            self._wire.reset()
            self.lost(reason)

    def _fail(self, reason: str) -> None:
        pending, self._pending = self._pending, deque()
        for one in pending:
            one.answered(None, reason)


class OneCluster:
    """The cluster that the proxy belongs to: the first cluster id that a broker tells. A broker with another id is
    refused, as an address may be given to a broker of another cluster. Brokers before 0.10.1 tell no id."""

    def __init__(self) -> None:
        self._id: str | None = None

    def admits(self, cluster_id: str | None) -> bool:
        """Is a broker that tells this id one of our cluster?"""
        if self._id is None:
            self._id = cluster_id
        return cluster_id in (None, self._id)


@dataclass(frozen=True, slots=True)
class BrokerStatistics:
    """One broker at one moment. ``why_refused``: the sentence that says why it is not served; empty when it is, or
    could never be asked."""

    id: int
    address: Address
    version: str
    is_ready: bool
    why_refused: str
    produce_connections: ProduceConnectionStatistics


class Broker:
    """A broker; the proxy keeps connections to it as long as it is part of the cluster."""

    def __init__(
        self,
        reactor: Reactor,
        broker_id: int,
        address: Address,
        *,
        may_send: Callable[[], bool],
        admits: Callable[[str | None], bool],
        on_ready: Callable[[Broker], None],
        report: Report,
        produce_connections_max: Callable[[], int] = lambda: limits.PRODUCE_CONNECTIONS_PER_BROKER,
        on_refused: Callable[[Broker], None] = lambda _broker: None,
        long_work: LongWork | None = None,
        mode: Mode | None = None,
        on_judged: Callable[[], None] = lambda: None,
    ) -> None:
        """``admits``: is a broker that tells this cluster id one of ours? ``produce_connections_max``: how many produce
        connections may be open. ``on_refused`` is called when ``refusal`` changes. ``long_work`` runs what takes many
        steps; None: it has its own. ``mode``: who gives idempotence; None: the proxy. ``on_judged`` is called when
        ``judgement`` is new."""
        self.id = broker_id
        self.address = address
        self.name = f"broker {broker_id} at {shown(address)}" if broker_id >= 0 else f"upstream {shown(address)}"
        self.version = ""
        self.remark = ""
        """What an operator should know of it, though it is served; "" if nothing."""
        self.ranges: BrokerRanges = {}
        self.is_ready = False
        self.why_away = ""
        """Why the last connection could not be opened, or ended; "" while it can be asked."""
        self.takes_batches = False
        """Can batches be sent to it? Not while it is away."""
        self.form = Form.WRAPPER_V1
        """How it stores batches."""
        self.away_since: float | None = reactor.now()
        """Reactor seconds since when it cannot be asked; None while it can be."""
        self.judgement: Judgement | None = None
        """What it can be served as, once it has reported what it is; None while that is not known."""
        self.awaits_probe = False
        """Is it connected, and to be probed before it can be judged?"""
        self.refusal: Refusal | None = None
        """Why it was not served when it could be asked last; None if it was, or could never be asked."""
        connect = partial(reactor.connect, address)
        self.pool = ProduceConnectionPool(
            reactor,
            broker_id,
            connect,
            may_send=may_send,
            report=report,
            produce_connections_max=produce_connections_max,
            confirm=self.confirm,
        )
        self._reactor = reactor
        self._admits = admits
        self._on_ready = on_ready
        self._on_refused = on_refused
        self._mode = mode or Mode(Idempotence.PROXY)
        self._on_judged = on_judged
        self._report = report
        self._control: ControlConnection | None = None
        self._reading: ControlConnection | None = None
        """A connection of its own for fetches: their answers are large, and no other question would be answered in time
        after them (rule R6)."""
        self._probe_answers: list[memoryview | None] = []
        self._backoff = limits.CONNECT_BACKOFF_SECONDS_MIN
        self._is_closed = False
        self._losses = 0
        """Losses of the connection since the broker could be asked last. The first one may be no more than an idle
        connection that the broker closed."""
        self._has_said_lost = False
        self._shared_questions: dict[Question[Any], list[Callable[[Any], None]]] = {}
        """The callbacks that wait for the answer to a question that is under way."""
        self._asked_next: dict[Question[Any], list[Callable[[Any], None]]] = {}
        """The callbacks that need the answer to a question that is asked from now on, not to the one under way: it
        leaves in the next pass, or when the one under way was answered."""
        self._fetches: deque[tuple[Question[Any], Callable[[], None], Callable[[Any], None]]] = deque()
        """Each with the callback for when it leaves, and the one for its answer."""
        self._fetching = 0
        self._long_work = long_work or LongWork(reactor, LoopBudget(reactor))
        self._logs = LogReader(reactor, self._fetch_later, self._take_apart)

    def statistics(self) -> BrokerStatistics:
        """Return its state at this moment."""
        produce_connections = self.pool.statistics()
        return BrokerStatistics(
            self.id, self.address, self.version, self.is_ready, self.why_refused, produce_connections
        )

    @property
    def why_refused(self) -> str:
        """Return the sentence that says why it is not served; empty when it is, or could never be asked."""
        return "" if self.refusal is None else f"{self.name} cannot be served: {self.refusal.reason}"

    @property
    def may_hold_batches(self) -> bool:
        """May its logs have batches of format v2? Not those of a release before 0.11, as far as it is known."""
        return not self.ranges or self.ranges.get(ApiKey.FETCH, (0, 0))[1] >= FIRST_FETCH_OF_BATCHES

    def open(self) -> None:
        """Connect, and connect again whenever the connection is lost."""
        if not self._is_closed:
            self._control = ControlConnection(self._reactor, self._opened, self._lost)
            self._reactor.connect(self.address, self._control)

    def close(self) -> None:
        """Close all connections: the broker is no longer part of the cluster, or has another address. All who wait for
        an answer, or for their turn to ask, get Unanswered."""
        self._is_closed = True
        self.is_ready = self.takes_batches = False  # first: who learns that a question is unanswered may ask again
        if self._control is not None:
            self._control.close()
        self._disconnected("closed")
        self.pool.close()

    def ask(self, question: Question[Any], done: Callable[[Any], None]) -> None:
        """Ask a question; ``done`` is called with the typed answer or Unanswered, never from inside this call.

        A broken connection puts a thousand batches in doubt at once, so those of one partition share answers. A
        question for the high watermark joins the same one that is under way: on one leader it only grows, so an older
        answer is as good. A question for the log end offset never joins one under way; all that are asked meanwhile
        leave as one, after it. Only ``FETCHES_AT_A_TIME`` fetches are out at a time, over a connection of their own.
        """
        if isinstance(question, ReadLog):
            self._logs.read(question, done)
        elif isinstance(question, FetchRecords):
            self._fetch_later(question, _nothing, done)
        elif not isinstance(question, LatestOffset | EarliestOffset):
            self._ask_now(question, done)
        elif not _only_grows(question):
            self._ask_from_now_on(question, done)
        elif question in self._shared_questions:
            self._shared_questions[question].append(done)
        else:
            self._ask_for_all(question, [done])

    def _ask_from_now_on(self, question: Question[Any], done: Callable[[Any], None]) -> None:
        if question in self._asked_next:
            self._asked_next[question].append(done)
            return
        self._asked_next[question] = [done]
        if question not in self._shared_questions:
            self._reactor.later(0, lambda: self._ask_next(question))

    def _ask_next(self, question: Question[Any]) -> None:
        self._ask_for_all(question, self._asked_next.pop(question))

    def _ask_for_all(self, question: Question[Any], waiting: list[Callable[[Any], None]]) -> None:
        self._shared_questions[question] = waiting
        self._ask_now(question, partial(self._answered_all, question))

    def _answered_all(self, question: Question[Any], answer: object) -> None:
        waiting = self._shared_questions.pop(question)
        if question in self._asked_next:
            self._ask_next(question)
        tell_all(self._reactor, waiting, answer)

    def _fetch_later(
        self, question: FetchRecords | ReadLog, leaves: Callable[[], None], done: Callable[[Any], None]
    ) -> None:
        self._fetches.append((question, leaves, done))
        self._next_fetches()

    def _take_apart(self, start: Callable[[], Steps[Any]], topic: str, done: Callable[[Any], None]) -> None:
        self._long_work.add(start, topic, lambda ended: done(ended.result()), is_modest=True)

    def _next_fetches(self) -> None:
        if self._fetches and self.is_ready and self._reading is None:
            self._reading = ControlConnection(self._reactor, self._next_fetches, self._reading_lost)
            self._reactor.connect(self.address, self._reading)
        if self._reading is not None and not self._reading.is_open:
            return  # continued when the connection is opened, or fails
        while self._fetches and self._fetching < limits.FETCHES_AT_A_TIME:
            question, leaves, done = self._fetches.popleft()
            self._fetching += 1
            leaves()
            self._ask_over(self._reading, question, partial(self._fetched, done))

    def _fetched(self, done: Callable[[Any], None], answer: object) -> None:
        self._fetching -= 1
        done(answer)
        self._next_fetches()

    def _reading_lost(self, reason: str) -> None:
        self._reading = None
        self._logs.forget()
        fetches, self._fetches = self._fetches, deque()
        for _, _, done in fetches:
            done(Unanswered(reason))

    def _ask_now(self, question: Question[Any], done: Callable[[Any], None]) -> None:
        self._ask_over(self._control, question, done)

    def _ask_over(
        self, connection: ControlConnection | None, question: Question[Any], done: Callable[[Any], None]
    ) -> None:
        if not self.is_ready or connection is None:
            self._reactor.later(0, lambda: done(Unanswered("the broker is away")))
            return
        try:
            version = question.version_for(self.ranges)
        except WireError as error:
            reason = f"the broker cannot be asked that: {error}"
            self._reactor.later(0, lambda: done(Unanswered(reason)))
            return

        def answered(body: memoryview | None, reason: str) -> None:
            if body is None:
                done(Unanswered(reason))
                return
            if isinstance(question, ReadLog):
                # Never at once: answers of many partitions may have arrived together.
                self._take_apart(partial(_read, question, version, body), question.topic, done)
            else:
                in_turns(self._reactor, _read(question, version, body), done)

        connection.request(question.api_key, version, question.encode(version), answered)

    # ------------------------------------------------------------------ the control connection
    def confirm(self, done: Callable[[bool], None]) -> None:
        """Is what is connected to now still the broker that was judged? It is if it answers over the control
        connection: that ends with the broker's process."""
        which = FIRST_PROBE
        if self._control is None or not self._control.is_open:
            done(False)
        else:
            self._control.request(which.api_key, which.api_version, which.body, lambda body, _: done(body is not None))

    def _opened(self) -> None:
        self._probe_answers = []
        self._probe()

    def _probe(self) -> None:
        step = detect(self._probe_answers)
        assert self._control is not None
        if isinstance(step, Probe):
            self._control.request(step.api_key, step.api_version, step.body, self._probed)
        else:
            self._detected(step)

    def _probed(self, body: memoryview | None, reason: str) -> None:
        if body is not None:
            self._probe_answers.append(body)
            self._probe()

    def _detected(self, found: Detected) -> None:
        refusal = by_version(found)
        if refusal is not None:
            if refusal.kind is not Kind.UNSURE and self.id != BOOTSTRAP_ID:
                self._judge(found, None)
            else:
                self._refuse(refusal)
            return
        self.version, self.ranges, self.remark = found.version, found.ranges, ""
        which = Metadata(())
        version = which.version_for(self.ranges)
        if version < CLUSTER_ID_VERSION_MIN:
            self._ask_what_it_is(found)
            return
        assert self._control is not None
        self._control.request(which.api_key, version, which.encode(version), partial(self._identified, found, version))

    def _identified(self, found: Detected, version: int, body: memoryview | None, _reason: str) -> None:
        if body is None:
            return
        try:
            cluster_id = Metadata(()).parse(version, body).cluster_id
        except WireError as error:
            self._refuse(Refusal(Kind.UNSURE, f"its answer to Metadata cannot be read: {error}"))
            return
        if not self._admits(cluster_id):
            self._refuse(Refusal(Kind.OTHER_CLUSTER, f"it belongs to another cluster, {cluster_id}"))
        else:
            self._ask_what_it_is(found)

    def _ask_what_it_is(self, found: Detected) -> None:
        if self.id == BOOTSTRAP_ID:  # nothing is produced to a broker that is not listed in Metadata
            self._is_certain()
            return
        if self._mode.wanted is None and needs_probe(found):
            self.awaits_probe = True
            self.judge_by_probe()
            return
        which = AskSettings(self.id, SETTINGS)
        try:
            version = which.version_for(self.ranges) if needs_settings(found, self._mode.enough) else None
        except WireError:
            version = None
        if version is None:
            self._judge(found, None)
            return
        assert self._control is not None
        self._control.request(which.api_key, version, which.encode(version), partial(self._reported, found, version))

    def _reported(self, found: Detected, version: int, body: memoryview | None, _reason: str) -> None:
        if body is None:
            return
        try:
            reported = AskSettings(self.id, SETTINGS).parse(version, body)
        except WireError as error:
            self._refuse(Refusal(Kind.UNSURE, f"its answer to DescribeConfigs cannot be read: {error}"))
            return
        self._judge(found, reported)

    def _judge(self, found: Detected, reported: BrokerSettings | None) -> None:
        judgement = judge_wanted(found, reported, self._mode.enough)
        unsure = judgement.in_native
        if unsure is not None and unsure.kind is Kind.UNSURE and self._mode.chosen is None:
            self._refuse(unsure)  # the next try may tell what it is: until then nothing is chosen
            return
        self.judgement = judgement
        self._on_judged()
        self.serve_or_refuse()

    def judge_by_probe(self) -> None:
        """Judge it if it waits for a probe that is there now."""
        probed = self._mode.probed
        if not self.awaits_probe:
            return
        if probed is not None and probed.is_about(self.ranges):
            self.awaits_probe = False
            self.judgement = probed.judgement
        self._on_judged()
        self.serve_or_refuse()

    def serve_or_refuse(self) -> None:
        """Serve it or refuse it, if it is known what it is and who gives idempotence."""
        judgement, mode = self.judgement, self._mode
        if judgement is None or mode.chosen is None or self._control is None:
            return
        refusal = judgement.refusal(mode.chosen)
        if refusal is not None:
            self._refuse(refusal)
            return
        self.form = judgement.form_in(mode.appends_as)
        if self.takes_batches:
            return
        self.remark = judgement.remark_in(mode.chosen)
        if self.is_ready:
            self._take_batches()
        else:
            self._is_certain()

    def _refuse(self, refusal: Refusal) -> None:
        assert self._control is not None
        self._control.close()
        is_another, self.refusal = refusal != self.refusal, refusal
        self._disconnected(refusal.reason)
        if refusal.kind in (Kind.UNSURE, Kind.OTHER_CLUSTER):
            self._again(limits.CONNECT_BACKOFF_SECONDS_MIN, limits.CONNECT_BACKOFF_SECONDS_MAX)
        else:
            self._again(limits.REFUSED_BACKOFF_SECONDS_MIN, limits.REFUSED_BACKOFF_SECONDS_MAX)
        if is_another:
            self._on_refused(self)

    def _is_certain(self) -> None:
        self.is_ready = True
        self.away_since, self.why_away = None, ""
        self._backoff = limits.CONNECT_BACKOFF_SECONDS_MIN
        self._losses = 0
        if self._has_said_lost or self.refusal is not None:
            self._has_said_lost, self.refusal = False, None
            self._report(OperatorMessage("info", f"{self.name} is back"))
        self._take_batches()
        self._on_ready(self)

    def _take_batches(self) -> None:
        self.takes_batches = True
        last = self.ranges.get(ApiKey.PRODUCE, (0, 0))[1]
        self.pool.batch_version = max((one for one in BATCH_VERSIONS if one <= last), default=BATCH_VERSIONS[0])
        self.pool.set_usable(usable=True)

    def _lost(self, reason: str) -> None:
        self._disconnected(reason)
        if self._is_closed:
            return
        self._losses += 1
        self.why_away = reason
        if self._losses > 1 and not self._has_said_lost:
            self._has_said_lost = True
            self._report(OperatorMessage("warning", f"{self.name} is away: {reason}"))
        self._again(limits.CONNECT_BACKOFF_SECONDS_MIN, limits.CONNECT_BACKOFF_SECONDS_MAX)

    def _disconnected(self, reason: str) -> None:
        self.is_ready = self.takes_batches = self.awaits_probe = False
        self.judgement = None
        if self.away_since is None:
            self.away_since = self._reactor.now()
        self._control = None
        if self._reading is not None:
            self._reading.close()
            self._reading_lost(reason)
        self._logs.forget()
        self.pool.set_usable(False)

    def _again(self, seconds_min: float, seconds_max: float) -> None:
        seconds = min(max(self._backoff, seconds_min), seconds_max)
        self._reactor.later(seconds, self.open)
        self._backoff = seconds * 2


def _nothing() -> None:
    """Nobody wants to know when it leaves."""


def _read(question: Question[Any], version: int, body: memoryview) -> Steps[Any]:
    """Read an answer: return it, or Unanswered. In steps where it may describe a whole cluster, or be a piece of a
    log."""
    try:
        if isinstance(question, Metadata | ReadLog):
            return (yield from question.read(version, body))
        return question.parse(version, body)
    except WireError as error:
        return Unanswered(f"the answer cannot be read: {error}")


def _only_grows(question: LatestOffset | EarliestOffset) -> bool:
    """Is an answer that is under way as good as a new one? Not for the log end: what is in doubt may still be
    appended."""
    return isinstance(question, EarliestOffset) or question.replica_id == HIGH_WATERMARK_REPLICA_ID

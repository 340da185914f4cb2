"""What each effect of a flow does: asks the store, appends, asks a broker, waits. Sans-IO; decides nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...codecs.error_codes import ErrorCode
from ...reactor import Reactor
from ...state.store import Store
from ..admission.long_work import LongWork
from ..admission.loop_budget import LoopBudget
from ..broker.quiescence_watch import QuiescenceWatch
from ..broker.topology import Topology
from ..flow import effects
from ..flow.outcome import NotSent, Outcome
from ..flow.runner import Resume


def effect_handlers(
    reactor: Reactor,
    topology: Topology,
    stored: Callable[[], Store],
    loop_budget: LoopBudget,
    long_work: LongWork,
) -> dict[type, Callable[[Any, Resume], None]]:
    """Return what performs each kind of effect. ``stored``: the store, which comes later than this."""
    quiescence = QuiescenceWatch(reactor, topology.ask)
    turn = loop_budget.in_turn  # what a flow does next may be to convert a batch
    return {
        effects.Read: lambda e, resume: stored().read(e.key, turn(resume)),
        effects.Swap: lambda e, resume: (
            stored().swap(e.key, e.expected_version, e.value, e.ttl_ms, turn(resume))
            if e.name is None
            else stored().swap_named(e.key, e.expected_version, e.value, e.ttl_ms, e.name, turn(resume))
        ),
        effects.NamedEntries: lambda e, resume: stored().named_entries(e.index, e.count_max, turn(resume)),
        effects.ExpireAll: lambda e, resume: stored().expire_all(e.index, e.ttl_ms, e.now_ms, e.renews, turn(resume)),
        effects.ListName: lambda e, resume: stored().list_name(
            e.names, e.member, e.ttl_ms, e.now_ms, e.count_max, turn(resume)
        ),
        effects.MemberAlive: lambda e, resume: stored().member_alive(e.instance_id, turn(resume)),
        effects.Append: lambda e, resume: _append(reactor, topology, e, turn(resume)),
        effects.Ask: lambda e, resume: topology.ask(e.broker_id, e.question, turn(resume)),
        effects.QuiescenceCheck: lambda e, resume: quiescence.when_quiescent(
            e.broker_id, e.topic, e.partition, turn(resume)
        ),
        effects.Leader: lambda e, resume: topology.leader(e.topic, e.partition, e.refresh, turn(resume)),
        effects.Replicas: lambda e, resume: resume(topology.replicas_of(e.topic, e.partition)),
        effects.Wait: lambda e, resume: reactor.later(e.seconds, lambda: turn(resume)(None)),
        effects.Pause: lambda e, resume: _pause(reactor, e, resume),
        effects.Work: lambda e, resume: long_work.add(e.start, e.sender, resume),
        effects.Now: lambda _, resume: resume(reactor.now()),
    }


def look_at_outcome(topology: Topology, topic: str, outcome: Outcome) -> None:
    """If a broker did not know the topic, do not believe its metadata until it was asked for again: the topic may have
    been deleted."""
    if not isinstance(outcome, NotSent) and outcome.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        topology.distrust(topic)


def _append(reactor: Reactor, topology: Topology, effect: effects.Append, resume: Resume) -> None:
    def ended(outcome: Outcome) -> None:
        look_at_outcome(topology, effect.topic, outcome)
        resume(outcome)

    broker = topology.broker(effect.broker_id)
    if broker is None or not broker.takes_batches:
        reactor.later(0, lambda: resume(NotSent("the broker is away")))
    else:
        broker.pool.append(effect, ended)


def _pause(reactor: Reactor, effect: effects.Pause, resume: Resume) -> None:
    bell = effect.bell
    if bell.rung:
        bell.rung = False
        resume(True)
        return

    def ring() -> None:
        bell.listener = None
        timer.cancel()
        resume(True)

    def time_out() -> None:
        bell.listener = None
        resume(False)

    timer = reactor.later(effect.seconds, time_out)
    bell.listener = ring

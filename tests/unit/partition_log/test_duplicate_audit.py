"""A batch that was sent again is looked for twice in the log, a minute and ten minutes later (rule R14)."""

import random

import pytest

from idemproxy.codecs.batch_marker import Identity
from idemproxy.codecs.error_codes import ErrorCode
from idemproxy.codecs.message_set import encode_set
from idemproxy.proxy import limits
from idemproxy.proxy.events import AppendAfterDeadline, DuplicateFound
from idemproxy.proxy.flow.effects import Append
from idemproxy.proxy.flow.outcome import InDoubt, Outcome
from idemproxy.proxy.partition_log.log_offsets import Position
from idemproxy.state.entry import NO_ANCHOR
from testkit.stage.sequencer import TOPIC, Client, Stage

ALL_LOOKS_SECONDS = sum(limits.DUPLICATE_AUDITS_SECONDS) + 60


def copies(stage: Stage) -> list[tuple[int, ...]]:
    return [event.offsets for event in stage.events if isinstance(event, DuplicateFound)]


class Sleeper:
    """A broker that stands still over the first append and carries it out when ``wake`` is called."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._held: Append | None = None
        stage.outcomes.append(self._hold)

    def _hold(self, effect: Append) -> Outcome:
        self._held = effect
        return InDoubt("no answer in time", effect.broker_id)

    def wake(self) -> None:
        assert self._held is not None
        self._stage.take(self._held)


@pytest.mark.promise("second-copy-reported")
def test_a_first_try_that_is_appended_after_all_is_reported() -> None:
    stage = Stage()
    broker = Sleeper(stage)
    request = stage.send(Client(), 0)
    stage.run(10)
    assert request.offset == 0
    broker.wake()
    stage.run(20)
    assert copies(stage) == []
    stage.run(ALL_LOOKS_SECONDS)
    assert copies(stage) == [(0, 1)]


@pytest.mark.promise("pause-before-write")
def test_a_write_that_left_late_and_its_duplicate_are_reported() -> None:
    stage = Stage()
    client = Client()
    stage.send(client, 0)
    stage.run(1)
    late: list[Append] = []

    def stand_still(effect: Append) -> Outcome:
        late.append(effect)
        stage.begin_lease_epoch(stage.context.instance.data_generation)  # meanwhile its lease has ended
        return InDoubt("the lease ended before the last byte was sent", effect.broker_id, is_late=True)

    stage.outcomes.append(stand_still)
    first = stage.send(client, 1)
    assert first.code == 7
    told = [event for event in stage.events if isinstance(event, AppendAfterDeadline)]
    assert [(one.producer_epoch, one.base_sequences) for one in told] == [(0, (1,))]
    retry = stage.send(Client(), 1)
    stage.run(20)
    assert retry.offset == 1
    stage.take(late[0])
    stage.run(ALL_LOOKS_SECONDS)
    assert copies(stage) == [(1, 2)]


def test_a_duplicate_that_comes_minutes_later_is_reported() -> None:
    stage = Stage()
    client = Client()
    stage.send(client, 0)
    broker = Sleeper(stage)
    stage.send(client, 1)
    stage.run(200)
    stage.send(client, 2)
    broker.wake()
    stage.run(ALL_LOOKS_SECONDS)
    assert copies(stage) == [(1, 3)]


def test_what_was_not_found_and_comes_with_a_retry_is_looked_for_too() -> None:
    stage = Stage()
    client = Client()
    stage.send(client, 0)
    stage.run(1)
    broker = Sleeper(stage)
    stage.send(client, 1)
    client.is_closed = True  # so it is not sent again
    stage.run(10)
    retry = stage.send(Client(), 1)
    stage.run(1)
    assert retry.offset == 1
    broker.wake()
    stage.run(ALL_LOOKS_SECONDS)
    assert copies(stage) == [(1, 2)]


def test_a_batch_with_a_single_copy_is_not_reported() -> None:
    stage = Stage()
    client = Client()
    stage.outcomes.append(stage.loses_request)
    for sequence in range(3):
        stage.send(client, sequence)
        stage.run(10)
    stage.run(ALL_LOOKS_SECONDS)
    assert copies(stage) == []
    assert stage.failures() == []


def test_what_was_sent_once_is_not_looked_for_again() -> None:
    stage = Stage()
    stage.outcomes.append(stage.loses_answer)
    assert stage.send(Client(), 0).code is None
    stage.run(10)
    asked = len(stage.asked)
    stage.run(ALL_LOOKS_SECONDS)
    assert len(stage.asked) == asked


def test_a_dead_proxys_append_that_was_not_found_is_looked_for_later() -> None:
    stage = Stage()
    broker = Sleeper(stage)
    stage.send(Client(), 0)
    stage.die()
    request = stage.send(Client(), 0)
    stage.run(10)
    assert request.offset == 0
    broker.wake()
    stage.run(ALL_LOOKS_SECONDS)
    assert copies(stage) == [(0, 1)]


def test_all_batches_of_a_partition_are_looked_for_by_one() -> None:
    stage = Stage()
    places = [(TOPIC, 0), (TOPIC, 1)]
    flows = [
        stage.context.duplicate_audit.looking_for(place, Position(bound, NO_ANCHOR), {Identity(producer, 0, 0, 1)})
        for place in places
        for producer, bound in enumerate((5, 3, 9))
    ]
    assert [flow is not None for flow in flows] == [True, False, False] * 2
    for place in places:
        waiting = stage.context.duplicate_audit.waiting[place]
        assert waiting.bound.offset == 3
        assert len(waiting.names) == 3
    for flow in flows:
        if flow is not None:
            stage.stream.work_aside(flow)
    stage.run(limits.DUPLICATE_AUDITS_SECONDS[0] - 1)
    assert stage.asked == []
    stage.run(30)
    assert stage.context.duplicate_audit.waiting == {}
    stage.run(ALL_LOOKS_SECONDS)
    assert stage.failures() == []
    assert not stage.context.duplicate_audit.is_looking


@pytest.mark.promise("second-copy-reported")
@pytest.mark.parametrize("held_part", [0, 1])
@pytest.mark.parametrize("dies", [False, True])
def test_a_duplicate_of_any_part_is_reported_whichever_proxy_sends_the_rest(held_part: int, dies: bool) -> None:
    stage = Stage()
    held: list[Append] = []

    def judge(effect: Append) -> Outcome:
        stage.outcomes.append(judge)
        if len(effect.message_set) > 2500:
            return stage.refuses(int(ErrorCode.MESSAGE_TOO_LARGE))(effect)
        if len(stage.log.messages) == held_part and not held:
            held.append(effect)
            return stage.never_answers(effect) if dies else InDoubt("no answer in time", effect.broker_id)
        return stage.succeeds(effect)

    stage.outcomes.append(judge)
    values = [random.Random(seed).randbytes(2000) for seed in (1, 2)]
    request = stage.send(Client(), 0, *values)
    stage.run(20)
    if dies:
        stage.die()
        request = stage.send(Client(), 0, *values)
        stage.run(20)
    assert (request.code, stage.stored_values()) == (0, values)
    stage.take(held[0])
    stage.run(ALL_LOOKS_SECONDS)
    assert copies(stage) == [(held_part, 2)]


def test_a_part_that_left_late_is_looked_for_too() -> None:
    stage = Stage()
    late: list[Append] = []

    def judge(effect: Append) -> Outcome:
        stage.outcomes.append(judge)
        if len(effect.message_set) > 2500:
            return stage.refuses(int(ErrorCode.MESSAGE_TOO_LARGE))(effect)
        if len(stage.log.messages) == 1 and not late:
            late.append(effect)
            stage.begin_lease_epoch(stage.context.instance.data_generation)  # meanwhile its lease has ended
            return InDoubt("the lease ended before the last byte was sent", effect.broker_id, is_late=True)
        return stage.succeeds(effect)

    stage.outcomes.append(judge)
    values = [random.Random(seed).randbytes(2000) for seed in (1, 2)]
    stage.send(Client(), 0, *values)
    (told,) = [event for event in stage.events if isinstance(event, AppendAfterDeadline)]
    assert told.base_sequences == (1,)
    retry = stage.send(Client(), 0, *values)
    stage.run(20)
    assert (retry.code, stage.stored_values()) == (0, values)
    stage.take(late[0])
    stage.run(ALL_LOOKS_SECONDS)
    assert copies(stage) == [(1, 2)]


def test_a_duplicate_after_many_records_of_other_writers_is_reported() -> None:
    """A partition that gets a megabyte a second; the broker wakes up after more than half a minute."""
    stage = Stage()
    broker = Sleeper(stage)
    stage.send(Client(), 0)
    stage.run(10)
    for number in range(100):
        others = encode_set([(None, random.Random(number).randbytes(800_000), 0)], magic=1)
        stage.log.append(others, stage.now)
    broker.wake()
    stage.run(ALL_LOOKS_SECONDS)
    assert stage.failures() == []
    assert copies(stage) == [(0, 101)]

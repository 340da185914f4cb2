"""After a loss of the store: a long log is read from a checkpoint of some time ago where that says all of a producer,
else as a whole (rules R10, R14)."""

import pytest

from idemproxy.codecs.batch_marker import anchor_of
from idemproxy.codecs.message_set import encode_set, iterate_shallow
from idemproxy.codecs.steps import at_once
from idemproxy.proxy import limits
from idemproxy.proxy.events import DuplicateFound, UnknownOutcomeResolved
from idemproxy.proxy.flow.outcome import Appended
from idemproxy.proxy.partition_log.log_offsets import Position
from idemproxy.state.entry import NO_ANCHOR
from testkit.stage.sequencer import PARTITION, TOPIC, Client, Stage
from testkit.virtual import world as virtual_world
from testkit.virtual.client import VirtualClient
from testkit.virtual.world import World, WorldSettings

PLACE = (TOPIC, PARTITION)
HORIZON_SECONDS, LIVES_OUT_SECONDS = 600, 30
LONG_BYTES, SHORT_BYTES = 300_000, 100
BELOW_WINDOW, INVALID = 46, 87
NOT_LASTING = (6, 7, 20)
"""NOT_LEADER, REQUEST_TIMED_OUT, NOT_ENOUGH_REPLICAS_AFTER_APPEND: appended, and may vanish yet."""


def foreign(stage: Stage, size_bytes: int = SHORT_BYTES) -> None:
    """Somebody else writes."""
    stage.log.append(encode_set([(None, b"%f" % stage.now + b"f" * size_bytes, 0)], magic=1), stage.now)
    stage.log.advance(stage.log.end_offset)


def send_all(stage: Stage, *sequences: int, epoch: int = 0) -> None:
    client = Client()
    for sequence in sequences:
        request = stage.send(client, sequence, epoch=epoch)
        stage.run(1)
        assert request.code == 0


def checkpoint(stage: Stage, *, with_anchor: bool = True) -> None:
    """Note where the log ends, as the engine does from time to time."""
    end = stage.log.end_offset
    last = list(iterate_shallow(stage.log.read(end - 1, 1 << 20, whole_first=True, up_to=end)))[-1]
    stage.context.bounds.note(TOPIC, PARTITION, Position(end, anchor_of(last) if with_anchor else NO_ANCHOR))
    bounds = stage.context.bounds
    if bounds.are_checkpoints_due(stage.now):
        at_once(bounds.taking_checkpoints(lambda: stage.now))


def grown_old(*before: int, with_anchor: bool = True) -> Stage:
    """A long log with some batches at its beginning, and a checkpoint at its end that is older than the horizon."""
    stage = Stage()
    send_all(stage, *before)
    foreign(stage, LONG_BYTES)
    foreign(stage)
    checkpoint(stage, with_anchor=with_anchor)
    stage.run(HORIZON_SECONDS + 1)
    return stage


def lose(stage: Stage) -> None:
    """FLUSHALL."""
    stage.values.clear()
    stage.begin_lease_epoch()
    stage.sequencer = stage.new_sequencer()


def bytes_read(stage: Stage) -> int:
    """By all rebuilds together."""
    return sum(event.bytes_read for event in stage.events if isinstance(event, UnknownOutcomeResolved))


# ---------------------------------------------------------------------- the checkpoint is enough
def test_a_retry_of_what_was_stored_lately_is_found_without_reading_what_is_old() -> None:
    stage = grown_old(0, 1)
    send_all(stage, 2, 3)
    lose(stage)
    client = Client()
    retry = stage.send(client, 3)
    stage.run(LIVES_OUT_SECONDS)
    assert (retry.code, retry.offset) == (0, 5)
    assert 0 < bytes_read(stage) < LONG_BYTES / 10
    next_one = stage.send(client, 4)
    stage.run(1)
    assert next_one.offset == 6


def test_a_new_producer_starts_without_reading_the_old_log() -> None:
    stage = grown_old()
    foreign(stage)
    lose(stage)
    first = stage.send(Client(), 0)
    stage.run(LIVES_OUT_SECONDS)
    assert first.offset == 3
    assert 0 < bytes_read(stage) < LONG_BYTES / 10


def test_a_new_epoch_starts_without_reading_the_old_log() -> None:
    stage = grown_old(0, 1)
    send_all(stage, 2)
    lose(stage)
    first = stage.send(Client(), 0, epoch=1)
    stage.run(LIVES_OUT_SECONDS)
    assert first.offset == 5
    assert bytes_read(stage) < LONG_BYTES / 10


@pytest.mark.promise("rebuild-recent-log")
def test_a_gap_below_the_checkpoint_is_in_nobodys_way() -> None:
    stage = grown_old()
    foreign(stage)
    del stage.log.messages[0]
    lose(stage)
    first = stage.send(Client(), 0)
    stage.run(LIVES_OUT_SECONDS)
    assert first.offset == 3


def test_a_gap_above_the_checkpoint_may_hide_what_comes() -> None:
    stage = grown_old()
    foreign(stage)
    foreign(stage)
    del stage.log.messages[2]
    lose(stage)
    first = stage.send(Client(), 0)
    stage.run(LIVES_OUT_SECONDS)
    assert first.code == INVALID


def test_what_continues_a_stored_entry_needs_no_more_than_what_came_after_the_checkpoint() -> None:
    stage = grown_old(0, 1)
    foreign(stage)
    stage.begin_lease_epoch()  # Redis was restarted and has lost nothing
    stage.sequencer = stage.new_sequencer()
    next_one = stage.send(Client(), 2)
    stage.run(LIVES_OUT_SECONDS)
    assert next_one.offset == 5
    assert bytes_read(stage) < LONG_BYTES / 10
    assert stage.entry().window[0].base_offset == 0


def test_a_batch_before_the_checkpoint_never_gets_out_of_order() -> None:
    stage = grown_old(0, 1)
    send_all(stage, *range(2, 10))
    lose(stage)
    client = Client()
    retry = stage.send(client, 9)
    stage.run(LIVES_OUT_SECONDS)
    assert retry.offset == 11
    send_all(stage, *range(10, 16))
    late = stage.send(Client(), 1)
    stage.run(LIVES_OUT_SECONDS)
    assert late.code == BELOW_WINDOW
    stage.log.retain(3)
    stage.earliest = 3
    late = stage.send(Client(), 1)
    stage.run(LIVES_OUT_SECONDS)
    assert late.code == INVALID


def test_where_an_epoch_that_began_after_the_checkpoint_begins_is_known() -> None:
    stage = grown_old()
    send_all(stage, *range(8))
    lose(stage)
    retry = stage.send(Client(), 7)
    stage.run(LIVES_OUT_SECONDS)
    assert retry.offset == 9
    assert stage.entry().first_base_offset == 2


def test_the_start_of_the_log_that_retention_has_moved_beyond_the_checkpoint_is_enough() -> None:
    stage = grown_old(0)
    send_all(stage, 1, 2)
    stage.log.retain(4)
    stage.earliest = 4
    lose(stage)
    retry = stage.send(Client(), 2)
    stage.run(LIVES_OUT_SECONDS)
    assert retry.offset == 4


def test_a_new_proxy_instance_uses_the_checkpoints_of_the_one_before() -> None:
    stage = grown_old()
    foreign(stage)
    data = stage.context.bounds.checkpoints.pack(stage.now, 1_000_000)
    stage.die()
    stage.context.bounds.checkpoints.unpack(data, stage.now, 1_000_000)
    lose(stage)
    first = stage.send(Client(), 0)
    stage.run(LIVES_OUT_SECONDS)
    assert first.offset == 3
    assert 0 < bytes_read(stage) < LONG_BYTES / 10


@pytest.mark.promise("rebuild-recent-log")
@pytest.mark.parametrize("code", NOT_LASTING)
def test_an_append_that_is_answered_with_an_error_costs_no_checkpoint(code: int) -> None:
    """Leaders move and followers stop every day: a loss in Redis after that reads no whole log either."""
    stage = grown_old(0, 1)
    stage.outcomes.append(lambda append: Appended(stage.take(append), code, -1, stage.produce_connection))
    send_all(stage, 2)
    assert PLACE not in stage.context.bounds.known, "the next append's bound is read again"
    lose(stage)
    retry = stage.send(Client(), 2)
    stage.run(LIVES_OUT_SECONDS)
    assert (retry.code, retry.offset) == (0, 4)
    assert 0 < bytes_read(stage) < LONG_BYTES / 10


@pytest.mark.promise("rebuild-recent-log")
@pytest.mark.parametrize("code", NOT_LASTING)
def test_an_outdated_checkpoint_after_an_error_answer_is_detected_on_use(code: int) -> None:
    """The new leader lacks what the checkpoint was taken from: what it has stored since lies below the checkpoint."""
    stage = grown_old()
    stage.outcomes.append(lambda append: Appended(stage.take(append), code, -1, stage.produce_connection))
    send_all(stage, 0)
    stage.log.truncate(0, unclean=True)
    send_all(stage, 1)
    for _ in range(3):
        foreign(stage)
    lose(stage)
    retry = stage.send(Client(), 1)
    stage.run(LIVES_OUT_SECONDS)
    assert (retry.code, retry.offset) == (0, 0)
    assert stage.context.bounds.checkpoints.before_horizon(PLACE, stage.now + HORIZON_SECONDS) is None, (
        "they are forgotten"
    )


# ---------------------------------------------------------------------- the checkpoint is not enough
@pytest.mark.promise("rebuild-whole-log")
def test_a_producer_that_was_idle_for_longer_is_looked_for_in_the_whole_log() -> None:
    stage = grown_old(0, 1)
    foreign(stage)
    lose(stage)
    next_one = stage.send(Client(), 2)
    stage.run(LIVES_OUT_SECONDS)
    assert next_one.offset == 5
    assert bytes_read(stage) > LONG_BYTES


def test_a_batch_below_what_was_found_is_looked_for_in_the_whole_log() -> None:
    stage = grown_old(0, 1)
    send_all(stage, 2)
    lose(stage)
    retry = stage.send(Client(), 1)
    stage.run(LIVES_OUT_SECONDS)
    assert (retry.code, retry.offset) == (0, 1)


def test_the_lowest_batch_that_waits_decides() -> None:
    stage = grown_old(0, 1)
    send_all(stage, 2)
    lose(stage)
    client = Client()
    later, earlier = stage.send(client, 2), stage.send(client, 1)
    stage.run(LIVES_OUT_SECONDS)
    assert (earlier.offset, later.offset) == (1, 4)


def test_a_checkpoint_that_is_younger_than_the_horizon_is_not_used() -> None:
    stage = Stage()
    foreign(stage, LONG_BYTES)
    send_all(stage, 0)
    checkpoint(stage)
    stage.run(HORIZON_SECONDS / 2)
    lose(stage)
    retry = stage.send(Client(), 0)
    stage.run(LIVES_OUT_SECONDS)
    assert retry.offset == 1
    assert len(stage.log.messages) == 2


def test_the_horizon_counts_back_from_when_a_batch_came() -> None:
    stage = Stage()
    foreign(stage)
    send_all(stage, 0)
    checkpoint(stage)
    stage.run(HORIZON_SECONDS - 1)
    lose(stage)
    retry = stage.send(
        Client(), 0
    )  # the leases of the lost state have to run out: until then the checkpoint is old enough
    stage.run(LIVES_OUT_SECONDS)
    assert retry.offset == 1
    assert len(stage.log.messages) == 2


@pytest.mark.promise("rebuild-whole-log")
def test_a_log_truncated_below_the_checkpoint_and_regrown_is_read_whole() -> None:
    stage = grown_old()
    stage.log.truncate(0, unclean=True)
    send_all(stage, 0)
    foreign(stage)
    foreign(stage)
    foreign(stage)
    stage.context.bounds.checkpoints.note(stage.now, PLACE, stage.context.bounds.known[PLACE][1])
    lose(stage)
    retry = stage.send(Client(), 0)
    stage.run(LIVES_OUT_SECONDS)
    assert retry.offset == 0
    assert stage.context.bounds.checkpoints.before_horizon(PLACE, stage.now + HORIZON_SECONDS) is None, (
        "they are forgotten"
    )


def test_a_position_without_an_anchor_is_no_checkpoint_after_a_truncation() -> None:
    stage = grown_old(with_anchor=False)
    stage.log.truncate(0, unclean=True)
    send_all(stage, 0)
    foreign(stage)
    foreign(stage)
    foreign(stage)
    lose(stage)
    retry = stage.send(Client(), 0)
    stage.run(LIVES_OUT_SECONDS)
    assert retry.offset == 0
    assert len(stage.log.messages) == 4


def test_an_unfinished_rebuild_is_resumed_from_the_stored_bound() -> None:
    stage = grown_old(0, 1)
    known = stage.entry()
    stage.begin_lease_epoch()  # what is stored may lack its last writes
    stage.sequencer = stage.new_sequencer()
    stage.swapped.clear()
    stage.send(Client(), 2)
    stage.run(LIVES_OUT_SECONDS)
    claims = [one.intent for one in stage.swapped if one.intent is not None and not one.intent.batches]
    assert [(claim.lower_bound, claim.anchor) for claim in claims] == [(known.end_offset, known.anchor)]


# ---------------------------------------------------------------------- the second look
@pytest.mark.promise("second-copy-reported")
def test_a_first_copy_appended_after_the_rebuild_is_reported() -> None:
    stage = grown_old()
    foreign(stage)
    lose(stage)
    request = stage.send(Client(), 0)
    stage.run(LIVES_OUT_SECONDS)
    assert request.code == 0
    stage.take(stage.sent[-1])  # a proxy of the lost state had sent it, and its broker stood still
    stage.run(limits.DUPLICATE_AUDITS_SECONDS[0] + 5)
    assert [event.offsets for event in stage.events if isinstance(event, DuplicateFound)] == [(3, 4)]


def test_what_a_rebuild_has_found_is_not_looked_for_again() -> None:
    stage = grown_old()
    send_all(stage, 0)
    lose(stage)
    request = stage.send(Client(), 0)
    stage.run(LIVES_OUT_SECONDS)
    assert request.code == 0
    assert stage.context.duplicate_audit.waiting == {}


# ---------------------------------------------------------------------- all together
def test_a_proxy_with_checkpoints_reads_little_after_redis_is_emptied() -> None:
    world = World(1, WorldSettings(brokers=1, clients=3))
    world.start()
    old, busy, new = world.clients
    log = world.cluster.log(virtual_world.TOPIC, PARTITION)

    def done(client: VirtualClient) -> None:
        client.send(virtual_world.TOPIC, PARTITION)
        assert world.network.run(60, lambda: client.is_done)

    for _ in range(100):
        done(old)
    world.network.run(HORIZON_SECONDS + HORIZON_SECONDS / limits.CHECKPOINTS_PER_HORIZON)
    done(busy)
    world.network.run(5)
    world.redis.flush()
    (proxy,) = world.proxies
    proxy.crash()
    world.network.run(5)
    before = len(proxy.events)
    done(busy)
    done(new)
    read = [event.bytes_read for _, _, event in proxy.events[before:] if isinstance(event, UnknownOutcomeResolved)]
    stored = sum(len(one.message.data) for one in log.messages)
    assert 0 < sum(read) < stored / 10
    assert len(log.messages) == 103
    assert world.errors() == []

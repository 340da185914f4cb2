"""A newer epoch of a producer: what its older one left is resolved first, and nothing of that is forwarded (R12)."""

from collections.abc import Callable
from typing import Any

from idemproxy.proxy.flow.effects import QuiescenceCheck, Swap, Wait
from testkit.stage.sequencer import Client, Stage

TIMED_OUT, FENCED = 7, 47


def once(stage: Stage, kind: type, act: Callable[[], Any]) -> None:
    """Do something in the step of the next effect of this type."""

    def watch(_effect: Any) -> None:
        del stage.before[kind]
        act()

    stage.before[kind] = watch


def test_a_batch_missing_from_the_log_is_dropped_for_a_newer_epoch() -> None:
    stage, client = Stage(), Client()
    stage.outcomes.append(stage.loses_request)
    once(stage, Wait, lambda: stage.send(client, 0, b"the same records", epoch=1))
    old = stage.send(client, 0, b"the same records")
    stage.run(30)
    assert old.code == TIMED_OUT
    assert stage.stored_values() == [b"the same records"]
    assert stage.entry().producer_epoch == 1
    again = stage.send(client, 0, b"the same records")
    stage.run(1)
    assert again.code == FENCED


def test_a_batch_in_doubt_that_is_found_is_answered_before_the_newer_epoch_begins() -> None:
    stage, client = Stage(), Client()
    stage.outcomes.append(stage.loses_answer)
    once(stage, QuiescenceCheck, lambda: stage.send(client, 0, b"new", epoch=1))
    old = stage.send(client, 0, b"old")
    stage.run(30)
    assert old.offset == 0
    assert stage.stored_values() == [b"old", b"new"]


def test_a_newer_epoch_that_comes_while_the_older_one_is_reserved_stops_its_send() -> None:
    stage, client = Stage(), Client()
    once(stage, Swap, lambda: stage.send(client, 0, b"new", epoch=1))
    old = stage.send(client, 0, b"old")
    stage.run(5)
    assert old.code == TIMED_OUT
    assert stage.stored_values() == [b"new"]


def test_of_two_epochs_that_wait_only_the_newer_one_is_sent() -> None:
    stage, client = Stage(), Client()
    stage.store_away = True
    old, new = stage.send(client, 0, b"old"), stage.send(client, 0, b"new", epoch=1)
    stage.run(1)
    stage.store_away = False
    stage.run(5)
    assert (old.code, new.offset) == (TIMED_OUT, 0)
    assert stage.stored_values() == [b"new"]
    assert [effect.identities[0].producer_epoch for effect in stage.sent] == [1]

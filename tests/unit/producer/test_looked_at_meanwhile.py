"""The admin port asks in another thread how it stands with a producer: what the loop does in the middle of that stays
as it is, though that thread may be interrupted anywhere."""

import threading
from collections.abc import Callable

import pytest

from idemproxy.proxy.producer.sequencer import Sequencer
from idemproxy.state.entry import Entry
from idemproxy.state.packed import PackedEntry
from testkit.stage.sequencer import Client, Stage


@pytest.fixture
def look(monkeypatch: pytest.MonkeyPatch) -> Callable[[Sequencer, Callable[[], None]], None]:
    """Another thread asks, and the interpreter continues the loop when it has just made the entry."""
    make, loop = PackedEntry.entry, threading.current_thread()
    is_made, goes_on = threading.Event(), threading.Event()

    def entry(packed: PackedEntry) -> Entry:
        made = make(packed)
        if threading.current_thread() is not loop:
            is_made.set()
            assert goes_on.wait(10)
        return made

    def looked_at(sequencer: Sequencer, meanwhile: Callable[[], None]) -> None:
        monkeypatch.setattr(PackedEntry, "entry", entry)
        asks = threading.Thread(target=sequencer.statistics)
        asks.start()
        assert is_made.wait(10)
        meanwhile()
        goes_on.set()
        asks.join(10)
        assert not asks.is_alive()

    return looked_at


def a_busy_producer() -> tuple[Stage, Client]:
    stage, client = Stage(answers_later=True), Client()
    for sequence in range(3):
        stage.send(client, sequence)
        stage.run(1)
    assert stage.send(client, 3).code is None
    stage.run(0.005)  # it was appended at once, and its commit is not written yet
    return stage, client


def two_more(stage: Stage, client: Client) -> None:
    """The first one is appended at once, the other one, as the proxy is busy, is prepared by a flow."""
    four = stage.send(client, 4)
    stage.run(0.002)
    stage.context.is_pass_long = lambda: True
    five = stage.send(client, 5)
    stage.run(0.002)
    stage.context.is_pass_long = lambda: False
    assert (four.code, five.code) == (0, 0)


def test_what_comes_next_is_no_gap(look: Callable[[Sequencer, Callable[[], None]], None]) -> None:
    stage, client = a_busy_producer()
    look(stage.sequencer, lambda: two_more(stage, client))
    request = stage.send(client, 6)
    stage.run(30, until=lambda: request.is_done)
    assert request.code == 0, request.message


def test_what_was_stored_meanwhile_is_not_appended_again(look: Callable[[Sequencer, Callable[[], None]], None]) -> None:
    """The client's connection is lost with the answers."""
    stage, client = a_busy_producer()
    look(stage.sequencer, lambda: two_more(stage, client))
    client.is_closed = True
    again = [stage.send(Client(), 4), stage.send(Client(), 5)]
    stage.run(30, until=lambda: all(one.is_done for one in again))
    assert stage.stored_values() == [b"value %d" % sequence for sequence in range(6)]


def test_what_redis_has_is_not_made_older(look: Callable[[Sequencer, Callable[[], None]], None]) -> None:
    stage, client = a_busy_producer()
    look(stage.sequencer, lambda: two_more(stage, client))
    stage.run(30)
    assert stage.entry().next_sequence == 6

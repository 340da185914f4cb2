"""Flows and the errors of what they ask for: a flow ends, and its caller gets the error."""

from collections.abc import Callable
from typing import Any

import pytest

from idemproxy.proxy.flow.effects import Append, Now, Swap, Wait
from idemproxy.proxy.flow.runner import FlowRunner, Resume
from testkit.stage.sequencer import Client, Stage


class Ours(Exception):
    """An error of our own."""


async def two_effects() -> float:
    await Wait(1.0)
    return await Now()


def test_a_flow_whose_effect_cannot_be_performed_fails() -> None:
    def perform(_effect: Any, _resume: Resume) -> None:
        raise Ours

    failed: list[Exception] = []
    FlowRunner({Wait: perform}).start(two_effects(), failed=failed.append)
    assert [type(error) for error in failed] == [Ours]


def test_a_result_that_comes_after_the_failure_is_ignored() -> None:
    late: list[Callable[[Any], None]] = []

    def perform(_effect: Any, resume: Resume) -> None:
        late.append(resume)
        raise Ours

    failed: list[Exception] = []
    FlowRunner({Wait: perform}).start(two_effects(), failed=failed.append)
    late[0](None)
    assert len(failed) == 1


def test_without_anybody_to_tell_the_error_goes_up() -> None:
    def perform(_effect: Any, _resume: Resume) -> None:
        raise Ours

    with pytest.raises(Ours):
        FlowRunner({Wait: perform}).start(two_effects())


@pytest.mark.parametrize("kind", [Swap, Append])
def test_a_producer_continues_after_an_effect_could_not_be_performed(kind: type) -> None:
    stage = Stage()
    client = Client()

    def fail(_effect: Any) -> None:
        del stage.before[kind]
        raise Ours

    stage.before[kind] = fail
    first = stage.send(client, 0)
    assert first.code == 7
    assert [type(error) for error in stage.failures()] == [Ours]
    again = stage.send(client, 0)
    stage.run(10)
    assert again.offset == 0
    assert stage.stored_values() == [b"value 0"]

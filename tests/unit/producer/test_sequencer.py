"""A retry that comes while its first try is being dropped (rules R13, R17)."""

from idemproxy.proxy.flow.effects import Append
from testkit.stage.sequencer import Client, Request, Stage


def test_a_retry_after_its_dropped_first_try_is_a_first_try() -> None:
    stage, first, second = Stage(), Client(), Client()
    stage.before[Append] = lambda _effect: setattr(first, "is_closed", True)
    stage.send(first, 0)
    assert stage.sent == [], "nobody starts for a client that has gone (rule R17)"
    del stage.before[Append]
    retry = stage.send(second, 0)
    stage.run(1)
    assert (retry.offset, len(stage.sent)) == (0, 1)


def test_a_retry_that_comes_before_the_send_takes_the_first_try_over() -> None:
    stage, first = Stage(), Client()
    retries: list[Request] = []

    def come_back(_effect: Append) -> None:
        first.is_closed = True
        retries.append(stage.send(Client(), 0))

    stage.before[Append] = come_back
    stage.send(first, 0)
    assert ([retry.offset for retry in retries], len(stage.sent)) == ([0], 1)

"""A batch that unpacks to more than one wrapper may hold is stored in several, and all of it was read before the first
one is sent (rule R19)."""

from typing import Any

import pytest

from idemproxy.codecs.batch_marker import parse_batch_marker
from idemproxy.codecs.compression import Codec
from idemproxy.codecs.steps import Steps
from idemproxy.proxy import limits
from idemproxy.proxy.flow.effects import Work
from testkit.stage.sequencer import Client, Request, Stage

MIB = 1 << 20
TOO_LARGE, HEADER_REFUSED = 10, 43
VALUES = [bytes(MIB // 8)] * 24


@pytest.fixture(autouse=True)
def small_wrappers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "WRAPPER_UNPACKED_BYTES_MAX", MIB + MIB // 2)


def is_marked(stage: Stage) -> list[bool]:
    return [parse_batch_marker(stored.message.key) is not None for stored in stage.log.messages]


@pytest.mark.parametrize("planned_bytes_max", [1, limits.PLANNED_BYTES_MAX])
@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.ZSTD])
def test_it_is_stored_once_in_parts_and_answered_with_its_first_offset(
    codec: Codec, planned_bytes_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "PLANNED_BYTES_MAX", planned_bytes_max)
    stage, client = Stage(), Client()
    before, request = stage.send(client, 0, b"before"), stage.send(client, 1, *VALUES, codec=codec)
    stage.run(60)
    assert (before.code, request.code, request.offset) == (0, 0, 1)
    assert stage.stored_values() == [b"before", *VALUES]
    assert is_marked(stage) == [True] * 4, "three parts"
    again = stage.send(client, 1, *VALUES, codec=codec)
    later = stage.send(client, 25, b"later")
    stage.run(60)
    assert (again.code, again.offset, later.code, later.offset) == (0, 1, 0, 25)
    assert stage.stored_values() == [b"before", *VALUES, b"later"]
    assert stage.failures() == []


@pytest.mark.parametrize("lost", [0, 1, 2])
@pytest.mark.parametrize("is_stored", [True, False])
def test_a_lost_answer_to_any_part_makes_no_duplicate(lost: int, is_stored: bool) -> None:
    stage = Stage()
    stage.outcomes += [stage.succeeds] * lost + [stage.loses_answer if is_stored else stage.loses_request]
    request = stage.send(Client(), 0, *VALUES, codec=Codec.ZSTD)
    stage.run(60)
    assert (request.code, request.offset) == (0, 0)
    assert stage.stored_values() == VALUES


def test_nothing_is_stored_of_a_batch_whose_last_record_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PLANNED_BYTES_MAX", 1)
    stage = Stage()
    request = stage.send(Client(), 0, *VALUES, codec=Codec.ZSTD, last_headers=[("tenant", b"blue")])
    stage.run(60)
    assert request.code == HEADER_REFUSED
    assert stage.stored_values() == []


class _ClientThatComesBack(Stage):
    """The client leaves while its batch is unpacked, and sends it again over another connection once that has ended."""

    def __init__(self, codec: Codec) -> None:
        super().__init__()
        self.first = Client()
        self._sent: dict[str, Any] = {"codec": codec, "last_headers": [("tenant", b"blue")]}
        self.again: Request | None = None
        self.send(self.first, 0, *VALUES, **self._sent)

    def _work(self, effect: Work[Any], resume: Any) -> None:
        def start() -> Steps[Any]:
            steps = effect.start()
            next(steps)
            self.first.is_closed = True
            made = yield from steps
            self.again = self.again or self.send(Client(), 0, *VALUES, **self._sent)
            return made

        super()._work(Work(start, effect.sender), resume)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_nor_of_one_whose_client_leaves_while_it_is_read_and_comes_back(codec: Codec) -> None:
    stage = _ClientThatComesBack(codec)
    stage.run(60)
    assert stage.again is not None
    assert stage.again.code == HEADER_REFUSED
    assert stage.stored_values() == []


def test_a_batch_that_unpacks_to_more_than_the_limit_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "UNPACKED_BYTES_MAX", 2 * MIB)
    stage = Stage()
    request = stage.send(Client(), 0, *VALUES, codec=Codec.ZSTD)
    stage.run(60)
    assert request.code == TOO_LARGE
    assert stage.stored_values() == []

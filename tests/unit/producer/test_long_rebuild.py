"""A rebuild from a long log keeps little, so that it ends in a short step (rule R10)."""

from typing import Any

from mutants.scenes import LATER, foreign

from idemproxy.codecs.batch_marker import Identity, encode_batch_marker
from idemproxy.codecs.compression import Codec, compress
from idemproxy.codecs.message_set import encode_message, encode_set
from idemproxy.proxy.bridge.asks import EarliestOffset, FetchAnswer, FetchRecords, LatestOffset, OffsetAnswer
from idemproxy.proxy.flow.outcome import Outcome
from idemproxy.proxy.partition_log.log_offsets import Position
from idemproxy.proxy.partition_log.log_search import LogSearch, Searched, Wanted
from idemproxy.state.entry import NO_ANCHOR
from testkit.stage.sequencer import PARTITION, PRODUCER_ID, TOPIC, Client, Stage

NOT_ENOUGH_REPLICAS = 19
BATCHES = 20_000
WINDOW = 5


def behind_a_long_log() -> Stage:
    """The log has so many batches of one producer, and the store knows nothing."""
    value = compress(Codec.GZIP, encode_set([(None, b"v", 0)], magic=1), magic=1)
    messages = [
        encode_message(
            encode_batch_marker([Identity(PRODUCER_ID, 0, number, 1)]), value, magic=1, offset=number, codec=Codec.GZIP
        )
        for number in range(BATCHES)
    ]

    def reply(_broker: int, question: object) -> Any:
        if isinstance(question, FetchRecords):
            up_to = question.offset + max(1, question.bytes_max // len(messages[0]))
            return FetchAnswer(0, BATCHES, memoryview(b"".join(messages[question.offset : up_to])))
        return OffsetAnswer(0, 0 if isinstance(question, EarliestOffset) else BATCHES)

    stage = Stage()
    stage.reply = lambda broker, asked: (
        reply(broker, asked) if broker == 1 or not isinstance(asked, LatestOffset) else None
    )
    stage.values.clear()
    stage.begin_lease_epoch()
    stage.sequencer = stage.new_sequencer()
    return stage


def test_of_a_long_log_the_first_piece_and_the_window_are_kept() -> None:
    stage = behind_a_long_log()
    search = LogSearch(Wanted(TOPIC, PARTITION, PRODUCER_ID, Position(0, NO_ANCHOR), None, frozenset()))
    results: list[Any] = []
    stage.runner.start(search.run(), results.append)
    stage.run(5)
    (result,) = results
    assert isinstance(result, Searched)
    assert [piece.base_sequence for piece in result.pieces] == [0, *range(BATCHES - WINDOW, BATCHES)]
    assert result.end_offset == BATCHES


def test_a_retry_of_the_last_batch_of_a_long_log_is_a_duplicate() -> None:
    stage = behind_a_long_log()
    retry = stage.send(Client(), BATCHES - 1, b"v")
    stage.run(60)
    assert retry.offset == BATCHES - 1


def test_what_was_looked_for_is_noted_once_for_all_tries_of_a_batch() -> None:
    """The broker refuses for some minutes."""
    stage = Stage()
    for sequence in range(3):
        stage.send(Client(), sequence)
        stage.run(1)
    foreign(stage, b"of a producer without id")
    stage.begin_lease_epoch()
    stage.run(10)

    def judge(effect: Any) -> Outcome:
        stage.outcomes.append(judge)
        return stage.refuses(NOT_ENOUGH_REPLICAS)(effect)

    stage.outcomes.append(judge)
    for number in range(20):
        request = stage.send(Client(), 3, timestamp=LATER + number)
        stage.run(30)
        assert request.code == NOT_ENOUGH_REPLICAS
    assert stage.stream.looked_for is not None
    assert len(stage.stream.looked_for.due) == 1

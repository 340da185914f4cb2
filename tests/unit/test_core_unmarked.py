"""Topics whose compression.type makes the broker store our wrappers without their key: nothing proves there what is
whose. A doubt ends in an error that says so, never in a second copy and never in 45."""

from testkit.staged_sequencer import Client, Stage

UNDECIDABLE, OUT_OF_ORDER = 87, 45


def a_stage_that_lost_the_last_commit() -> Stage:
    """Two batches are in the log, the store has begun a new life and knows of the first one only, as does the proxy."""
    stage = Stage(keeps_markers=False)
    client = Client()
    stage.send(client, 0)
    stage.run(1)
    before = dict(stage.values)
    stage.send(client, 1)
    stage.run(1)
    stage.values = before
    stage.die()
    stage.begin_era()
    return stage


def test_a_lost_answer_ends_in_an_error_and_in_one_copy() -> None:
    stage = Stage(keeps_markers=False)
    stage.outcomes.append(stage.loses_answer)
    request = stage.send(Client(), 0)
    stage.run(60)
    assert request.code == UNDECIDABLE
    assert stage.stored_values() == [b"value 0"]


def test_a_lost_request_is_sent_again() -> None:
    stage = Stage(keeps_markers=False)
    stage.outcomes.append(stage.loses_request)
    request = stage.send(Client(), 0)
    stage.run(60)
    assert request.code == 0
    assert stage.stored_values() == [b"value 0"]


def test_after_a_loss_in_the_store_the_retry_of_a_batch_in_the_log_is_no_second_copy() -> None:
    stage = a_stage_that_lost_the_last_commit()
    retry = stage.send(Client(), 1)
    stage.run(60)
    assert retry.code == UNDECIDABLE
    assert stage.stored_values() == [b"value 0", b"value 1"]


def test_after_a_loss_in_the_store_a_batch_that_the_log_does_not_have_is_appended() -> None:
    stage = a_stage_that_lost_the_last_commit()
    request = stage.send(Client(), 1, b"another")
    stage.run(60)
    assert request.code == 0
    assert stage.stored_values()[-1] == b"another"


def test_a_batch_below_the_window_that_may_be_in_the_log_is_no_gap() -> None:
    stage = Stage(keeps_markers=False)
    client = Client()
    for sequence in range(8):
        stage.send(client, sequence)
        stage.run(1)
    retry = stage.send(Client(), 1)
    other = stage.send(Client(), 2, b"of a client that begins its sequences anew")
    stage.run(60)
    assert retry.code == UNDECIDABLE
    assert other.code == OUT_OF_ORDER


def test_a_duplicate_whose_connection_is_gone_is_found_by_its_content_at_its_offset() -> None:
    stage = Stage(keeps_markers=False)
    client = Client()
    stage.send(client, 0)
    stage.send(client, 1)
    stage.run(1)
    stage.lane.is_open = False
    retry = stage.send(Client(), 1)
    other = stage.send(Client(), 0, b"another")
    stage.run(60)
    assert (retry.code, retry.offset) == (0, 1)
    assert other.code == UNDECIDABLE, "another record lies where it was committed"

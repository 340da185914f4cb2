"""A batch is decided once, and not at all where its numbers are not certain. No server is asked here: none is there."""

from __future__ import annotations

from pathlib import Path

import pytest

from idemproxy.pipeline.sink.commit import MANIFESTS_KEPT, Batches
from idemproxy.pipeline.sink.manifest import StagedBatch, StageFile, Writer, numbered, pack
from idemproxy.pipeline.sink.options import sink_options
from idemproxy.pipeline.sink.problems import SinkProblem
from idemproxy.pipeline.sink.storage import LocalStorage

NOTHING_STAGED = StageFile("stage/7/nothing", 0, ())


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    return LocalStorage(tmp_path / "sink")


def batches(storage: LocalStorage, name: str = "query", **more: str) -> Batches:
    given = {"kafka.bootstrap.servers": "localhost:1", "checkpointLocation": "/c", "topic": "t", **more}
    return Batches(storage, sink_options(given, is_streaming=True), name)


def decided(storage: LocalStorage, batch_id: int, name: str = "query", *, published: bool = True) -> bytes:
    data = pack(numbered(batch_id, [], Writer(4711, 0, name), {("t", 0): 5}, 0))
    assert storage.create(f"{batch_id}.json", data)
    if published:
        assert storage.create(f"{batch_id}.published", b"")
    return data


def test_a_batch_continues_the_sequences_of_the_one_before(storage: LocalStorage) -> None:
    decided(storage, 6)
    batches(storage).commit(7, [NOTHING_STAGED])
    assert storage.names("") == ["6.json", "6.published", "7.json", "7.published"]
    assert b'"next_sequences":[["t",0,5]]' in (storage.read("7.json") or b"")


def test_a_batch_that_comes_again_is_what_it_was_decided_to_be(storage: LocalStorage) -> None:
    data = decided(storage, 7)
    batches(storage).commit(7, [NOTHING_STAGED])
    assert storage.read("7.json") == data


@pytest.mark.parametrize(
    ("known", "sentence"),
    [
        ([5], r"6\.json is missing, though there is 5\.json: its numbers are not known"),
        ([6, 8], r"batch 8 is decided already: another driver runs this query and is ahead"),
        ([8], r"batch 8 is decided already"),
    ],
)
def test_without_certain_numbers_nothing_is_decided(storage: LocalStorage, known: list[int], sentence: str) -> None:
    for batch_id in known:
        decided(storage, batch_id)
    with pytest.raises(SinkProblem, match=sentence):
        batches(storage).commit(7, [NOTHING_STAGED])
    assert storage.read("7.json") is None


@pytest.mark.parametrize("batch_id", [6, 7])
def test_what_another_query_has_decided_is_left_alone(storage: LocalStorage, batch_id: int) -> None:
    decided(storage, batch_id, "another")
    with pytest.raises(SinkProblem, match="this is 'query', and what was written so far belongs to 'another'"):
        batches(storage).commit(7, [NOTHING_STAGED])


@pytest.mark.parametrize("batch_id", [6, 7])
def test_a_batch_that_was_begun_too_long_ago_is_not_sent_again(storage: LocalStorage, batch_id: int) -> None:
    decided(storage, batch_id, published=False)  # in 1970
    with pytest.raises(SinkProblem, match=f"batch {batch_id} was begun more than .* s ago and not finished"):
        batches(storage).commit(7, [NOTHING_STAGED])
    assert storage.size(f"{batch_id}.published") is None


@pytest.mark.parametrize("content", [None, b"12"])
def test_files_that_the_driver_does_not_see_whole_stop_the_batch(storage: LocalStorage, content: bytes | None) -> None:
    decided(storage, 6)
    if content is not None:
        with storage.writing("stage/7/one") as file:
            file.write(content)
    staged = StageFile("stage/7/one", 3, (StagedBatch("t", 0, 0, 3, 1, 0),))
    with pytest.raises(SinkProblem, match="on a file system that all of them share"):
        batches(storage).commit(7, [staged])
    assert storage.read("7.json") is None


def test_stage_files_go_two_batches_later_and_manifests_a_hundred(storage: LocalStorage) -> None:
    for batch_id in (7, 8, 107):
        decided(storage, batch_id)
    for batch_id in (7, 106, 107, 108):
        with storage.writing(f"stage/{batch_id}/one"):
            pass
    assert MANIFESTS_KEPT == 100
    batches(storage).commit(108, [NOTHING_STAGED])
    assert storage.names("stage") == ["107", "108"]
    assert storage.names("") == ["107.json", "107.published", "108.json", "108.published", "stage"]
    with pytest.raises(SinkProblem, match="batch 108 is decided already"):
        batches(storage).commit(7, [NOTHING_STAGED])


def test_fencing_stays_as_the_checkpoint_began(storage: LocalStorage) -> None:
    decided(storage, 6)
    with pytest.raises(SinkProblem, match="fencing is 'name', and was 'none' when this checkpoint began"):
        batches(storage, fencing="name").commit(7, [NOTHING_STAGED])


@pytest.mark.parametrize("is_named", [False, True])
def test_a_producer_name_is_not_forgotten_so_no_batch_is_too_old(storage: LocalStorage, is_named: bool) -> None:
    writer = Writer(4711, 0, "query", is_named)
    assert storage.create("6.json", pack(numbered(6, [], writer, {("t", 0): 5}, 0)))  # begun in 1970
    ours = batches(storage, fencing="name" if is_named else "none")
    if is_named:
        ours.commit(6, [NOTHING_STAGED])
        assert "6.published" in storage.names("")
    else:
        with pytest.raises(SinkProblem, match="batch 6 was begun more than"):
            ours.commit(6, [NOTHING_STAGED])

"""Which files win, which numbers their batches get, and where a publication stopped."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from idemproxy.pipeline.sink.manifest import (
    Manifest,
    StagedBatch,
    StageFile,
    Writer,
    in_turns,
    is_too_old,
    numbered,
    pack,
    unpack,
    winners,
)
from idemproxy.pipeline.sink.problems import SinkProblem
from idemproxy.pipeline.sink.publish import first_missing

WRITER = Writer(4711, 3, "query")
LAST = 2**31 - 1


def staged(file: str, *batches: tuple[str, int, int]) -> StageFile:
    """``batches``: topic, partition, records."""
    made = [
        StagedBatch(topic, partition, at * 100, 100, count, at) for at, (topic, partition, count) in enumerate(batches)
    ]
    return StageFile(file, 100 * len(batches), tuple(made))


FILES = [staged("x", ("a", 0, 5), ("b", 1, 7), ("a", 0, 2)), staged("y"), staged("z", ("a", 0, 1), ("a", 1, 4))]


def test_batches_are_numbered_in_the_order_of_tasks_and_files_each_partition_by_itself() -> None:
    manifest = numbered(7, FILES, WRITER, {("a", 0): 10, ("c", 0): 99}, 123)
    sequences = {
        place: [(one.file, one.position, one.base_sequence) for one in batches]
        for place, batches in manifest.planned.items()
    }
    assert sequences == {
        ("a", 0): [("x", 0, 10), ("x", 200, 15), ("z", 0, 17)],
        ("a", 1): [("z", 100, 0)],
        ("b", 1): [("x", 100, 0)],
    }
    assert manifest.next_sequences == {("a", 0): 18, ("a", 1): 4, ("b", 1): 7, ("c", 0): 99}
    assert manifest.record_count == 19


def test_sequences_begin_again_at_zero_after_the_last_one() -> None:
    manifest = numbered(1, [staged("x", ("a", 0, 3), ("a", 0, 2))], WRITER, {("a", 0): LAST - 1}, 0)
    assert [one.base_sequence for one in manifest.planned["a", 0]] == [LAST - 1, 1]
    assert manifest.next_sequences == {("a", 0): 3}


def test_a_batch_without_rows_keeps_the_numbers() -> None:
    manifest = numbered(1, [staged("x"), staged("y")], WRITER, {("a", 0): 5}, 0)
    assert (manifest.planned, manifest.next_sequences) == ({}, {("a", 0): 5})


def test_a_task_without_a_file_stops_the_batch() -> None:
    assert winners(FILES) == FILES
    with pytest.raises(SinkProblem, match="1 of 3 tasks"):
        winners([FILES[0], None, FILES[2]])


files = st.lists(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 3), st.integers(1, 9))).map(
        lambda batches: staged(f"f{id(batches)}", *batches)
    )
)


@given(files, files)
def test_a_manifest_is_read_as_written_and_the_next_one_continues_it(
    first: list[StageFile], second: list[StageFile]
) -> None:
    one = numbered(0, first, WRITER, {}, 1)
    assert unpack(pack(one), "0.json") == one
    two = numbered(1, second, unpack(pack(one), "0.json").writer, unpack(pack(one), "0.json").next_sequences, 2)
    for place, end in two.next_sequences.items():
        batches = [*one.planned.get(place, ()), *two.planned.get(place, ())]
        assert [batch.next_sequence for batch in batches] == [*(batch.base_sequence for batch in batches[1:]), end]
        assert batches[0].base_sequence == 0


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b'{"format":1}', pack(numbered(0, FILES, WRITER, {}, 0))[:-20]])
def test_what_is_no_manifest_is_refused(data: bytes) -> None:
    with pytest.raises(SinkProblem, match=r"17\.json: this is no manifest"):
        unpack(data, "17.json")
    with pytest.raises(SinkProblem, match="later version"):
        unpack(b'{"format":2}', "17.json")


def test_partitions_take_turns_and_each_keeps_its_order() -> None:
    manifest: Manifest = numbered(7, FILES, WRITER, {}, 0)
    turns = [(*place, batch.base_sequence) for place, batch in in_turns(manifest.planned)]
    assert turns == [("a", 0, 0), ("a", 1, 0), ("b", 1, 0), ("a", 0, 5), ("a", 0, 7)]


@pytest.mark.parametrize(("expiry", "trusted"), [(86_400, 82_800), (7200, 3600), (60, 30), (1, 0.5)])
def test_a_batch_is_not_resumed_when_the_server_may_have_forgotten_it(expiry: int, trusted: float) -> None:
    assert not is_too_old(1_000_000, 1_000_000 + int(trusted * 1000) - 1, expiry)
    assert is_too_old(1_000_000, 1_000_000 + int(trusted * 1000), expiry)
    assert not is_too_old(1_000_000, 0, expiry)  # the clock of another driver


class Log:
    """One partition of a server: ``batches`` of them are in the log. It knows a duplicate of any of them, or of the
    last five; what is due is appended."""

    def __init__(self, batches: int, known: int | None) -> None:
        self.batches = batches
        self._known = known
        self.appended: list[int] = []
        self.asked = 0

    def send(self, index: int) -> bool:
        self.asked += 1
        if index == self.batches:
            self.batches += 1
            self.appended.append(index)
            return True
        return index < self.batches and (self._known is None or index >= self.batches - self._known)


@given(st.integers(1, 3000), st.data(), st.sampled_from([None, 5]))
def test_where_a_publication_stopped_is_found_and_nothing_is_left_out_meanwhile(
    count: int, data: st.DataObject, known: int | None
) -> None:
    log = Log(data.draw(st.integers(0, count)), known)
    before = log.batches
    found = first_missing(count, log.send)
    assert found == log.batches
    assert log.appended == list(range(before, log.batches))
    if known is None:
        assert log.asked <= 2 + count.bit_length()


def test_a_server_that_expects_none_of_the_sequences_is_recognised() -> None:
    assert first_missing(4, lambda _: False) is None
    assert first_missing(1, lambda _: False) is None


def test_is_named_is_written_only_if_set_for_versions_without_it() -> None:
    without = pack(numbered(1, [], WRITER, {}, 0))
    assert b"is_named" not in without
    named = numbered(1, [], replace(WRITER, is_named=True), {}, 0)
    assert unpack(pack(named), "1.json") == named

"""The oracle, the attribution and the waits of the chaos run, on logs and journals made by hand."""

import json
from datetime import datetime
from pathlib import Path

import pytest
from chaos.attribution import Attribution, Cause, Judge, identity_at
from chaos.faults import Fault
from chaos.journals import Journals
from chaos.oracle import Copy, Findings, Inversion, Loss, Oracle, whole_lines
from chaos.payload import Payload, decode, encode
from chaos.stored import PartitionLog, Wrapper
from chaos.takeovers import Waits, longest_silence, times_of, wait_after, waits_by_kind
from chaos.truncations import Truncations

from idemproxy.codecs.batch_marker import Identity

PLACE = ("topic", 0)
PRODUCER_ID = 7


def log_of(*numbers: int) -> list[tuple[int, bytes]]:
    """A partition in which these numbers of one producer stand one after the other."""
    return [(offset, encode("p", 0, number, 99)) for offset, number in enumerate(numbers)]


def findings_of(numbers: list[int], told: list[str]) -> Findings:
    oracle = Oracle()
    oracle.take_log(PLACE, log_of(*numbers))
    oracle.take_told("p", "topic", (line + "\n" for line in told))
    return oracle.findings


def test_a_payload_is_read_back_and_a_damaged_one_is_nobodys() -> None:
    value = encode("confluent-kafka.1", 3, 123_456, 2**32 - 1)
    assert decode(value) == Payload("confluent-kafka.1", 3, 123_456)
    for at in range(len(value)):
        damaged = value[:at] + bytes([value[at] ^ 1]) + value[at + 1 :]
        assert decode(damaged) is None
    assert decode(b"") is None
    assert decode(value[:-1]) is None


def test_a_log_with_each_record_once_and_in_order_has_no_anomaly() -> None:
    findings = findings_of([0, 1, 2], ["a 0 0 0 5", "a 0 1 1 5", "a 0 2 2 6"])
    assert (findings.stored, findings.acknowledged, findings.misplaced) == (3, 3, 0)
    assert [*findings.copies, *findings.losses, *findings.inversions, *findings.foreign] == []


def test_a_duplicate_is_found_with_all_its_offsets() -> None:
    assert findings_of([0, 1, 0, 0], []).copies == [Copy("p", PLACE, 0, (0, 2, 3))]


def test_a_missing_record_is_a_loss_if_acknowledged_and_not_if_failed() -> None:
    findings = findings_of([0, 2], ["a 0 0 0 5", "a 0 1 1 5", "f 0 3 9 'timed out'", "f 0 2 9 'late'"])
    assert findings.losses == [Loss("p", PLACE, 1, 1, 5)]
    assert (findings.failed, findings.failed_but_stored) == (2, 1)


def test_a_record_after_a_later_one_is_an_inversion_and_duplicates_not() -> None:
    findings = findings_of([1, 0, 2, 1], [])
    assert findings.inversions == [Inversion("p", PLACE, 0, 1, 1)]


def test_a_record_at_another_offset_than_acknowledged_is_misplaced_unless_duplicated_there() -> None:
    assert findings_of([0, 1, 1], ["a 0 1 2 5"]).misplaced == 0
    assert findings_of([0, 1], ["a 0 1 7 5"]).misplaced == 1


def test_a_record_of_another_partition_or_of_nobody_is_foreign() -> None:
    oracle = Oracle()
    oracle.take_log(PLACE, [(0, encode("p", 1, 0, 1)), (1, b"whatever")])
    assert len(oracle.findings.foreign) == 2


def test_a_line_that_was_cut_off_does_not_count() -> None:
    assert list(whole_lines(iter(["a 0 1 2 3\n", "a 0 2"]))) == ["a 0 1 2 3\n"]


# ---------------------------------------------------------------------- causes
def event(name: str, time_ms: int, **fields: object) -> dict[str, object]:
    return {"time_ms": time_ms, "event": name, "topic": "topic", "partition": 0, **fields}


def sent(time_ms: int, sequence: int = 0, *, count: int = 2, broker: int = 1, epoch: int = 0) -> dict[str, object]:
    identities = [[PRODUCER_ID, epoch, sequence, count]]
    return event("sent", time_ms, broker_id=broker, identities=identities)


def appended(time_ms: int, offset: int, count: int = 2) -> dict[str, object]:
    more = {"identities": [[PRODUCER_ID, 0, 0, count]], "error_code": 0, "reason": ""}
    return event("outcome", time_ms, broker_id=1, outcome="appended", base_offset=offset, **more)


def answered(time_ms: int, offset: int, verdict: str = "appended") -> dict[str, object]:
    more = {"producer_id": PRODUCER_ID, "producer_epoch": 0, "base_sequence": 0, "error_code": 0}
    return event("answered", time_ms, verdict=verdict, base_offset=offset, **more)


def resolved(time_ms: int, result: str) -> dict[str, object]:
    return event("resolved", time_ms, producer_id=PRODUCER_ID, base_sequence=0, result=result)


def journals_of(directory: Path, **events: list[dict[str, object]]) -> Journals:
    files = {}
    for proxy, lines in events.items():
        files[proxy] = [directory / f"{proxy}.jsonl"]
        files[proxy][0].write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"time_ms": 1, "eve')
    return Journals(files)


def wrapper(first: int, *, sequence: int = 0, epoch: int = 0, append_ms: int | None = None) -> Wrapper:
    return Wrapper(first, first + 1, (Identity(PRODUCER_ID, epoch, sequence, 2),), append_ms)


NO_TRUNCATIONS = Truncations({})


def truncated(directory: Path, time_ms: int, offset: int) -> Truncations:
    """As a broker of Kafka 0.10.2 says it, in local time, among other lines."""
    moment = datetime.fromtimestamp(time_ms // 1_000).isoformat(" ")
    (directory / "broker-1.out").write_text(
        f"{moment},{time_ms % 1_000:03} INFO kafka.server.ReplicaFetcherManager Removed fetcher for {PLACE}\n"
        f"{moment},{time_ms % 1_000:03} INFO kafka.log.Log Truncating log {PLACE[0]}-{PLACE[1]} to offset {offset}.\n"
    )
    return Truncations({1: directory / "broker-1.out"})


def attributed(
    journals: Journals,
    findings: Findings,
    wrappers: list[Wrapper] | None = None,
    faults: list[Fault] | None = None,
    *,
    with_proxies: bool = True,
    truncations: Truncations = NO_TRUNCATIONS,
) -> Attribution:
    logs = {PLACE: PartitionLog(wrappers or [])}
    judge = Judge(logs, journals, faults or [], truncations, with_proxies=with_proxies)
    return judge.attribute(findings, {"p": {PRODUCER_ID}})


TWICE = Findings(copies=[Copy("p", PLACE, 0, (0, 2))])
LOST = Findings(losses=[Loss("p", PLACE, 0, 4, 1_000)])


def test_a_copy_is_unexplained_as_long_as_nothing_speaks_for_a_cause(tmp_path: Path) -> None:
    journals = journals_of(tmp_path, a=[sent(100), sent(3_000)])
    result = attributed(journals, TWICE, [wrapper(0), wrapper(2)])
    assert result.duplicates.records == {Cause.UNEXPLAINED: 1}
    assert result.unexplained == 1


def test_a_batch_that_left_once_and_is_there_twice_is_unexplained_whatever_was_broken(tmp_path: Path) -> None:
    faults = [Fault("stop", "broker 1", 0, 9_000, ""), Fault("stop", "a", 100, 9_000, "")]
    result = attributed(journals_of(tmp_path, a=[sent(100)]), TWICE, [wrapper(0), wrapper(2)], faults)
    assert result.duplicates.records == {Cause.UNEXPLAINED: 1}


def test_a_copy_without_a_batch_marker_is_unexplained(tmp_path: Path) -> None:
    bare = Wrapper(2, 3, (), None)
    result = attributed(journals_of(tmp_path, a=[sent(100), sent(3_000)]), TWICE, [wrapper(0), bare])
    assert result.duplicates.records == {Cause.UNEXPLAINED: 1}


@pytest.mark.parametrize(("stopped_at", "cause"), [(120, Cause.PROXY_PAUSED), (400, Cause.UNEXPLAINED)])
def test_a_proxy_counts_as_paused_only_if_stopped_at_the_send(tmp_path: Path, stopped_at: int, cause: Cause) -> None:
    journals = journals_of(tmp_path, a=[sent(100)], b=[sent(9_000)])
    faults = [Fault("stop", "a", stopped_at, 15_000, "")]
    result = attributed(journals, TWICE, [wrapper(0), wrapper(2)], faults)
    assert result.duplicates.records == {cause: 1}


@pytest.mark.parametrize(("first_append_ms", "cause"), [(1_200, Cause.BROKER_STALLED), (900, Cause.UNEXPLAINED)])
def test_a_broker_counts_as_stalled_only_if_its_clock_shows_late_appends(
    tmp_path: Path, first_append_ms: int, cause: Cause
) -> None:
    journals = journals_of(tmp_path, a=[sent(100), sent(1_500)])
    wrappers = [wrapper(0, append_ms=first_append_ms), wrapper(2, append_ms=1_510)]
    faults = [Fault("stop", "broker 1", 50, 1_400, "")]
    assert attributed(journals, TWICE, wrappers, faults).duplicates.records == {cause: 1}


def test_a_send_long_before_does_not_excuse_one_that_came_too_soon(tmp_path: Path) -> None:
    journals = journals_of(tmp_path, a=[sent(100), sent(5_000), sent(5_030)])
    wrappers = [wrapper(0, append_ms=5_020), wrapper(2, append_ms=5_300)]
    assert attributed(journals, TWICE, wrappers).duplicates.records == {Cause.UNEXPLAINED: 1}


def test_a_send_that_was_refused_is_no_send(tmp_path: Path) -> None:
    refused = {**appended(5_040, offset=-1), "outcome": "refused"}
    journals = journals_of(tmp_path, a=[sent(100), sent(5_000), sent(5_030), refused])
    wrappers = [wrapper(0, append_ms=1_900), wrapper(2, append_ms=5_300)]
    assert attributed(journals, TWICE, wrappers).duplicates.records == {Cause.BROKER_STALLED: 1}


def test_without_broker_times_a_stall_needs_a_stop_and_no_contrary_evidence(
    tmp_path: Path,
) -> None:
    lines = [sent(100), sent(1_500)]
    for broker, cause in ((1, Cause.BROKER_STALLED), (2, Cause.UNEXPLAINED)):
        faults = [Fault("stop", f"broker {broker}", 50, 1_400, "")]
        result = attributed(journals_of(tmp_path, a=lines), TWICE, [wrapper(0), wrapper(2)], faults)
        assert result.duplicates.records == {cause: 1}
    for later_acknowledged_ms, cause in ((1_600, Cause.BROKER_STALLED), (1_050, Cause.UNEXPLAINED)):
        faults = [Fault("stop", "broker 1", 50, 1_400, "")]
        journals = journals_of(tmp_path, a=[*lines, appended(later_acknowledged_ms, offset=1)])
        result = attributed(journals, TWICE, [wrapper(0), wrapper(2)], faults)
        assert result.duplicates.records == {cause: 1}


@pytest.mark.parametrize(("kind", "cause"), [("half_open", Cause.SILENT_CLIENT), ("cut", Cause.UNEXPLAINED)])
def test_records_under_two_epochs_are_explained_by_a_client_that_left_without_a_word(
    tmp_path: Path, kind: str, cause: Cause
) -> None:
    journals = journals_of(tmp_path, a=[sent(5_000), sent(6_000, epoch=1)])
    faults = [Fault(kind, "client-proxy", 4_000, 8_000, "")]
    result = attributed(journals, TWICE, [wrapper(0), wrapper(2, epoch=1)], faults)
    assert result.duplicates.records == {cause: 1}


def test_a_loss_is_the_brokers_only_if_it_had_acknowledged_that_very_offset(tmp_path: Path) -> None:
    cut = truncated(tmp_path, 9_500, 4)
    had = journals_of(tmp_path, a=[sent(890), appended(900, offset=3), answered(900, offset=3)])
    assert attributed(had, LOST, truncations=cut).losses.records == {Cause.BROKER_LOST: 1}
    elsewhere = journals_of(tmp_path, a=[sent(890), appended(900, offset=5)])
    assert attributed(elsewhere, LOST, truncations=cut).losses.records == {Cause.UNEXPLAINED: 1}
    later = journals_of(tmp_path, a=[sent(890), appended(9_000, offset=3)])
    assert attributed(later, LOST, truncations=cut).losses.records == {Cause.UNEXPLAINED: 1}


@pytest.mark.parametrize(("time_ms", "offset"), [(9_500, 5), (1_500, 4)])
def test_a_loss_is_not_the_brokers_if_none_has_cut_it_off_since(tmp_path: Path, time_ms: int, offset: int) -> None:
    """After the record, or before it was there."""
    had = journals_of(tmp_path, a=[sent(4_890), appended(4_900, offset=3), answered(4_900, offset=3)])
    lost = Findings(losses=[Loss("p", PLACE, 0, 4, 5_000)])
    cut = truncated(tmp_path, 9_500, 4)
    assert attributed(had, lost, truncations=cut).losses.records == {Cause.BROKER_LOST: 1}
    assert attributed(had, lost).losses.records == {Cause.UNEXPLAINED: 1}
    cut = truncated(tmp_path, time_ms, offset)
    assert attributed(had, lost, truncations=cut).losses.records == {Cause.UNEXPLAINED: 1}


def test_a_batch_found_by_another_proxy_is_acknowledged_a_mere_answer_not(
    tmp_path: Path,
) -> None:
    cut = truncated(tmp_path, 1_500, 0)
    b = [resolved(800, "found"), answered(900, offset=3, verdict="duplicate")]
    found = attributed(journals_of(tmp_path, b=b, a=[sent(500)]), LOST, truncations=cut)
    assert found.losses.records == {Cause.BROKER_LOST: 1}
    b = [resolved(800, "not_found"), answered(900, offset=3, verdict="duplicate")]
    found = attributed(journals_of(tmp_path, b=b, a=[sent(500)]), LOST, truncations=cut)
    assert found.losses.records == {Cause.UNEXPLAINED: 1}


def test_without_proxies_every_anomaly_is_counted_and_none_is_a_violation() -> None:
    findings = Findings(copies=TWICE.copies, losses=LOST.losses, inversions=[Inversion("p", PLACE, 0, 1, 1)])
    result = attributed(Journals({}), findings, with_proxies=False)
    assert result.unexplained == 0
    assert [one.records for one in (result.duplicates, result.losses, result.reorders)] == [{Cause.NO_PROXY: 1}] * 3


def test_an_inversion_behind_the_proxies_is_never_explained() -> None:
    findings = Findings(inversions=[Inversion("p", PLACE, 0, 1, 1)])
    assert attributed(Journals({}), findings).unexplained == 1


def test_the_identity_of_a_record_in_a_group_is_that_of_its_own_batch() -> None:
    group = Wrapper(10, 14, (Identity(1, 0, 5, 2), Identity(1, 0, 7, 3)), None)
    assert identity_at(group, 11) == ((1, 0), 6)
    assert identity_at(group, 12) == ((1, 0), 7)
    assert identity_at(group, 15) is None


# ---------------------------------------------------------------------- waits
def test_a_wait_lasts_from_the_fault_until_its_silence_ends() -> None:
    times = [0, 100, 200, 300, 8_300, 8_400]
    assert wait_after(250, times) == 8_050
    assert wait_after(8_350, times) is None, "nothing was silent then"
    assert wait_after(4_000, times) is None, "it was silent before"


def test_waits_are_counted_by_kind() -> None:
    faults = [Fault("kill", "proxy-a", 250, 300, ""), Fault("stop", "broker 2", 9_000, 9_500, "")]
    places = [[0, 100, 200, 4_250, 4_300], [0, 100, 200, 1_250, 1_300]]
    waits = waits_by_kind(faults, places, ("kill", "stop"))
    assert waits == {"kill proxy": Waits(2, 4_000, 4_000, 4_000, alone=2, alone_p50=4_000, alone_longest=4_000)}
    faults.append(Fault("cut", "client-proxy", 2_000, 2_000, ""))
    waits = waits_by_kind(faults, places, ("kill", "stop"))
    assert waits == {"kill proxy": Waits(2, 4_000, 4_000, 4_000, alone=1, alone_p50=1_000, alone_longest=1_000)}


def test_times_come_from_acknowledgements_only_and_each_once() -> None:
    assert times_of(["a 0 0 0 5\n", "a 0 1 1 5\n", "f 0 2 6 'x'\n", "a 0 3 2 7\n"]) == {0: [5, 7]}
    assert longest_silence({"x": [0, 5, 50], "y": [0, 30]}) == ("x", 45)

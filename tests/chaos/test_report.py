"""The report of a chaos run: what makes it clean, what does not, and that people find the figures in it."""

import json
from pathlib import Path

import pytest
from chaos.attribution import Attribution, Cause
from chaos.faults import Fault
from chaos.journals import Journals
from chaos.oracle import Findings
from chaos.report import has_anomalies, is_clean, result_of, table_of
from chaos.run import Story
from chaos.truncations import Truncations


def story_in(directory: Path, findings: Findings, *, problems: list[str] | None = None, log: str = "") -> Story:
    told, proxy_log = directory / "p.told", directory / "proxy.log"
    told.write_text("a 0 0 0 1000\na 0 1 1 1100\na 0 2 2 4100\na 0 3")
    proxy_log.write_text(log)
    return Story(
        seed=1,
        version="3.9.1",
        settings="",
        seconds=2.0,
        began_ms=0,
        faults=[Fault("kill", "proxy-a", 1_090, 1_500, ""), Fault("cut", "to-broker", 9_000, 9_000, "", 3)],
        findings=findings,
        logs={},
        told_files=[("confluent-kafka", "p", "chaos", told)],
        outcomes={"p": {"sent": 3, "acked": 3, "failed": 0, "errors": []}},
        journals={"proxy-a": [directory / "journal.jsonl"]},
        proxy_logs={"proxy-a": proxy_log},
        workers=1,
        producer_ids={},
        truncations=Truncations({}),
        problems=problems or [],
    )


def report_of(story: Story, attribution: Attribution | None = None) -> dict[str, object]:
    return result_of(story, attribution or Attribution(), Journals({}), minutes=1, with_proxies=True)


def test_a_run_without_anomalies_is_clean_and_its_figures_are_there(tmp_path: Path) -> None:
    result = report_of(story_in(tmp_path, Findings(stored=3, acknowledged=3)))
    assert is_clean(result)
    assert result["faults_by_kind"] == {"cut to-broker": 1, "kill proxy": 1}
    assert result["takeover_ms"] == {
        "kill proxy": {
            **dict.fromkeys(("p50", "p99", "longest", "alone_p50", "alone_longest"), 3_010),
            **{"affected": 1, "alone": 1},
        }
    }
    table = table_of(result)
    for text in ("clean", "kill proxy", "3.0", "2 per second", "duplicates                         0"):
        assert text in table
    json.dumps(result)


@pytest.mark.parametrize(
    ("findings", "problems", "log"),
    [
        (Findings(foreign=["(topic, 0) offset 1: nobody sent b'x'"]), [], ""),
        (Findings(misplaced=1, examples_of_misplaced=["p number 1: told 5, is at 6"]), [], ""),
        (Findings(failed=1), [], ""),
        (Findings(), ["proxy-a ended by itself with code 1"], ""),
        (Findings(), [], "2026-11-21 17:00:00,000 ERROR internal error in producer 1 on chaos-0\n"),
    ],
)
def test_what_must_not_be_makes_it_unclean(tmp_path: Path, findings: Findings, problems: list[str], log: str) -> None:
    result = report_of(story_in(tmp_path, findings, problems=problems, log=log))
    assert not is_clean(result)
    assert "NOT CLEAN" in table_of(result)


@pytest.mark.parametrize(("cause", "clean"), [(Cause.BROKER_LOST, True), (Cause.UNEXPLAINED, False)])
def test_a_loss_makes_it_unclean_unless_it_is_the_brokers_own(tmp_path: Path, cause: Cause, clean: bool) -> None:
    attribution = Attribution()
    attribution.losses.note(cause, "p number 1 told at offset 1")
    result = report_of(story_in(tmp_path, Findings()), attribution)
    assert is_clean(result) is clean
    assert f"1: {cause}" in table_of(result)


@pytest.mark.parametrize("kind", ["duplicates", "losses", "reorders"])
def test_an_explained_anomaly_is_one(tmp_path: Path, kind: str) -> None:
    attribution = Attribution()
    assert not has_anomalies(report_of(story_in(tmp_path, Findings()), attribution))
    getattr(attribution, kind).note(Cause.BROKER_LOST, "why")
    report = report_of(story_in(tmp_path, Findings()), attribution)
    assert has_anomalies(report)
    assert is_clean(report)


def test_a_failed_record_is_no_violation_where_a_proxy_reported_giving_up(tmp_path: Path) -> None:
    journal = tmp_path / "a.jsonl"
    answer = {"time_ms": 1, "event": "answered", "topic": "chaos", "partition": 0, "verdict": "vanished"}
    journal.write_text(json.dumps({**answer, "base_offset": -1}) + "\n")
    story = story_in(tmp_path, Findings(failed=1))
    assert is_clean(result_of(story, Attribution(), Journals({"a": [journal]}), minutes=1, with_proxies=True))

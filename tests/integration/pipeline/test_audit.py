"""``idemproxy audit`` on a real 0.10.2.2: it finds exactly what was injected, and nothing in a clean topic."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from axe_playwright_python.sync_playwright import Axe
from pyspark.sql import SparkSession
from rich.console import Console

from idemproxy.codecs.batch_marker import Identity
from idemproxy.codecs.compression import Codec
from idemproxy.demo.legacy_cluster import LegacyCluster
from idemproxy.demo.ports import HOST, free_ports
from idemproxy.pipeline.audit.progress import Progress
from idemproxy.proxy.commands.inspection.found_duplicates import found_by_audit
from idemproxy.proxy.main import main
from idemproxy.state.hidden_ranges import OffsetRange
from testkit.real.brokers.kafka_cluster import fresh_topic
from testkit.real.clients.raw_client import RawClient, batch
from testkit.real.machine.browser import open_browser
from testkit.real.proxies.proxy_process import ProxyProcess
from testkit.stage.logs import BEGUN_MS, modern, numbered, plain, wrapper

Place = tuple[str, int]
FAULTS = {"duplicate": 25, "gap": 6, "inversion": 3, "epoch_regression": 2, "foreign_writer": 9}
pytestmark = pytest.mark.timeout(600)
"""On a busy machine a session takes a minute to start."""


@dataclass(frozen=True, slots=True)
class Scene:
    """The topics of these tests. ``faulty``: 3 partitions; ``clean``: 2, written through the proxy alone."""

    cluster: LegacyCluster
    faulty: str
    clean: str
    journal: Path

    @property
    def upstream(self) -> str:
        return "{}:{}".format(*self.cluster.address(0))


def append(client: RawClient, place: Place, data: bytes) -> int:
    """Append bytes of message format v1 straight to the broker; return the offset of the first record."""
    client.send_produce([(*place, data)], version=2, acks=1)
    (answer,) = client.produce_answer(2)
    assert answer.error_code == 0, answer
    return answer.base_offset


def send(client: RawClient, place: Place, identity: Identity, begun: int) -> int:
    """Send a batch through the proxy; return its offset."""
    values = [b"%d of %d" % (begun + number, identity.producer_id) for number in range(identity.record_count)]
    records = batch(
        values, producer_id=identity.producer_id, epoch=identity.producer_epoch, sequence=identity.base_sequence
    )
    client.send_produce([(*place, records)])
    (answer,) = client.produce_answer()
    assert answer.error_code == 0, answer
    return answer.base_offset


def inject(direct: RawClient, topic: str) -> None:
    """Write what ``FAULTS`` counts: by sequence numbers into partition 0, without any into 1."""
    place = (topic, 0)
    for begun in range(0, 30, 10):
        append(direct, place, wrapper(numbered(begun, 10), 0, Identity(5, 0, begun, 10)))
    append(direct, place, wrapper(numbered(10, 20), 0, Identity(5, 0, 10, 10), Identity(5, 0, 20, 10)))  # 20 again
    append(direct, place, wrapper(numbered(0, 5), 0, Identity(5, 0, 0, 5), codec=Codec.SNAPPY))  # 5 again
    append(direct, place, wrapper(numbered(38, 5), 0, Identity(5, 0, 38, 5)))  # from 30 on 8 are missing,
    append(direct, place, wrapper(numbered(31, 3), 0, Identity(5, 0, 31, 3), codec=Codec.LZ4))  # 3 of them come later,
    append(direct, place, wrapper(numbered(50, 2), 0, Identity(5, 1, 0, 2)))
    append(direct, place, wrapper(numbered(43, 2), 0, Identity(5, 0, 43, 2)))  # and an epoch that has ended continues
    append(direct, place, wrapper(numbered(60, 4), 0, Identity(6, 0, 1, 4)))  # 1 is missing before its first
    append(direct, place, plain(numbered(900, 9)))
    place = (topic, 1)
    for _ in range(3):
        append(direct, place, wrapper(numbered(0, 7)))  # 14 again
    append(direct, place, plain(numbered(3, 2)))  # and 2
    append(direct, place, plain([(b"key", b"value 4", BEGUN_MS + 500)]))  # repeated at another time


@pytest.fixture(scope="module")
def scene(legacy_broker: LegacyCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("audited")
    faulty, clean = fresh_topic(legacy_broker, 3), fresh_topic(legacy_broker, 2)
    journal = folder / "journal.jsonl"
    options = ("--journal", str(journal))
    with (
        ProxyProcess(folder / "proxy", legacy_broker.address(0), options=options) as proxy,
        RawClient(proxy.address) as client,
        RawClient(legacy_broker.address(0)) as direct,
    ):
        inject(direct, faulty)
        for partition in (0, 1):
            one, other = client.new_producer_id(), client.new_producer_id()
            for sequence in range(0, 60, 6):
                for producer in (one, other):
                    send(client, (clean, partition), Identity(producer, 0, sequence, 6), sequence)
        producer = client.new_producer_id()
        for sequence in (0, 4):
            send(client, (faulty, 2), Identity(producer, 0, sequence, 4), sequence)
        yield Scene(legacy_broker, faulty, clean, journal)


def audit(out: Path, *options: str) -> tuple[int, dict[str, Any]]:
    """Run the command; return its exit status and the summary."""
    status = main(["audit", "--out", str(out), *options])
    return status, json.loads((out / "summary.json").read_text())


def counted(summary: dict[str, Any]) -> dict[str, int]:
    return {kind: count for kind, count in summary["findings"].items() if count}


@pytest.fixture(scope="module")
def audited(spark: SparkSession, scene: Scene, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """The report on both topics."""
    out = tmp_path_factory.mktemp("report")
    status, summary = audit(out, "--upstream", scene.upstream, "--topic", scene.faulty, "--topic", scene.clean)
    assert status == 1
    return out, summary


def test_exactly_what_was_injected_is_found(scene: Scene, audited: tuple[Path, dict[str, Any]]) -> None:
    _, summary = audited
    suspected = {"suspected_duplicate": 16, "repeated_record": 1}
    assert counted(summary) == {**FAULTS, **suspected}
    by_place = {(one["topic"], one["partition"]): one["findings"] for one in summary["partitions"]}
    assert by_place == {
        (scene.faulty, 0): FAULTS,
        (scene.faulty, 1): suspected,
        (scene.faulty, 2): {},
        (scene.clean, 0): {},
        (scene.clean, 1): {},
    }
    assert summary["records"] == 80 + 24 + 8 + 2 * 120
    assert set(summary["failing"]) == {"duplicate", "suspected_duplicate", "gap", "inversion", "epoch_regression"}


def test_each_finding_names_the_records(audited: tuple[Path, dict[str, Any]]) -> None:
    rows = pq.read_table(audited[0] / "findings.parquet").to_pylist()
    duplicates = [(row["offset"], row["other_offset"], row["distance"]) for row in rows if row["kind"] == "duplicate"]
    expected = [*((30 + number, 10 + number, 20) for number in range(20)), *((50 + n, n, 50) for n in range(5))]
    assert duplicates == expected
    gaps = {(row["producer_id"], row["sequence"], row["count"]) for row in rows if row["kind"] == "gap"}
    assert gaps == {(5, 30, 1), (5, 34, 4), (6, 0, 1)}
    (inversion,) = (row for row in rows if row["kind"] == "inversion")
    assert (inversion["offset"], inversion["last_offset"], inversion["sequence"]) == (60, 62, 31)


def test_certain_duplicates_are_ranges_to_hide(scene: Scene, audited: tuple[Path, dict[str, Any]]) -> None:
    found = found_by_audit(audited[0])
    assert [(one.place, one.first_copy) for one in found.copies] == [
        (OffsetRange(scene.faulty, 0, 30, 50), 10),
        (OffsetRange(scene.faulty, 0, 50, 55), 0),
    ]
    assert found.notes == []


def test_a_clean_topic_has_exit_status_0_and_what_was_acknowledged_is_there(
    spark: SparkSession, scene: Scene, tmp_path: Path
) -> None:
    chosen = ("--upstream", scene.upstream, "--pattern", re.escape(scene.clean), "--journal", str(scene.journal))
    status, summary = audit(tmp_path, *chosen)
    assert (status, counted(summary)) == (0, {})
    assert summary["acknowledged_batches"] == 40


def test_an_empty_topic_is_clean(spark: SparkSession, scene: Scene, tmp_path: Path) -> None:
    empty = fresh_topic(scene.cluster, 2)
    status, summary = audit(tmp_path, "--upstream", scene.upstream, "--topic", empty)
    assert (status, counted(summary), summary["records"]) == (0, {}, 0)
    assert "Clean" in (tmp_path / "report.html").read_text()


def test_an_acknowledged_batch_that_is_not_in_the_log_is_found(
    spark: SparkSession, scene: Scene, tmp_path: Path
) -> None:
    forged = tmp_path / "journal.jsonl"
    lines = scene.journal.read_text().splitlines(keepends=True)
    (last,) = [line for line in lines if '"event":"answered"' in line and f'"{scene.clean}"' in line][-1:]
    told = json.loads(last)
    lost = json.dumps({**told, "base_sequence": 60, "base_offset": told["base_offset"] - 6}, separators=(",", ":"))
    forged.write_text("".join(lines) + lost + "\n")
    options = ("--upstream", scene.upstream, "--topic", scene.clean, "--journal", str(forged))
    status, summary = audit(tmp_path, *options)
    assert (status, counted(summary)) == (1, {"acknowledged_absent": told["record_count"]})
    assert audit(tmp_path, *options, "--fail-on", "duplicate,gap")[0] == 0


def test_segment_files_of_a_dead_broker_say_the_same(
    spark: SparkSession, scene: Scene, audited: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    folder = tmp_path / "data"
    for partition in range(3):
        name = f"{scene.faulty}-{partition}"
        shutil.copytree(scene.cluster.log_directories[0] / name, folder / name)
    newer = folder / "newer-0"
    newer.mkdir()
    batches = [modern(numbered(0, 5), 0, Identity(1, 0, 0, 5)), modern(numbered(0, 5), 5, Identity(1, 0, 0, 5))]
    batches.append(modern(numbered(7, 2), 10, Identity(1, 0, 7, 2), Codec.ZSTD))
    (newer / f"{0:020}.log").write_bytes(b"".join(batches))
    status, summary = audit(tmp_path / "out", "--log-dir", str(folder))
    assert status == 1
    of_topic = {name: topic["findings"] for name, topic in summary["topics"].items()}
    assert of_topic[scene.faulty] == audited[1]["topics"][scene.faulty]["findings"]
    assert of_topic["newer"] == {"duplicate": 5, "gap": 2}


def test_unread_parts_of_segment_files_are_reported(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A segment in the middle is gone, the last one ends in a part of an entry; the first batches of another topic were
    compacted away."""
    folder = tmp_path / "data"
    for name in ("orders-0", "state-0"):
        (folder / name).mkdir(parents=True)
    (folder / "orders-7").mkdir()
    (folder / "cleaner-offset-checkpoint").write_text("0\n1\nstate 0 70\n")
    for base in (0, 20):
        data = modern(numbered(base, 10), base, Identity(1, 0, base, 10))
        (folder / "orders-0" / f"{base:020}.log").write_bytes(data + data[:base])
    kept = [modern(numbered(base, 10), base, Identity(1, 0, base, 10)) for base in (50, 60)]
    (folder / "state-0" / f"{0:020}.log").write_bytes(b"".join(kept))
    status, summary = audit(tmp_path / "out", "--log-dir", str(folder))
    assert (status, summary["topics"]["orders"]["findings"]) == (1, {"missing_offsets": 10, "gap": 10})
    assert summary["topics"]["state"]["findings"] == {"compacted_gap": 50, "offset_hole": 50}
    printed, report = capsys.readouterr().out, (tmp_path / "out/report.html").read_text()
    for said in (
        "orders-0 behind offset 29: 20 bytes at the end of the file are no whole entry, as a crash leaves them",
        "not audited: orders-7, whose folder has no segment file, though a broker always leaves one",
    ):
        assert said in printed
        assert said in report


def test_on_a_terminal_there_is_a_bar_while_tasks_run(spark: SparkSession) -> None:
    def slow(row: object) -> object:
        time.sleep(0.3)
        return row

    shown = StringIO()
    with Progress(Console(file=shown, force_terminal=True, width=80)) as progress:
        with progress.stage(spark.sparkContext, "counting"):
            assert spark.range(0, 10, 1, 4).rdd.map(slow).count() == 10
        assert list(progress.seconds) == ["counting"]
    assert "counting" in shown.getvalue()
    assert re.search(r"[0-4] of 4 tasks", shown.getvalue())


def refused(capsys: pytest.CaptureFixture[str], *options: str) -> str:
    """Run the command, which cannot audit anything; return what it says."""
    assert main(["audit", *options]) == 2
    (said,) = capsys.readouterr().err.splitlines()
    return said


def test_what_cannot_be_audited_has_exit_status_2_and_one_sentence(
    scene: Scene, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    upstream, out = ("--upstream", scene.upstream), ("--out", str(tmp_path / "out"))
    assert refused(capsys, *upstream, *out, "--topic", "none") == "idemproxy audit: there is no topic none"
    nobody = f"{HOST}:{free_ports(1)[0]}"
    assert "no broker can be reached at" in refused(capsys, "--upstream", nobody, *out)
    assert "HOST:PORT is wanted" in refused(capsys, "--upstream", "nowhere", *out)
    assert "no segment files" in refused(capsys, "--log-dir", str(tmp_path), *out)
    assert "--pattern" in refused(capsys, *upstream, *out, "--pattern", "(")
    assert "nothing: No such file" in refused(capsys, *upstream, *out, "--journal", str(tmp_path / "nothing"))
    assert "there are duplicate," in refused(capsys, *upstream, *out, "--fail-on", "sins")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_report_opens_in_a_browser_and_asks_for_nothing(
    audited: tuple[Path, dict[str, Any]], tmp_path: Path, scheme: Any
) -> None:
    pictures = Path(os.environ.get("PICTURES") or tmp_path)
    asked: list[str] = []
    complaints: list[str] = []
    with open_browser() as browser:
        page = browser.new_page(viewport={"width": 1200, "height": 900}, color_scheme=scheme)
        page.on("request", lambda request: asked.append(request.url))
        page.on("console", lambda message: complaints.append(message.text))
        page.goto((audited[0] / "report.html").as_uri())
        headings = page.locator("h2").all_inner_texts()
        if scheme == "light":
            page.screenshot(
                path=pictures / "audit-report.png", clip={"x": 0, "y": 0, "width": 1200, "height": 1600}, full_page=True
            )
        assert "25 × duplicate" in page.locator(".verdict").inner_text()
        assert page.locator("svg").count() == 4
        found = Axe().run(page)
        assert found.violations_count == 0, found.generate_report()
        page.set_viewport_size({"width": 360, "height": 740})
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert headings[:5] == ["Topics", "Where and when", "Distance of duplicates", "Sequence against offset", "Gaps"]
    assert (len(asked), complaints) == (1, [])

"""``idemproxy journal cat``: which lines, in which order, of which files, and how they are shown. On real files that
the proxy's own journal has written."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from idemproxy.codecs.batch_marker import Identity
from idemproxy.pipeline.journal.files import Reader, journals, merged
from idemproxy.pipeline.journal.shown import _TEXTS
from idemproxy.proxy import events
from idemproxy.proxy.commands.journal_arguments import EVENTS
from idemproxy.proxy.main import main
from idemproxy.proxy.settings.config import JournalSettings
from idemproxy.proxy.telemetry.journal import Journal
from idemproxy.proxy.telemetry.journal_file import JournalFile, of_worker

START_MS = 1_795_669_200_000  # 2026-11-26T05:00:00Z
BATCH = Identity(7, 1, 30, 2)
Said = pytest.CaptureFixture[str]


class Proxy:
    """What a proxy writes, with a clock that advances a second with each event."""

    def __init__(self, path: Path, rotate_bytes: int = 0, start_ms: int = START_MS) -> None:
        self.ms = start_ms
        self.file = JournalFile(JournalSettings(path, rotate_bytes), lambda: self.ms, lambda: self.ms / 1000)
        about = {"proxy": "1.2.3", "cluster": "default", "host": "h", "pid": 9}
        self.journal = Journal(
            self.file.write, lambda: self.ms, lambda _: None, now=lambda: self.ms / 1000, about=about
        )
        self.file.header = self.journal.header

    def sends(self, topic: str = "orders", partition: int = 2, batch: Identity = BATCH) -> None:
        self._tell(events.AppendSent(4, topic, partition, (batch,)))

    def answers(self, topic: str = "orders", partition: int = 2, batch: Identity = BATCH, offset: int = 400) -> None:
        came = self.ms / 1000 + 0.9968
        self._tell(
            events.BatchAnswered(
                *("appended", *batch[:3], topic, partition, 0, offset),
                arrived_at=came,
                record_count=batch[3],
                crc=0xCAFE,
            )
        )

    def _tell(self, event: object) -> None:
        self.ms += 1000
        self.journal(event)


@pytest.fixture
def proxy() -> Iterator[Callable[..., Proxy]]:
    made: list[Proxy] = []

    def make(*arguments: object, **named: object) -> Proxy:
        made.append(Proxy(*arguments, **named))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for one in made:
        one.file.close()


Make = Callable[..., Proxy]


def cat(*arguments: object) -> int:
    return main(["journal", "cat", *map(str, arguments)])


def events_of(capsys: Said, *arguments: object) -> list[str]:
    """The events that are printed, but for first lines."""
    cat(*arguments, "--json")
    found = [json.loads(line)["event"] for line in capsys.readouterr().out.splitlines()]
    return [event for event in found if event != "journal"]


def test_a_batch_is_shown_with_all_that_is_known_of_it(tmp_path: Path, proxy: Make, capsys: Said) -> None:
    one = proxy(tmp_path / "j")
    one.sends()
    one.answers()
    one.answers(batch=Identity(7, 1, 2**31 - 1, 2), offset=-1)
    assert cat(tmp_path / "j") == 0
    assert capsys.readouterr().out.splitlines() == [
        "2026-11-26T05:00:01.000Z  journal          format 2, idemproxy 1.2.3, cluster default, host h, pid 9",
        "2026-11-26T05:00:01.000Z  sent             orders-2  producer 7/1 seq 30..31 to broker 4",
        "2026-11-26T05:00:02.000Z  answered         orders-2  producer 7/1 seq 30..31: appended at 400..401, 2 "
        "records, "
        "crc 0000cafe, 3.2 ms",
        "2026-11-26T05:00:03.000Z  answered         orders-2  producer 7/1 seq 2147483647..0: appended, 2 records, "
        "crc 0000cafe, 3.2 ms",
    ]


def test_every_event_has_a_sentence_and_an_unknown_one_is_shown_as_it_stands(
    tmp_path: Path, proxy: Make, capsys: Said
) -> None:
    one = proxy(tmp_path / "j")
    names = (BATCH, Identity(7, 1, 32, 1))
    for event in (
        events.AppendEnded(4, "orders", 2, names, "appended", 400, 0, ""),
        events.AppendEnded(4, "orders", 2, names, "in_doubt", -1, 7, "the connection broke"),
        events.UnknownOutcomeOpened(7, "orders", 2, 30, "the connection broke"),
        events.UnknownOutcomeResolved(7, "orders", 2, 30, "found", 12_345, 0.25, "at 400"),
        events.AppendSentAgain(7, "orders", 2, 30, 1),
        events.AppendAfterDeadline(7, 1, (30, 32), "orders", 2),
        events.DuplicateFound(7, 1, 30, "orders", 2, (400, 500)),
        events.TakenOver(7, "orders", 2, b"\x01\x02"),
        events.DataGenerationChanged(b"\x03"),
        events.ProxyInstanceBegun(b"\x04"),
        events.OperatorMessage("warning", "a\x1b[31m word"),
    ):
        one.journal(event)
    one.journal.not_synced("Input/output error")
    one.ms += 1500
    one.journal.synced()
    one.file.write(b'{"time_ms":0,"event":"missing","events":1234}\n')
    one.file.write(b'{"time_ms":0,"event":"later","some":1,"thing":"x"}\n')
    one.file.write(b'{"time_ms":0,"event":"sent","of":"another shape"}\n')
    assert set(EVENTS) == set(_TEXTS)
    assert cat(tmp_path / "j") == 0
    texts = [line.split("Z  ", 1)[1] for line in capsys.readouterr().out.splitlines()]
    assert texts[1:] == [
        "outcome          orders-2  producer 7/1 seq 30..31, 32: appended at 400..402",
        "outcome          orders-2  producer 7/1 seq 30..31, 32: in_doubt, error 7, the connection broke",
        "unknown_outcome  orders-2  producer 7 seq 30: the connection broke",
        "resolved         orders-2  producer 7 seq 30: found, 12,345 bytes of the log read in 0.250 s, at 400",
        "sent_again       orders-2  producer 7 seq 30: try 1",
        "append_after_deadline  orders-2  producer 7/1 seq 30, 32",
        "duplicate_found  orders-2  producer 7/1 seq 30: at 400 and 500",
        "taken_over       orders-2  producer 7, from proxy instance 0102",
        "data_generation  Redis has begun the data generation 03",
        "proxy_instance   this process is 04 from now on",
        "message          warning: a\\x1b[31m word",
        "not_synced       for 1.5 s: it does not get to the disk: Input/output error; a power cut since then may have "
        "taken lines",
        "missing          1,234 events could not be written before this line",
        "later            some 1, thing x",
        "sent             of another shape",
    ]


def test_renamed_files_come_first_and_several_proxies_are_in_the_order_of_time(
    tmp_path: Path, proxy: Make, capsys: Said
) -> None:
    one, other = proxy(tmp_path / "a", rotate_bytes=1), proxy(tmp_path / "b", start_ms=START_MS + 500)
    for sequence in range(0, 8, 2):
        one.answers(batch=Identity(7, 0, sequence, 1))
        other.answers(batch=Identity(7, 0, sequence + 1, 1))
    assert len(list(tmp_path.iterdir())) == 6
    assert cat(tmp_path / "a", tmp_path / "b", "--event", "answered", "--json") == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["base_sequence"] for line in found] == [*range(8)]
    assert cat(tmp_path / "a", tmp_path / "b", "--event", "answered") == 0
    assert [line.split()[1] for line in capsys.readouterr().out.splitlines()] == ["a", "b"] * 4


def test_the_files_of_workers_come_with_the_name_and_none_is_read_twice(
    tmp_path: Path, proxy: Make, capsys: Said
) -> None:
    for number in (1, 2, 10):
        proxy(of_worker(tmp_path / "j", number), rotate_bytes=1).sends()
    assert events_of(capsys, tmp_path / "j") == ["sent"] * 3
    everything = sorted(tmp_path.iterdir())
    assert len(everything) == 6
    assert events_of(capsys, *everything) == ["sent"] * 3, "as a shell's j* names them"
    assert events_of(capsys, tmp_path / "j.1") == ["sent"]
    (only,) = (one for one in everything if one.name.startswith("j.10.2026"))
    assert events_of(capsys, only) == ["sent"]
    assert [one.name for one in journals([tmp_path / "j"])] == ["j.1", "j.2", "j.10"]


@pytest.mark.parametrize(
    ("chosen", "count"),
    [
        ((), 6),
        (("--topic", "orders"), 4),
        (("--topic", "orders", "--partition", "0"), 2),
        (("--producer-id", "8"), 2),
        (("--producer-id", "0x8"), 2),
        (("--event", "sent"), 3),
        (("--event", "sent", "--event", "answered"), 6),
        (("--topic", "orders", "--event", "sent"), 2),
        (("--since", "2026-11-26T05:00:03Z"), 4),
        (("--until", "2026-11-26T05:00:03"), 3),
        (("--since", "2026-11-26T06:00:02+01:00", "--until", "2026-11-26T05:00:03Z"), 2),
        (("--since", "99999d"), 6),
    ],
)
def test_only_what_was_asked_for_is_printed(
    tmp_path: Path, proxy: Make, capsys: Said, chosen: tuple[str, ...], count: int
) -> None:
    one = proxy(tmp_path / "j", rotate_bytes=500)
    for topic, partition, producer_id in (("orders", 0, 7), ("orders", 1, 8), ("else", 0, 7)):
        one.sends(topic, partition, Identity(producer_id, 0, 0, 1))
        one.answers(topic, partition, Identity(producer_id, 0, 0, 1))
    assert len(events_of(capsys, tmp_path / "j", *chosen)) == count


def test_nothing_to_print_is_1_and_what_cannot_be_is_2_with_a_sentence(
    tmp_path: Path, proxy: Make, capsys: Said
) -> None:
    proxy(tmp_path / "j").sends()
    assert cat(tmp_path / "j", "--topic", "none") == 1
    assert capsys.readouterr() == ("", "")
    assert cat(tmp_path / "nothing") == 2
    assert capsys.readouterr().err == f"idemproxy: {tmp_path}/nothing: No such file or directory\n"
    assert cat(tmp_path / "j", "--partition", 1) == 2
    assert capsys.readouterr().err == "idemproxy: --partition needs --topic: a partition of which topic?\n"
    for arguments, words in (
        (("--since", "yesterday"), "--since: 'yesterday' is no time: one such as 2026-11-26T05:00:00Z, or 15m for"),
        (("--event", "answerd"), "--event: unknown: answerd; did you mean answered?"),
        (("--producer-id", "x"), "--producer-id: 'x' is no producer id"),
    ):
        with pytest.raises(SystemExit) as ended:
            cat(tmp_path / "j", *arguments)
        assert ended.value.code == 2
        assert words in capsys.readouterr().err


def test_an_unknown_format_is_an_error_and_no_header_means_format_1(tmp_path: Path, proxy: Make, capsys: Said) -> None:
    path = tmp_path / "j"
    path.write_bytes(b'{"time_ms":5,"event":"data_generation","generation":"00"}\n')
    assert events_of(capsys, path) == ["data_generation"]
    path.write_bytes(b'{"journal":3,"time_ms":5,"event":"journal","proxy":"9.0"}\n')
    assert cat(path) == 2
    assert capsys.readouterr().err == (
        f"idemproxy: {path}: line 1: format 3, written by idemproxy 9.0; known are 1 and 2: read it with that version "
        "or a later one\n"
    )
    for text in (b"# a page\n", b"[1]\n", b"{}\n", b"\x80\n", b"[" * 100_000 + b"\n"):
        path.write_bytes(text)
        assert cat(path) == 2
        assert capsys.readouterr().err == f"idemproxy: {path}: line 1 is not one of a journal\n"


def test_what_is_cut_off_or_no_line_is_left_out_with_a_note(tmp_path: Path, proxy: Make, capsys: Said) -> None:
    path = tmp_path / "j"
    proxy(path).sends()
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"time_ms":5,"eve')
    assert cat(path) == 0
    said = capsys.readouterr()
    assert (len(said.out.splitlines()), said.err) == (2, f"idemproxy: {path}: the last line is cut off, and left out\n")
    path.write_bytes(whole + b"nonsense\n" * 25 + whole)
    assert cat(path) == 1
    said = capsys.readouterr()
    assert len(said.out.splitlines()) == 4
    notes = said.err.splitlines()
    assert notes[0] == f"idemproxy: {path}: line 3 is not one of a journal, and left out"
    assert notes[-1] == "idemproxy: and 5 more"
    assert len(notes) == 21


def test_a_journal_renamed_and_deleted_during_reading_is_read_to_its_end(tmp_path: Path, proxy: Make) -> None:
    one = proxy(tmp_path / "j", rotate_bytes=600)
    reader = Reader(tmp_path / "j", lambda _: None)
    found: list[int] = []
    for sequence in range(60):
        one.answers(batch=Identity(7, 0, sequence, 1))
        if sequence % 7 == 0:
            found += [line.said["base_sequence"] for line in reader.lines() if line.said["event"] == "answered"]
            for old in sorted(tmp_path.glob("j.*"))[:-1]:
                old.unlink()
    lines = reader.lines()
    first = next(lines)
    for sequence in range(60, 70):  # in the middle of a look
        one.answers(batch=Identity(7, 0, sequence, 1))
    found += [line.said["base_sequence"] for line in (first, *lines) if line.said["event"] == "answered"]
    reader.end()
    assert found == [*range(70)]


def test_lines_of_the_same_time_stay_in_the_order_of_their_file(tmp_path: Path, proxy: Make) -> None:
    one = proxy(tmp_path / "j")
    for sequence in range(20):
        one.ms = START_MS
        one.answers(batch=Identity(7, 0, sequence, 1))
    reader = Reader(tmp_path / "j", lambda _: None)
    lines = [line.said for line in merged([reader])]
    reader.end()
    assert [said["base_sequence"] for said in lines if said["event"] == "answered"] == [*range(20)]


def test_what_is_written_from_now_on_follows_across_new_files_until_ctrl_c(tmp_path: Path, proxy: Make) -> None:
    one = proxy(tmp_path / "j", rotate_bytes=700)
    one.answers(batch=Identity(7, 0, 0, 1))
    command = [sys.executable, "-m", "idemproxy", "journal", "cat", os.fspath(tmp_path / "j"), "--json", "--follow"]
    chosen = ["--event", "answered"]
    # A shell that started these tests in the background has made its children deaf to Ctrl-C.
    hears = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    with subprocess.Popen([*command, *chosen], stdout=subprocess.PIPE, text=True, preexec_fn=hears) as following:
        try:
            assert following.stdout is not None
            for sequence in range(1, 12):
                assert json.loads(following.stdout.readline())["base_sequence"] == sequence - 1
                one.answers(batch=Identity(7, 0, sequence, 1))
            assert len(list(tmp_path.iterdir())) > 2
            following.send_signal(signal.SIGINT)
            assert following.wait(60) == 130
        finally:
            following.kill()

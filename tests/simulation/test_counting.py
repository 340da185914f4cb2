"""What ``make simulate`` counts: seeds add up on one core, none is run twice, a run that ends early loses nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from runs.results import next_first
from runs.simulate import INTERRUPTED, Tally, run_many, run_some, seeds_on
from runs.simulated_core import OTHER_FOLDERS, ROOT, WHOLE_FOLDERS, code_of, core_digest, core_files

PROGRAM = """
import sys
from pathlib import Path
from runs import results, simulate
results.RESULTS = simulate.RESULTS = Path(sys.argv[1])
sys.exit(simulate.main(sys.argv[2:]))
"""


def row(core: str, first: int, last: int, *, seeds: int | None = None, batches: int = 200) -> dict[str, object]:
    """As it stands in the file."""
    count = last - first + 1 if seeds is None else seeds
    return {"core": core, "first_seed": first, "last_seed": last, "seeds": count, "batches_per_seed": batches}


def test_what_several_processes_count_is_what_one_counts() -> None:
    alone, together = run_some(7, 45, 5), Tally()
    for tally in run_many(7, 45, 2, 5):
        together.add(tally)
    assert (alone.seeds, alone.last_seed, alone.batches) == (45, 51, together.batches)
    assert (together.seeds, together.last_seed) == (45, 51)
    assert (alone.faults, alone.allowed) == (together.faults, together.allowed)


def test_a_run_begins_behind_the_last_one_on_the_same_core() -> None:
    rows = [row("a", 1, 500), row("b", 1, 9000), row("a", 501, 700), {"commit": "older", "last_seed": 99_999}]
    assert [next_first(rows, core) for core in ("a", "b", "c")] == [701, 9001, 1]


def test_no_world_is_counted_twice() -> None:
    rows = [row("a", 1, 500), row("a", 401, 600), row("a", 1, 100), row("b", 1, 9000)]
    assert seeds_on(rows, "a") == 600
    assert seeds_on([*rows, row("a", 1, 100, batches=25)], "a") == 700, "with other batches it is another world"
    assert seeds_on([*rows, row("a", 601, 700, seeds=40)], "a") == 640, "one that ended early has left some out"
    assert seeds_on([*rows, {"commit": "older", "last_seed": 99_999}], "a") == 600


def test_every_file_of_the_core_exists_and_is_in_its_digest(tmp_path: Path) -> None:
    files = core_files()
    assert [path for path in files if not path.is_file()] == []
    assert len(files) > 40
    for path in files:
        copy = tmp_path / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
    assert core_digest(tmp_path) == core_digest()
    seen = {core_digest(tmp_path)}
    for path in files:
        with (tmp_path / path.relative_to(ROOT)).open("ab") as file:
            file.write(b"\nlater = 1\n")
        seen.add(core_digest(tmp_path))
    assert len(seen) == len(files) + 1, "a change to one of the files makes no other core"


def test_words_about_the_code_are_no_part_of_the_digest() -> None:
    code = "def half(x: int) -> int:\n    return x // 2\n"
    told = '"""Halves."""\n# Not below 0.\ndef half(x: int) -> int:\n    """Round down."""\n\n    return x // 2\n'
    assert code_of(told) == code_of(code)
    others = [code.replace("2", "3"), code.replace("//", "/"), code.replace("int", "float", 1), code + "half(1)\n"]
    others += [code.replace("x // 2", "'x'"), code.replace("x // 2", '"""y"""'), "half: int\n" + code, "async " + code]
    assert len({code_of(one) for one in (code, *others)}) == len(others) + 1


def test_every_room_belongs_to_the_core_or_to_the_others() -> None:
    found = sorted(
        path.parent.relative_to(ROOT / "proxy").as_posix() for path in (ROOT / "proxy").glob("*/__init__.py")
    )
    core = [folder.removeprefix("proxy/") for folder in WHOLE_FOLDERS if folder.startswith("proxy/")]
    assert found == sorted([*core, *OTHER_FOLDERS])


def test_a_run_that_is_ended_early_saves_what_it_has(tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join((str(ROOT / "tests"), str(ROOT / "src")))}
    command = [sys.executable, "-c", PROGRAM, str(tmp_path), "--seeds", "1000000", "--batches", "5", "--jobs", "2"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "1000000 seeds" in line:  # the first word of progress
                process.send_signal(signal.SIGTERM)
                break
        said = process.stdout.read()
    assert process.returncode == INTERRUPTED
    (saved,) = [json.loads(line) for line in (tmp_path / "simulation.jsonl").read_text().splitlines()]
    assert 0 < saved["seeds"] < 1_000_000
    assert saved["seeds"] <= saved["last_seed"] < 1_000_000
    assert saved["core"] == core_digest()
    assert f"{saved['seeds']} seeds on this core" in said

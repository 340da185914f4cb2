"""docs/CLIENT.md: its programs are run as they stand there, each in a process of its own, through a real proxy."""

import json
import subprocess
import sys
from pathlib import Path

from idemproxy.demo.legacy_cluster import LegacyCluster
from testkit.real.brokers.kafka_cluster import stored_values
from testkit.real.clients.numbered_batches import Place
from testkit.real.proxies.proxy_process import ProxyProcess
from testkit.real.scenes.followed_page import blocks_of, changed

PAGE = Path(__file__).resolve().parents[3] / "docs/CLIENT.md"


def run(program: str, directory: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], cwd=directory, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_programs_of_the_page_do_what_it_says(
    shared_proxy: ProxyProcess, legacy_broker: LegacyCluster, place: Place, other_place: Place, tmp_path: Path
) -> None:
    def here(text: str, where: Place) -> str:
        address = "{}:{}".format(*shared_proxy.address)
        return changed(text, {"127.0.0.1:9092": address, '"orders", 0': f'"{where[0]}", {where[1]}'})

    programs = [block.text for block in blocks_of(PAGE) if block.language == "python"]
    short, resuming, where, on_trio, reading, committing = programs
    assert len(short.strip().splitlines()) == 5
    assert run(here(short, place), tmp_path) == "0\n"
    assert run(here(on_trio, place), tmp_path).splitlines()[0] == str(list(range(2, 12)))
    shown = run(here(reading, place), tmp_path).splitlines()
    assert len(shown) == 13
    assert shown[-1] == "12 12"
    assert run(here(committing, place), tmp_path) == "12 anything\n"

    assert run(here(where, place), tmp_path) == "None\n", "nothing was written under this name"

    saved = tmp_path / "numbers.json"
    run(here(resuming, other_place), tmp_path)
    state = json.loads(saved.read_text())
    assert (state["done"], state["next"]) == (10, 100)
    run(here(resuming, other_place), tmp_path)
    for done in (7, 0):  # as if it had been killed before it saved more
        saved.write_text(json.dumps(state | {"done": done, "next": done * 10}))
        run(here(resuming, other_place), tmp_path)
    rows = [value for _, value in stored_values(legacy_broker, other_place)]
    assert rows == [b"row %d" % number for number in range(100)]

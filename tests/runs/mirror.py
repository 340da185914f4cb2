"""A million records copied between two clusters while mirror, proxies and brokers are killed; both logs compared.

``python -m runs.mirror`` is ``make mirror``: two real 0.10.2.2, two proxies on one Redis before the second one, and
examples/mirror.py. In each round some records come to the input, and each party is killed once, at a random moment: the
mirror, one of the proxies, the broker of one of the clusters. A line of JSON in benchmarks/results/mirror.jsonl."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from testkit.real.scenes.example_lives import RandomKills
from testkit.real.scenes.mirror import Compared, MirrorScene

from .results import append_result

TOPICS = {"orders": 4, "payments": 2}
ROUND_SECONDS_MAX = 3.0
"""Within these all parties of a round are killed."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print and save; exit status 1 unless the output is the input, and all kills have happened."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000, help="(default: %(default)s)")
    parser.add_argument("--kills", type=int, default=100, help="of each party (default: %(default)s)")
    parser.add_argument("--minutes", type=float, default=120.0, help="no round begins later (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the moments (default: %(default)s)")
    options = parser.parse_args(arguments)
    started = time.monotonic()
    kills = RandomKills(options.seed)
    fed = rounds = in_the_middle = 0
    with tempfile.TemporaryDirectory(prefix="mirror-") as folder, MirrorScene(Path(folder), topics=TOPICS) as scene:
        scene.begin()
        scene.lives.keep_alive()
        while rounds < options.kills and time.monotonic() < started + 60 * options.minutes:
            share = options.records * (rounds + 1) // options.kills - options.records * rounds // options.kills
            scene.feed(share)
            fed += share
            cluster = (scene.source, scene.destination)[rounds % 2]
            killed_broker = partial(scene.kill_broker, cluster)
            killed_proxy = partial(scene.kill_proxy, (rounds // 2) % 2)
            kills.at_once(ROUND_SECONDS_MAX, scene.lives.kill, killed_proxy, killed_broker)
            scene.wait_for_proxies()
            in_the_middle += scene.planned() > 0
            rounds += 1
            print(f"round {rounds}: {fed} records, {time.monotonic() - started:.0f} s", flush=True)
        scene.finish(1800)
        seconds = time.monotonic() - started
        found = scene.compare()
        ours = scene.proxies.errors_of_ours()
        lives = scene.lives
    is_right = found == Compared(fed, 0, 0, 0) and not ours
    is_whole = rounds == options.kills
    figures = {
        "records": found.stored,
        "missing": found.missing,
        "surplus": found.surplus,
        "different": found.different,
        "kills_of_each_party": rounds,
        "mirror_kills": lives.killed,
        "rounds_that_end_with_batches_planned": in_the_middle,
        "ended_by_itself": len(lives.failed),
        "seconds": round(seconds, 1),
    }
    path = append_result("mirror", {"right": is_right, **figures})
    print(f"{'right' if is_right else 'WRONG'}: {figures} {ours}; a line in {path.name}")
    if not is_whole:
        print(f"only {rounds} of {options.kills} rounds in {options.minutes:g} minutes")
    for one in lives.failed[:5]:
        print(one)
    return 0 if is_right and is_whole else 1


if __name__ == "__main__":
    sys.exit(main())

"""Redis emptied again and again under working producers, and what is in the log in the end.

``python -m runs.flushes`` is ``make flushes``: two proxies, five confluent-kafka producers whose every connection
goes to either of them, twenty times FLUSHALL, and a line of JSON.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from idemproxy.demo.legacy_cluster import LegacyCluster
from idemproxy.demo.verdict import Verdict
from testkit.real.brokers.kafka_cluster import verdict
from testkit.real.brokers.kraft_cluster import cluster_class
from testkit.real.clients.two_proxies_load import ClientLoad, LibrdkafkaClient
from testkit.real.proxies.two_proxies import TwoProxies
from testkit.real.proxies.two_proxies_relays import SpreadingRelay

from .results import append_result
from .takeovers import spread

FLUSHES, PRODUCERS, PARTITIONS = 20, 5, 3
QUIET_SECONDS_MAX = 2.0
"""Between a recovery and the next flush: up to this."""
_APPEND_SECONDS = 1.0


@dataclass(slots=True)
class Flushed:
    """What became of it. ``seconds``: from a FLUSHALL until everything that was sent before it was acknowledged; where
    two came in a row, from the second."""

    flushes: int
    sent: int
    acknowledged: int
    verdict: Verdict
    errors: list[str]
    ours: list[str]
    seconds: list[float] = field(default_factory=list)
    entries_lost: int = 0
    """Entries that Redis had when it was emptied, of all times."""

    def complaints(self) -> list[str]:
        """Return what is not as it should be: everything stored once, in order, answered truly, and no client error."""
        found = [*self.errors, *self.ours]
        if not self.verdict.is_exactly_once:
            found.append(f"{self.verdict}")
        if not self.sent == self.acknowledged == self.verdict.stored:
            found.append(f"of {self.sent} {self.acknowledged} are acknowledged, {self.verdict.stored} stored")
        return found

    def row(self) -> Mapping[str, object]:
        """The figures for the results file."""
        return {
            "flushes": self.flushes,
            "entries_lost": self.entries_lost,
            "records": self.sent,
            "acknowledged": self.acknowledged,
            "duplicates": self.verdict.duplicates,
            "losses": self.verdict.lost,
            "reorders": self.verdict.reordered,
            "wrong_offsets": self.verdict.misplaced,
            "client_errors": len(self.errors),
            **spread("recovery_seconds", self.seconds),
        }


def run_flushes(
    directory: Path,
    cluster: LegacyCluster,
    topic: str,
    flushes: int,
    seed: int,
    *,
    settings: str = "",
    say: Callable[[str], None] = lambda _line: None,
) -> Flushed:
    """Empty Redis so many times under load. Some come while the proxies still work on the one before."""
    random = Random(seed)
    seconds: list[float] = []
    done = entries_lost = 0
    with TwoProxies(directory, cluster, settings=settings) as pair, SpreadingRelay(pair.addresses, seed=seed) as relay:
        clients = [LibrdkafkaClient(f"client{number}", relay.address, topic, PARTITIONS) for number in range(PRODUCERS)]
        with ClientLoad(clients) as load:
            load.all_go_on()
            while done < flushes:
                again = done % 4 == 3 and done + 1 < flushes
                for pause in (random.uniform(0.0, 8.0), 0.0) if again else (0.0,):
                    done += 1
                    entries_lost += len(pair.redis.values())
                    assert pair.redis.call("FLUSHALL") == b"OK"
                    time.sleep(pause)
                seconds.append(load.all_catch_up())
                say(f"flush {done} of {flushes}: {seconds[-1]:.1f} s, {load.sent} records, {load.errors()}")
                time.sleep(random.uniform(0.1, QUIET_SECONDS_MAX))
        time.sleep(_APPEND_SECONDS)
        ours = pair.errors_of_ours()
    told = load.acknowledged()
    judged = verdict(cluster, topic, PARTITIONS, told)
    return Flushed(done, load.sent, len(told), judged, load.errors(), ours, seconds, entries_lost)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it, print and save; exit status 1 if anything was wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--flushes", type=int, default=FLUSHES)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--broker", default="0.10.2.2", help="the release of Kafka (default: %(default)s)")
    parser.add_argument("--settings", default="", help="of the proxies, in YAML")
    options = parser.parse_args(arguments)
    with ExitStack() as stack:
        name = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="idemproxy-flushes-")))
        cluster = stack.enter_context(
            cluster_class(options.broker)(name / "kafka", version=options.broker, auto_create_topics=False)
        )
        cluster.create_topic("flushes", PARTITIONS)
        flushed = run_flushes(
            name / "pair",
            cluster,
            "flushes",
            options.flushes,
            options.seed,
            settings=options.settings,
            say=lambda line: print(line, flush=True),
        )
    complaints = flushed.complaints()
    append_result(
        "flushes",
        {
            "seed": options.seed,
            "broker": options.broker,
            "settings": options.settings,
            "right": not complaints,
            **flushed.row(),
        },
    )
    print(flushed.row(), *complaints, sep="\n", flush=True)
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())

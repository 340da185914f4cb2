"""What producers wait for after Redis has lost everything and ``idemproxy rebuild`` has run (rule R10).

``python -m runs.bulk_rebuild``: ten thousand producers on a thousand partitions write, Redis is emptied, the rebuild
runs, and each producer sends its next batch, some at a time. A line of JSON. ``--lazily`` leaves the rebuild out.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from idemproxy.demo.legacy_cluster import LegacyCluster
from testkit.real.clients.raw_client import RawClient, batch
from testkit.real.clients.two_proxies_client import RETRIABLE
from testkit.real.proxies.proxy_process import wait_until
from testkit.real.proxies.two_proxies import TwoProxies

from .rebuilds import RECORDS, TIMEOUT_MS, Crowd
from .results import append_result
from .takeovers import spread

PRODUCERS, PARTITIONS, AT_ONCE = 10_000, 1_000, 16
RUN_SECONDS_MAX = 900
LOSS_SEEN = "the lease was lost"
"""What a proxy says that finds its registration gone, also where no append is out."""
GOAL_SECONDS = 1.0
"""The ninety-ninth of a hundred first batches is answered within this."""


class Returning:
    """Producers that come back, ``AT_ONCE`` at a time, each with its next batch, and again if that is answered with a
    retriable error."""

    def __init__(self, crowd: Crowd, addresses: Sequence[tuple[str, int]], number: int) -> None:
        self._crowd, self._addresses, self._number = crowd, addresses, number
        self.retried = 0

    def run(self) -> list[float]:
        """Return the seconds from the first try to the acknowledgement, of each producer."""
        producers = range(len(self._crowd.producer_ids))
        with ThreadPoolExecutor(AT_ONCE) as pool:
            return [
                one for found in pool.map(self._some, (producers[i::AT_ONCE] for i in range(AT_ONCE))) for one in found
            ]

    def _some(self, producers: Sequence[int]) -> list[float]:
        seconds = []
        client: RawClient | None = None
        for producer in producers:
            begun = time.monotonic()
            while True:
                try:
                    client = client or RawClient(self._addresses[producer % len(self._addresses)], 60.0)
                    topic, partition = self._crowd.place(producer)
                    records = batch(
                        self._crowd.values(producer, self._number),
                        producer_id=self._crowd.producer_ids[producer],
                        sequence=self._number * RECORDS,
                    )
                    answer = client.produce_one(topic, partition, records, timeout_ms=TIMEOUT_MS)
                except OSError:
                    client = None
                    time.sleep(0.1)
                    continue
                if answer.error_code == 0:
                    self._crowd.offsets[producer].append(answer.base_offset)
                    break
                assert answer.error_code in RETRIABLE, answer
                self.retried += 1
            seconds.append(time.monotonic() - begun)
        if client is not None:
            client.close()
        return seconds


def measure(
    pair: TwoProxies, crowd: Crowd, cluster: LegacyCluster, *, lazily: bool, master: str | None
) -> Mapping[str, object]:
    """Return what the producers waited for, and what the rebuild cost."""
    Returning(crowd, pair.addresses, 0).run()
    usual = Returning(crowd, pair.addresses, 1).run()
    pair.redis.wait_until_quiet(60.0)
    lives = [proxy.log.count(LOSS_SEEN) for proxy in pair.proxies]
    pair.redis.call("FLUSHALL")
    wait_until(
        lambda: all(p.log.count(LOSS_SEEN) > n for p, n in zip(pair.proxies, lives, strict=True)),
        "the loss is seen",
    )
    told: dict[str, object] = {}
    if not lazily:
        host, port = pair.redis.address
        command = [sys.executable, "-m", "idemproxy", "rebuild", "--upstream", "{}:{}".format(*cluster.address(0))]
        command += ["--redis", f"redis://{host}:{port}/0", "--all", "--json", *(["--master", master] if master else [])]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=RUN_SECONDS_MAX, check=True)
        told = json.loads(done.stdout.splitlines()[-1])
    back = Returning(crowd, pair.addresses, 2)
    seconds = back.run()
    resolved = sum(proxy.log.count("resolved as") for proxy in pair.proxies)
    stored = {place: len(records) for place, records in pair.stored([crowd.place(0)]).items()}
    per_partition = len(range(0, len(crowd.producer_ids), crowd.partitions)) * RECORDS * 3
    return {
        "producers": len(crowd.producer_ids),
        "at_once": AT_ONCE,
        "lazily": lazily,
        "master": master or "this process",
        **spread("usual_seconds", usual),
        **spread("first_seconds", seconds),
        "retried": back.retried,
        "logs_read_by_proxies": resolved,
        "rebuild": told,
        "right": stored[crowd.place(0)] == per_partition and all(len(one) == 3 for one in crowd.offsets),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it, print and save; exit status 1 unless every batch is there once and, with the rebuild, in time."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--producers", type=int, default=PRODUCERS)
    parser.add_argument("--partitions", type=int, default=PARTITIONS)
    parser.add_argument("--lazily", action="store_true", help="without the rebuild, as the proxies do it")
    parser.add_argument("--master", help="the rebuild runs on this Spark")
    options = parser.parse_args(arguments)
    with ExitStack() as stack:
        name = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="idemproxy-bulk-")))
        cluster = stack.enter_context(LegacyCluster(name / "kafka", auto_create_topics=False))
        cluster.create_topic("rebuilds", options.partitions)
        pair = stack.enter_context(TwoProxies(name / "pair", cluster))
        crowd = Crowd(pair.addresses, options.producers, options.partitions)
        stack.callback(crowd.close)
        figures = measure(pair, crowd, cluster, lazily=options.lazily, master=options.master)
        complaints = pair.errors_of_ours()
    load = [round(one, 1) for one in os.getloadavg()]
    append_result("bulk_rebuild", {"partitions": options.partitions, **figures, "load": load, "complaints": complaints})
    print(figures, *complaints, sep="\n", flush=True)
    is_in_time = options.lazily or figures["first_seconds_p99"] <= GOAL_SECONDS  # type: ignore[operator]
    return 0 if figures["right"] and is_in_time and not complaints else 1


if __name__ == "__main__":
    sys.exit(main())

"""What another Redis data generation costs ten thousand live producers: every entry is rebuilt from the log (rule R10).

``python -m runs.rebuilds`` restarts Redis, which loses nothing, between two batches of every producer,
and writes down how long the second one takes and what is read from the broker for it. A line of JSON.
"""

from __future__ import annotations

import argparse
import re
import selectors
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from idemproxy.demo.legacy_cluster import LegacyCluster
from idemproxy.proxy.versions import ApiKey
from testkit.real.clients.raw_client import RawClient, batch
from testkit.real.clients.two_proxies_client import RETRIABLE
from testkit.real.proxies.proxy_process import wait_until
from testkit.real.proxies.two_proxies import TwoProxies

from .results import append_result
from .takeovers import spread

PRODUCERS, PARTITIONS, RECORDS, RECORD_BYTES = 10_000, 50, 5, 100
PER_CONNECTION = 16
"""As many requests of one client as the proxy reads before it has answered."""
ROUND_SECONDS_MAX = 900.0
TIMEOUT_MS = 30_000
_TOPIC = "rebuilds"
Address = tuple[str, int]


class _Connection(RawClient):
    """One that a selector can wait for."""

    def fileno(self) -> int:
        return self._socket.fileno()


class Crowd:
    """Producers with one batch each in every round, sixteen on a connection, half of these to each proxy."""

    def __init__(self, addresses: Sequence[Address], producers: int, partitions: int) -> None:
        self._addresses = addresses
        self.partitions = partitions
        self._groups = [
            range(first, min(first + PER_CONNECTION, producers)) for first in range(0, producers, PER_CONNECTION)
        ]
        self._connections: dict[int, _Connection] = {}
        self._round = -1
        self.producer_ids: list[int] = []
        self.offsets: list[list[int]] = [[] for _ in range(producers)]
        """By producer: the offsets that it got, round by round."""
        self.codes: Counter[int] = Counter()
        for group in range(len(self._groups)):
            connection = self._connect(group)
            self.producer_ids += [connection.new_producer_id() for _ in self._groups[group]]

    def close(self) -> None:
        for group in list(self._connections):
            self._hang_up(group)

    def place(self, producer: int) -> tuple[str, int]:
        """Where it writes."""
        return _TOPIC, producer % self.partitions

    def values(self, producer: int, number: int) -> list[bytes]:
        """What it writes in one round."""
        return [b"%d:%d:%d" % (producer, number, index) + b"." * (RECORD_BYTES - 16) for index in range(RECORDS)]

    def send_a_round(self) -> list[float]:
        """Send the next batch of every producer until each has its offset; return the seconds until each answer."""
        self._round += 1
        begun = time.monotonic()
        seconds: list[float] = []
        asked: dict[int, list[int]] = {}
        left = {group: list(producers) for group, producers in enumerate(self._groups)}
        for group in left:
            self._send(group, left[group], asked)
        with selectors.DefaultSelector() as selector:
            while any(left.values()):
                assert time.monotonic() - begun < ROUND_SECONDS_MAX, f"{sum(map(len, left.values()))} are not answered"
                selector_keys = {key.data for key in selector.get_map().values()}
                for group in asked.keys() - selector_keys:
                    selector.register(self._connections[group], selectors.EVENT_READ, group)
                for key, _ in selector.select(1.0):
                    group = key.data
                    try:
                        self._take_one(group, asked, left, seconds, begun)
                    except OSError:
                        asked[group].clear()
                    if not asked[group]:
                        selector.unregister(key.fileobj)
                        del asked[group]
                        if left[group]:
                            self._hang_up(group)
                            self._send(group, left[group], asked)
        return seconds

    def _take_one(
        self,
        group: int,
        asked: dict[int, list[int]],
        left: dict[int, list[int]],
        seconds: list[float],
        begun: float,
    ) -> None:
        (answer,) = self._connections[group].produce_answer()
        producer = asked[group].pop(0)
        self.codes[answer.error_code] += 1
        if answer.error_code == 0:
            self.offsets[producer].append(answer.base_offset)
            left[group].remove(producer)
            seconds.append(time.monotonic() - begun)
        else:
            assert answer.error_code in RETRIABLE, answer

    def _send(self, group: int, producers: Sequence[int], asked: dict[int, list[int]]) -> None:
        """Raises AssertionError when no proxy takes the connection for long."""
        for _ in range(100):
            try:
                connection = self._connections.get(group) or self._connect(group)
                for producer in producers:
                    records = batch(
                        self.values(producer, self._round),
                        producer_id=self.producer_ids[producer],
                        sequence=self._round * RECORDS,
                    )
                    connection.send_produce([(*self.place(producer), records)], timeout_ms=TIMEOUT_MS)
            except OSError:
                self._hang_up(group)
                time.sleep(0.1)
            else:
                asked[group] = list(producers)
                return
        raise AssertionError("no connection")

    def _connect(self, group: int) -> _Connection:
        connection = _Connection(self._addresses[group % len(self._addresses)], 60.0)
        self._connections[group] = connection
        return connection

    def _hang_up(self, group: int) -> None:
        connection = self._connections.pop(group, None)
        if connection is not None:
            connection.close()


def _asked(pair: TwoProxies) -> Counter[str]:
    """Requests to the broker so far, by kind."""
    found: Counter[str] = Counter()
    for relay in pair.relays:
        for (api_key, _), count in relay.requests.items():
            found[ApiKey(api_key).name.lower()] += count
    return found


def _bytes_read(pair: TwoProxies) -> int:
    lines = [line for proxy in pair.proxies for line in proxy.log.splitlines() if "resolved as" in line]
    return sum(int(found.group(1)) for line in lines if (found := re.search(r"(\d+) bytes read", line)))


def measure(pair: TwoProxies, crowd: Crowd) -> Mapping[str, object]:
    """Return what a round costs as it is, and what one costs after Redis was restarted."""
    crowd.send_a_round()
    usual = crowd.send_a_round()
    asked, lives = _asked(pair), [proxy.log.count("Redis has data generation") for proxy in pair.proxies]
    crowd.codes.clear()
    pair.redis.wait_until_quiet(60.0)
    pair.redis.stop()
    pair.redis.start()

    def seen() -> bool:
        now = [proxy.log.count("Redis has data generation") for proxy in pair.proxies]
        return all(count > before for count, before in zip(now, lives, strict=True))

    wait_until(seen, "the new data generation is seen")
    crowd.close()
    seconds = crowd.send_a_round()
    more = _asked(pair) - asked
    stored = {place: len(records) for place, records in pair.stored([crowd.place(0)]).items()}
    per_partition = len(range(0, len(crowd.producer_ids), crowd.partitions)) * RECORDS * 3
    return {
        "producers": len(crowd.producer_ids),
        "connections": -(-len(crowd.producer_ids) // PER_CONNECTION),
        "record_bytes": RECORDS * RECORD_BYTES,
        **spread("usual_seconds", usual),
        **spread("rebuild_seconds", seconds),
        "read_bytes": _bytes_read(pair),
        "requests": dict(more),
        "codes": dict(crowd.codes),
        "one_partition_has": stored[crowd.place(0)],
        "right": stored[crowd.place(0)] == per_partition and all(len(one) == 3 for one in crowd.offsets),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it, print and save; exit status 1 unless every batch is there once."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--producers", type=int, default=PRODUCERS)
    parser.add_argument("--partitions", type=int, default=PARTITIONS)
    options = parser.parse_args(arguments)
    with ExitStack() as stack:
        name = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="idemproxy-rebuilds-")))
        cluster = stack.enter_context(LegacyCluster(name / "kafka", auto_create_topics=False))
        cluster.create_topic(_TOPIC, options.partitions)
        pair = stack.enter_context(TwoProxies(name / "pair", cluster))
        crowd = Crowd(pair.addresses, options.producers, options.partitions)
        stack.callback(crowd.close)
        figures = measure(pair, crowd)
        complaints = pair.errors_of_ours()
    append_result("rebuilds", {"partitions": options.partitions, **figures, "complaints": complaints})
    print(figures, *complaints, sep="\n", flush=True)
    return 0 if figures["right"] and not complaints else 1


if __name__ == "__main__":
    sys.exit(main())

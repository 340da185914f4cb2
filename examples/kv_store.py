"""A replicated key-value store: each partition of a topic is a write-ahead log, with a leader and followers.
Nothing else coordinates the nodes.

Promises: linearizable puts, gets and compare-and-swaps, with any number of nodes that take themselves for the leader,
and nodes, proxies and brokers that are killed at any moment. Each operation, a get too, is a record that is published
conditionally: it is appended where this node has read the log to, or not at all. So a node that succeeds has seen all
that came before, and the log's order is the order of the operations.
Does not promise: an answer in time when a node dies (the client does not know then whether its operation took place);
snapshots (a node reads the log from its start).
Stands on docs/how-to/conditional-publish.md; the topic has to be among ``topics.conditional`` of the proxies.

    python kv_store.py one proxy-1:9092,proxy-2:9092 kv-log 4 127.0.0.1:7001      # a node, with all 4 partitions
    python kv_store.py two proxy-1:9092,proxy-2:9092 kv-log 4 127.0.0.1:7002      # another one
    echo '{"op": "put", "key": "a", "value": "1"}' | nc 127.0.0.1 7001            # it leads the partition from now on
"""

from __future__ import annotations

import argparse
import json
import socketserver
import sys
import threading
import time
import zlib
from collections.abc import Callable
from typing import Any

from idemproxy.client import (
    CONDITIONAL,
    Client,
    ClientError,
    Conflict,
    NotDelivered,
    Record,
    Undecided,
    Undeterminable,
    finish,
)

Operation = dict[str, Any]
"""op (put, get or cas), key, value, expected; lead: this node is to lead the partition."""
Answer = dict[str, Any]
"""done, and result: the value that the key had; or leader: who leads; or error: it was not done, and why."""
DELIVERY_SECONDS_MAX = 5.0
TRIES_MAX = 20
NEEDED = {"get": {"key"}, "put": {"key", "value"}, "cas": {"key", "value"}}
"""Texts that an operation has; ``expected`` may also be null, for a key that is not there."""


def checked(operation: Any) -> Operation:
    """Return the operation that a client asks for. Every node reads every record of the log, for as long as the log
    lives, so nothing but valid operations must get there. Raises ValueError."""
    needed = NEEDED.get(str(operation.get("op"))) if isinstance(operation, dict) else None
    if needed is None:
        raise ValueError(f"op is one of {', '.join(NEEDED)}")
    if missing := sorted(name for name in needed if not isinstance(operation.get(name), str)):
        raise ValueError(f"no text: {', '.join(missing)}")
    if not isinstance(expected := operation.get("expected"), str | None):
        raise ValueError(f"expected is a text or null, not {expected!r}")
    return {name: operation.get(name) for name in ("op", "key", "value", "expected", "lead")}


def entry_of(value: bytes | None) -> Operation:
    """Return what a record of the log says; empty: it is somebody else's."""
    try:
        operation = checked(entry := json.loads(value or b"{}"))
        return {**entry, **operation}
    except ValueError:
        return {}


class Shard:
    """One partition as one node has read it: the store, and who leads."""

    def __init__(self, node: str, client: Client, topic: str, partition: int) -> None:
        self.place = topic, partition
        self._node = node
        self._client = client
        self._producer = client.producer(CONDITIONAL, delivery_seconds_max=DELIVERY_SECONDS_MAX)
        self._work = threading.Lock()
        self._read = threading.Condition()
        self._store: dict[str, str] = {}
        self._leader: str | None = None
        self._next_offset = 0
        self._awaited = -1
        self._answer: Answer = {}
        """The answer to the operation that this node has appended at ``_awaited``."""

    # ------------------------------------------------------------------ a follower
    def follow(self) -> None:
        """Read on for ever. The leader does so as well: another node may have taken over."""
        with self._client.reader(*self.place, self._next_offset) as reader:
            while True:
                records = reader.read()
                with self._read:
                    for record in records:
                        if record.offset >= self._next_offset:
                            self._apply(record.offset, entry_of(record.value))

    def _apply(self, offset: int, entry: Operation) -> None:
        """Apply the next record of the log. One that lies at another offset than it was published for is ignored."""
        self._next_offset = offset + 1
        self._read.notify_all()
        if entry.get("at") != offset:
            return
        self._leader = entry["node"]
        now = self._store.get(entry["key"])
        done = entry["op"] != "cas" or now == entry["expected"]
        if done and entry["op"] != "get":
            self._store[entry["key"]] = entry["value"]
        if offset == self._awaited:
            self._answer = {"done": done, "result": now}

    # ------------------------------------------------------------------ a leader
    def work(self, operation: Operation) -> Answer:
        """Do what a client asks. A node that does not lead says who does, unless the client wants it to lead
        (``lead``)."""
        begins = operation.pop("lead", False)
        with self._work:
            for _ in range(TRIES_MAX):
                with self._read:
                    if self._leader not in (None, self._node) and not begins:
                        return {"leader": self._leader}
                    known, offset = self._leader, self._next_offset
                try:
                    return self._append({**operation, "at": offset, "node": self._node, "ns": time.time_ns()})
                except Conflict as conflict:  # another node has appended: what it did comes first
                    end = conflict.next_offset or self._client.end_offset(*self.place)
                with self._read:
                    self._read.wait_for(lambda end=end: self._next_offset >= end, DELIVERY_SECONDS_MAX)  # type: ignore[misc]
                    begins = begins and self._leader == known  # unless another one has begun meanwhile
        return {"error": "other nodes are faster"}

    def _append(self, entry: Operation) -> Answer:
        """Publish it for the offset up to which the log was read. Its outcome has to be known before anything else is
        done: the same batch, for the same offset, is sent until it is. A final error is not: ``Displaced`` (every node
        ignores the record where it lies), ``Undeterminable``, ``Refused``."""
        offset = self._awaited = entry["at"]
        batch = finish([Record(json.dumps(entry).encode(), timestamp_ms=entry["ns"] // 1_000_000)])
        while True:
            try:
                self._producer.publish(*self.place, batch, expected_offset=offset)
            except (Undecided, NotDelivered) as error:
                print(f"{error}: again", file=sys.stderr, flush=True)
                time.sleep(0.2)
            else:
                with self._read:
                    if self._next_offset == offset:  # else it was read already
                        self._apply(offset, entry)
                    return self._answer


class Node(socketserver.ThreadingTCPServer):
    """All partitions, for clients that send an operation a line."""

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, address: tuple[str, int], shards: list[Shard]) -> None:
        super().__init__(address, _Connection)
        self.shards = shards

    def work(self, operation: Operation) -> Answer:
        """Give it to the partition of its key."""
        return self.shards[zlib.crc32(operation["key"].encode()) % len(self.shards)].work(operation)


class _Connection(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        assert isinstance(self.server, Node)
        for line in self.rfile:
            try:
                answer = self.server.work(checked(json.loads(line)))
            except Undeterminable as error:  # as if the node had died: whether it was done is not known
                print(error, file=sys.stderr, flush=True)
                return
            except (ClientError, ValueError) as error:  # the log may not be written to; what was asked is no operation
                answer = {"error": str(error)}
            self.wfile.write(json.dumps(answer).encode() + b"\n")


def _for_ever(work: Callable[[], None]) -> None:
    """Repeat the work after errors: what cannot be read now can be later."""
    while True:
        try:
            work()
        except ClientError as error:
            print(error, file=sys.stderr, flush=True)
            time.sleep(0.2)


def main() -> None:
    """Run a node."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("node", help="its name; no other one that lives has it")
    parser.add_argument("bootstrap", help="the proxies, host:port, joined by commas")
    parser.add_argument("topic", help="the log")
    parser.add_argument("shards", type=int, help="partitions of it")
    parser.add_argument("listen", help="host:port for clients")
    given = parser.parse_args()
    host, _, port = given.listen.rpartition(":")
    with Client(given.bootstrap, client_id=f"kv-{given.node}", request_seconds_max=10.0) as client:
        shards = [Shard(given.node, client, given.topic, partition) for partition in range(given.shards)]
        with Node((host, int(port)), shards) as node:
            for shard in shards:
                threading.Thread(target=_for_ever, args=(shard.follow,), daemon=True).start()
            print("ready", flush=True)
            node.serve_forever()


if __name__ == "__main__":
    main()

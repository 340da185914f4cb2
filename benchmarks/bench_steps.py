"""One client sends what takes longest: how long does a producer of one record at a time wait meanwhile?

``make bench``. Two scripted brokers (``slow_broker.py``), one for the witness, one for the attackers, of whom two
connections send the same kind of request again and again. For each kind: the latencies of the witness and the longest
step of the event loop, by its CPU (where the machine has other work, the clock says nothing), before / after. Adds a
line of JSON to ``benchmarks/results/steps.jsonl``. ``--against COMMIT`` adds a proxy of that commit's code; ``--only``
takes some kinds."""

from __future__ import annotations

import argparse
import contextlib
import json
import struct
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import bench_stopped_follower as follower
import cramjam
from bench_metadata import longest_cpu_ms, proxy, watched_proxy
from common import ROOT, extract, save
from crc32c import crc32c
from role import Role
from sides import Side, cpu_seconds
from slow_broker import HOST, TOPIC, SlowBroker

from idemproxy.codecs.compression import Codec
from idemproxy.codecs.message_set import encode_message, encode_set
from idemproxy.codecs.record_batch import Record, encode_batch
from idemproxy.demo.ports import free_ports
from testkit.real.clients.raw_client import RawClient
from testkit.virtual import kafka_bytes as kafka

ATTACKERS = 2
PARTITIONS = 2
ATTACKED_PARTITION = 1
"""The witness sends to partition 0, which the other broker leads."""
ANSWER_SECONDS_MAX = 60.0
STEP_SECONDS_MAX = 0.050
_BASE_SEQUENCE_AT, _CRC_AT, _ATTRIBUTES_AT = 53, 17, 21
_MIB = 1 << 20


# ---------------------------------------------------------------------- what is sent
def _records(count: int, value: bytes | None, headers: tuple[tuple[str, bytes | None], ...] = ()) -> list[Record]:
    return [Record(index, 1_700_000_000_000, None, value, headers) for index in range(count)]


def _random(size: int) -> bytes:
    return b"".join(crc32c(index.to_bytes(4, "big")).to_bytes(4, "big") for index in range(size // 4))


def raw_snappy(records: list[Record]) -> bytes:
    """A batch whose records are one block of snappy."""
    plain = bytearray(encode_batch(records, producer_id=0, producer_epoch=0, base_sequence=0))
    plain[61:] = bytes(cramjam.snappy.compress_raw(bytes(plain[61:])))
    struct.pack_into(">i", plain, 8, len(plain) - 12)
    plain[22] = Codec.SNAPPY
    return bytes(plain)


BATCHES: dict[str, Callable[[], bytes]] = {
    "600,000 empty records, gzip": lambda: encode_batch(_records(600_000, None), codec=Codec.GZIP),
    "60,000 records of 12 B": lambda: encode_batch(_records(60_000, b"twelve bytes")),
    "990 KB of 100 B records": lambda: encode_batch(_records(9_000, _random(100))),
    "one record of 60 MiB, gzip": lambda: encode_batch(_records(1, bytes(60 * _MIB)), codec=Codec.GZIP),
    "60 records of 1 MB, gzip": lambda: encode_batch(_records(60, bytes(1_000_000)), codec=Codec.GZIP),
    "60 records of 1 MB, lz4": lambda: encode_batch(_records(60, bytes(1_000_000)), codec=Codec.LZ4),
    "16 MB, snappy in one block": lambda: raw_snappy(_records(16, bytes(1_000_000))),
    "one record of 60 MB, plain": lambda: encode_batch(_records(1, _random(60_000_000))),
    "1,000,000 headers, gzip": lambda: encode_batch(_records(1_000, None, (("b3", None),) * 1_000), codec=Codec.GZIP),
    "250 KB of headers in one record": lambda: encode_batch(_records(1, None, (("b3", None),) * 60_000)),
}
OLD_SETS: dict[str, Callable[[], bytes]] = {
    "old format, 500,000 empty messages": lambda: encode_set([(None, None, 1)] * 500_000, magic=1),
    "old format, 60 MB": lambda: encode_message(None, _random(60_000_000), magic=1),
}
"""Attacks: a batch with a producer id, the same without, and what old producers send."""


def kinds() -> list[str]:
    """Their names."""
    found = [f"{name}{suffix}" for name in BATCHES for suffix in ("", ", no producer id")]
    return [*found, *OLD_SETS, "10,000 partitions", "10,000 partitions, no producer id", "16 MB of topics in Metadata"]


def numbered(batch: bytes, producer_id: int, sequence: int) -> bytes:
    """The batch of a producer."""
    changed = bytearray(batch)
    struct.pack_into(">qhi", changed, 43, producer_id, 0, sequence)
    struct.pack_into(">I", changed, _CRC_AT, crc32c(memoryview(changed)[_ATTRIBUTES_AT:]))
    return bytes(changed)


def _produce_body(records: bytes, version: int) -> bytes:
    front = struct.pack(">h", -1) if version >= 3 else b""
    name = TOPIC.encode()
    one = struct.pack(">ii", ATTACKED_PARTITION, len(records)) + records
    return front + struct.pack(">hiih", -1, 30_000, 1, len(name)) + name + struct.pack(">i", 1) + one


def bodies(kind: str, producer_id: int) -> Iterator[tuple[int, int, bytes]]:
    """API, version and body of one request after the other."""
    name = kind.removesuffix(", no producer id")
    is_named = name == kind
    if name in OLD_SETS:
        body = _produce_body(OLD_SETS[name](), 2)
        while True:
            yield 0, 2, body
    if name == "16 MB of topics in Metadata":
        body = struct.pack(">i", 4_000_000) + b"\0\2ab" * 4_000_000
        while True:
            yield 3, 1, body
    if name == "10,000 partitions":
        small = encode_batch(_records(1, b"x"))
        small = numbered(small, producer_id, 0) if is_named else small
        topic = TOPIC.encode()
        rows = b"".join(struct.pack(">ii", index, len(small)) + small for index in range(10_000))
        body = struct.pack(">hhiih", -1, -1, 30_000, 1, len(topic)) + topic + struct.pack(">i", 10_000) + rows
        while True:
            yield 0, 3, body
    batch = BATCHES[name]()
    count = struct.unpack_from(">i", batch, 57)[0]
    sequence = 0
    while True:
        yield 0, 3, _produce_body(numbered(batch, producer_id, sequence) if is_named else batch, 3)
        sequence += count


# ---------------------------------------------------------------------- in processes of their own
class OneOfTwo(SlowBroker):
    """Each leads one partition."""

    def __init__(self, ports: tuple[int, int], number: int) -> None:
        super().__init__(ports[number], PARTITIONS, 0.0)
        self._ports = ports

    def metadata(self, _names: list[str] | None, version: int) -> bytes:
        """Both brokers and the topic."""
        brokers = [(number, HOST, self._ports[number]) for number in (0, 1)]
        partitions = [(0, number, number, (number,), (number,)) for number in range(PARTITIONS)]
        return kafka.metadata_answer(version, brokers, "two", 0, [(0, TOPIC, partitions)])


def broker(number: int, first: int, second: int) -> None:
    """Serve until the end of the process."""
    one = OneOfTwo((first, second), number)
    print("READY", flush=True)
    one.serve()


def attacker(address: str, kind: str) -> None:
    """Send, wait for the answer, send again. A client that is hung up on connects again."""
    host, port = address.rsplit(":", 1)
    with RawClient((host, int(port))) as client:
        producer_id = client.new_producer_id()
    requests = bodies(kind, producer_id)
    request = next(requests)
    print("READY", flush=True)
    while True:
        broken = contextlib.suppress(OSError, EOFError, AssertionError)
        with broken, RawClient((host, int(port)), ANSWER_SECONDS_MAX) as client:
            while True:
                client.send(*request)
                client.answer()
                request = next(requests)
        time.sleep(0.1)


# ---------------------------------------------------------------------- the bench
def measure(side: Side, steps_file: Path, kind: str, seconds: float) -> dict[str, object]:
    """Quiet, then with the attackers."""
    with ExitStack() as stack:
        witness = Role(stack, __file__, "witness", side.address)
        time.sleep(1.5)
        begun = time.time()
        time.sleep(seconds / 2)
        quiet_end = time.time()
        for _ in range(ATTACKERS):
            Role(stack, __file__, "attacker", side.address, kind)
        attacked, cpu_begun = time.time(), cpu_seconds(side.process_id)
        time.sleep(seconds)
        ended, cpu_ended = time.time(), cpu_seconds(side.process_id)
        rows = witness.rows()
    quiet = [1000 * took for at, took, _ in rows if begun <= at - took and at < quiet_end]
    beside = [1000 * took for at, took, _ in rows if attacked <= at and at - took < ended]
    return {
        "kind": kind,
        "quiet_p99_ms": follower.share(quiet, 0.99),
        "beside_count": len(beside),
        "beside_p50_ms": follower.share(beside, 0.5) if beside else None,
        "beside_p99_ms": follower.share(beside, 0.99) if beside else None,
        "errors": sum(int(errors) for at, _, errors in rows if attacked <= at),
        "longest_step_cpu_ms": longest_cpu_ms(steps_file, quiet_end, ended),
        "cores": round((cpu_ended - cpu_begun) / (ended - attacked), 2),
    }


def main() -> None:
    """Run on all sides in turn, print and save."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--against", metavar="COMMIT", help="a proxy of this commit's code as well")
    parser.add_argument("--only", nargs="*", default=[], help="kinds whose names have one of these words")
    parser.add_argument("--dry", action="store_true", help="save nothing")
    parser.add_argument("--role", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.role:
        what, *rest = options.role
        if what == "broker":
            broker(*map(int, rest))
        elif what == "proxy":
            watched_proxy(rest[0], rest[1:])
        elif what == "attacker":
            attacker(*rest)
        else:
            follower.witness(rest[0])
        return
    rows: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as directory:
        trees = {"after": ROOT}
        if options.against:
            trees = {"before": extract(options.against, Path(directory) / "code"), **trees}
        chosen = [kind for kind in kinds() if not options.only or any(word in kind for word in options.only)]
        for kind in chosen:
            for name, tree in trees.items():
                first, second = free_ports(2)
                where = Path(directory) / f"{name}-{len(rows)}"
                where.mkdir()
                with ExitStack() as stack:
                    for number in (0, 1):
                        Role(stack, __file__, "broker", str(number), str(first), str(second))
                    side = stack.enter_context(proxy(name, tree, where, ["--upstream", f"{HOST}:{first}"]))
                    rows.append({"side": name, **measure(side, where / "steps", kind, options.seconds)})
                print(json.dumps(rows[-1]), flush=True)
    if not options.dry:
        save("steps", {"before": options.against, "attackers": ATTACKERS, "rows": rows})


if __name__ == "__main__":
    main()

"""Makes ``corpus.jsonl``: what real clients say through a relay to the proxy, what they are answered, and what an old
broker answers and stores. ``python -m fuzz.record``; needs a machine that can run the broker. Loopback only.

One frame of each kind, client, API and version, the shortest."""

from __future__ import annotations

import argparse
import json
import os
import socket
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import confluent_kafka
import kafka

from idemproxy.codecs import messages
from idemproxy.codecs.framing import FrameSplitter
from idemproxy.codecs.headers import parse_request_header
from idemproxy.demo.legacy_cluster import LegacyCluster
from idemproxy.demo.ports import HOST
from idemproxy.proxy.versions import ApiKey
from testkit.real.clients.raw_client import RawClient
from testkit.real.proxies.proxy_process import ProxyProcess

from .seeds import CORPUS

FRAME_BYTES_MAX = 2000
TOPIC = "recorded"
Key = tuple[str, str, int, int]


class Recorder:
    """A relay that keeps what passes it. ``who``: the client that is at work now."""

    def __init__(self, target: Callable[[], tuple[str, int]]) -> None:
        self.who = ""
        self.kept: dict[Key, dict[str, Any]] = {}
        self._target = target
        self._listener = socket.create_server((HOST, 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Take no more."""
        self._listener.close()

    def keep(self, kind: str, api_key: int, version: int, data: bytes, **more: int) -> None:
        """Keep a frame if it is the shortest of its kind."""
        key = kind, self.who, api_key, version
        if len(data) <= FRAME_BYTES_MAX and (key not in self.kept or len(self.kept[key]["hex"]) > 2 * len(data)):
            self.kept[key] = {
                "kind": kind,
                "who": self.who,
                "api": api_key,
                "version": version,
                **more,
                "hex": data.hex(),
            }

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._target())
                asked: dict[int, tuple[int, int]] = {}
                for one, other, look in ((client, server, self._request), (server, client, self._answer)):
                    threading.Thread(target=self._pump, args=(one, other, look, asked), daemon=True).start()

    def _pump(
        self, source: socket.socket, sink: socket.socket, look: Callable[..., None], asked: dict[int, tuple[int, int]]
    ) -> None:
        splitter = FrameSplitter(1 << 26)
        with suppress(OSError):
            while data := source.recv(65536):
                for frame in splitter.feed(data):
                    look(frame, asked)
                sink.sendall(data)
        for one in (source, sink):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def _request(self, frame: bytes, asked: dict[int, tuple[int, int]]) -> None:
        header = parse_request_header(frame)
        asked[header.correlation_id] = header.api_key, header.api_version
        self.keep("request", header.api_key, header.api_version, frame, body=header.body_offset)

    def _answer(self, frame: bytes, asked: dict[int, tuple[int, int]]) -> None:
        api_key, version = asked.pop(int.from_bytes(frame[:4], "big"))
        self.keep("answer", api_key, version, frame)


def kafka_python(address: str) -> None:
    """Produce with idempotence and without, and consume as a group."""
    for options in ({"enable_idempotence": True}, {"enable_idempotence": False, "acks": 1, "compression_type": "gzip"}):
        producer = kafka.KafkaProducer(bootstrap_servers=address, **options)
        producer.send(TOPIC, key=b"key", value=b"value").get(20)
        producer.close()
    consumer = kafka.KafkaConsumer(TOPIC, bootstrap_servers=address, group_id="one", auto_offset_reset="earliest")
    consumer.poll(10_000)
    consumer.commit()
    consumer.close()


def librdkafka(address: str) -> None:
    """The same."""
    for options in (
        {"enable.idempotence": True},
        {"compression.type": "lz4", "acks": 1},
        {"compression.type": "snappy"},
    ):
        producer = confluent_kafka.Producer({"bootstrap.servers": address, **options})
        producer.produce(TOPIC, b"value", b"key")
        assert producer.flush(20) == 0
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": address, "group.id": "two", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([TOPIC])
    consumer.consume(2, 10)
    consumer.commit(asynchronous=False)
    consumer.close()


def old_broker(recorder: Recorder, address: tuple[str, int]) -> None:
    """Ask the broker itself, in all its versions; keep its answers and a stored set."""
    fetch = {
        "replica_id": -1,
        "max_wait_ms": 10,
        "min_bytes": 1,
        "max_bytes": 1000,
        "topics": [{"topic": TOPIC, "partitions": [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}]}],
    }
    offsets = {"replica_id": -1, "topics": [{"name": TOPIC, "partitions": [{"partition_index": 0, "timestamp": -1}]}]}
    with RawClient(address) as direct:
        for api_key, versions, fields in (
            (ApiKey.FETCH, range(4), fetch),
            (ApiKey.LIST_OFFSETS, (1,), offsets),
            (ApiKey.METADATA, range(1, 3), {"topics": None}),
            (ApiKey.API_VERSIONS, (0,), {}),
        ):
            for version in versions:
                body = direct.call(api_key, version, messages.encode_request(api_key, version, **fields))
                recorder.keep("answer", api_key, version, bytes(4) + body)
        recorder.keep("set", ApiKey.FETCH, 2, direct.fetch(TOPIC, 0, version=2))


def record(directory: Path) -> list[dict[str, Any]]:
    """Run all of them, and return what was kept."""
    proxies: list[ProxyProcess] = []
    recorder = Recorder(lambda: proxies[0].address)
    to_broker = Recorder(lambda: (HOST, proxies[0].address[1] + 1))
    config = directory / "idemproxy.yaml"
    with LegacyCluster(directory / "kafka", auto_create_topics=False) as cluster:
        cluster.create_topic(TOPIC, 1)
        proxy = ProxyProcess(directory / "proxy", cluster.address(0))
        # Its one listener, advertised under the relay's port, so that clients stay connected through the relays.
        listen = f"{HOST}:{proxy.address[1]}"
        config.write_text(f"listeners: [{{bind: '{listen}', advertised: '{HOST}:{to_broker.port}'}}]\n")
        proxy._command = [
            *(sys.executable, "-m", "idemproxy", "run", "--config", os.fspath(config)),
            *("--upstream", "{}:{}".format(*cluster.address(0)), "--data-directory", os.fspath(proxy.data_directory)),
        ]
        proxies.append(proxy)
        with proxy:
            for client in (kafka_python, librdkafka):
                recorder.who = to_broker.who = client.__name__
                client(f"{HOST}:{recorder.port}")
            recorder.who = "broker 0.10.2.2"
            old_broker(recorder, cluster.address(0))
    recorder.close()
    to_broker.close()
    kept = {**recorder.kept, **to_broker.kept}
    return [kept[key] for key in sorted(kept)]


def main() -> int:
    """Write the file again."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    with tempfile.TemporaryDirectory(prefix="record-") as directory:
        found = record(Path(directory))
    CORPUS.write_text("".join(json.dumps(one) + "\n" for one in found))
    print(f"{len(found)} frames, {CORPUS.stat().st_size} bytes: {CORPUS}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

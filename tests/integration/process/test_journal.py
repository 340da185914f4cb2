"""The journal of a real proxy in front of a real broker: every answer that a client got is in it after any SIGKILL, in
however many files; and no client gets an answer while a required one cannot be written."""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from idemproxy.codecs.record_batch import parse_single_batch
from idemproxy.demo.legacy_cluster import LegacyCluster
from idemproxy.demo.ports import HOST, free_ports
from testkit.real.brokers.kafka_cluster import fresh_topic
from testkit.real.clients.raw_client import RawClient, batch
from testkit.real.proxies.configured_proxy import ConfiguredProxy
from testkit.real.proxies.proxy_process import ProxyProcess, wait_until

PRODUCERS, LIVES = 3, 5


def settings_of(cluster: LegacyCluster, **journal: Any) -> dict[str, Any]:
    host, port = cluster.address(0)
    (admin,) = free_ports(1)
    return {
        "upstream": {"bootstrap": [f"{host}:{port}"]},
        "admin": {"bind": f"{HOST}:{admin}"},
        "journal": journal,
    }


def admin(proxy: ConfiguredProxy, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://{proxy.configuration['admin']['bind']}{path}", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def metric(proxy: ConfiguredProxy, name: str) -> float:
    (line,) = (one for one in admin(proxy, "/metrics")[1].splitlines() if one.startswith(f"{name} "))
    return float(line.rpartition(" ")[2])


def cat(journal: Path, *options: str) -> list[dict[str, Any]]:
    """What ``idemproxy journal cat`` prints."""
    command = [sys.executable, "-m", "idemproxy", "journal", "cat", os.fspath(journal), "--json", *options]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=240, check=True)
    assert ended.stderr == ""
    return [json.loads(line) for line in ended.stdout.splitlines()]


class Sender(threading.Thread):
    """A producer: sends one batch after the other, and each again until it is acknowledged. ``told``: of each batch its
    sequence, record count, checksum and offset."""

    def __init__(self, proxy: ProxyProcess, topic: str, seed: int, producer_id: int) -> None:
        super().__init__()
        self.told: list[tuple[int, int, int, int]] = []
        self.ends = threading.Event()
        self.producer_id = producer_id
        self._proxy, self._topic, self._random = proxy, topic, random.Random(seed)

    def run(self) -> None:
        sequence = 0
        while not self.ends.is_set():
            values = [self._random.randbytes(20) for _ in range(self._random.randint(1, 5))]
            records = batch(values, producer_id=self.producer_id, sequence=sequence)
            offset = self._acknowledged(records)
            self.told.append((sequence, len(values), parse_single_batch(memoryview(records)).crc, offset))
            sequence += len(values)

    def _acknowledged(self, records: bytes) -> int:
        while True:
            try:
                with RawClient(self._proxy.address) as client:
                    while True:
                        answer = client.produce_one(self._topic, 0, records)
                        if answer.error_code == 0:
                            return answer.base_offset
            except OSError:
                continue


@pytest.mark.promise("journal")
def test_after_every_sigkill_the_journal_has_exactly_the_answers_of_clients(
    legacy_broker: LegacyCluster, tmp_path: Path
) -> None:
    topic, journal = fresh_topic(legacy_broker, 1), tmp_path / "logs" / "journal.jsonl"
    journal.parent.mkdir()
    settings = settings_of(
        legacy_broker, path=os.fspath(journal), rotate_bytes=20_000, keep_files=0, fsync_seconds=0.05
    )
    with ConfiguredProxy(tmp_path, settings, listener={}) as proxy:
        with RawClient(proxy.address) as client:
            ids = [client.new_producer_id() for _ in range(PRODUCERS)]
        senders = [Sender(proxy, topic, number, ids[number]) for number in range(PRODUCERS)]
        for sender in senders:
            sender.start()
        try:
            for life in range(LIVES):
                goal = sum(len(sender.told) for sender in senders) + 150
                wait_until(lambda: sum(len(one.told) for one in senders) >= goal, "batches are acknowledged", 90)  # noqa: B023
                assert metric(proxy, "idemproxy_journal_up") == 1
                if life < LIVES - 1:
                    proxy.kill()
                    proxy.start()
        finally:
            for sender in senders:
                sender.ends.set()
            for sender in senders:
                sender.join(60)
        with RawClient(proxy.address) as client:
            stored = client.end_offset(topic, 0)
        assert proxy.stop() == 0
    assert len(list(journal.parent.iterdir())) > 5
    assert all(one.stat().st_size < 22_000 and one.read_bytes().endswith(b"\n") for one in journal.parent.iterdir())
    assert sum(line["event"] == "journal" for line in cat(journal)) >= LIVES
    answers = cat(journal, "--topic", topic, "--partition", "0", "--event", "answered")
    assert all(0 <= line["seconds"] < 60 for line in answers)
    assert [line["time_ms"] for line in answers] == sorted(line["time_ms"] for line in answers)
    for sender in senders:
        names = ("base_sequence", "record_count", "crc", "base_offset")
        mine = [line for line in answers if line["producer_id"] == sender.producer_id and not line["error_code"]]
        journaled = {tuple(line[name] for name in names) for line in mine}
        assert journaled == set(sender.told), "no batch more, none less, and none with another offset"
        assert len(sender.told) > 100
    assert sum(count for sender in senders for _, count, _, _ in sender.told) == stored


@pytest.fixture
def required(legacy_broker: LegacyCluster, tmp_path: Path) -> Iterator[tuple[ConfiguredProxy, Path]]:
    """A proxy with a required journal."""
    journal = tmp_path / "journal.jsonl"
    settings = settings_of(legacy_broker, path=os.fspath(journal), required=True, fsync_seconds=0.05)
    with ConfiguredProxy(tmp_path, settings, listener={}) as proxy:
        yield proxy, journal


@pytest.mark.promise("journal-required")
def test_an_unwritable_required_journal_stops_answers_and_duplicates_no_batch_afterwards(
    legacy_broker: LegacyCluster, required: tuple[ConfiguredProxy, Path]
) -> None:
    """The disk is full: the size of the proxy's files is limited, as by a quota."""
    proxy, journal = required
    topic = fresh_topic(legacy_broker, 1)
    with RawClient(proxy.address) as client, RawClient(proxy.address) as other:
        producer_id = client.new_producer_id()
        records = [batch([b"%d" % number], producer_id=producer_id, sequence=number) for number in range(3)]
        assert client.produce_one(topic, 0, records[0]).base_offset == 0
        known = limit_files(proxy.pid, journal.stat().st_size + 500)
        client.send_produce([(topic, 0, records[1])])
        with suppress(ConnectionError):  # it may be reset by now
            client.send_produce([(topic, 0, records[2])])
        told = 1
        try:
            while True:  # a batch that had its line before gets its answer
                assert client.produce_answer()[0].error_code == 0
                told += 1
        except ConnectionError:
            pass
        assert told < 3
        assert other.is_closed(), "all clients"
    proxy.wait_for_log("the journal cannot be written: No space left on device; clients are disconnected and refused")
    assert proxy.log.count("the journal cannot be written") == 1
    status, why = admin(proxy, "/readyz")
    assert status == 503
    assert "the journal is required and cannot be written: No space left on device" in why
    assert admin(proxy, "/readyz?exclude=journal")[0] == 200
    assert metric(proxy, "idemproxy_journal_up") == 0
    assert metric(proxy, "idemproxy_journal_missing_total") > 0
    with RawClient(proxy.address) as client:
        assert client.is_closed()
    assert 'reason="journal"' in admin(proxy, "/metrics")[1]
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    assert sum(line["event"] == "answered" for line in lines) == told

    limit_files(proxy.pid, known)
    proxy.wait_for_log("the journal is written again: .* clients are admitted again")
    assert admin(proxy, "/readyz")[0] == 200
    with RawClient(proxy.address) as client:
        for number in range(3):
            answer = client.produce_one(topic, 0, records[number])
            assert (answer.error_code, answer.base_offset) == (0, number)
        assert client.values(topic, 0) == [b"0", b"1", b"2"]
    answers = cat(journal, "--topic", topic, "--event", "answered")
    assert {line["base_offset"] for line in answers} == {0, 1, 2}
    assert "Traceback" not in proxy.log


def test_a_start_on_a_full_disk_serves_nobody_until_the_journal_is_elsewhere(
    legacy_broker: LegacyCluster, tmp_path: Path
) -> None:
    topic, journal = fresh_topic(legacy_broker, 1), tmp_path / "journal.jsonl"
    journal.symlink_to("/dev/full")
    settings = settings_of(legacy_broker, path=os.fspath(journal), required=True)
    with ConfiguredProxy(tmp_path, settings, listener={}) as proxy:
        with RawClient(proxy.address) as client:
            assert client.is_closed()
        status, why = admin(proxy, "/readyz")
        assert (status, "the journal is required and cannot be written: No space left on device" in why) == (503, True)
        journal.unlink()
        proxy.signal(signal.SIGHUP)
        proxy.wait_for_log("the journal is written again: .* clients are admitted again")
        with RawClient(proxy.address) as client:
            records = batch([b"x"], producer_id=client.new_producer_id(), sequence=0)
            assert client.produce_one(topic, 0, records).error_code == 0
        assert proxy.stop() == 0
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    assert [line["event"] for line in lines[:2]] == ["journal", "missing"]
    assert lines[0]["instance_id"]
    assert [line["base_offset"] for line in lines if line["event"] == "answered"] == [0]


def test_a_journal_is_required_no_longer_after_a_hangup(
    legacy_broker: LegacyCluster, required: tuple[ConfiguredProxy, Path]
) -> None:
    proxy, journal = required
    topic = fresh_topic(legacy_broker, 1)
    with RawClient(proxy.address) as client:
        producer_id = client.new_producer_id()
        wait_until(lambda: "proxy_instance" in journal.read_text(), "the journal has begun")
        limit_files(proxy.pid, journal.stat().st_size)
        client.send_produce([(topic, 0, batch([b"x"], producer_id=producer_id, sequence=0))])
        assert client.is_closed()
    written = proxy.configuration
    proxy.write({**written, "journal": {**written["journal"], "required": False}})
    proxy.signal(signal.SIGHUP)
    proxy.wait_for_log("reloaded: journal.required changed")
    with RawClient(proxy.address) as client:
        answer = client.produce_one(topic, 0, batch([b"x"], producer_id=producer_id, sequence=0))
        assert (answer.error_code, answer.base_offset) == (0, 0)
    assert metric(proxy, "idemproxy_journal_up") == 0


def limit_files(pid: int, size_bytes: int) -> int:
    """Limit the size of files that a process may write; return the limit of before."""
    soft, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size_bytes, hard))
    return soft

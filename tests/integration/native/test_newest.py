"""The newest Kafka and its own Java client through the proxy: transactions of version 2, both protocols of groups."""

import json
import subprocess
from pathlib import Path

from idemproxy.demo.jars import client_class_path, java_runtime
from testkit.real.brokers.kraft_cluster import NEWEST, KraftCluster
from testkit.real.clients.java_clients import compiled
from testkit.real.proxies.proxy_process import ProxyProcess

PARTITIONS, TRANSACTIONS, RECORDS = 3, 4, 50
SECONDS_MAX = 120


def test_java_commits_and_aborts_transactions_and_reads_in_groups_of_both_protocols(tmp_path: Path) -> None:
    class_path = f"{compiled('TransactionalMover', NEWEST)}:{client_class_path(NEWEST)}"
    command = [str(java_runtime()), "-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", class_path, "TransactionalMover"]
    with (
        KraftCluster(tmp_path / "kafka", auto_create_topics=False) as cluster,
        ProxyProcess(tmp_path / "proxy", cluster.address(0)) as proxy,
    ):
        proxy.wait_for_log("upstream.idempotence: native")
        assert "may be another service" not in proxy.log
        for protocol in ("classic", "consumer"):
            cluster.create_topic(protocol, PARTITIONS)
            given = ["{}:{}".format(*proxy.address), protocol, str(PARTITIONS), str(TRANSACTIONS), protocol]
            done = subprocess.run([*command, *given], capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
            assert done.returncode == 0, done.stderr[-2000:]
            told = json.loads(done.stdout.splitlines()[-1])
            assert (told["kept"], told["dropped"]) == (RECORDS * TRANSACTIONS // 2, 0)

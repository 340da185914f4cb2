"""``check --connect`` names the rights that the proxy's principal lacks at brokers with ACLs."""

import subprocess
import sys
from pathlib import Path

import yaml
from confluent_kafka.admin import AclOperation

from testkit.real.brokers.sasl_kraft_cluster import SaslKraftCluster

OURS = "idemproxy"
LOGIN = {"mechanism": "PLAIN", "username": OURS, "password": "ours"}


def topics_of(directory: Path, cluster: SaslKraftCluster) -> list[str]:
    """What is said of topics, and of nothing else."""
    file = directory / "checked.yaml"
    upstream: dict[str, object] = {
        "bootstrap": ["{}:{}".format(*cluster.sasl_address(0))],
        "sasl": LOGIN,
        "idempotence": "proxy",
        "allow_unauthenticated_clients": True,
    }
    file.write_text(yaml.safe_dump({"upstream": upstream, "data_directory": str(directory)}))
    command = [sys.executable, "-m", "idemproxy", "check", str(file), "--connect"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    return [line for line in done.stdout.splitlines() if " topics, " in line]


def test_a_topic_that_may_be_read_and_not_written_is_named_until_it_may(tmp_path: Path) -> None:
    with SaslKraftCluster(tmp_path / "kafka", {OURS: "ours"}, auto_create_topics=False) as cluster:
        for topic in ("written", "read", "hidden"):
            cluster.create_topic(topic)
        cluster.allow("written", {OURS: [AclOperation.READ, AclOperation.WRITE]})
        cluster.allow("read", {OURS: [AclOperation.READ]})
        (told,) = topics_of(tmp_path, cluster)
        assert told.startswith("warning "), told
        assert told.endswith(" topics, 2: our principal lacks Write on read: batches are refused")
        cluster.allow("read", {OURS: [AclOperation.WRITE]})
        (told,) = topics_of(tmp_path, cluster)
        assert told.startswith("ok "), told

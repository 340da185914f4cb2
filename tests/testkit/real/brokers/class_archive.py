"""An archive of the classes that a broker and its ZooKeeper load: each start of one takes 1.3 s of CPU instead of 2.2.

Made once for each Java and broker, by a broker that is started, written to and read from for that purpose; where
``idemproxy.demo.jars.class_archive`` says. ``python -m testkit.real.brokers.class_archive`` is the first step of
``make test``. Without one, or with one that does not fit, Java reads the classes from the jars.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from confluent_kafka import Consumer, Producer

from idemproxy.demo.jars import JarsUnavailable, broker_class_path, cache_lock, class_archive, java_runtime
from idemproxy.demo.legacy_cluster import ClusterError, LegacyCluster

VERSION = "0.10.2.2"
"""What nearly all tests start."""
_DUMP_SECONDS_MAX = 180
_TOPIC = "archive"


def make_class_archive(version: str = VERSION) -> Path:
    """Return the archive of this version's classes; make it if there is none. Raises JarsUnavailable, ClusterError, or
    what Java said."""
    class_path = broker_class_path(version)
    archive = class_archive(class_path)
    with cache_lock("class-archive"):
        if not archive.is_file():
            archive.parent.mkdir(exist_ok=True)
            with tempfile.TemporaryDirectory() as directory:
                classes = _loaded_classes(Path(directory), version)
                fresh = archive.with_suffix(".new")
                _dump(class_path, classes, fresh)
            fresh.replace(archive)
    return archive


def _loaded_classes(directory: Path, version: str) -> Path:
    """Return a list of the classes that both programs have loaded once records were written and read."""
    lists = directory / "lists"
    lists.mkdir()
    record = f"-XX:DumpLoadedClassList={lists}/%p"
    with LegacyCluster(directory / "cluster", version=version, java_options=(record,)) as cluster:
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "compression.type": "gzip"})
        producer.produce(_TOPIC, b"value", b"key")
        producer.flush(60)
        settings = {"bootstrap.servers": cluster.bootstrap, "group.id": "archive", "auto.offset.reset": "earliest"}
        consumer = Consumer(settings)
        consumer.subscribe([_TOPIC])
        consumer.consume(1, 60)
        consumer.close()
    whole = directory / "classes"
    whole.write_text("".join(f"{name}\n" for name in dict.fromkeys(_names(lists))))
    return whole


def _names(lists: Path) -> Iterator[str]:
    """Numbers are of one process, and what was made at run time, or comes from elsewhere, is recreated."""
    for file in sorted(lists.iterdir()):
        for line in file.read_text().splitlines():
            if not line.startswith(("#", "@")) and "source:" not in line:
                yield line.split(" ", 1)[0]


def _dump(class_path: str, classes: Path, archive: Path) -> None:
    flags = [
        "-Xshare:dump",
        "-XX:+UseSerialGC",
        f"-XX:SharedClassListFile={classes}",
        f"-XX:SharedArchiveFile={archive}",
    ]
    subprocess.run(
        [str(java_runtime()), *flags, "-cp", class_path],
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=_DUMP_SECONDS_MAX,
    )


if __name__ == "__main__":
    try:
        make_class_archive()
    except (JarsUnavailable, ClusterError, subprocess.SubprocessError) as error:
        print(f"no archive of a broker's classes can be made, and the tests take longer: {error}", file=sys.stderr)

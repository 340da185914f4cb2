"""The jars of Spark's own Kafka connector, without Spark's other dependencies, which PySpark has."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from jgo.maven import MavenContext, PythonResolver

from idemproxy.demo.jars import DOWNLOAD_TIMEOUT_SECONDS, REPOSITORY_VARIABLE, cache_directory, cache_lock

VERSION: Final = "4.2.0"
"""The newest one on Maven; PySpark's is the same in the tests."""
_COORDINATES: Final = (
    f"org.apache.spark:spark-sql-kafka-0-10_2.13:{VERSION}",
    f"org.apache.spark:spark-token-provider-kafka-0-10_2.13:{VERSION}",
    "org.apache.kafka:kafka-clients:3.9.2",
    "org.apache.commons:commons-pool2:2.13.1",
)
"""What ``spark-submit --packages`` would bring, with the versions of the connector's own pom."""


def connector_jars() -> list[Path]:
    """Return the jars, from the cache if they were fetched before."""
    mirror = os.environ.get(REPOSITORY_VARIABLE)
    context = MavenContext(
        resolver=PythonResolver(),
        repo_cache=cache_directory() / "maven",
        remote_repos={"configured": mirror} if mirror else None,
        timeout=DOWNLOAD_TIMEOUT_SECONDS,
    )
    with cache_lock("maven"):
        return [Path(context.create_dependency(one).artifact.resolve()) for one in _COORDINATES]

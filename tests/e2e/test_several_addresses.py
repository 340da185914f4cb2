"""Two proxies that clients know by addresses of their own: who finds the one that is left, after a SIGKILL.

The table in helm.md says it of all clients; here are the Java clients. librdkafka is in the walk-through."""

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from idemproxy.demo.child_processes import ChildProcesses
from idemproxy.demo.legacy_cluster import LegacyCluster
from testkit.real.brokers.kafka_cluster import stored_values
from testkit.real.clients.java_clients import LAST_3X_CLIENT, MODERN_CLIENT, JavaProgram, start_producer
from testkit.real.proxies.proxy_process import ProxyProcess, wait_until
from testkit.real.store.two_proxies_redis import ExternalRedis

RECORDS = 1_000_000
"""More than they come to."""
PER_SECOND = 200
SOME = 300
"""More than is under way in a moment: a client with so many more acknowledged has a proxy that answers."""
AGAIN = {"metadata.recovery.strategy": "rebootstrap"}
"""The default from Java 4.0 on; before 3.8 there is no such thing."""


def has_some_more(program: JavaProgram) -> Callable[[], bool]:
    """Are records beyond those of this moment acknowledged?"""
    before = acknowledged_by(program)
    return lambda: acknowledged_by(program) >= before + SOME


def acknowledged_by(program: JavaProgram) -> int:
    assert program.process.exit_code is None, program.process.last_output()
    acknowledged: int = program.progress().get("acked", 0)
    return acknowledged


@pytest.mark.timeout(700)
def test_java_clients_that_ask_their_bootstrap_servers_again_reach_the_other_proxy(
    tmp_path: Path, children: ChildProcesses
) -> None:
    with ExitStack() as stack:
        cluster = stack.enter_context(LegacyCluster(tmp_path / "kafka", auto_create_topics=False))
        redis = stack.enter_context(ExternalRedis())
        clients = {"java4": (MODERN_CLIENT, {}), "java3": (LAST_3X_CLIENT, AGAIN)}
        for name in clients:
            cluster.create_topic(name)
        options = ("--redis", "redis://{}:{}/0".format(*redis.address))
        proxies = [
            stack.enter_context(ProxyProcess(tmp_path / f"proxy-{number}", cluster.address(0), options=options))
            for number in (1, 2)
        ]
        bootstrap = ",".join("{}:{}".format(*proxy.address) for proxy in proxies)
        programs = [
            start_producer(
                children,
                tmp_path,
                version=version,
                bootstrap=bootstrap,
                topic=name,
                name=name,
                settings=settings,
                partitions=1,
                records=RECORDS,
                records_per_second=PER_SECOND,
            )
            for name, (version, settings) in clients.items()
        ]
        # Which of the two a client has chosen is its own affair; so each of them is killed once.
        for proxy in proxies:
            for program in programs:
                wait_until(has_some_more(program), f"{program.process.name} produces", 120)
            proxy.kill()
            for program in programs:
                wait_until(has_some_more(program), f"{program.process.name} goes on at the other proxy", 120)
            proxy.start()
        for name, program in zip(clients, programs, strict=True):
            told = acknowledged_by(program)
            assert program.progress()["failed"] == 0
            program.process.kill()
            values = [value for _, value in stored_values(cluster, (name, 0))]
            assert len(values) >= told
            assert values == [b"%s:0:%d" % (name.encode(), number) for number in range(len(values))]

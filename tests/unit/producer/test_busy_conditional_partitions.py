"""A writer that is always at work at one proxy, and another one at another proxy, on the same conditional partition
(rule R23)."""

from __future__ import annotations

from testkit.virtual.conditional_writer import ConditionalWriter, Published
from testkit.virtual.world import TOPIC, World, WorldSettings


class Busy(ConditionalWriter):
    """Publishes the next one as soon as it knows of the last."""

    def go_on(self) -> None:
        value = f"{self.host.name}/{len(self.published)}".encode()
        self.published.append(Published(self._log.high_watermark, (value,)))
        self.host.later(0.01, self._try)


def test_a_writer_at_another_proxy_gets_its_conflict_despite_a_busy_writer() -> None:
    """Each commit rides on the next reserve, so the stored entry always has an open intent of a proxy that lives."""
    world = World(1, WorldSettings(proxies=2, brokers=1, clients=1, partitions=1, is_conditional=True))
    world.start()
    network, log = world.network, world.cluster.log(TOPIC, 0)
    busy, other = (
        Busy(network, f"writer-{number}", proxy.addresses, (TOPIC, 0), log, 10**9)
        for number, proxy in enumerate(world.proxies)
    )
    busy.go_on()
    assert network.run(60.0, lambda: log.end_offset > 20)
    other.go_on()
    (first,) = other.published
    assert network.run(60.0, lambda: first.told is not None), first.answers
    assert first.told == (45, -1)
    assert world.errors() == []

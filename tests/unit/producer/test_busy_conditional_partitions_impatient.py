"""A writer with a short timeout is answered, too, while another one is always at work at another proxy (rule R23)."""

from __future__ import annotations

import pytest

from testkit.virtual import conditional_writer
from testkit.virtual.conditional_writer import ConditionalWriter
from testkit.virtual.world import TOPIC, World, WorldSettings

from .test_busy_conditional_partitions import Busy


class Often(ConditionalWriter):
    """After a conflict it reads the log and publishes again, half a second later."""

    def go_on(self) -> None:
        value = f"{self.host.name}/{len(self.published)}".encode()
        self.published.append(conditional_writer.Published(self._log.high_watermark, (value,)))
        self.host.later(0.5, self._try)


@pytest.mark.parametrize("timeout_ms", [1_000, 1_300, 2_000])
def test_a_writer_with_a_short_timeout_is_answered(monkeypatch: pytest.MonkeyPatch, timeout_ms: int) -> None:
    monkeypatch.setattr(conditional_writer, "TIMEOUT_MS", timeout_ms)
    world = World(1, WorldSettings(proxies=2, brokers=1, clients=1, partitions=1, is_conditional=True))
    world.start()
    network, log = world.network, world.cluster.log(TOPIC, 0)
    busy = Busy(network, "writer-0", world.proxies[0].addresses, (TOPIC, 0), log, 10**9)
    other = Often(network, "writer-1", world.proxies[1].addresses, (TOPIC, 0), log, 10**9)
    busy.go_on()
    assert network.run(60.0, lambda: log.end_offset > 20)
    other.go_on()
    network.run(60.0, lambda: len(other.published) > 8)
    told = [one.told for one in other.published]
    print([(one.told, one.tries, one.answers[:4]) for one in other.published])
    assert len(told) > 8, (told, other.published[-1].tries, other.published[-1].answers)

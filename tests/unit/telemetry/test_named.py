"""Producers with a name as a process counts and remembers them."""

from __future__ import annotations

from idemproxy.proxy import limits
from idemproxy.proxy.events import InstanceBegan
from idemproxy.proxy.telemetry import metric_names as names
from idemproxy.proxy.telemetry.metrics import Metrics
from idemproxy.proxy.telemetry.producer_names import ProducerNameInstance, ProducerNameInstances


def test_an_instance_that_had_one_before_it_has_fenced_it() -> None:
    found = ProducerNameInstances()
    found.note_instance(InstanceBegan("orders-1", 5, 0, None), 1.0)
    found.note_instance(InstanceBegan("orders-2", 6, 3, (6, 2)), 2.0)
    found.note_instance(InstanceBegan("orders-1", 5, 1, (5, 0)), 3.0)
    assert (found.began, found.fenced) == (3, 2)
    assert found.newest_first() == [
        ("orders-1", ProducerNameInstance(5, 1, 2, 1, 3.0)),
        ("orders-2", ProducerNameInstance(6, 3, 1, 1, 2.0)),
    ]


def test_names_that_began_long_ago_make_room_and_are_counted_still() -> None:
    found = ProducerNameInstances()
    for number in range(limits.NAMES_SHOWN_MAX + 5):
        found.note_instance(InstanceBegan(f"name-{number}", number, 0, None), float(number))
    shown = [name for name, _ in found.newest_first()]
    assert len(shown) == limits.NAMES_SHOWN_MAX
    assert (shown[0], shown[-1]) == (f"name-{limits.NAMES_SHOWN_MAX + 4}", "name-5")
    assert found.began == limits.NAMES_SHOWN_MAX + 5


def test_the_metrics_have_instances_and_fences() -> None:
    metrics = Metrics()
    take = metrics.takers()[InstanceBegan]
    take(InstanceBegan("orders-1", 5, 0, None))
    take(InstanceBegan("orders-1", 5, 1, (5, 0)))
    found = {sample.metric: sample.value for sample in metrics.samples() if not sample.labels}
    assert (found[names.PRODUCER_NAMES_BEGAN], found[names.PRODUCER_NAMES_FENCED]) == (2, 1)

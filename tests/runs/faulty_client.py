"""One real client through the proxy to one real broker, with faults on both sides of the proxy: run, counted, judged.

What the runs over several clients and brokers have in common; which ones, and what becomes of the figures, is theirs.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from idemproxy.demo.fault_relay import FaultPlan
from idemproxy.demo.jars import JarsUnavailable
from testkit.real.clients.foreign_clients import ClientUnavailable
from testkit.real.machine.pinned_packages import PackagesUnavailable
from testkit.real.scenes.faulty import BREAKING_KINDS, ClientResult, FaultyScene

PARTITIONS = 3
UNAVAILABLE = (PackagesUnavailable, ClientUnavailable, JarsUnavailable)
"""A client can not be had here: what is raised."""
RUN_SECONDS_MAX = 600


@dataclass(frozen=True, slots=True)
class Ran:
    """How a run went. ``figures``: for a results file. ``log``: of the proxy; empty without one."""

    result: ClientResult
    figures: Mapping[str, object]
    complaints: list[str]
    log: str


@dataclass(frozen=True, slots=True)
class FaultyClient:
    """What to run. ``every_nth_produce``: has a fault, on each side. ``settings``: of the proxy, in YAML.
    ``ids_are_ours``: the proxy gives producer ids. ``in_group``: it reads its records as a member of a group, too.
    ``without_proxy``: the broker alone, through the relays."""

    client: str
    records: int
    every_nth_produce: int
    seed: int
    broker: str = "0.10.2.2"
    broker_settings: Mapping[str, str | int] = field(default_factory=dict)
    settings: str = ""
    ids_are_ours: bool = True
    one_in_flight: bool = False
    in_group: bool = False
    without_proxy: bool = False

    def run(self) -> Ran:
        """Run it in a scene of its own."""
        plan = FaultPlan(seed=self.seed, kinds=BREAKING_KINDS, every_nth_produce=self.every_nth_produce)
        with (
            tempfile.TemporaryDirectory(prefix="idemproxy-faulty-") as directory,
            FaultyScene(
                Path(directory),
                plan,
                self.broker,
                broker_settings=self.broker_settings,
                settings=self.settings,
                without_proxy=self.without_proxy,
            ) as scene,
        ):
            result = scene.run(
                (self.client,),
                partitions=PARTITIONS,
                records=self.records,
                plan=plan,
                seconds_max=RUN_SECONDS_MAX,
                one_in_flight=self.one_in_flight,
                in_group=self.in_group,
            )[self.client]
            log = "" if self.without_proxy else scene.proxy.log
            complaints = result.complaints(ids_are_ours=self.ids_are_ours) + _complaints_about(log)
            return Ran(result, self._figures(result, scene), complaints, log)

    def _figures(self, result: ClientResult, scene: FaultyScene) -> dict[str, object]:
        figures: dict[str, object] = {
            "broker": self.broker,
            "client": result.client,
            "records": result.records,
            "partitions": PARTITIONS,
            "acknowledged": result.acknowledged,
            "duplicates": result.verdict.duplicates,
            "losses": result.verdict.lost,
            "reorders": result.verdict.reordered,
            "wrong_offsets": result.verdict.misplaced,
            "init_producer_id_requests": result.init_producer_id_requests,
            "errors": len(result.outcome["errors"]),
            "consumer_agrees": result.consumed == result.stored,
            "produce_requests": result.produce_requests,
            "faults_client_side": {kind.value: count for kind, count in result.faults.items() if count},
            "faults_broker_side": {kind.value: count for kind, count in scene.broker_relay.counts.items() if count},
            "seconds": round(result.seconds, 1),
            "seed": self.seed,
        }
        if "version" in result.outcome:
            figures["client_version"] = result.outcome["version"]
        if result.group is not None:
            figures["read_in_group"] = len(result.group.read)
            figures["group_agrees"] = not result.group.complaints(result.stored)
        return figures


def said(figures: Mapping[str, object]) -> str:
    """The figures in a line for a person."""
    return ", ".join(f"{name} {value}" for name, value in figures.items())


def _complaints_about(log: str) -> list[str]:
    return [log[log.index("internal error") :][:2000]] if "internal error" in log else []

"""What the admin port tells of a proxy on a virtual network: readiness with its reasons, numbers, rates, lists."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from idemproxy.proxy import events
from idemproxy.proxy.admin import views
from idemproxy.proxy.admin.health import Watched, concerns, reasons_not_ready, samples
from idemproxy.proxy.admin.rates import WINDOW_STEPS, Rates
from idemproxy.proxy.broker.served import Kind, Refusal
from idemproxy.proxy.net.sockets import Traffic
from idemproxy.proxy.old_clients.inventory import OldClient
from idemproxy.proxy.process.journal_upkeep import JournalUpkeep
from idemproxy.proxy.settings.config import JournalSettings
from idemproxy.proxy.telemetry import metric_names as names
from idemproxy.proxy.telemetry.journal import Journal
from idemproxy.proxy.telemetry.journal_file import JournalFile
from idemproxy.proxy.telemetry.reports import Telemetry
from idemproxy.state.store import StoreRefused
from testkit.virtual.broker_faults import BrokerFault, BrokerFaultRates, ProduceSeen
from testkit.virtual.world import TOPIC, World, WorldSettings

Series = dict[tuple[str, tuple[str, ...]], float]


def watched_world(clients: int = 1, has_pass_through: bool = False) -> tuple[World, Watched]:
    """A world of one proxy that has begun, and the look at it."""
    pass_through = WorldSettings(brokers=1, partitions=2, clients=clients, has_principals=True, has_pass_through=True)
    world = World(1, pass_through if has_pass_through else WorldSettings(brokers=1, clients=clients))
    world.start()
    (proxy,) = world.proxies
    telemetry = Telemetry()
    for _, _, event in proxy.events:
        telemetry(event)
    engine, store = proxy.engine, proxy.store
    engine.report = engine.context.observers.report = telemetry
    watched = Watched(
        engine, telemetry, lambda: store, engine.now, lambda: 1_700_000_000.0, lambda: True, list, engine.now(), "1.2.3"
    )
    assert world.network.run(5, lambda: all(broker.is_ready for broker in engine.statistics().topology.brokers))
    return world, watched


def kept_journal(watched: Watched, path: Path) -> JournalUpkeep:
    file = JournalFile(JournalSettings(path), lambda: 5, watched.now)
    return JournalUpkeep(Journal(file.write, lambda: 5, lambda _: None), file, lambda _: None)


def send(world: World, batches: int) -> None:
    (client,) = world.clients
    for _ in range(batches):
        client.send(TOPIC, 0, 2)
    assert world.network.run(60, lambda: client.is_done)


def series(watched: Watched) -> Series:
    return {(one.metric.name, one.labels): one.value for one in samples(watched)}


# ---------------------------------------------------------------------- readiness
def test_a_proxy_that_serves_has_no_reason_not_to() -> None:
    _, watched = watched_world()
    assert reasons_not_ready(watched) == []
    assert concerns(watched) == []
    assert series(watched)[(names.READY.name, ())] == 1


def test_a_proxy_that_has_not_begun_names_all_that_is_missing() -> None:
    _, watched = watched_world()
    new = World(2, WorldSettings(brokers=1)).proxies[0]
    watched = Watched(
        new._new_engine(), Telemetry(), lambda: None, watched.now, watched.wall, lambda: False, list, 0.0, "1.2.3"
    )
    assert reasons_not_ready(watched) == ["not connected to Redis yet", "no broker has answered yet"]


def test_a_lost_redis_and_a_lease_that_ran_out_are_reasons() -> None:
    world, watched = watched_world()
    (proxy,) = world.proxies
    proxy.store._drop("for the test")
    (reason,) = reasons_not_ready(watched)
    assert reason.startswith("Redis is away: for the test")
    assert series(watched)[(names.REDIS_UP.name, ())] == 0
    assert world.network.run(5, lambda: not reasons_not_ready(watched)), "it comes back"
    proxy.store.lease.give_up()
    assert reasons_not_ready(watched) == ["the lease is not held: nothing may be sent until it is renewed"]
    assert series(watched)[(names.LEASE_REMAINING.name, ())] == 0


def test_a_broker_that_is_away_is_a_concern_and_all_of_them_a_reason() -> None:
    _, watched = watched_world()
    (broker,) = watched.engine.topology.brokers
    broker.is_ready = False
    assert concerns(watched) == ["broker 1 cannot be reached"]
    assert reasons_not_ready(watched) == ["no broker can be reached"]
    assert series(watched)[(names.BROKER_UP.name, ("1",))] == 0


def test_a_broker_that_is_away_is_named_with_what_its_connection_met() -> None:
    _, watched = watched_world()
    (broker,) = watched.engine.topology.brokers
    broker.is_ready = False
    broker.why_away = "no connection within 5 s"
    assert reasons_not_ready(watched) == [f"no broker can be reached; {broker.name}: no connection within 5 s"]
    young = World(2, WorldSettings(brokers=1)).proxies[0]._new_engine()
    new = Watched(young, Telemetry(), lambda: None, watched.now, watched.wall, lambda: False, list, 0.0, "1.2.3")
    (asked,) = young.topology.asked_first
    asked.why_away = "it has no address"
    assert reasons_not_ready(new, ["redis", "listeners"]) == [
        f"no broker has answered yet; {asked.name}: it has no address"
    ]


def test_a_broker_that_cannot_be_served_is_named_with_the_reason() -> None:
    _, watched = watched_world()
    (broker,) = watched.engine.topology.brokers
    broker.is_ready = False
    broker.refusal = Refusal(Kind.UNSERVED, "it is too old")
    assert concerns(watched) == reasons_not_ready(watched) == [f"{broker.name} cannot be served: it is too old"]


def test_a_proxy_that_ends_by_itself_says_why() -> None:
    _, watched = watched_world()
    watched.engine.why_ending = "what was found"
    watched.engine.drain(lambda: None)
    assert reasons_not_ready(watched) == ["what was found"]


def test_a_drain_is_the_only_reason_that_counts() -> None:
    _, watched = watched_world()
    watched.engine.drain(lambda: None)
    (reason,) = reasons_not_ready(watched)
    assert reason.startswith("draining")
    assert series(watched)[(names.DRAINING.name, ())] == 1


def test_ports_that_could_not_be_opened_are_a_reason() -> None:
    _, watched = watched_world()
    deaf = Watched(
        watched.engine, watched.telemetry, watched.store, watched.now, watched.wall, lambda: False, list, 0.0, "1.2.3"
    )
    assert reasons_not_ready(deaf) == ["no port is open for clients"]


@pytest.mark.parametrize(
    ("excluded", "reasons"),
    [
        (["redis"], ["no broker has answered yet", "no port is open for clients"]),
        (["redis", "brokers"], ["no port is open for clients"]),
        (["brokers"], ["not connected to Redis yet", "no port is open for clients"]),
        (["listeners"], ["not connected to Redis yet", "no broker has answered yet"]),
        (["redis", "brokers", "listeners"], []),
    ],
)
def test_a_check_that_is_left_out_hides_no_closed_port(excluded: list[str], reasons: list[str]) -> None:
    _, watched = watched_world()
    new = World(2, WorldSettings(brokers=1)).proxies[0]._new_engine()
    young = Watched(new, Telemetry(), lambda: None, watched.now, watched.wall, lambda: False, list, 0.0, "1.2.3")
    assert reasons_not_ready(young, excluded) == reasons


def test_readiness_that_excludes_redis_ignores_its_loss_but_not_a_drain() -> None:
    world, watched = watched_world()
    (proxy,) = world.proxies
    proxy.store.lease.give_up()
    assert (len(reasons_not_ready(watched)), reasons_not_ready(watched, ["redis"])) == (1, [])
    proxy.store._drop("for the test")
    assert (len(reasons_not_ready(watched)), reasons_not_ready(watched, ["redis"])) == (1, [])
    watched.engine.drain(lambda: None)
    (reason,) = reasons_not_ready(watched, ["redis"])
    assert reason.startswith("draining")
    assert reasons_not_ready(watched, ["redis", "draining"]) == []


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (events.DuplicateFound(7, 0, 0, "t", 0, (1, 2)), "1 batches are in the log twice"),
        (events.InternalError("here", ValueError("x")), "1 errors of the proxy's own"),
    ],
)
def test_what_must_never_happen_is_a_concern_from_then_on(event: object, words: str) -> None:
    _, watched = watched_world()
    watched.telemetry(event)
    (concern,) = concerns(watched)
    assert concern.startswith(words)


# ---------------------------------------------------------------------- what is shown
def test_a_producer_is_shown_with_its_window_and_what_it_waits_for() -> None:
    world, watched = watched_world()
    send(world, 7)
    world.network.run(1)
    found = views.producers(watched, None, None)
    ((producer_id, one),) = ((one.pop("producer_id"), one) for one in found["producers"])
    assert isinstance(producer_id, str)
    window = one.pop("window")
    assert [batch["base_sequence"] for batch in window] == [4, 6, 8, 10, 12]
    assert one == {
        "topic": TOPIC,
        "partition": 0,
        "queued": 0,
        "under_way": 0,
        "idle": True,
        "client_id": "client-1",
        "known": True,
        "epoch": 0,
        "next_sequence": 14,
        "open_intent": False,
    }
    assert views.producers(watched, int(producer_id), TOPIC)["producers"] != []
    assert views.producers(watched, int(producer_id) + 1, None)["producers"] == []
    assert views.producers(watched, None, "another") == {"in_memory": 1, "producers": []}


def test_an_unknown_outcome_is_there_from_its_begin_to_its_end() -> None:
    world, watched = watched_world()
    seen: list[ProduceSeen] = []

    def choose(one: ProduceSeen) -> BrokerFault:
        seen.append(one)
        return BrokerFault.LOST_ANSWER if len(seen) == 1 else BrokerFault.NONE

    world.cluster.choose_fault = choose
    (client,) = world.clients
    client.send(TOPIC, 0, 2)
    assert world.network.run(30, lambda: bool(watched.engine.statistics().unknown_outcomes))
    (unknown_outcome,) = views.unknown_outcomes(watched)
    assert (unknown_outcome["topic"], unknown_outcome["partition"], unknown_outcome["base_sequence"]) == (TOPIC, 0, 0)
    assert series(watched)[(names.UNKNOWN_OUTCOMES.name, ())] == 1
    assert world.network.run(30, lambda: client.is_done)
    assert views.unknown_outcomes(watched) == []
    found = series(watched)
    assert found[(names.UNKNOWN_OUTCOMES.name, ())] == found[(names.UNKNOWN_OUTCOME_AGE.name, ())] == 0
    assert found[(names.UNKNOWN_OUTCOMES_RESOLVED.name, ("found",))] == 1


def test_an_unknown_outcome_that_lasts_is_a_concern_with_its_age() -> None:
    world, watched = watched_world()
    with watched.engine.context.observers.in_doubt(events.UnknownOutcomeOpened(7, TOPIC, 0, 0, "the connection broke")):
        assert concerns(watched) == []
        world.network.run(40)
        (concern,) = concerns(watched)
    assert re.fullmatch(r"an append has been in doubt for (39|40|41) s", concern)
    assert concerns(watched) == []


def test_a_redis_that_fills_up_is_a_concern_until_it_has_room_again() -> None:
    _, watched = watched_world()
    for used, limit in ((79, 100), (80, 100), (10**9, 0)):
        watched.telemetry(events.RedisMemoryMeasured(used, limit))
        assert concerns(watched) == []
    watched.telemetry(events.RedisMemoryMeasured(93, 100))
    assert concerns(watched) == ["Redis uses 93 % of its maxmemory; when it is full, nothing can be produced"]
    assert series(watched)[(names.REDIS_MEMORY_USED.name, ())] == 93
    watched.telemetry(StoreRefused("it is a replica now"))
    assert concerns(watched) == []
    assert (names.REDIS_MEMORY_USED.name, ()) not in series(watched)


def test_all_of_it_is_json() -> None:
    world, watched = watched_world()
    send(world, 3)
    rates = Rates()
    rates.take_sample(0.0, views.totals(watched))
    rates.take_sample(1.0, views.totals(watched))
    page = json.loads(json.dumps(views.page(watched, rates), allow_nan=False))
    assert page["status"]["version"] == "1.2.3"
    assert page["status"]["totals"]["batches"] == 3
    assert page["status"]["batches_per_second"] == 0
    assert page["history"]["batches"] == [0]
    assert page["brokers"][0]["id"] == 1


def test_every_gauge_and_counter_has_as_many_labels_as_it_names(tmp_path: Path) -> None:
    world, watched = watched_world()
    send(world, 3)
    watched.telemetry(events.DuplicateAnswered("client", TOPIC))
    watched.telemetry(events.CertificateLoaded("listeners[0].tls", "CN=x", 1.0))
    watched.telemetry(events.RedisMemoryMeasured(1, 2))
    watched.telemetry(events.UnknownOutcomeResolved(7, "t", 0, 0, "found", 100, 1.5))
    watched.telemetry.metrics.measure_passes(watched.now)
    answered = events.BatchAnswered("refused", 7, 0, 0, TOPIC, 0, 10, -1)
    watched.telemetry(answered)
    ports = {"clients": 2}
    kept = kept_journal(watched, tmp_path / "journal")
    watched = replace(watched, ports_open=lambda: ports, journal=kept, client_traffic=Traffic())
    watched.engine.count_request(0)
    watched.engine.count_request(12_345)
    watched.engine.old_clients.inventory.note(OldClient("c", "10.0.0.1"), (1, 3), 1.0, is_refused=False)
    taken = list(samples(watched))
    kept.file.close()
    assert all(len(sample.labels) == len(sample.metric.labels) for sample in taken)
    told = {sample.metric for sample in taken}
    assert told == {metric for metric in names.METRICS if metric.kind != "histogram"}, "every one has a source"
    found = {(one.metric.name, one.labels): one.value for one in taken}
    assert found[(names.REQUESTS.name, (names.OTHER,))] == 1, "clients make no series of their own"
    assert all(type(sample.value) in (int, float) for sample in taken), "OTLP knows no truth values"


def test_produce_connections_of_pass_through_clients_are_counted_apart() -> None:
    world, watched = watched_world(has_pass_through=True)
    world.cluster.rates = BrokerFaultRates(slow=(3.0, 3.0))
    (client,) = world.clients
    client.send(TOPIC, 0)
    assert world.network.run(30, lambda: client.is_done)
    (broker,) = views.brokers(watched)
    assert [broker[f"{kind}produce_connections_{state}"] for kind in ("", "own_") for state in ("busy", "idle")] == [
        0,
        0,
        0,
        1,
    ]

    world.cluster.choose_fault = lambda one: BrokerFault.SLOW
    client.send(TOPIC, 0)
    # The client may be in the middle of a fetch, which is answered first.
    assert world.network.run(10, lambda: views.brokers(watched)[0]["own_produce_connections_busy"] == 1)
    client.send(TOPIC, 1)
    assert world.network.run(2, lambda: views.brokers(watched)[0]["appends_waiting"] == 1)
    found = series(watched)
    produce_connections = {
        state: found[(names.PRODUCE_CONNECTIONS.name, ("1", state))]
        for state in ("busy", "idle", "own_busy", "own_idle")
    }
    assert produce_connections == {"busy": 0, "idle": 0, "own_busy": 1, "own_idle": 0}
    assert found[(names.APPENDS_WAITING.name, ("1",))] == 1


# ---------------------------------------------------------------------- rates
def test_a_rate_is_the_mean_of_the_last_steps() -> None:
    rates = Rates()
    assert rates.per_second("batches") is None
    for second in range(WINDOW_STEPS + 6):
        rates.take_sample(float(second), {"batches": 100.0 * second if second > 5 else 0.0})
    assert rates.per_second("batches") == 150.0
    assert rates.per_second("nothing") == 0.0


def test_two_looks_at_the_same_moment_have_no_rate() -> None:
    rates = Rates()
    rates.take_sample(1.0, {"batches": 1.0})
    rates.take_sample(1.0, {"batches": 2.0})
    assert rates.per_second("batches") == 0.0


def test_an_unwritable_journal_is_a_concern_and_prevents_readiness_if_required(
    tmp_path: Path,
) -> None:
    _, watched = watched_world()
    kept = kept_journal(watched, tmp_path / "journal")
    watched = replace(watched, journal=kept)

    def full(_line: bytes) -> None:
        raise OSError(28, "No space left on device")

    for is_required in (False, True):
        kept.journal = Journal(full, lambda: 5, lambda _: None)
        kept.journal.is_required = is_required
        assert reasons_not_ready(watched) == []
        kept.journal(events.OperatorMessage("info", "anything"))
        why = ["the journal is required and cannot be written: No space left on device"] if is_required else []
        assert reasons_not_ready(watched) == why
        assert reasons_not_ready(watched, ["journal"]) == []
        assert "the journal is not kept: No space left on device" in concerns(watched)
        assert series(watched)[names.JOURNAL_UP.name, ()] == 0
        assert series(watched)[names.JOURNAL_MISSING.name, ()] == 1
    kept.file.close()

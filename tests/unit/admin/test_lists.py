"""The lists and times of the admin port: which entry comes first, what is text, and how an odd question is answered."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import trio
from starlette.types import Message

from idemproxy.proxy import events, limits
from idemproxy.proxy.admin import views
from idemproxy.proxy.admin.app import make_app
from idemproxy.proxy.admin.health import Watched, samples
from idemproxy.proxy.admin.rates import LONG_STEPS_KEPT, STEPS_KEPT, WINDOW_STEPS, Rates
from idemproxy.proxy.old_clients.inventory import OldClient
from idemproxy.proxy.settings.config import Caps
from idemproxy.proxy.telemetry import metric_names as names
from idemproxy.proxy.telemetry.reports import Telemetry
from idemproxy.state.hidden_ranges import HiddenRange, OffsetRange, State
from testkit.virtual.world import TOPIC, World, WorldSettings


@pytest.fixture
def world() -> World:
    world = World(1, WorldSettings(brokers=1, partitions=2, clients=1))
    world.start()
    return world


@pytest.fixture
def watched(world: World) -> Watched:
    (proxy,) = world.proxies
    engine, store = proxy.engine, proxy.store
    return Watched(
        engine, Telemetry(), lambda: store, engine.now, lambda: 0.0, lambda: True, list, engine.now(), "1.2.3"
    )


def ask(watched: Watched, path: str, query: str = "") -> tuple[int, str]:
    """Status and text of one answer, without a socket."""
    app = make_app(watched, Rates(), lambda: b"")
    told: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        told.append(message)

    scope: dict[str, Any] = {
        **{"type": "http", "http_version": "1.1", "method": "GET", "scheme": "http", "headers": []},
        **{"path": path, "raw_path": path.encode(), "query_string": query.encode(), "root_path": ""},
    }
    trio.run(app, scope, receive, send)
    return told[0]["status"], b"".join(one.get("body", b"") for one in told[1:]).decode()


# ---------------------------------------------------------------------- lists
def test_the_oldest_unknown_outcome_comes_first_and_its_producer_id_is_text(world: World, watched: Watched) -> None:
    observers = watched.engine.context.observers
    with observers.in_doubt(events.UnknownOutcomeOpened(2**62, TOPIC, 0, 4, "first")):
        world.network.run(5)
        with observers.in_doubt(events.UnknownOutcomeOpened(8, TOPIC, 0, -1, "second")):
            observers.unknown_outcomes = dict(reversed(observers.unknown_outcomes.items()))  # whatever their order
            first, second = views.unknown_outcomes(watched)
            assert watched.engine.statistics().oldest_unknown_outcome_seconds == pytest.approx(5, abs=1.1)
    assert (first["producer_id"], first["reason"], second["reason"]) == (str(2**62), "first", "second")
    assert first["age_seconds"] == pytest.approx(second["age_seconds"] + 5, abs=1.1)
    assert (first["base_sequence"], second["base_sequence"]) == (4, None), "an entry that is read has no batch yet"


def test_the_pair_with_most_duplicates_comes_first(watched: Watched) -> None:
    for client in ("few", "many", "many", "many", "some", "some"):
        watched.telemetry(events.DuplicateAnswered(client, "t"))
    watched.telemetry(events.RetryJoined("c", "t"))
    assert [(one["client_id"], one["topic"], one["count"]) for one in views.duplicates(watched)] == [
        ("many", "t", 3),
        ("some", "t", 2),
        ("few", "t", 1),
        ("c", "t", 1),
    ]
    assert [(one["answered"], one["joined"]) for one in views.duplicates(watched)][2:] == [(1, 0), (0, 1)]
    assert views.totals(watched)["duplicates_prevented"] == 7


def test_troubles_list_the_newest_line_first_up_to_the_row_limit(watched: Watched) -> None:
    for number in range(views.ROWS_MAX + 5):
        watched.telemetry(events.OperatorMessage("warning", f"line {number}"))
    (newest, before, *others) = views.troubles(watched)
    assert (newest["level"], newest["text"], before["text"]) == ("warning", "line 54", "line 53")
    assert 2 + len(others) == views.ROWS_MAX


def test_a_warning_stays_on_the_page_under_a_stream_of_other_lines(watched: Watched) -> None:
    watched.telemetry(events.OperatorMessage("warning", "a warning"))
    for number in range(limits.RECENT_LINES_MAX + 1):
        watched.telemetry(events.OperatorMessage("info", f"line {number}"))
    assert [one["text"] for one in views.troubles(watched)] == ["a warning"]
    shown = views.lines(watched)
    assert len(shown) == views.ROWS_MAX
    assert {one["level"] for one in shown} == {"info"}, "warnings stand by themselves"
    assert shown[0]["text"] == f"line {limits.RECENT_LINES_MAX}"


def answered(client: str, verdict: str, error_code: int) -> events.BatchAnswered:
    return events.BatchAnswered(verdict, 7, 0, 0, "t", 0, error_code, -1, client=client)


def test_clients_whose_batches_get_errors_come_first(watched: Watched) -> None:
    measured = Telemetry()
    measured.metrics.measure_passes(watched.engine.now)
    watched = replace(watched, telemetry=measured)
    for client, verdict, code in (
        ("refused", "refused", 87),
        ("retried", "retry", 7),
        ("late", "duplicate_below_window", 46),
        ("beaten", "conflict", 45),
        ("fine", "appended", 0),
    ):
        measured(answered(client, verdict, code))
    found = [(one["client_id"], one["failing"]) for one in views.clients(watched)]
    assert sorted(found[:2]) == [("refused", True), ("retried", True)]
    assert sorted(found[2:]) == [("beaten", False), ("fine", False), ("late", False)]
    activities = measured.metrics.activities
    later = activities.now() + limits.CLIENT_FAILING_SECONDS + 1
    activities.now = lambda: later
    assert not any(one["failing"] for one in views.clients(watched)), "ten minutes later they are as the others"


def test_findings_stand_on_the_page_problems_first(watched: Watched) -> None:
    told = [("note", "a", "x"), ("problem", "b", "y"), ("warning", "c", "z")]
    page = views.page(replace(watched, findings=lambda: told, host="one.example"), Rates())
    assert page["findings"] == [
        {"sign": "problem", "what": "b", "text": "y"},
        {"sign": "warning", "what": "c", "text": "z"},
        {"sign": "note", "what": "a", "text": "x"},
    ]
    assert page["status"]["host"] == "one.example"


def test_requests_are_listed_by_api_most_frequent_first(watched: Watched) -> None:
    watched.engine.requests_by_key.clear()
    watched.engine.requests_by_key.update({3: 2, 0: 5, 32_000: 1, 32_001: 1})
    assert [(one["api"], one["requests"]) for one in views.passing(watched)] == [
        ("produce", 5),
        ("metadata", 2),
        ("other", 2),
    ]


def test_the_producer_that_was_used_last_comes_first(world: World, watched: Watched) -> None:
    (client,) = world.clients
    for partition in (0, 1, 0):
        client.send(TOPIC, partition, 1)
        assert world.network.run(60, lambda: client.is_done)
    assert [one["partition"] for one in views.producers(watched, None, None)["producers"]] == [0, 1]


# ---------------------------------------------------------------------- limits
def test_metrics_show_the_limits_of_connections_held_bytes_and_producers(watched: Watched) -> None:
    watched.engine.set_caps(Caps(connections_max=11, request_bytes_total_max=2222, producers_max=33))
    gauges = (names.CONNECTIONS_LIMIT, names.HELD_BYTES_LIMIT, names.ENTRIES_LIMIT)
    found = {one.metric: one.value for one in samples(watched)}
    assert [found[gauge] for gauge in gauges] == [11, 2222, 33]


def test_a_lease_counts_up_to_the_moment_from_which_nothing_is_sent_any_more(world: World, watched: Watched) -> None:
    lease = world.proxies[0].store.lease
    assert world.network.run(5, lambda: lease.is_held)
    last = lease.ends_at - limits.LEASE_MARGIN_SECONDS
    for at, seconds in ((last - 1.5, 1.5), (last, 0.0), (last + 0.1, 0.0)):
        assert replace(watched, now=partial(float, at)).lease_seconds == pytest.approx(seconds)


# ---------------------------------------------------------------------- times
def test_a_quantile_is_the_bound_of_its_bucket_and_none_without_one(watched: Watched) -> None:
    batch = watched.telemetry.metrics.histograms[names.BATCH]
    for seconds in [0.0002] * 50 + [0.002] * 48 + [0.02] + [99.0]:
        batch.observe(seconds)
    found = views.status(watched, Rates())["times"]
    buckets = found["batch"].pop("buckets")
    assert (sum(buckets), len(buckets)) == (100, len(names.DURATION_BOUNDS_SECONDS) + 1)
    assert found["batch"] == {"count": 100, "p99_seconds": 0.025}
    assert (found["broker"]["count"], found["broker"]["p99_seconds"]) == (0, None)
    for _ in range(3):
        batch.observe(99.0)
    assert views.status(watched, Rates())["times"]["batch"]["p99_seconds"] is None, "above the last bound"


def test_times_are_those_of_the_last_two_minutes_and_not_of_the_whole_life(watched: Watched) -> None:
    batch, rates = watched.telemetry.metrics.histograms[names.BATCH], Rates()
    for _ in range(100_000):
        batch.observe(0.001)
    for second in range(STEPS_KEPT + 1):
        rates.take_sample(float(second), views.totals(watched), views.durations(watched))
    for _ in range(4):
        batch.observe(3.0)
    found = views.status(watched, rates)["times"]["batch"]
    assert (found["count"], found["p99_seconds"]) == (4, 5.0)
    for second in range(STEPS_KEPT + 1):
        rates.take_sample(STEPS_KEPT + 1.0 + second, views.totals(watched), views.durations(watched))
    assert views.status(watched, rates)["times"]["batch"]["count"] == 0, "two minutes later they are history"


def test_every_place_that_tells_of_prevented_duplicates_tells_the_same_number(watched: Watched) -> None:
    for number in range(5):
        watched.telemetry(events.DuplicateAnswered("a", "t"))
        watched.telemetry(events.RetryJoined("a" if number else "b", "t"))
    tile = views.totals(watched)["duplicates_prevented"]
    table = sum(one["count"] for one in views.duplicates(watched))
    metric = sum(one.value for one in samples(watched) if one.metric is names.DUPLICATES_PREVENTED)
    assert tile == table == metric == 10


def test_the_history_of_an_hour_has_rates_counts_and_quantiles_step_by_step(watched: Watched) -> None:
    rates, batch = Rates(), watched.telemetry.metrics.histograms[names.BATCH]
    for second in range(3_700):
        if second == 3_650:
            batch.observe(3.0)
            watched.telemetry(events.DuplicateAnswered("a", "t"))
            watched.telemetry(events.UnknownOutcomeOpened(7, "t", 0, 0, "x"))
        rates.take_sample(float(second), {**views.totals(watched), "batches": 2.0 * second}, views.durations(watched))
    found = views.history(rates)
    assert {len(row) for row in found.values()} == {LONG_STEPS_KEPT + 1}
    assert found["seconds_ago"][0] == pytest.approx(3_600, abs=60)
    assert found["seconds_ago"][-1] == 0
    assert set(found["batches"]) == {2.0}
    assert sum(found["duplicates_prevented"]) == sum(found["unknown_outcomes_opened"]) == 1
    assert [one for one in found["batch_p99_seconds"] if one is not None] == [5.0]


def test_a_rate_looks_back_for_so_many_steps_and_no_further() -> None:
    rates = Rates()
    for second in range(WINDOW_STEPS + 2):
        rates.take_sample(float(second), {"batches": 0.0 if second == 0 else 100.0})
    assert rates.per_second("batches") == 0.0


# ---------------------------------------------------------------------- questions
@pytest.mark.parametrize(
    ("path", "query", "status", "said"),
    [
        ("/livez", "", 200, "ok\n"),
        ("/readyz", "exclude=brokers", 200, "ok\n"),
        ("/readyz", "exclude=" + "x" * 40, 400, f"exclude='{'x' * 32}': there is no such check; known are draining, "),
        ("/api/v1/producers", f"producer_id={2**63 - 1}", 200, '{"in_memory":0,"producers":[]}'),
        ("/api/v1/producers", f"producer_id={2**63}", 400, '{"problem":"producer_id=\'9223372036854775808\': '),
        ("/api/v1/producers", "producer_id=" + "9" * 5000, 400, f'{{"problem":"producer_id=\'{"9" * 32}\': a whole'),
        ("/api/v1/producers", "producer_id=%D9%A3", 400, '{"problem":"producer_id='),
        ("/api/v1/client_ids", "producer_ids=7,8", 200, '{"client_ids":{}}'),
        ("/api/v1/client_ids", "", 400, '{"problem":"producer_ids=\'\': a whole number is wanted, at most 9223'),
        (
            "/api/v1/client_ids",
            "producer_ids=" + "7," * 500,
            400,
            '{"problem":"producer_ids has 501 of them, the lim',
        ),
    ],
)
def test_an_unusable_query_gets_a_short_400_answer(
    world: World, watched: Watched, path: str, query: str, status: int, said: str
) -> None:
    assert world.network.run(5, lambda: all(one.is_ready for one in watched.engine.statistics().topology.brokers))
    found = ask(watched, path, query)
    assert (found[0], found[1][: len(said)]) == (status, said)


def test_who_is_not_ready_says_so_with_every_reason_on_a_line(world: World, watched: Watched) -> None:
    assert world.network.run(5, lambda: all(one.is_ready for one in watched.engine.statistics().topology.brokers))
    (broker,) = watched.engine.topology.brokers
    broker.is_ready = False
    world.proxies[0].store.lease.give_up()
    assert ask(watched, "/readyz") == (
        503,
        "the lease is not held: nothing may be sent until it is renewed\nno broker can be reached\n",
    )


# ---------------------------------------------------------------------- names and hidden ranges
def test_producer_names_that_began_here_are_listed_latest_first(watched: Watched) -> None:
    assert views.named(watched) == []
    for event in (
        events.InstanceBegan("orders-1", 2**62 + 1, 0, None),
        events.InstanceBegan("orders-2", 7, 0, None),
        events.InstanceBegan("orders-1", 2**62 + 1, 1, (2**62 + 1, 0)),
    ):
        watched.telemetry(event)
    first, second = views.named(watched)
    assert first["age_seconds"] >= 0
    assert {**first, "age_seconds": 0} == {
        **{"name": "orders-1", "producer_id": str(2**62 + 1), "epoch": 1, "instances": 2, "fenced": 1},
        **{"age_seconds": 0, "stopped": []},
    }
    assert second["name"] == "orders-2"


def test_old_clients_are_listed_newest_first_and_their_requests_are_a_metric(watched: Watched) -> None:
    inventory = watched.engine.old_clients.inventory
    sarama = OldClient("sarama", "10.0.0.1", "sarama 1.40.0", "User:app")
    for version, now in (((8, 1), 100.0), ((1, 3), 101.0), ((1, 3), 102.5)):
        inventory.note(sarama, version, now, is_refused=version == (1, 3))
    for number in range(views.ROWS_MAX + 9):
        inventory.note(OldClient(f"c-{number}", "10.0.0.2"), (0, 2), 200.0, is_refused=False)
    status, text = ask(replace(watched, wall=lambda: 203.0), "/api/v1/old_clients")
    told = json.loads(text)
    assert (status, told["forgotten"], len(told["clients"])) == (200, 0, views.ROWS_MAX + 10)
    assert told["clients"][0]["client_id"] == f"c-{views.ROWS_MAX + 8}"
    assert told["clients"][-1] == {
        **{"client_id": "sarama", "address": "10.0.0.1", "software": "sarama 1.40.0", "principal": "User:app"},
        "requests": [
            {"api": "Fetch", "version": 3, "requests": 2},
            {"api": "OffsetCommit", "version": 1, "requests": 1},
        ],
        **{"refused": 2, "first_seen": 100.0, "last_seen": 102.5, "idle_seconds": 100.5},
    }
    assert len(views.page(watched, Rates())["old_clients"]["clients"]) == views.ROWS_MAX
    found = {one.labels: one.value for one in samples(watched) if one.metric == names.OLD_CLIENT_REQUESTS}
    assert found == {("offset_commit", "1"): 1, ("fetch", "3"): 2, ("produce", "2"): views.ROWS_MAX + 9}


def test_hidden_ranges_are_listed_with_their_state_and_counted_by_it(watched: Watched) -> None:
    active = HiddenRange(State.ACTIVE, 2_000, "ticket 1", messages=((5, 1, 3),))
    refused = HiddenRange(State.REFUSED, 3_000, refusal="the log has offsets 0 to 1")
    removed = HiddenRange(State.REMOVED, 4_000)
    watched.engine.hidden_ranges.take_list(
        {
            OffsetRange("t", 0, 3, 6): active,
            OffsetRange("t", 1, 0, 9): refused,
            OffsetRange("t", 2, 0, 1): removed,
        }
    )
    watched.engine.hidden_ranges.applied = 4
    first, second = views.hidden_ranges(replace(watched, wall=lambda: 5.0))
    assert first == {
        **{"topic": "t", "partition": 1, "first_offset": 0, "last_offset": 8, "state": "refused"},
        **{"age_seconds": 2.0, "reason": "", "refusal": "the log has offsets 0 to 1"},
    }
    assert (second["state"], second["last_offset"], second["reason"]) == ("active", 5, "ticket 1")
    found = {(one.metric, one.labels): one.value for one in samples(watched)}
    states = {labels[0]: value for (metric, labels), value in found.items() if metric == names.HIDDEN_RANGES}
    assert states == {"asked": 0, "active": 1, "refused": 1}
    assert found[names.HIDDEN_RANGES_OFFSETS, ()] == 3
    assert found[names.HIDDEN_RANGES_APPLIED, ()] == 4

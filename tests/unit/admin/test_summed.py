"""What several workers tell, made one."""

from prometheus_client.parser import text_string_to_metric_families

from idemproxy.proxy import limits
from idemproxy.proxy.admin import summed, views
from idemproxy.proxy.admin.rates import Rates
from idemproxy.proxy.admin.summed import WorkerAnswer
from idemproxy.proxy.telemetry import metric_names as names
from testkit.virtual.world import TOPIC

from .test_metrics import send, watched_world

FIRST = """# HELP idemproxy_batches_answered_total Record batches.
# TYPE idemproxy_batches_answered_total counter
idemproxy_batches_answered_total{verdict="appended"} 3.0
# HELP idemproxy_lease_remaining_seconds Until.
# TYPE idemproxy_lease_remaining_seconds gauge
idemproxy_lease_remaining_seconds 4.0
# HELP idemproxy_unknown_outcome_age_seconds Age.
# TYPE idemproxy_unknown_outcome_age_seconds gauge
idemproxy_unknown_outcome_age_seconds 0.0
# HELP idemproxy_batch_duration_seconds From.
# TYPE idemproxy_batch_duration_seconds histogram
idemproxy_batch_duration_seconds_bucket{le="0.1"} 2.0
idemproxy_batch_duration_seconds_bucket{le="+Inf"} 3.0
idemproxy_batch_duration_seconds_count 3.0
idemproxy_batch_duration_seconds_sum 1.5
# HELP process_start_time_seconds Start.
# TYPE process_start_time_seconds gauge
process_start_time_seconds 100.0
"""
SECOND = (
    FIRST.replace("3.0", "5.0")
    .replace(" 4.0", " 1.5")
    .replace("age_seconds 0.0", "age_seconds 7.0")
    .replace(" 100.0", " 90.0")
)


def values_of(text: bytes) -> dict[str, float]:
    return {
        sample.name + "".join(sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def test_metrics_are_added_or_have_the_least_or_the_most_by_their_meaning() -> None:
    found = values_of(summed.metrics([FIRST, SECOND]))
    assert found == {
        "idemproxy_batches_answered_totalappended": 8.0,
        "idemproxy_lease_remaining_seconds": 1.5,
        "idemproxy_unknown_outcome_age_seconds": 7.0,
        "idemproxy_batch_duration_seconds_bucket0.1": 4.0,
        "idemproxy_batch_duration_seconds_bucket+Inf": 8.0,
        "idemproxy_batch_duration_seconds_count": 8.0,
        "idemproxy_batch_duration_seconds_sum": 3.0,
        "process_start_time_seconds": 90.0,
    }
    assert values_of(summed.metrics([FIRST])) == values_of(FIRST.encode())


def test_a_sentence_of_all_workers_is_said_once_and_any_other_names_the_worker() -> None:
    assert summed.reasons([WorkerAnswer(1, ["Redis is away"]), WorkerAnswer(2, ["Redis is away", "no broker"])]) == [
        "Redis is away",
        "worker 2: no broker",
    ]
    assert summed.reasons([WorkerAnswer(1, []), WorkerAnswer(2, ["a"]), WorkerAnswer(3, ["a"])]) == ["worker 2, 3: a"]
    assert summed.reasons([WorkerAnswer(1, ["a"])]) == ["worker 1: a"]


def test_every_view_of_real_workers_can_be_made_one() -> None:
    told = []
    for number in (1, 2):
        world, watched = watched_world()
        send(world, 2 + number)
        for _ in range(number):
            watched.telemetry.metrics.histograms[names.BATCH].observe(0.002)
        rates = Rates()
        for at in (0.0, 1.0):
            rates.take_sample(at, views.totals(watched))
        told.append((number, views.page(watched, rates)))
    found = summed.page([WorkerAnswer(*one) for one in told])
    (_, first), (_, second) = told
    assert found.keys() == first.keys()
    status = found["status"]
    batches = [one["status"]["totals"]["batches"] for one in (first, second)]
    assert status["totals"]["batches"] == sum(batches) == 7
    assert status.keys() == first["status"].keys()
    assert (status["times"]["batch"]["count"], status["times"]["batch"]["p99_seconds"]) == (3, 0.0025)
    assert [one["worker"] for one in found["producers"]["producers"]] == [1, 2]
    assert {one["topic"] for one in found["producers"]["producers"]} == {TOPIC}
    assert len(found["brokers"]) == len(first["brokers"])
    assert found["history"]["batches"] == [0.0]
    assert found["history"].keys() == first["history"].keys()


def test_history_is_added_step_by_step_from_the_newest_back() -> None:
    first = {"batches": [1.0, 2.0, 3.0], "batch_p99_seconds": [0.1, None, 0.5], "seconds_ago": [60.0, 30.0, 0.0]}
    second = {"batches": [10.0], "batch_p99_seconds": [None], "seconds_ago": [0.0]}
    assert summed.history([WorkerAnswer(1, first), WorkerAnswer(2, second)]) == {
        "batches": [1.0, 2.0, 13.0],
        "batch_p99_seconds": [0.1, None, 0.5],
        "seconds_ago": [60.0, 30.0, 0.0],
    }


def test_a_broker_is_ready_if_all_workers_agree_and_duplicates_are_added() -> None:
    one = {
        "id": 3,
        "address": "b:1",
        "version": "0.10.2",
        "ready": True,
        "produce_connections_busy": 1,
        "produce_connections_idle": 2,
    }
    other = {**one, "ready": False, "produce_connections_busy": 4}
    assert summed.brokers([WorkerAnswer(1, [one]), WorkerAnswer(2, [other])]) == [
        {**one, "ready": False, "produce_connections_busy": 5, "produce_connections_idle": 4}
    ]
    row = {"client_id": "c", "topic": "t", "count": 2, "answered": 1, "joined": 1}
    least = {"client_id": "d", "topic": "t", "count": 3, "answered": 3, "joined": 0}
    added = {**row, "count": 4, "answered": 2, "joined": 2}
    assert summed.duplicates([WorkerAnswer(1, [least, row]), WorkerAnswer(2, [row])]) == [added, least]


def test_a_producer_that_has_moved_between_workers_has_one_client_id() -> None:
    first, second = {"client_ids": {"7": "orders"}}, {"client_ids": {"7": "orders", "8": "audit"}}
    assert summed.client_ids([WorkerAnswer(1, first), WorkerAnswer(2, second)]) == {
        "client_ids": {"7": "orders", "8": "audit"}
    }


def test_lines_and_unknown_outcomes_of_all_are_in_their_order() -> None:
    lines = [
        WorkerAnswer(1, [{"at": 2.0, "level": "info", "text": "b"}]),
        WorkerAnswer(2, [{"at": 3.0, "level": "info", "text": "c"}]),
    ]
    assert [line["text"] for line in summed.lines(lines)] == ["worker 2: c", "worker 1: b"]
    unknown_outcomes = [WorkerAnswer(1, [{"age_seconds": 1.0}]), WorkerAnswer(2, [{"age_seconds": 5.0}])]
    assert [unknown_outcome["worker"] for unknown_outcome in summed.unknown_outcomes(unknown_outcomes)] == [2, 1]


def test_what_a_client_did_at_several_workers_is_added_and_the_newest_activity_counts() -> None:
    row = {"client_id": "c", "topic": "t", "batches": 3, "records": 9, "bytes": 90, "duplicates_prevented": 1}
    one = {**row, "verdicts": {"appended": 2, "refused": 1}, "idle_seconds": 7.0, "failing": True}
    other = {**row, "verdicts": {"appended": 3}, "idle_seconds": 2.0, "failing": False}
    (found,) = summed.clients([WorkerAnswer(1, [one]), WorkerAnswer(2, [other])])
    assert found["verdicts"] == {"appended": 5, "refused": 1}
    assert (found["batches"], found["records"], found["bytes"], found["duplicates_prevented"]) == (6, 18, 180, 2)
    assert (found["idle_seconds"], found["failing"]) == (2.0, True)
    newer = {**other, "client_id": "d", "idle_seconds": 0.0}
    names = [one["client_id"] for one in summed.clients([WorkerAnswer(1, [one]), WorkerAnswer(2, [newer])])]
    assert names == ["c", "d"], "one that fails comes first"


def test_an_old_client_at_several_workers_is_one() -> None:
    row = {"client_id": "c", "address": "10.0.0.1", "software": "", "principal": ""}
    fetch, commit = ({"api": api, "version": 1, "requests": 2} for api in ("Fetch", "OffsetCommit"))
    one = {**row, "requests": [fetch], "refused": 1, "first_seen": 5.0, "last_seen": 9.0, "idle_seconds": 3.0}
    other = {**one, "requests": [commit, fetch], "refused": 0, "first_seen": 4.0, "last_seen": 8.0, "idle_seconds": 4.0}
    newer = {**one, "address": "10.0.0.2", "last_seen": 10.0}
    answers = [
        WorkerAnswer(1, {"uptime_seconds": 1.0, "forgotten": 2, "clients": [one]}),
        WorkerAnswer(2, {"uptime_seconds": 3.0, "forgotten": 0, "clients": [newer, other]}),
    ]
    both = {**one, "requests": [{**fetch, "requests": 4}, commit], "refused": 1, "first_seen": 4.0}
    assert summed.old_clients(answers) == {"uptime_seconds": 3.0, "forgotten": 2, "clients": [newer, both]}


def test_old_clients_of_all_workers_are_bounded() -> None:
    row = {"address": "a", "software": "", "principal": "", "requests": [], "refused": 0, "first_seen": 0.0}
    clients = [
        {**row, "client_id": str(number), "last_seen": float(number), "idle_seconds": 0.0}
        for number in range(limits.OLD_CLIENTS_MAX + 5)
    ]
    found = summed.old_clients([WorkerAnswer(1, {"uptime_seconds": 1.0, "forgotten": 1, "clients": clients})])
    assert (len(found["clients"]), found["forgotten"]) == (limits.OLD_CLIENTS_MAX, 6)
    assert found["clients"][-1]["client_id"] == "5"


def test_findings_of_all_workers_are_shown_once_and_their_requests_are_added() -> None:
    same, own = {"sign": "note", "what": "a", "text": "x"}, {"sign": "problem", "what": "b", "text": "y"}
    assert summed.findings([WorkerAnswer(1, [same]), WorkerAnswer(2, [same, own])]) == [same, own]
    first, second = (
        [{"api": "fetch", "requests": 3}],
        [{"api": "produce", "requests": 9}, {"api": "fetch", "requests": 1}],
    )
    assert summed.passing([WorkerAnswer(1, first), WorkerAnswer(2, second)]) == [
        {"api": "produce", "requests": 9},
        {"api": "fetch", "requests": 4},
    ]


def test_producer_names_at_several_workers_show_the_newest_instance_and_count_all() -> None:
    row = {"name": "orders-1", "producer_id": "5", "epoch": 3, "instances": 2, "fenced": 1, "age_seconds": 60.0}
    old, new, elsewhere = ({"topic": "t", "partition": 0, "epoch": 3, "last_sequence": 9},
                           {"topic": "t", "partition": 0, "epoch": 4, "last_sequence": 2},
                           {"topic": "t", "partition": 1, "epoch": 3, "last_sequence": 0})  # fmt: skip
    row = {**row, "stopped": [old, elsewhere]}
    newer = {**row, "epoch": 4, "instances": 1, "age_seconds": 2.0, "stopped": [new]}
    other = {**row, "name": "orders-2", "age_seconds": 9.0}
    found = summed.named([WorkerAnswer(1, [row, other]), WorkerAnswer(2, [newer])])
    assert found == [{**newer, "instances": 3, "fenced": 2, "stopped": [new, elsewhere]}, other]


def test_workers_share_their_hidden_ranges_and_who_has_read_the_list_last_knows_more() -> None:
    place = {"topic": "t", "partition": 0, "first_offset": 3, "last_offset": 5, "reason": "", "refusal": ""}
    asked = {**place, "state": "asked", "age_seconds": 9.0}
    active = {**place, "state": "active", "age_seconds": 1.0}
    other = {**place, "partition": 1, "state": "active", "age_seconds": 4.0}
    assert summed.hidden_ranges([WorkerAnswer(1, [asked]), WorkerAnswer(2, [active, other])]) == [active, other]

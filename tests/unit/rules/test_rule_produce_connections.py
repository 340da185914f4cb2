"""Rules R3, R4, R5, R6, R14, R19 at the produce connections: real produce connections and a broker's end, on a virtual
network."""

import pytest
from simulation.oracle import Oracle

from idemproxy.proxy.flow.outcome import Appended, InDoubt, NotSent
from idemproxy.state.lease import LEASE_SECONDS, Lease
from testkit.virtual import kafka_bytes as kafka
from testkit.virtual.broker_faults import BrokerFault, BrokerFaultRates
from testkit.virtual.produce_connections import WINDOW_BYTES, ProduceConnections
from testkit.virtual.world import TOPIC, World, WorldSettings


# ---------------------------------------------------------------------- R3
def test_a_produce_connection_has_one_unanswered_request() -> None:
    produce_connections = ProduceConnections()
    for partition in range(3):
        produce_connections.append(partition)
        produce_connections.run()
    assert [len(end.frames) for end in produce_connections.ends] == [1, 1, 1]


def test_a_request_names_a_partition_once() -> None:
    produce_connections = ProduceConnections()
    produce_connections.append(0)
    produce_connections.append(0)  # another producer's
    produce_connections.run()
    assert [end.partitions for end in produce_connections.ends] == [[0], [0]], (
        "a broker takes only the last one, in silence"
    )


def test_a_producer_has_one_unanswered_append_on_a_partition() -> None:
    world = World(1, WorldSettings(brokers=1))
    oracle = Oracle(world.cluster, world.clients)
    world.start()
    (client,) = world.clients
    world.cluster.rates = BrokerFaultRates(slow=(2.5, 2.5))
    world.cluster.choose_fault = lambda seen: BrokerFault.SLOW if seen.number == 1 else BrokerFault.NONE
    batch = client.send(TOPIC, 0)
    assert world.network.run(1, lambda: world.cluster.produce_count == 1)
    client.disconnect()
    assert world.network.run(30, lambda: client.is_done)
    world.network.run(5)
    assert oracle.finish() == []
    assert batch.acknowledged is not None


# ---------------------------------------------------------------------- R4
@pytest.mark.promise("no-lease-no-append")
def test_no_byte_of_a_produce_leaves_after_the_deadline() -> None:
    produce_connections = ProduceConnections()
    outcomes = produce_connections.append(0)
    produce_connections.may_send = False  # the produce connection is still being opened
    produce_connections.run(1)
    assert [end.data for end in produce_connections.ends] == [b""]
    assert [type(outcome) for outcome in outcomes] == [NotSent]


def test_the_rest_of_a_frame_does_not_leave_after_the_deadline() -> None:
    produce_connections = ProduceConnections()
    produce_connections.append(0)
    produce_connections.run()
    produce_connections.ends[0].answer_produce()
    produce_connections.run()
    produce_connections.broker.pause(3)
    outcomes = produce_connections.append(1, size=3 * WINDOW_BYTES)
    produce_connections.run(1)
    produce_connections.may_send = False
    produce_connections.run(5)
    (end,) = produce_connections.ends
    assert len(end.data) <= WINDOW_BYTES
    assert end.is_lost
    assert [type(outcome) for outcome in outcomes] == [InDoubt]


def test_the_deadline_is_a_second_before_the_lease_ends() -> None:
    lease = Lease(bytes(8))
    lease.renewed(0.0)
    assert lease.may_send(LEASE_SECONDS - 1.01)
    assert not lease.may_send(LEASE_SECONDS - 0.99)


def test_a_lease_ends_for_its_owner_before_it_ends_in_the_store() -> None:
    world = World(1, WorldSettings())
    world.start()
    world.network.run(5)
    (proxy,) = world.proxies
    (key,) = [key for key in world.redis.data if b":member:" in key]
    expires_at = world.redis.data[key].expires_at
    assert expires_at is not None
    assert proxy.store.lease.ends_at < expires_at


def test_a_partly_sent_request_does_not_continue_under_the_next_proxy_instance() -> None:
    world = World(1, WorldSettings(brokers=1))
    world.start()
    (client,), (proxy,), (broker,) = world.clients, world.proxies, world.cluster.brokers.values()
    client.send(TOPIC, 0)
    assert world.network.run(10, lambda: client.is_done)
    broker.host.pause(3)
    client.send(TOPIC, 0)
    world.network.run(0.5)
    pools = [known.pool for known in proxy.engine.topology.brokers]
    assert sum(pool.busy_produce_connections for pool in pools) == 1
    proxy.host.post(proxy.engine.lease_lost)
    world.network.run(0.1)
    assert sum(pool.busy_produce_connections for pool in pools) == 0


# ---------------------------------------------------------------------- R5
def test_an_answer_with_a_wrong_correlation_id_says_nothing() -> None:
    produce_connections = ProduceConnections()
    outcomes = produce_connections.append(0)
    produce_connections.run()
    produce_connections.ends[0].answer_produce(correlation_shift=1)
    produce_connections.run()
    assert [type(outcome) for outcome in outcomes] == [InDoubt]
    assert produce_connections.ends[0].is_lost


def test_a_lost_connection_is_unknown_outcome_and_no_refusal() -> None:
    produce_connections = ProduceConnections()
    outcomes = produce_connections.append(0)
    produce_connections.run()
    assert produce_connections.ends[0].wire is not None
    produce_connections.ends[0].wire.reset()
    produce_connections.run()
    assert [type(outcome) for outcome in outcomes] == [InDoubt]


def test_an_answer_that_a_throttling_broker_holds_back_is_waited_for() -> None:
    produce_connections = ProduceConnections()
    produce_connections.append(0)
    produce_connections.run()
    produce_connections.ends[0].answer_produce(throttle_ms=1000)
    produce_connections.run()
    outcomes = produce_connections.append(0)
    produce_connections.run(60)
    assert outcomes == [], "quotas delay answers by up to minutes: it is slow, not lost"
    produce_connections.ends[0].answer_produce()
    produce_connections.run()
    assert [type(outcome) for outcome in outcomes] == [Appended]


@pytest.mark.parametrize(("asked_ms", "given_ms"), [(30_000, 5000), (4000, 2000), (700, 500)])
def test_the_broker_gets_half_the_clients_timeout_but_five_seconds_at_most(asked_ms: int, given_ms: int) -> None:
    produce_connections = ProduceConnections()
    produce_connections.append(0, timeout_ms=asked_ms)
    produce_connections.run()
    assert kafka.parse_produce(kafka.parse_request(produce_connections.ends[0].frames[0]).body).timeout_ms == given_ms


# ---------------------------------------------------------------------- R6
def test_an_unanswered_connection_is_reset_so_that_its_queued_bytes_vanish() -> None:
    produce_connections = ProduceConnections()
    outcomes = produce_connections.append(0)
    produce_connections.run(30)
    assert [type(outcome) for outcome in outcomes] == [InDoubt]
    assert [end.is_lost for end in produce_connections.ends] == [True]


# ---------------------------------------------------------------------- R14
def test_a_write_over_which_the_deadline_passed_is_reported_as_late() -> None:
    produce_connections = ProduceConnections()
    outcomes = produce_connections.append(0)
    produce_connections.run()
    produce_connections.ends[0].answer_produce()
    produce_connections.run()
    produce_connections.network.watchers.append(lambda _way, _data: setattr(produce_connections, "may_send", False))
    outcomes = produce_connections.append(0)
    produce_connections.run()
    assert [isinstance(outcome, InDoubt) and outcome.is_late for outcome in outcomes] == [True]
    assert produce_connections.ends[0].is_lost


# ---------------------------------------------------------------------- R19
def test_a_slow_partition_gets_requests_of_its_own() -> None:
    produce_connections = ProduceConnections()
    outcomes = produce_connections.append(0)
    produce_connections.run(2)
    produce_connections.ends[0].answer_produce()
    produce_connections.run()
    assert [type(outcome) for outcome in outcomes] == [Appended]
    for partition in (1, 0, 2):
        produce_connections.append(partition)
    produce_connections.run()
    assert sorted(end.partitions for end in produce_connections.ends if end.frames) == [[0], [1, 2]]

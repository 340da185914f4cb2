"""A client that connects again waits for what its earlier connections have out."""

from __future__ import annotations

from idemproxy.proxy.bridge.upward.departed_clients import ClientIdentity, DepartedClients

CLIENT = ClientIdentity("10.0.0.1", "old")
OTHERS = [ClientIdentity("10.0.0.2", "old"), ClientIdentity("10.0.0.1", "new"), ClientIdentity("10.0.0.1", "old", "me")]


def test_a_client_has_something_out_until_each_of_its_connections_has_an_end() -> None:
    departed = DepartedClients()
    departed.depart(CLIENT, 1)
    departed.depart(CLIENT, 2)
    assert departed.has_open_before(CLIENT, 3, departed.count)
    assert not any(departed.has_open_before(other, 3, departed.count) for other in OTHERS)

    departed.end(CLIENT, 1)
    assert departed.has_open_before(CLIENT, 3, departed.count)
    departed.end(CLIENT, 2)
    assert not departed.has_open_before(CLIENT, 3, departed.count)


def test_connections_that_have_ended_wait_for_those_that_ended_before() -> None:
    departed, woken = DepartedClients(), []
    departed.depart(CLIENT, 1)
    departed.depart(CLIENT, 2)
    departed.depart(CLIENT, 1)
    departed.wait(CLIENT, 2, lambda: woken.append(2))
    assert [departed.has_open_before(CLIENT, one, departed.count) for one in (1, 2)] == [False, True]

    departed.end(CLIENT, 1)
    assert not departed.has_open_before(CLIENT, 2, departed.count)
    assert woken == [2]


def test_connections_that_end_after_a_certain_one_do_not_count() -> None:
    departed = DepartedClients()
    departed.depart(CLIENT, 1)
    count = departed.count
    departed.depart(CLIENT, 2)
    departed.depart(CLIENT, 1)
    assert departed.has_open_before(CLIENT, 3, count)

    departed.end(CLIENT, 1)
    assert not departed.has_open_before(CLIENT, 3, count)
    assert departed.has_open_before(CLIENT, 3, departed.count)


def test_all_that_wait_are_woken_once_something_has_an_outcome() -> None:
    departed, woken = DepartedClients(), []
    departed.depart(CLIENT, 1)
    departed.wait(CLIENT, 2, lambda: woken.append(2))
    departed.wait(CLIENT, 3, lambda: woken.append(3))
    departed.wait(CLIENT, 4, lambda: woken.append(4))
    departed.wait_no_more(CLIENT, 3)

    departed.end(CLIENT, 1)
    departed.end(CLIENT, 1)

    assert woken == [2, 4]


def test_nothing_is_kept_of_those_that_wait_no_more() -> None:
    departed = DepartedClients()
    departed.wait_no_more(CLIENT, 1)
    departed.wait(CLIENT, 1, lambda: None)
    departed.wait_no_more(CLIENT, 1)
    departed.end(CLIENT, 9)

    assert not departed.has_open_before(CLIENT, 3, departed.count)

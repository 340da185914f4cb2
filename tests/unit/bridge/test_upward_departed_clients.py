"""A client that connects again waits for what its earlier connections have out."""

from __future__ import annotations

from idemproxy.proxy.bridge.upward.departed_clients import ClientIdentity, DepartedClients

CLIENT = ClientIdentity("10.0.0.1", "old")
OTHERS = [ClientIdentity("10.0.0.2", "old"), ClientIdentity("10.0.0.1", "new"), ClientIdentity("10.0.0.1", "old", "me")]


def test_a_client_has_something_out_until_each_of_its_connections_has_an_end() -> None:
    departed = DepartedClients()
    departed.depart(CLIENT, 1)
    departed.depart(CLIENT, 2)
    assert departed.has_open(CLIENT)
    assert not any(departed.has_open(other) for other in OTHERS)

    departed.end(CLIENT, 1)
    assert departed.has_open(CLIENT)
    departed.end(CLIENT, 2)
    assert not departed.has_open(CLIENT)


def test_all_that_wait_are_woken_once_nothing_is_out() -> None:
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

    assert not departed.has_open(CLIENT)

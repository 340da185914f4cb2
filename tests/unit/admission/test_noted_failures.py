"""Notes of failed batches have a bound for each client and for all; the connection with the most notes is closed."""

from __future__ import annotations

import pytest

from idemproxy.proxy import limits
from idemproxy.proxy.admission.noted_failures import NotedFailures


class Connection:
    def __init__(self, address: str) -> None:
        self.address = address
        self.reasons: list[str] = []

    def close_soon(self, reason: str) -> None:
        self.reasons.append(reason)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "FAILURES_NOTED_OF_ONE_MAX", 10)
    monkeypatch.setattr(limits, "FAILURES_NOTED_MAX", 25)


def test_above_the_bound_of_an_address_its_connection_with_most_notes_is_closed() -> None:
    noted = NotedFailures()
    few, many, other = Connection("a"), Connection("a"), Connection("b")
    for connection, count in ((other, 9), (many, 6), (few, 4)):
        noted.keep(connection, count)
    assert noted.count == 19
    noted.keep(few, 5)
    assert [len(one.reasons) for one in (few, many, other)] == [0, 1, 0]
    assert "11 of them for a, and 6 on this connection" in many.reasons[0]
    noted.keep(many, 7)
    assert noted.count == 14, "it is about to close"
    noted.end(many)
    noted.keep(few, 0)
    noted.end(other)
    assert (noted.count, noted._of, dict(noted._of_client), noted._leaving) == (0, {}, {}, set())


def test_above_the_bound_of_all_the_address_with_most_notes_loses_a_connection() -> None:
    noted = NotedFailures()
    connections = [Connection("a"), Connection("a"), Connection("b"), Connection("c")]
    for connection, count in zip(connections, (5, 4, 8, 8), strict=True):
        noted.keep(connection, count)
    late = Connection("d")
    noted.keep(late, 1)
    assert [len(one.reasons) for one in (*connections, late)] == [1, 0, 0, 0, 0]
    assert noted.count == 21


def test_behind_a_load_balancer_each_connection_counts_alone() -> None:
    noted = NotedFailures(lambda: False)
    connections = [Connection("a") for _ in range(4)]
    for connection in connections[:3]:
        noted.keep(connection, 8)
    noted.keep(connections[3], 1)
    assert not any(one.reasons for one in connections)
    noted.keep(connections[3], 2)
    assert [len(one.reasons) for one in connections] == [1, 0, 0, 0]
    noted.keep(connections[1], 11)
    assert [len(one.reasons) for one in connections] == [1, 1, 0, 0]


def test_what_counts_an_address_may_change_while_connections_are_open() -> None:
    counts = True
    noted = NotedFailures(lambda: counts)
    connections = [Connection("a") for _ in range(3)]
    for connection in connections[:2]:
        noted.keep(connection, 4)
    counts = False
    noted.keep(connections[2], 4)
    noted.keep(connections[0], 5)
    for connection in connections:
        noted.end(connection)
    assert (noted.count, dict(noted._of_client)) == (0, {})
    assert not any(one.reasons for one in connections)

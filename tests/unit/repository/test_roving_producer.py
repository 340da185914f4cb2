"""The judge of clients that move between proxies sees what it is there to see."""

import pytest

from testkit.real.clients.two_proxies_client import RovingProducer


@pytest.mark.parametrize(
    "stored",
    [
        [(0, b"x:0"), (1, b"x:1"), (2, b"x:0")],
        [(0, b"x:0")],
        [(0, b"x:0"), (2, b"x:1")],
        [(0, b"x:1"), (1, b"x:0")],
    ],
    ids=["twice", "lost", "elsewhere", "out_of_order"],
)
def test_a_planted_violation_is_seen(stored: list[tuple[int, bytes]]) -> None:
    producer = RovingProducer(("planted", 0))
    producer.name, producer.values, producer.told = "x", {0: [b"x:0"], 1: [b"x:1"]}, {0: 0, 1: 1}
    assert producer.complaints([(0, b"x:0"), (1, b"x:1")]) == []
    assert producer.complaints(stored) != []

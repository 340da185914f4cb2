"""Pauses between tries."""

from idemproxy.producing.backoff import backoff_seconds
from idemproxy.producing.limits import BACKOFF_SECONDS_MAX, BACKOFF_SECONDS_MIN


def test_pauses_double_up_to_the_longest_one() -> None:
    pauses = [backoff_seconds(failures) for failures in range(2000)]
    assert pauses[:3] == [BACKOFF_SECONDS_MIN, 2 * BACKOFF_SECONDS_MIN, 4 * BACKOFF_SECONDS_MIN]
    assert pauses == sorted(pauses)
    assert pauses[-1] == BACKOFF_SECONDS_MAX

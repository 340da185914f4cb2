"""Tokens that come in at an even pace."""

import pytest

from idemproxy.proxy.admission.token_bucket import TokenBucket


def test_it_is_full_at_first_and_never_holds_more_than_its_burst() -> None:
    bucket = TokenBucket(rate=10, burst=3, now=100.0)
    assert [bucket.take_tokens(100.0) for _ in range(4)] == [True, True, True, False]
    assert [bucket.take_tokens(1000.0) for _ in range(4)] == [True, True, True, False]


@pytest.mark.parametrize("step", [0.05, 0.1, 0.35, 7.0])
def test_over_a_long_time_as_many_are_taken_as_come_in(step: float) -> None:
    bucket, now, taken = TokenBucket(rate=10, burst=100, now=0.0), 0.0, 0
    while now < 700:
        now += step
        while bucket.take_tokens(now):
            taken += 1
    assert 100 + 7000 - 100 <= taken <= 100 + 7000 + 1


def test_it_says_how_long_to_wait_and_that_is_long_enough() -> None:
    bucket = TokenBucket(rate=4, burst=2, now=0.0)
    assert bucket.wait_seconds(0.0) == 0
    assert bucket.take_tokens(0.0, 2)
    assert bucket.wait_seconds(0.0) == 0.25
    assert bucket.wait_seconds(0.1, 2) == pytest.approx(0.4)
    assert not bucket.take_tokens(0.2)
    assert bucket.take_tokens(0.25)


def test_what_was_not_needed_comes_back_and_no_more() -> None:
    bucket = TokenBucket(rate=1, burst=2, now=0.0)
    assert bucket.take_tokens(0.0)
    assert bucket.take_tokens(0.0)
    bucket.give_back(0.9)
    assert not bucket.take_tokens(0.0)
    bucket.give_back(50)
    assert [bucket.take_tokens(0.0) for _ in range(3)] == [True, True, False]


def test_a_clock_that_stands_still_or_goes_back_brings_nothing() -> None:
    bucket = TokenBucket(rate=1000, burst=1, now=50.0)
    assert bucket.take_tokens(50.0)
    assert not bucket.take_tokens(50.0)
    assert not bucket.take_tokens(49.0)
    assert not bucket.take_tokens(50.0)

"""The lease: until when a proxy instance may send (rules R1, R4)."""

import pytest

from idemproxy.state.lease import LEASE_SECONDS, MARGIN_SECONDS, Lease


def test_nothing_may_be_sent_before_the_first_renewal() -> None:
    lease = Lease(b"incarnat")
    assert not lease.is_held
    assert not lease.may_send(0.0)
    assert not lease.notice_end(1e9)


def test_the_deadline_counts_from_before_the_renewal_was_sent() -> None:
    lease = Lease(b"incarnat")
    lease.renewed(sent_at=100.0)
    assert lease.ends_at == 100.0 + LEASE_SECONDS


@pytest.mark.promise("no-lease-no-append")
def test_sending_stops_one_second_before_the_end() -> None:
    lease = Lease(b"incarnat", ttl_seconds=6.0)
    lease.renewed(100.0)
    assert lease.may_send(106.0 - MARGIN_SECONDS - 0.001)
    assert not lease.may_send(106.0 - MARGIN_SECONDS)


def test_a_late_reply_to_an_older_renewal_never_shortens_the_lease() -> None:
    lease = Lease(b"incarnat")
    lease.renewed(102.0)
    lease.renewed(100.0)
    assert lease.ends_at == 102.0 + LEASE_SECONDS


def test_the_end_is_noticed_once_and_again_after_the_next_renewal() -> None:
    lease = Lease(b"incarnat", ttl_seconds=6.0)
    lease.renewed(100.0)
    assert not lease.notice_end(105.9)
    assert lease.notice_end(106.0)
    assert not lease.notice_end(107.0)
    lease.renewed(110.0)
    assert lease.is_held
    assert lease.may_send(111.0)
    assert lease.notice_end(200.0)


def test_giving_up_forbids_sending_at_once_and_tells_whether_there_was_something_to_lose() -> None:
    lease = Lease(b"incarnat")
    assert not lease.give_up()
    lease.renewed(100.0)
    assert lease.give_up()
    assert not lease.may_send(100.0)
    assert not lease.notice_end(200.0)

"""Mutants of producers whose state has expired: rules R10 and R11."""

from __future__ import annotations

from mutants.mutant import mutant

_EXPIRY = "unit/producer/test_expiry.py::"
_NO_BEGINNING_YET = (
    "        if any_start and (not batch.is_retry(stream.key) or batch.is_behind(stream.key, stream.queue)):\n"
)

EXPIRED = (
    mutant(
        "version_from_before_the_expiry",
        "R10: a value that may have expired is read again: another one may have the same version",
        _EXPIRY + "test_a_version_from_before_the_expiry_fits_no_entry_that_began_after_it_elsewhere",
        (
            "proxy.producer.entry_cache",
            "        if not self.is_unwritten and self._may_have_expired:\n",
            "        if False:\n",
        ),
        deaths=("I1",),
    ),
    mutant(
        "expired_begins_at_once",
        "R11: an expired producer begins in the middle only with a batch that comes for the second time",
        _EXPIRY + "test_it_does_not_begin_with_what_overtakes_its_first_batch_over_another_connection",
        (
            "proxy.producer.sequencer",
            _NO_BEGINNING_YET,
            "        if any_start and batch.is_behind(stream.key, stream.queue):\n",
        ),
        deaths=("45",),
    ),
    mutant(
        "expired_begins_behind_a_failed_one",
        "R11: and not behind one that has to be sent again",
        _EXPIRY + "test_nor_does_it_begin_behind_a_batch_that_fails_again_and_again",
        ("proxy.producer.sequencer", _NO_BEGINNING_YET, "        if any_start and not batch.is_retry(stream.key):\n"),
    ),
    mutant(
        "stored_already_is_a_failure",
        "R11: but behind one that was told as stored already, as its client goes on",
        _EXPIRY + "test_behind_one_that_was_told_as_stored_already_an_expired_producer_goes_on",
        (
            "proxy.producer.answers",
            "_STORED = (_NONE, int(ErrorCode.DUPLICATE_SEQUENCE_NUMBER))\n",
            "_STORED = (_NONE,)\n",
        ),
        deaths=("45",),
    ),
    mutant(
        "expired_begins_behind_a_lost_one",
        "R11: nor behind one that has failed for good: its client begins a new epoch",
        _EXPIRY + "test_nor_behind_one_that_has_failed_for_good_as_its_client_begins_a_new_epoch",
        (
            "proxy.producer.batch",
            "            waiter.connection.retry_notes.has_ended(key, epoch) for",
            "            False for",
        ),
        deaths=("I1",),
    ),
    mutant(
        "blank_entry_says_what_is_due",
        "R11: an entry of which nothing is stored says nothing about what is due",
        _EXPIRY + "test_a_beginning_in_the_middle_that_came_to_nothing_says_nothing_about_what_is_due",
        (
            "proxy.producer.sequencer",
            "decide(None if is_blank and held.is_blank else held.entry",
            "decide(None if any_start else held.entry",
        ),
        deaths=("45",),
    ),
    mutant(
        "nothing_comes_again",
        "R11: that a batch comes again is known of the connection on which it failed",
        _EXPIRY + "test_only_an_id_that_was_issued_long_ago_may_have_expired",
        (
            "proxy.producer.retry_notes",
            "        return (identity.producer_epoch, identity.base_sequence) in self._failed.get(key, ())\n",
            "        return False\n",
        ),
        deaths=("liveness",),
    ),
)

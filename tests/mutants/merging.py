"""Mutants of what several producers in one wrapper have to do with each other: rules R5, R8, R17, R19."""

from __future__ import annotations

from mutants.mutant import mutant

_LANES = "unit/rules/test_rule_merged_lanes.py::"
_WORLDS = "unit/rules/test_rule_merging.py::"

MERGING = (
    mutant(
        "refused_part_stays_in_the_wrapper",
        "R17: a part that may not be sent leaves the wrapper",
        _LANES + "test_a_producer_that_may_not_be_sent_any_more_leaves_the_others_alone",
        (
            "proxy.broker.append_queue",
            "            refusal = lease_refusal or job.append.may_send()\n",
            "            refusal = lease_refusal\n",
        ),
        deaths=("I1",),
    ),
    mutant(
        "content_error_fails_the_other_producer",
        "R19: a content error of a merged append counts for a producer only after its batch was tried alone",
        _WORLDS + "test_a_content_error_costs_nobody_but_the_one_who_is_at_fault",
        (
            "proxy.producer.forward",
            "        if code in CONTENT_ERRORS and outcome.merged_bytes:\n",
            "        if False:\n",
        ),
    ),
    mutant(
        "merged_again_after_a_content_error",
        "R19: what was refused in company is not merged again",
        _WORLDS + "test_a_content_error_costs_nobody_but_the_one_who_is_at_fault",
        ("proxy.producer.grouping", "        one.wrapper.goes_alone()\n", "        pass\n"),
    ),
    mutant(
        "offset_of_the_whole_wrapper",
        "R5: each producer's offset is its own, after the records before it",
        _LANES + "test_appends_that_wait_together_leave_in_one_wrapper_and_each_is_told_its_own_offset",
        (
            "proxy.broker.merge",
            "            outcome.base_offset + records_before,\n",
            "            outcome.base_offset,\n",
        ),
        deaths=("I3",),
    ),
    mutant(
        "anchor_of_its_own_part",
        "R8: the anchor is that of the wrapper that lies in the log",
        _WORLDS + "test_the_next_doubt_is_resolved_from_the_merged_wrapper_on",
        (
            "proxy.producer.forward",
            "        anchor = NO_ANCHOR if is_unmarked else outcome.anchor or piece.anchor\n",
            "        anchor = NO_ANCHOR if is_unmarked else piece.anchor\n",
        ),
    ),
    mutant(
        "own_name_is_enough",
        "R5: every name in the wrapper is compared",
        _WORLDS + "test_an_error_with_an_offset_is_not_believed_when_another_wrapper_lies_there",
        (
            "proxy.producer.forward",
            "carries(message, wanted, self._stream.producer_id) and anchor_of(message) == anchor\n",
            "carries(message, wanted, self._stream.producer_id)\n",
        ),
    ),
)

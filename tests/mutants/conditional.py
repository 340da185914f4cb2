"""Mutants of conditional publish: rule R23."""

from __future__ import annotations

from mutants.mutant import mutant

_SCENES = "unit/rules/test_rule_conditional.py::"
_STATE = "unit/state/test_conditional.py::"
_DOOR = "unit/session/test_conditional_produce.py::"

CONDITIONAL = (
    mutant(
        "shard_begins_at_zero",
        "R23: a shard begins where its log ends",
        _SCENES + "test_a_shard_begins_where_its_log_ends",
        ("state.conditional", "        next_sequence=sequence_of(next_offset),\n", "        next_sequence=0,\n"),
    ),
    mutant(
        "lost_shard_trusted",
        "R23: what an entry that is lost would say is read from the end of the log",
        _SCENES + "test_an_entry_that_is_lost_begins_at_the_end_of_the_log_once_more",
        (
            "proxy.producer.entry_cache",
            "            return True  # R23: what the entry says is read from the end of the log\n",
            "            return False\n",
        ),
    ),
    mutant(
        "same_numbers_same_batch",
        "R23: a batch of the same numbers is compared by its content",
        _SCENES + "test_what_lies_at_the_offset_is_compared_by_its_content",
        (
            "proxy.producer.conditional",
            "    return wanted in result.pieces and search.stored_contents == contents\n",
            "    return wanted in result.pieces\n",
        ),
    ),
    mutant(
        "same_records_same_batch",
        "R23: the same records in other batches are not the batch",
        _SCENES + "test_what_lies_at_the_offset_is_compared_by_its_content",
        (
            "proxy.producer.conditional",
            "    return wanted in result.pieces and search.stored_contents == contents\n",
            "    return search.stored_contents == contents\n",
        ),
    ),
    mutant(
        "gone_on_with_across_the_end",
        "R23: a batch across the end of the log is another one",
        _STATE + "test_only_what_is_expected_where_the_log_ends_is_appended",
        ("state.conditional", "offset < 0 or offset + batch.record_count > entry.end_offset:\n", "offset < 0:\n"),
    ),
    mutant(
        "offset_not_compared",
        "R23: who is told success has the expected offset",
        _SCENES + "test_who_writes_past_the_rules_fences_the_shard",
        (
            "proxy.producer.forward",
            "        is_displaced = stream.is_conditional and ",
            "        is_displaced = False and ",
        ),
    ),
    mutant(
        "shard_not_fenced",
        "R23: nothing is appended to a shard that somebody else has written to",
        _SCENES + "test_who_writes_past_the_rules_fences_the_shard",
        (
            "state.conditional",
            "    if is_fenced(entry):\n        end = expected_end(entry)\n",
            "    if False:\n        end = 0\n",
        ),
    ),
    mutant(
        "fence_told_before_it_is_written",
        "R23: a fence is stored before it is told",
        _SCENES + "test_a_fence_is_written_before_it_is_told_and_outlives_the_proxy_and_redis",
        ("proxy.producer.forward", "        if (is_untold or is_displaced) and", "        if is_untold and"),
    ),
    mutant(
        "fence_lifted_by_a_new_life",
        "R23: a new life of Redis does not lift a fence",
        _SCENES + "test_a_fence_is_written_before_it_is_told_and_outlives_the_proxy_and_redis",
        (
            "state.conditional",
            "    if is_fenced(entry):\n        return replace(entry, version=entry.version + 1, generation",
            "    if False:\n        return replace(entry, version=entry.version + 1, generation",
        ),
    ),
    mutant(
        "displaced_unread",
        "R23: what lies elsewhere is noticed though Redis has lost it",
        _SCENES + "test_what_lies_elsewhere_is_found_when_redis_has_lost_its_commit",
        (
            "state.conditional",
            "    for piece in pieces:\n        if sequence",
            "    for piece in ():\n        if sequence",
        ),
    ),
    mutant(
        "conflict_for_ever",
        "R23: where the log ends is looked at before a later offset is refused",
        _SCENES + "test_who_has_read_what_was_written_past_the_rules_learns_that_the_shard_is_fenced",
        ("proxy.producer.conditional", "    if end[1] == entry.end_offset:\n", "    if True:\n"),
    ),
    mutant(
        "lost_records_not_looked_for",
        "R23: a log that ends before where it ended fences, whoever looks",
        _SCENES + "test_who_has_read_where_a_log_that_has_lost_records_ends_learns_that_the_shard_is_fenced",
        ("proxy.producer.conditional", "    if end[1] == entry.end_offset:\n", "    if end[1] <= entry.end_offset:\n"),
    ),
    mutant(
        "lost_records_hidden_by_a_new_life",
        "R23: a new life of Redis does not hide that the log has lost records",
        _SCENES + "test_a_new_life_of_redis_does_not_hide_that_records_are_lost",
        ("state.conditional", "next_offset < entry.end_offset:\n", "False:\n"),
    ),
    mutant(
        "fence_from_memory",
        "R23: a fence that an operator has lifted is lifted at every proxy",
        _SCENES + "test_a_fence_that_an_operator_has_lifted_is_not_told_from_memory",
        (
            "proxy.producer.sequencer",
            "        if await stream.confirm([batch]):\n            await turn_down(",
            "        if True:\n            await turn_down(",
        ),
    ),
    mutant(
        "conditional_in_parts",
        "R23: a batch is appended as a whole or not at all",
        _SCENES + "test_a_batch_is_appended_as_a_whole_or_not_at_all",
        (
            "proxy.producer.forward",
            "        if stream.is_conditional:\n            return False",
            "        if False:\n            return False",
        ),
    ),
    mutant(
        "not_conditional_let_in",
        "R23: who is not conditional is refused",
        _DOOR + "test_who_is_not_conditional_is_refused",
        (
            "proxy.session.produce",
            "            if refusal is None and is_conditional and header.producer_id != CONDITIONAL_ID:\n",
            "            if False:\n",
        ),
    ),
    mutant(
        "not_conditional_taken_by_its_bytes",
        "R23: no request for a conditional topic is recognised by its bytes",
        _DOOR + "test_a_named_producer_from_before_the_topic_became_conditional_is_refused_each_time",
        (
            "proxy.session.fast_produce",
            "        if topics.are_any and topics.has(request.partitions[0].topic):",
            "        if False:",
        ),
    ),
    mutant(
        "shard_epoch_raised",
        "R23: nobody raises the epoch of a shard",
        _DOOR + "test_nobody_raises_the_epoch",
        ("proxy.session.produce", "    if header.producer_epoch != CONDITIONAL_EPOCH:\n", "    if False:\n"),
    ),
    mutant(
        "shard_of_one_principal",
        "R23: a shard belongs to all who may write to its topic",
        _DOOR + "test_a_shard_belongs_to_all_who_may_write_to_it",
        ("proxy.session.produce", "NO_PRINCIPAL if header.producer_id == CONDITIONAL_ID else self", "self"),
    ),
    mutant(
        "half_an_offset",
        "R23: the whole offset is compared where it is known",
        _STATE + "test_the_whole_offset_is_compared_where_it_is_known",
        ("state.conditional", "    if offset is None:\n        offset = entry", "    if True:\n        offset = entry"),
    ),
    mutant(
        "busy_owner_waited_for",
        "R23: what the log has come past is told also while another proxy is always at work",
        "unit/producer/test_busy_shards.py::test_who_comes_to_another_proxy_is_told_while_a_writer_is_always_at_work",
        (
            "proxy.producer.takeover",
            "                    at_most = await turn_down_past(stream)\n",
            "                    pass\n",
        ),
    ),
    mutant(
        "late_writer_waits_for_ever",
        "R23: who is late is told though another writer always has a batch that is due",
        _SCENES + "test_who_is_late_is_told_while_another_writer_always_has_a_batch_that_is_due",
        ("proxy.producer.stream", "        if self.is_conditional and self._is_first_late:", "        if False:"),
    ),
    mutant(
        "whole_log_read_for_what_is_lost",
        "R23: where the log ends before the offset of a batch it is not there",
        _SCENES + "test_a_batch_that_a_shorter_log_has_lost_is_told_so_however_long_the_log_is",
        ("proxy.producer.conditional", "    search.is_at_bound = True\n", ""),
    ),
    mutant(
        "fence_older_than_what_was_known",
        "R23: a fence stays, also behind a loss in Redis, whoever knows of it",
        "unit/producer/test_fences_of_two_lives.py::"
        "test_a_fence_that_another_proxy_has_written_since_a_loss_is_not_lifted",
        (
            "proxy.producer.entry_cache",
            "        if self._is_conditional and is_fenced(stored) != is_fenced(lost):",
            "        if False:",
        ),
    ),
    mutant(
        "lifted_fence_comes_back",
        "R23: what a person has lifted is not remembered, whatever was lost before",
        "unit/producer/test_fence_lifted.py::test_a_fence_that_was_lifted_does_not_come_back",
        (
            "proxy.producer.entry_cache",
            "        if self._is_conditional and is_fenced(lost) and is_lifted_since(stored, lost):",
            "        if False:",
        ),
    ),
    mutant(
        "each_of_a_pipeline_by_itself",
        "R23: what a writer has in flight behind a refused batch is refused, too",
        _SCENES + "test_what_a_writer_has_in_flight_behind_a_conflict_is_refused_with_it",
        (
            "proxy.producer.sequencer",
            "        ahead = Ahead.NOTHING if link is None else link.ahead\n",
            "        ahead = Ahead.NOTHING\n",
        ),
    ),
    mutant(
        "follows_only_what_is_open",
        "R23: a batch that was on its way when the conflict was told is refused, too",
        _SCENES + "test_a_batch_that_comes_after_the_conflict_of_the_one_it_follows_is_refused",
        (
            "proxy.producer.retry_notes",
            "(says_it_follows or before.fate is Ahead.OPEN)",
            "before.fate is Ahead.OPEN",
        ),
    ),
    mutant(
        "follows_whatever_ends_there",
        "R23: what a writer sends for the offset that it was told is a new pipeline",
        _SCENES + "test_what_a_writer_sends_for_the_offset_that_a_conflict_told_begins_a_pipeline",
        (
            "proxy.producer.retry_notes",
            "(says_it_follows or before.fate is Ahead.OPEN)",
            "True",
        ),
    ),
    mutant(
        "follows_the_last_one_alone",
        "R23: a batch follows the one before it, whatever came again in between",
        _SCENES + "test_a_batch_follows_the_one_before_it_whatever_came_between",
        (
            "proxy.producer.retry_notes",
            "            links.pop(link.end, None)\n",
            "            links.clear()\n",
        ),
    ),
    mutant(
        "held_back_for_ever",
        "R23: a batch is held back once behind one that may have got through over another connection",
        _SCENES + "test_a_batch_is_held_back_once_behind_one_that_got_through_over_another_connection",
        (
            "proxy.producer.retry_notes",
            "before if before and before.fate is Ahead.AGAIN else None",
            "None",
        ),
    ),
    mutant(
        "only_refusals_are_heeded",
        "R23: nothing is appended in place of a batch that is to be sent again",
        _SCENES + "test_a_batch_is_held_back_behind_one_that_is_to_be_sent_again",
        (
            "state.conditional",
            "    if offset >= entry.end_offset and ahead in (Ahead.OPEN, Ahead.AGAIN):\n        return HeldBack()\n"
            "    if offset == entry.end_offset:\n        return _APPEND if ahead is Ahead.NOTHING else CutOff()\n",
            "    if offset == entry.end_offset:\n        return CutOff() if ahead is Ahead.REFUSED else _APPEND\n",
        ),
    ),
    mutant(
        "due_before_what_it_follows",
        "R23: the first of a pipeline is decided first",
        _SCENES + "test_the_first_of_a_pipeline_is_answered_before_one_that_is_due",
        ("proxy.producer.stream", "return self._first_of_pipeline(due) if self.is_conditional else due", "return due"),
    ),
    mutant(
        "wrapped_behind_another",
        "R23: a batch leaves in a wrapper only behind the one that it follows",
        _SCENES + "test_a_batch_leaves_only_behind_the_one_that_it_follows",
        ("proxy.producer.sequencer", "in_one_pipeline(gather(batch, stream.queue))", "gather(batch, stream.queue)"),
    ),
    mutant(
        "refused_at_once_is_forgotten",
        "R23: a batch that is refused at the door decides about what follows it",
        _DOOR + "test_a_batch_that_is_refused_at_once_decides_about_what_follows_it",
        ("proxy.session.produce", "(refusal is None or is_conditional)", "refusal is None"),
    ),
)

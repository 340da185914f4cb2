"""Mutants of batches that are stored in parts, and of bounds and intents that nobody can go by: rules R6, R8, R9, R10,
R11, R14, R17."""

from __future__ import annotations

from mutants.mutant import mutant

_PARTS = "unit/producer/test_parts.py::"
_BARE = "unit/producer/test_records_without_marker.py::"
_BARE_LOST = "unit/producer/test_records_without_marker_lost.py::"
_BELOW = "unit/producer/test_parts_below_window.py::"
_COPIES = "unit/partition_log/test_duplicate_audit.py::"
_GIVEN_UP = "unit/producer/test_given_up.py::"
_KNOWN = "unit/producer/test_known_batches.py::"

PARTS = (
    mutant(
        "part_without_marker_sent_again",
        "R6: a part that may be stored without a marker is not sent again",
        _PARTS + "test_a_second_part_without_a_marker_whose_answer_is_lost_has_one_copy",
        ("proxy.producer.forward", "            (self._content,),\n", "            (),\n"),
        deaths=("I1",),
    ),
    mutant(
        "rest_without_marker_sent_again",
        "R6: nor by a proxy that takes over",
        _PARTS + "test_who_takes_over_sends_no_rest_that_may_be_stored_without_a_marker",
        (
            "proxy.producer.takeover",
            "        result = await self._search(intent, {intent.content})\n",
            "        result = await self._search(intent, set())\n",
        ),
        deaths=("I1",),
    ),
    mutant(
        "bound_of_another_log",
        "R8: a bound without an anchor is none where another one is recognised",
        "unit/partition_log/test_lower_bounds.py::test_of_two_bounds_the_one_that_is_recognised_is_taken_wherever_it_is",
        ("proxy.partition_log.log_offsets", "        return self.anchor != NO_ANCHOR\n", "        return True\n"),
        deaths=("I1",),
    ),
    mutant(
        "rebuild_below_no_anchor_trusted",
        "R10: what no log contradicts is no bound of a rebuild",
        "unit/producer/test_topics_without_markers.py::test_after_a_loss_in_the_store_it_is_looked_for_in_the_whole_new_log",
        (
            "proxy.producer.takeover",
            "        bound = Position(entry.end_offset if entry.anchor != NO_ANCHOR else 0, entry.anchor)\n",
            "        bound = Position(max(entry.end_offset, 0), entry.anchor)\n",
        ),
        deaths=("I1",),
    ),
    mutant(
        "rebuilt_forgotten",
        "R10: an entry that was rebuilt says so",
        _BARE_LOST + "test_what_follows_a_rebuilt_batch_is_looked_for_when_it_comes",
        ("state.commit", "    is_rebuilt = entry.is_rebuilt or bool(stored)\n", "    is_rebuilt = False\n"),
        ("state.rebuilding", "    if result.has_unmarked:\n", "    if False:\n"),
        deaths=("I1",),
    ),
    mutant(
        "first_record_stands_for_the_rest",
        "R10: of a batch that a rebuild found the first part of, the rest is looked for by its own content",
        _BARE_LOST + "test_one_that_goes_on_with_such_a_record_is_completed_only_where_none_is_there",
        ("proxy.producer.takeover", "contents_of(batch, count, name.first)", "contents_of(batch, count, 0)"),
        deaths=("I1",),
    ),
    mutant(
        "unpacked_into_one_wrapper",
        "R19: what unpacks to more than old consumers hold is stored in parts",
        "unit/producer/test_unpacked_parts.py::test_it_is_stored_once_in_parts_and_answered_with_its_first_offset",
        (
            "proxy.producer.grouping",
            "conversion.making(limits.WRAPPER_UNPACKED_BYTES_MAX)",
            "conversion.making(limits.UNPACKED_BYTES_MAX)",
        ),
    ),
    mutant(
        "sent_before_all_was_read",
        "R19: nothing of a batch is stored before all of it was read",
        "unit/producer/test_unpacked_parts.py::test_nothing_is_stored_of_a_batch_whose_last_record_is_refused",
        (
            "proxy.producer.grouping",
            "size_bytes >= limits.PLANNED_BYTES_MAX and batch.stored_records",
            "size_bytes >= limits.PLANNED_BYTES_MAX",
        ),
    ),
    mutant(
        "sent_though_the_reading_was_left",
        "R19: nor when its client left the reading and came back",
        "unit/producer/test_unpacked_parts.py::test_nor_of_one_whose_client_leaves_while_it_is_read_and_comes_back",
        (
            "proxy.producer.grouping",
            "                return deque()\n",
            "                break\n",
        ),
    ),
    mutant(
        "given_up_waited_for",
        "R11: what a client has given up is waited for no longer",
        "unit/producer/test_retry_notes.py::test_a_batch_that_comes_again_waits_only_for_what_failed_after_it",
        (
            "proxy.producer.retry_notes",
            "        own_request = failed.get((epoch, sequence), 0)\n",
            "        own_request = 0\n",
        ),
        deaths=("liveness",),
    ),
    mutant(
        "refused_before_the_one_that_waits",
        "R11: nothing fails for good as long as a lower batch of its connection waits for its answer",
        "unit/producer/test_behind_failures.py::test_nothing_fails_for_good_as_long_as_a_batch_before_it_waits_for_its_answer",
        (
            "proxy.producer.stream",
            "batch.is_behind(self.key, (*self.out, *self.queue))",
            "batch.is_behind(self.key, ())",
        ),
    ),
    mutant(
        "success_forgets_lower_ones",
        "R11: a success says nothing of the batches before it",
        "unit/producer/test_behind_failures.py::test_a_batch_that_got_through_does_not_hide_one_before_it_that_comes_again",
        (
            "proxy.producer.retry_notes",
            "        failed.pop((epoch, sequence), None)\n",
            "        failed.clear()\n",
        ),
    ),
    mutant(
        "order_of_answers",
        "R11: what comes again counts in the order of the requests",
        "unit/producer/test_retry_notes.py::test_requests_count_in_the_order_in_which_they_came",
        (
            "proxy.producer.retry_notes",
            "            failures[epoch, sequence] = max(request, failures.get((epoch, sequence), 0))\n",
            "            failures[epoch, sequence] = self.requests = self.requests + 1\n",
        ),
    ),
    mutant(
        "failure_before_the_answer_to_a_lower_one",
        "R11: nothing fails for good whose answer leaves before that to a lower batch, which came again",
        "unit/producer/test_behind_failures.py::test_45_never_leaves_before_the_answer_that_tells_that_the_batch_before_it_is_given_up",
        (
            "proxy.producer.retry_notes",
            "        if last_epoch == epoch and request < last:\n",
            "        if False:\n",
        ),
    ),
    mutant(
        "success_told_behind_a_failure",
        "R11: nor before an answer that tells that the lower batch is stored",
        "unit/producer/test_behind_failures.py::test_no_failure_for_good_leaves_before_the_answer_to_a_batch_before_it_that_came_again",
        (
            "proxy.producer.retry_notes",
            "        if failed is not None and (epoch, sequence) in failed:\n",
            "        if has_failed and failed is not None and (epoch, sequence) in failed:\n",
        ),
    ),
    mutant(
        "new_epoch_ahead_of_its_first_batch",
        "R11: a new epoch that is sent ahead of its first batch has no gap yet",
        "unit/producer/test_behind_failures.py::test_an_epoch_that_begins_ahead_of_its_first_batch_has_no_gap",
        (
            "proxy.producer.retry_notes",
            "        if not own_request and sequence != 0 and self._ended.get(key, epoch) < epoch:\n",
            "        if False:\n",
        ),
        deaths=("45",),
    ),
    mutant(
        "middle_is_out_of_order",
        "R11: a batch that is stored up to its middle goes on there",
        "unit/producer/test_refusals.py::test_a_batch_of_which_a_rebuild_found_the_first_part_gets_its_rest",
        (
            "state.decide",
            "    return Overlap(overlap) if overlap else OutOfOrder(",
            "    return Overlap(overlap) if overlap == batch.record_count else OutOfOrder(",
        ),
        deaths=("45",),
    ),
    mutant(
        "parts_fill_the_window",
        "R9: in the window a batch that is stored in parts is one",
        "unit/state/test_decide.py::test_of_a_batch_that_is_stored_in_parts_the_window_remembers_one_that_grows",
        (
            "state.commit",
            " if distance(due, one.base_sequence) >= batches[0].record_count)\n",
            ")\n",
        ),
    ),
    mutant(
        "rest_given_up_forgotten",
        "R17: a batch of which the rest was given up is one that was given up",
        _PARTS + "test_who_takes_over_sends_no_rest_that_may_be_stored_without_a_marker",
        (
            "state.decide",
            "            if is_end and member.record_count <= batch.record_count:\n",
            "            if is_end and member.record_count == batch.record_count:\n",
        ),
        deaths=("I1",),
    ),
    mutant(
        "searched_up_to_the_window",
        "R9: what begins below the window may end in it: the log is searched to the last commit",
        _BELOW + "test_a_batch_of_more_parts_than_a_rebuilt_window_holds_is_a_duplicate",
        (
            "proxy.producer.duplicates",
            "(stream, wanted, start_at, entry.end_offset, looked_for)",
            "(stream, wanted, start_at, entry.window[0].base_offset, looked_for)",
        ),
        deaths=("45",),
    ),
    mutant(
        "part_without_marker_is_a_gap",
        "R9: a part below the window may be stored without a marker",
        _BARE + "test_nor_is_a_batch_of_which_a_later_part_went_so",
        (
            "proxy.producer.duplicates",
            "        missing = set(contents[found : found + 1]) - looked_for\n",
            "        missing = set[bytes]()\n",
        ),
        deaths=("45",),
    ),
    mutant(
        "first_marker_is_the_beginning",
        "R10: what a rebuild found first may have a record without a marker before it",
        _BARE + "test_nor_where_what_came_after_it_tells_of_the_producer",
        (
            "state.rebuilding",
            "    elif of_epoch and not has_beginning and not knew_beginning:\n",
            "    elif is_since_checkpoint and of_epoch and not has_beginning and not knew_beginning:\n",
        ),
        deaths=("45",),
    ),
    mutant(
        "what_comes_next_is_new",
        "R10: what follows a rebuilt batch may be in the log without a marker",
        _BARE_LOST + "test_what_follows_a_rebuilt_batch_is_looked_for_when_it_comes",
        ("proxy.producer.sequencer", "        while entry.is_rebuilt and stream.queue:\n", "        while False:\n"),
        deaths=("I1",),
    ),
    mutant(
        "markers_tell_all",
        "R10: also where no marker of the producer was found",
        _BARE_LOST + "test_where_nobody_waited_for_the_rebuild_whoever_comes_is_looked_for",
        ("state.rebuilding", "    if result.has_unmarked:\n", "    if False:\n"),
        deaths=("I1",),
    ),
    mutant(
        "deleted_beginning_proves_absence",
        "R10: where the log has lost its beginning, a batch is looked for by all of its records",
        _BARE_LOST + "test_where_retention_has_deleted_the_first_parts_the_others_are_looked_for",
        (
            "proxy.partition_log.log_search",
            "        return self.gap_at != NO_OFFSET and not self.pieces\n",
            "        return False\n",
        ),
        deaths=("I1",),
    ),
    mutant(
        "beginning_without_marker_is_a_gap",
        "R11: a batch of which a rebuild found a later part may begin with one that has no marker",
        _BARE_LOST + "test_a_batch_that_begins_with_such_a_record_is_not_begun_again",
        (
            "proxy.producer.duplicates",
            "    looked_for, search = set(contents[:1]), None\n",
            '    contents = [b"", *contents[1:]]\n    looked_for, search = set[bytes](), None\n',
        ),
        deaths=("45",),
    ),
    mutant(
        "record_between_others_is_a_gap",
        "R11: and so may a record between those of which it found the markers",
        _BARE_LOST + "test_one_with_such_a_record_between_others_is_no_gap",
        (
            "proxy.producer.duplicates",
            "(stream, wanted, start_at, contents)",
            "(stream, wanted, start_at, contents[:1])",
        ),
        deaths=("45",),
    ),
    mutant(
        "told_before_its_commit",
        "R7: the commit of a record without a marker is written before its client is answered",
        _BARE + "test_it_is_committed_before_its_client_is_told",
        ("proxy.producer.forward", "is_untold = self._is_nameless or (", "is_untold = False or ("),
    ),
    mutant(
        "last_part_told_before_its_commit",
        "R7: so is that of a batch that is stored in parts, which the log does not tell to be one",
        _BARE + "test_it_is_committed_before_its_client_is_told",
        (
            "proxy.producer.forward",
            "is_untold = self._is_nameless or (done and done[0].stored_records)\n",
            "is_untold = self._is_nameless\n",
        ),
    ),
    mutant(
        "told_of_an_earlier_try",
        "R5: where a broker said that a record without a marker is counts for that try only",
        _BARE + "test_nor_where_an_earlier_try_was_said_to_lie",
        ("proxy.producer.forward", "            self._told = None\n", ""),
    ),
    mutant(
        "found_wherever_it_is",
        "R5: nor for an equal record elsewhere",
        _BARE + "test_an_equal_record_elsewhere_is_not_taken_for_it",
        (
            "proxy.partition_log.log_search",
            "(content, offset) == (self.told[0], self.told[1].base_offset):\n",
            "content == self.told[0]:\n",
        ),
    ),
    mutant(
        "contents_of_two_logs",
        "R9: what was read of another leader's log counts no longer",
        _BELOW + "test_a_batch_in_parts_is_known_though_the_leader_moves_while_it_is_looked_for",
        (
            "proxy.producer.duplicates",
            "        self.stored_contents, self.first_contents, self.has_others = [], [], False\n"
            "        self._due = self._batch.base_sequence\n"
            "        return await super()._begin(leader, log_end)\n",
            "        return await super()._begin(leader, log_end)\n",
        ),
        deaths=("45",),
    ),
    mutant(
        "looked_for_and_overtaken",
        "R11: a batch whose topic is looked for is no gap for what follows it on its connection",
        "unit/producer/test_behind_failures.py::test_what_overtakes_a_batch_whose_topic_is_looked_for_is_no_gap",
        ("proxy.producer.retry_notes", "        if self._held and any(", "        if False and any("),
    ),
    mutant(
        "looked_for_is_a_failure",
        "R11: that its topic was looked for is no failure of a batch",
        "unit/producer/test_behind_failures.py::test_that_a_topic_was_looked_for_is_no_failure_of_the_batches_that_waited",
        (
            "proxy.session.produce",
            "            part.hold()\n",
            "            part.hold()\n            part.note(answers.no_leader().error_code)\n",
        ),
    ),
    mutant(
        "given_up_by_the_living_waited_for",
        "R17: no proxy waits for what a living one has given up",
        "unit/producer/test_several_proxies.py::test_who_comes_in_another_life_of_the_store_does_not_wait_for_a_living_proxy_that_has_given_up",
        (
            "proxy.producer.takeover",
            "        intent = entry.intent if entry is not None and entry.has_open_intent else None\n",
            "        intent = entry.intent if entry is not None else None\n",
        ),
        deaths=("liveness",),
    ),
    mutant(
        "given_up_forgotten_by_a_claim",
        "R17: what was given up is remembered by a rebuild, should that come to no end",
        _GIVEN_UP + "test_a_rebuild_that_comes_to_no_end_does_not_forget_it",
        ("proxy.producer.rebuild", "    if left is None:\n", "    if True:\n"),
    ),
    mutant(
        "rebuild_with_given_up_not_waited_for",
        "R10: a rebuild that remembers what was given up is waited for",
        _GIVEN_UP + "test_a_proxy_that_rebuilds_beside_it_is_waited_for",
        (
            "proxy.producer.takeover",
            "        if entry is not None and is_claimed(entry.intent):\n",
            "        if False:\n",
        ),
    ),
    mutant(
        "rebuild_with_given_up_overwritten",
        "R10: also by what is not due",
        "unit/producer/test_rebuild_claims.py::"
        "test_a_gap_at_another_proxy_does_not_void_a_rebuild_that_remembers_what_was_given_up",
        ("proxy.producer.sequencer", "        if is_claimed(entry.intent):\n", "        if False:\n"),
    ),
    mutant(
        "given_up_lost_with_the_store",
        "R17: what was given up is remembered by its proxy if the store loses it",
        _GIVEN_UP + "test_what_the_store_has_lost_of_it_is_known_to_who_wrote_it",
        (
            "proxy.producer.entry_cache",
            "        for entry in (self.entry, self._lost):\n",
            "        for entry in (self.entry,):\n",
        ),
    ),
    mutant(
        "made_anew_and_sent_again",
        "R17: what was given up is recognised though its client has made it anew",
        _GIVEN_UP + "test_a_batch_that_its_client_has_made_anew_since_it_was_given_up_is_not_sent_again",
        (
            "proxy.producer.duplicates",
            "    member = numbered_as(intent, batch.identity)\n",
            "    member = None\n",
        ),
        deaths=("I1",),
    ),
    mutant(
        "known_looked_for",
        "R10: what a suspect entry knows is not looked for by its content",
        _KNOWN + "test_a_record_of_others_that_is_equal_to_a_known_batch_is_in_nobodys_way",
        (
            "proxy.producer.takeover",
            "        elif entry is None or not await self._answer_known(entry):\n",
            "        else:\n",
        ),
        # By the numbers nothing is left of it to be looked for.
        ("proxy.producer.rebuild", "0 if entry is None else records_stored(entry, batch.identity)", "0"),
    ),
    mutant(
        "known_left_out",
        "R10: a batch that is known stands for none that follows it",
        _KNOWN + "test_where_there_are_no_markers_it_does_not_stand_for_those_that_follow_it",
        (
            "proxy.producer.takeover",
            "        elif entry is None or not await self._answer_known(entry):\n",
            "        elif entry is None or [await self._answer_known(entry)]:\n",
        ),
        # Who comes next would be looked for once more, and saved by that.
        ("proxy.producer.sequencer", "        while entry.is_rebuilt and stream.queue:\n", "        while False:\n"),
    ),
    mutant(
        "part_not_looked_for",
        "R14: a part that is sent again is looked for under its own sequence",
        _COPIES + "test_a_second_copy_of_a_part_is_told_whichever_part_it_is_and_whoever_sends_the_rest",
        (
            "proxy.producer.forward",
            "tuple(identity.base_sequence for identity in self._sent)",
            "tuple(batch.identity.base_sequence for batch in self._group)",
        ),
    ),
    mutant(
        "rest_not_looked_for",
        "R14: nor is it dropped without an audit by a proxy that takes over",
        _COPIES + "test_a_second_copy_of_a_part_is_told_whichever_part_it_is_and_whoever_sends_the_rest",
        (
            "proxy.producer.takeover",
            "        if dropped:\n",
            "        if False:\n",
        ),
    ),
    mutant(
        "unreadable_intent_left",
        "R17: an intent in a value that cannot be read is resolved by the proxy that may have written it",
        "unit/producer/test_brokers_away.py::test_an_intent_in_a_value_that_cannot_be_read_for_a_while_is_resolved_when_it_can",
        ("proxy.producer.stream", "        if self.held.is_unreadable:\n", "        if False:\n"),
        deaths=("liveness",),
    ),
    mutant(
        "copies_looked_for_in_one_piece",
        "R14: a second copy is looked for up to where the log ended, however much others have written",
        _COPIES + "test_a_second_copy_behind_much_that_others_have_written_is_told",
        (
            "proxy.partition_log.duplicate_audit",
            "        return isinstance(result, Later) and search.reached > reached",
            "        return False",
        ),
    ),
)

"""Mutants of what is concluded from an answer and from the log: rules R5, R6, R8, R9, R14."""

from __future__ import annotations

from mutants.mutant import mutant

_SCENES = "unit/rules/test_rule_log.py::"
_DUPLICATES = "unit/rules/test_rule_duplicates.py::"
_OTHER_CONTENT = "unit/producer/test_other_content.py::"
_LONG_LOOKS = "unit/producer/test_long_looks.py::"
_BELOW_WINDOW = "unit/producer/test_parts_below_window.py::"
_LEADERS = "unit/partition_log/test_two_leaders.py::"

LOG = (
    mutant(
        "error_with_offset_is_a_refusal",
        "R5: a base offset means appended, whatever the code",
        _SCENES + "test_what_a_broker_appended_and_answered_with_an_error_is_not_sent_again",
        ("proxy.flow.outcome", "    if base_offset >= 0:\n", "    if base_offset >= 0 and error_code == 0:\n"),
        deaths=("I1",),
    ),
    mutant(
        "error_with_offset_is_a_success",
        "R5: what was appended with an error may vanish yet",
        _SCENES + "test_what_was_appended_with_an_error_and_has_vanished_is_no_success",
        ("proxy.producer.forward", "        if outcome.error_code == 0:\n", "        if True:\n"),
        deaths=("I3",),
    ),
    mutant(
        "own_name_is_enough",
        "R5: what lies where a batch was appended with an error has to be the wrapper that was sent",
        _SCENES + "test_what_was_appended_with_an_error_is_looked_for_where_another_group_of_its_producer_lies",
        (
            "proxy.producer.forward",
            "carries(message, wanted, self._stream.producer_id) and anchor_of(message) == anchor\n",
            "carries(message, wanted, self._stream.producer_id)\n",
        ),
    ),
    mutant(
        "code_0_is_a_commit",
        "R5: base offset -1 means not appended, also with code 0",
        _SCENES + "test_no_offset_means_not_appended_also_with_code_0_and_nothing_is_known_with_code_minus_1",
        ("proxy.flow.outcome", "    if base_offset >= 0:\n", "    if base_offset >= 0 or error_code == 0:\n"),
        deaths=("I3",),
    ),
    mutant(
        "unknown_error_is_a_refusal",
        "R5: code -1 without an offset is doubt",
        _SCENES + "test_a_batch_that_an_unknown_error_hides_is_looked_for",
        (
            "proxy.flow.outcome",
            "_KNOWN_REFUSALS = frozenset(int(code) for code in ErrorCode) - {int(ErrorCode.UNKNOWN_SERVER_ERROR)}\n",
            "_KNOWN_REFUSALS = frozenset(int(code) for code in ErrorCode)\n",
        ),
        deaths=("I1", "the user"),
    ),
    mutant(
        "no_settle",
        "R6: a broker is seen awake for a second before the log is read",
        _SCENES + "test_the_log_is_not_read_before_the_broker_was_seen_awake_for_a_second",
        ("proxy.partition_log.log_search", "        self._is_settled = False\n", "        self._is_settled = True\n"),
        deaths=("I1",),
    ),
    mutant(
        "kept_reading_of_an_earlier_log",
        "R6: what was fetched for others before a search began to read does not serve it",
        "unit/partition_log/test_log_reader.py::test_a_fetch_that_left_before_a_search_began_to_read_does_not_serve_it",
        (
            "proxy.partition_log.log_reader",
            "            left_at, chunk = self._kept.get((place, reach)) or (_NOT_YET, None)\n",
            '            left_at, chunk = float("inf"), (self._kept.get((place, reach)) or (0, None))[1]\n',
        ),
    ),
    mutant(
        "reading_that_was_out_already",
        "R6: a fetch that was out when a search began to read does not serve it",
        "unit/partition_log/test_log_reader.py::test_a_fetch_that_left_before_a_search_began_to_read_does_not_serve_it",
        (
            "proxy.partition_log.log_reader",
            "                for done in each.take_served(chunk, waiting.left_at, is_own",
            '                for done in each.take_served(chunk, float("inf"), is_own',
        ),
    ),
    mutant(
        "any_reading_of_a_moment_ago",
        "R6: a search is served by what was fetched after its broker was seen awake only",
        _SCENES + "test_what_is_read_for_a_doubt_was_fetched_after_its_broker_was_seen_awake",
        (
            "proxy.partition_log.log_search",
            "            since=self._since,\n",
            "            since=0.0,\n",
        ),
    ),
    mutant(
        "late_is_awake",
        "R6: an answer that is late begins the second anew",
        "unit/state/test_awake.py::test_the_second_begins_anew_with_an_answer_that_is_late[5]",
        ("state.awake", "        if took > usual + PROBE_LATE_SECONDS:\n", "        if took > 60:\n"),
    ),
    mutant(
        "slow_is_late",
        "R6: a broker whose answers all take long is seen awake, too",
        "unit/partition_log/test_seen_awake.py::test_a_doubt_ends_at_a_broker_whose_answers_all_take_long[0.35]",
        ("state.awake", "        usual = min(min(self._took), USUAL_SECONDS_MAX)\n", "        usual = 0.0\n"),
    ),
    mutant(
        "own_sleep_is_awake",
        "R6: what the proxy has not watched does not count",
        "unit/partition_log/test_seen_awake.py::test_while_the_machine_stands_still_no_broker_is_seen_awake[both]",
        (
            "state.awake",
            "        if self._since is None or not was_looked_at:\n",
            "        if self._since is None:\n",
        ),
    ),
    mutant(
        "second_of_another_doubt",
        "R6: the second of each doubt begins when it comes",
        "unit/broker/test_awake_watch.py::test_the_second_of_each_begins_when_it_comes[0.55]",
        (
            "proxy.broker.awake_watch",
            "        watched.fresh.waiting.append(seen)\n",
            "        (watched.groups or [watched.fresh])[0].waiting.append(seen)\n",
        ),
    ),
    mutant(
        "end_of_before_the_settling",
        "R6: the end of the log is asked for after the second is over",
        "unit/broker/test_connections_given_up.py::"
        "test_a_thousand_doubts_share_an_end_of_the_log_that_was_asked_for_after_each_of_them",
        (
            "proxy.broker.broker",
            "        elif not _only_grows(question):\n",
            "        elif False:\n",
        ),
    ),
    mutant(
        "settles_on_the_new_leader_only",
        "R6: the broker that was asked is seen awake, also when another one leads",
        _SCENES + "test_the_broker_that_was_asked_is_waited_for_also_when_another_one_leads",
        (
            "proxy.partition_log.log_search",
            "await settle(self._topic, self._partition, self._settle_on | {leader})",
            "await settle(self._topic, self._partition, {leader})",
        ),
        deaths=("I1",),
    ),
    mutant(
        "claim_of_the_new_leader_only",
        "R6: also by who goes on with the rebuild of another",
        "unit/producer/test_rebuild_claims.py::"
        "test_who_goes_on_with_a_rebuild_waits_for_the_broker_that_the_batch_was_sent_to",
        (
            "proxy.producer.takeover",
            "            earlier if earlier >= 0 or leader is None else leader,\n",
            "            -1 if leader is None else leader,\n",
        ),
        deaths=("I1",),
    ),
    mutant(
        "scan_to_high_watermark",
        "R6: the log is read to its end, not to the high watermark",
        _SCENES + "test_the_log_is_read_to_its_end_once_that_is_replicated",
        ("proxy.bridge.asks", "LOG_END_REPLICA_ID = -3\n", "LOG_END_REPLICA_ID = -1\n"),
        deaths=("I1",),
    ),
    mutant(
        "log_of_a_deposed_leader",
        "R6: nothing is concluded as long as two brokers say that they lead",
        _LEADERS + "test_the_log_of_a_leader_that_has_been_deposed_proves_no_absence",
        (
            "proxy.partition_log.log_offsets",
            "                    if not await _has_rival(topic, partition, leader, may_lead):\n",
            "                    if True:\n",
        ),
        deaths=("I1",),
    ),
    mutant(
        "rivals_that_it_was_sent_to",
        "R6: every replica is asked whether it leads, not only those that may have something of ours",
        _LEADERS + "test_a_batch_below_the_window_that_a_deposed_leader_lacks_is_no_gap",
        (
            "proxy.partition_log.log_offsets",
            "sorted({*replicas, *may_lead} - {leader})",
            "sorted({*may_lead} - {leader})",
        ),
        deaths=("45",),
    ),
    mutant(
        "end_told_by_another_leader",
        "R6: the log is read to the end that its own leader has told",
        _LEADERS + "test_the_end_of_a_deposed_leaders_log_is_not_that_of_the_true_ones",
        (
            "proxy.partition_log.log_offsets",
            "if end == NO_OFFSET or leader != told_by else",
            "if end == NO_OFFSET else",
        ),
        deaths=("I1",),
    ),
    mutant(
        "log_of_a_lost_connection",
        "R6: what was being taken apart when its connection was lost is read again",
        "unit/partition_log/test_log_reader.py::test_what_was_taken_apart_while_the_connection_was_lost_is_read_again",
        ("proxy.partition_log.log_reader", "        elif life != self._life:", "        elif False:"),
    ),
    mutant(
        "end_that_moves",
        "R6: a search ends where the log ended when it began to read",
        _LONG_LOOKS + "test_a_doubt_ends_though_others_append_as_fast_as_the_log_is_read",
        (
            "proxy.producer.resolution",
            "    search.keeps_end = not stream.is_conditional",
            "    search.keeps_end = False",
        ),
    ),
    mutant(
        "start_that_moves",
        "R6: a search that retention has overtaken begins anew",
        _SCENES + "test_a_search_that_retention_has_overtaken_begins_anew_where_the_log_begins_now",
        (
            "proxy.partition_log.log_search",
            "                    await self._retention_has_passed(leader)\n",
            "                    pass\n",
        ),
        deaths=("liveness",),
    ),
    mutant(
        "sent_again_without_renewal",
        "R6: the intent is renewed by a swap before the batch is forwarded again",
        _SCENES + "test_the_intent_is_renewed_before_the_batch_is_sent_again",
        (
            "proxy.producer.forward",
            "if not await stream.write(renewed(entry, self._owner, attempts, self._leader, self._moved_to), "
            "is_reserve=True):\n",
            "if False:\n",
        ),
        deaths=("I1",),
    ),
    mutant(
        "sent_again_and_again",
        "R6: forwarded again at most twice",
        _SCENES + "test_a_batch_is_sent_three_times_at_most",
        ("proxy.producer.forward", "        if attempts >= limits.FORWARDS_MAX:\n", "        if False:\n"),
    ),
    mutant(
        "gap_proves_absence",
        "R6: a range with offsets missing proves nothing",
        _SCENES + "test_offsets_that_are_missing_from_the_log_prove_nothing",
        (
            "proxy.partition_log.log_search",
            "(doubtful := self._doubtful or self._equal(pieces) or notes.gap)",
            "(doubtful := self._doubtful or self._equal(pieces))",
        ),
        deaths=("I1",),
    ),
    mutant(
        "closed_wrapper_proves_absence",
        "R6: a wrapper whose inside cannot be read may have what lost its marker",
        "unit/partition_log/test_unreadable_wrappers.py::test_a_wrapper_that_cannot_be_read_may_hide_a_batch_that_lost_its_marker",
        (
            "proxy.partition_log.log_search",
            "                self._note_gap(self._next, behind, reason)",
            "                pass",
        ),
        deaths=("I1",),
    ),
    mutant(
        "retention_proves_absence",
        "R6: a range that retention has deleted proves nothing",
        _SCENES + "test_records_that_retention_has_deleted_prove_nothing",
        (
            "proxy.partition_log.log_search",
            '            self._doubtful = f"records from offset {self._next} to {earliest.offset} were deleted by '
            'retention"\n',
            "",
        ),
        deaths=("I1",),
    ),
    mutant(
        "unmarked_content_ignored",
        "R6: a record of the same content without a marker proves nothing",
        _SCENES + "test_a_record_of_the_same_content_without_a_marker_proves_nothing",
        (
            "proxy.partition_log.log_search",
            "        self._contents = contents\n",
            "        self._contents = frozenset()\n",
        ),
        deaths=("I1",),
    ),
    mutant(
        "first_part_sent_again",
        "R6: of an intent that is taken over what the log has is committed, also if that is less than all",
        "unit/producer/test_parts.py::test_of_a_batch_that_was_stored_up_to_its_middle_only_the_rest_is_sent",
        (
            "proxy.producer.takeover",
            "            found = min(records, batch.record_count)\n",
            "            found = batch.record_count if records >= batch.record_count else 0\n",
        ),
        deaths=("I1",),
    ),
    mutant(
        "log_end_as_bound",
        "R8: the bound of a first batch is a high watermark, never the log end",
        _SCENES + "test_the_bound_of_a_first_batch_is_a_high_watermark_and_not_the_end_of_the_log",
        (
            "proxy.partition_log.log_offsets",
            "    answer = await Ask(leader, LatestOffset(topic, partition, HIGH_WATERMARK_REPLICA_ID))\n"
            "    if isinstance(answer, Unanswered):\n"
            "        return Later(answer.reason)\n"
            "    if answer.error_code:\n",
            "    answer = await Ask(leader, LatestOffset(topic, partition, LOG_END_REPLICA_ID))\n"
            "    if isinstance(answer, Unanswered):\n"
            "        return Later(answer.reason)\n"
            "    if not answer.error_code:\n"
            "        return Position(answer.offset, NO_ANCHOR)\n"
            "    if answer.error_code:\n",
        ),
        deaths=("I1",),
    ),
    mutant(
        "no_anchor",
        "R8: the record below the bound is compared before every scan",
        _SCENES + "test_where_the_record_below_the_bound_is_another_one_the_search_begins_at_the_start",
        (
            "proxy.partition_log.log_search",
            "        if holds and bound.offset > 0 and bound.anchor != NO_ANCHOR:\n",
            "        if False:\n",
        ),
        deaths=("I1",),
    ),
    mutant(
        "anchored_to_itself",
        "R8: the record below the bound may be the batch that is looked for",
        _SCENES + "test_a_bound_whose_record_is_the_batch_itself_hides_no_copy_of_it",
        (
            "proxy.partition_log.log_search",
            "            if below is not None and self._enough(own",
            "            if False and self._enough(own",
        ),
        deaths=("I1",),
    ),
    mutant(
        "take_over_moves_the_bound",
        "R8: a take-over keeps the bound",
        _SCENES + "test_who_takes_an_intent_over_searches_from_its_own_bound",
        (
            "proxy.producer.takeover",
            "            self._bound_of(intent),\n            contents,\n",
            "            self._bounds.known.get(\n"
            "                (stream.topic, stream.partition), (0, Position(intent.lower_bound, intent.anchor))\n"
            "            )[1],\n            contents,\n",
        ),
        deaths=("I1",),
    ),
    mutant(
        "suspect_from_the_newest_append",
        "R8: a suspect entry has only its own last commit as bound",
        _SCENES + "test_a_suspect_entry_has_no_other_bound_than_its_own_last_commit",
        (
            "proxy.producer.takeover",
            "        if entry.intent is not None and entry.intent.lower_bound < bound.offset:\n",
            "        newest = self._bounds.known.get((self._stream.topic, self._stream.partition))\n"
            "        if newest is not None and newest[1].offset > bound.offset:\n"
            "            bound = newest[1]\n"
            "        if entry.intent is not None and entry.intent.lower_bound < bound.offset:\n",
        ),
        deaths=("I1",),
    ),
    mutant(
        "duplicate_answered_from_state",
        "R9: a duplicate is looked at in the log before it is confirmed",
        _DUPLICATES + "test_a_duplicate_that_is_no_longer_in_the_log_is_neither_confirmed_nor_sent_again",
        (
            "proxy.producer.duplicates",
            "        found = await _look_for(stream, entry, batch, verdict.base_offset, compares=not is_same)\n",
            "        pass\n",
        ),
        deaths=("I3",),
    ),
    mutant(
        "vanished_from_a_deposed_leader",
        "R9: what a log is too short for has not vanished as long as another broker says that it leads",
        _LEADERS + "test_a_batch_that_a_deposed_leader_lacks_has_not_vanished",
        (
            "proxy.partition_log.log_offsets",
            "            elif end.offset <= offset and not await _has_rival(topic, partition, leader):\n",
            "            elif end.offset <= offset:\n",
        ),
    ),
    mutant(
        "another_one_at_a_deposed_leader",
        "R9: nor has that in whose place the log of one of them has something else",
        _LEADERS + "test_nor_has_one_in_whose_place_a_deposed_leader_has_another",
        (
            "proxy.partition_log.log_offsets",
            "                if not isinstance(message, Later) and not await _has_rival(topic, partition, leader):\n",
            "                if not isinstance(message, Later):\n",
        ),
    ),
    mutant(
        "lane_by_offset",
        "R9: a connection confirms what it acknowledged, not what lay at the same offset before",
        _DUPLICATES + "test_a_batch_that_was_cut_off_is_not_confirmed_by_the_connection_of_the_one_that_lies_there_now",
        (
            "proxy.producer.stream",
            "            name = batch.identity.producer_epoch, batch.identity.base_sequence\n",
            "            name = 0, dict((one.base_sequence, one.base_offset) for one in self.held.entry.window)"
            "[batch.identity.base_sequence]\n",
        ),
        (
            "proxy.producer.stream",
            "        name = identity.producer_epoch, identity.base_sequence\n",
            "        name = 0, dict((one.base_sequence, one.base_offset) for one in self.held.entry.window)"
            "[identity.base_sequence]\n",
        ),
        deaths=("I3",),
    ),
    mutant(
        "piece_by_offset",
        "R9: a duplicate is compared with its own place in the window, not with another batch of the same offset",
        _DUPLICATES + "test_a_batch_that_lies_where_one_that_was_cut_off_lay_is_found_there",
        (
            "proxy.producer.duplicates",
            "if piece.base_sequence == batch.identity.base_sequence)",
            "if piece.base_offset == base_offset)",
        ),
    ),
    mutant(
        "vanished_sent_again",
        "R9: a duplicate that has vanished is never forwarded again",
        _DUPLICATES + "test_a_duplicate_that_is_no_longer_in_the_log_is_neither_confirmed_nor_sent_again",
        (
            "proxy.producer.duplicates",
            '        await _tell(stream, batch, answers.vanished(verdict.base_offset), "vanished")\n',
            "        assert stream.held.entry is not None\n"
            "        stream.held.entry = __import__('dataclasses').replace(\n"
            "            stream.held.entry, window=(), next_sequence=batch.identity.base_sequence\n"
            "        )\n",
        ),
        deaths=("I1", "I2"),
    ),
    mutant(
        "duplicate_without_a_search",
        "R9: 46 only if the log has the batch",
        _DUPLICATES + "test_a_client_that_restarts_its_sequences_is_not_told_that_its_records_are_there",
        (
            "proxy.producer.sequencer",
            "            await look_for_overlap(stream, batch, verdict.record_count, confirmed)\n",
            "            stream.dismiss(batch, answers.duplicate_below_window(), 'duplicate')\n",
        ),
        deaths=("I3",),
    ),
    mutant(
        "gap_without_a_search",
        "R9: below the window no 45 before the log was searched",
        _DUPLICATES + "test_a_duplicate_from_before_the_window_is_known_because_the_log_has_it",
        (
            "proxy.producer.sequencer",
            "            await look_for_overlap(stream, batch, verdict.record_count, confirmed)\n",
            "            stream.dismiss(batch, answers.not_in_log(), 'out_of_order')\n",
        ),
        deaths=("45",),
    ),
    mutant(
        "next_old_batch_unread",
        "R9: what is behind the last old batch is read, too",
        _DUPLICATES + "test_other_records_under_the_next_old_numbers_are_not_taken_for_those_that_lie_there",
        (
            "proxy.producer.duplicates",
            "            is_it = stored_contents == contents\n",
            "            is_it = True\n",
        ),
        deaths=("I3",),
    ),
    mutant(
        "searched_from_its_first_commit",
        "R9: the search begins where the epoch begins, which an unclean election may move",
        _DUPLICATES + "test_an_epoch_is_searched_from_its_least_offset_also_when_the_log_has_become_shorter",
        (
            "state.commit",
            "    return base_offset if known == NO_OFFSET or base_offset < known else known\n",
            "    return base_offset if known == NO_OFFSET else known\n",
        ),
        deaths=("45",),
    ),
    mutant(
        "content_not_compared",
        "R9: what the numbers say is stored of a batch has to have its content",
        _DUPLICATES + "test_a_client_that_restarts_its_sequences_is_not_told_that_its_records_are_there",
        (
            "proxy.producer.duplicates",
            "    elif stored_contents != contents:",
            "    elif False:",
        ),
    ),
    mutant(
        "earlier_round_decides",
        "R9: what has the numbers of a batch may be of an earlier round of sequences",
        _DUPLICATES + "test_a_batch_of_which_an_earlier_round_of_sequences_has_the_numbers_is_not_out_of_order",
        (
            "proxy.producer.duplicates",
            "    if entry.end_offset - start_at > SEQUENCE_MODULUS:\n",
            "    if False:\n",
        ),
    ),
    mutant(
        "gap_though_unread",
        "R9: 45 only if the range was searched completely",
        _DUPLICATES + "test_a_batch_from_before_the_window_is_no_gap_as_long_as_the_log_cannot_be_read",
        (
            "proxy.producer.duplicates",
            '        stream.dismiss(batch, answers.in_doubt(result.reason), "overlap_unread")\n',
            '        stream.dismiss(batch, answers.not_in_log(), "out_of_order")\n',
        ),
        deaths=("45",),
    ),
    mutant(
        "numbers_are_enough",
        "R9: what has the numbers of a stored batch and other records is no duplicate",
        _OTHER_CONTENT + "test_the_numbers_of_a_stored_batch_with_other_records_are_out_of_order",
        (
            "proxy.producer.duplicates",
            "    is_same = verdict.crc == batch.header.crc != NO_CRC\n",
            "    is_same = True\n",
        ),
        deaths=("double is told 0",),
    ),
    mutant(
        "checksum_decides",
        "R9: another checksum is no proof of other records",
        _OTHER_CONTENT + "test_a_batch_that_its_client_has_made_anew_is_a_duplicate",
        ("proxy.producer.duplicates", "known != contents[: len(known)]", "True"),
        deaths=("45",),
    ),
    mutant(
        "checksum_not_kept",
        "R9: the checksum is kept, or each retry is looked for in the log",
        _OTHER_CONTENT + "test_the_same_bytes_are_answered_without_a_look_while_the_connection_lives",
        (
            "state.packed",
            "                self._window += batch.pack(sequence, count, offset, one.header.crc)\n",
            "                self._window += batch.pack(sequence, count, offset, 0)\n",
        ),
    ),
    mutant(
        "other_content_of_a_suspect",
        "R9: other records under known numbers are told as out of order only when the entry is not suspect",
        _OTHER_CONTENT + "test_a_suspect_entry_is_rebuilt_before_anything_is_out_of_order",
        ("proxy.producer.takeover", "verdict, is_suspect=True)", "verdict)"),
    ),
    mutant(
        "other_content_unconfirmed",
        "R9: nor before a swap has confirmed the entry",
        _OTHER_CONTENT + "test_before_it_is_out_of_order_the_entry_is_confirmed",
        (
            "proxy.producer.duplicates",
            "    for one in tries if is_confirmed else await stream.confirm(tries):\n",
            "    for one in tries:\n",
        ),
    ),
    mutant(
        "each_try_has_its_own_look",
        "R9: what one look has found is told to all tries that wait",
        _LONG_LOOKS + "test_who_comes_again_learns_that_it_is_stored",
        ("proxy.producer.duplicates", "content and await _content_of(other) == content]", "False]"),
    ),
    mutant(
        "stored_part_of_one_try",
        "R9: as is what it has found of a batch in parts",
        "unit/producer/test_parts.py::"
        "test_the_rest_is_sent_for_who_waits_less_long_than_the_look_at_the_first_part_takes",
        (
            "proxy.producer.duplicates",
            "        for one in await tries_of(stream, batch):\n            one.note_stored(",
            "        for one in [batch]:\n            one.note_stored(",
        ),
    ),
    mutant(
        "each_try_begins_at_the_epoch",
        "R9: a search that one try was too short for goes on with the next one",
        _LONG_LOOKS + "test_a_search_below_the_window_goes_on_with_the_next_try",
        ("proxy.producer.duplicates", "    left = stream.unfinished.pop(name, None)\n", "    left = None\n"),
    ),
    mutant(
        "old_search_goes_on",
        "R9: unless that was long ago",
        _LONG_LOOKS + "test_nor_does_it_go_on_long_after_the_last_one",
        (
            "proxy.producer.duplicates",
            "    if left is not None and await Now() - left.left_at <= limits.SEARCH_LEFT_SECONDS:\n",
            "    if left is not None:\n",
        ),
    ),
    mutant(
        "one_search_at_a_time",
        "R9: also where several old batches are looked for in turn",
        _LONG_LOOKS + "test_searches_for_several_old_batches_all_go_on",
        ("proxy.producer.stream", "dict([*kept.items(), (name, search)][-WINDOW_BATCHES_MAX:])", "{name: search}"),
    ),
    mutant(
        "confirmed_again_and_again",
        "R9: what was confirmed is told, if nobody came later",
        _LONG_LOOKS + "test_who_is_alone_is_told_45_though_other_proxies_raise_the_version_all_the_time",
        ("proxy.producer.duplicates", "    for one in tries if is_confirmed else await", "    for one in await"),
    ),
    mutant(
        "confirmed_for_all_time",
        "R11: what was confirmed before a retry joined, or in another era, is confirmed once more",
        _LONG_LOOKS + "test_a_retry_that_joins_what_was_confirmed_is_told_45_after_another_swap",
        (
            "proxy.producer.duplicates",
            "confirmed == (batch.arrived_at, stream.life.era)",
            "confirmed is not None",
        ),
    ),
    mutant(
        "confirmed_before_it_joined",
        "R11: also a retry that joins while the swap is under way",
        _LONG_LOOKS + "test_a_retry_that_joins_while_the_entry_is_confirmed_is_told_45_after_another_swap",
        (
            "proxy.producer.stream",
            " if batch in queue and batch.arrived_at == arrived_at]",
            " if batch in queue]",
        ),
    ),
    mutant(
        "same_numbers_same_answer",
        "R9: to those of the same content",
        _OTHER_CONTENT + "test_another_batch_with_the_same_numbers_does_not_get_its_answer",
        ("proxy.producer.duplicates", " if content and await _content_of(other) == content]", "]"),
    ),
    mutant(
        "first_part_stands_for_all",
        "R9: of a batch in parts each is compared",
        _OTHER_CONTENT + "test_each_part_of_a_batch_is_compared",
        (
            "proxy.producer.duplicates",
            "_Found.OTHER_CONTENT if known != contents else",
            "_Found.OTHER_CONTENT if False else",
        ),
    ),
    mutant(
        "lost_part_is_a_gap",
        "R11: a batch of which brokers have lost a part is not out of order",
        _BELOW_WINDOW + "test_a_batch_of_which_brokers_have_lost_the_last_parts_is_not_out_of_order",
        (
            "proxy.producer.duplicates",
            '            await _tell(stream, batch, answers.partly_vanished(), "vanished")\n',
            '            stream.dismiss(batch, answers.not_in_log(), "out_of_order")\n',
        ),
        deaths=("45",),
    ),
    mutant(
        "lost_batch_is_a_gap",
        "R11: nor one of which they have lost all that was stored",
        _BELOW_WINDOW + "test_a_batch_of_which_brokers_have_lost_all_that_was_stored_is_not_out_of_order",
        (
            "proxy.producer.duplicates",
            '            await _tell(stream, batch, answers.all_vanished(record_count), "vanished")\n',
            '            stream.dismiss(batch, answers.not_in_log(), "out_of_order")\n',
        ),
    ),
    mutant(
        "others_from_before_it_unseen",
        "R9: what lies under the first numbers of a batch may begin before it",
        _BELOW_WINDOW + "test_where_a_batch_that_begins_before_it_lies_under_its_numbers_it_is_out_of_order",
        (
            "proxy.producer.duplicates",
            "has_others = search.has_others or begins_with_others(",
            "has_others = begins_with_others(",
        ),
    ),
    mutant(
        "before_its_epoch_unseen",
        "R9: what begins before its epoch did is none of it",
        _BELOW_WINDOW + "test_where_it_begins_before_the_first_sequence_of_its_epoch_it_is_out_of_order",
        (
            "proxy.producer.duplicates",
            "        has_others = has_others or _begins_before_its_epoch(entry, identity)\n",
            "",
        ),
    ),
    mutant(
        "others_are_taken_for_its_own",
        "R9: of a batch whose first records are others' nothing was lost",
        _BELOW_WINDOW
        + "test_where_others_lie_under_its_first_numbers_it_is_out_of_order_though_brokers_have_lost_the_last",
        (
            "proxy.producer.duplicates",
            "    return first_contents != list(contents[place : place + count])\n",
            "    return False\n",
        ),
    ),
    mutant(
        "lost_part_is_stored",
        "R9: nor is it a duplicate",
        _BELOW_WINDOW + "test_nor_is_it_a_duplicate",
        ("proxy.producer.duplicates", "        return _Found.SOME_OF_IT\n", "        return _Found.THE_BATCH\n"),
    ),
    mutant(
        "no_second_look",
        "R14: what was forwarded again is looked for twice in the log",
        _DUPLICATES + "test_what_was_sent_again_is_looked_for_twice_in_the_log",
        (
            "proxy.producer.stream",
            "        if flow is not None:\n            self.work_aside(flow)\n",
            "        if flow is not None:\n            flow.close()\n",
        ),
    ),
    mutant(
        "dropped_not_looked_for",
        "R14: what was not found is looked for again, however it goes on",
        _DUPLICATES + "test_what_was_not_found_and_is_dropped_is_looked_for_too",
        (
            "proxy.producer.forward",
            "            self._stream.schedule_audit(self._bound, *self._names)  # R14\n",
            "            pass\n",
        ),
    ),
    mutant(
        "late_write_not_looked_for",
        "R14: a write over which the deadline passed is looked for too",
        _DUPLICATES + "test_what_was_written_late_is_looked_for_too",
        ("proxy.producer.forward", "        if outcome.is_late:", "        if False:"),
    ),
    mutant(
        "second_copy_is_other_content",
        "R9: a batch of which a copy lies in the log too is the same batch",
        "unit/producer/test_second_copies.py::test_a_retry_from_before_the_window_is_a_duplicate",
        (
            "proxy.producer.duplicates",
            "                if piece.base_sequence == self._due:",
            "                if True:",
        ),
    ),
    mutant(
        "compared_one_by_one",
        "R10: what a rebuild looks for takes no step longer than a piece of the log",
        "unit/producer/test_cut_rebuild.py::test_they_are_compared_with_what_a_piece_of_the_log_has_and_not_one_by_one",
        (
            "proxy.partition_log.log_search",
            "        if len(self._contents) <= _COMPARED_ONE_BY_ONE_MAX:",
            "        if True:",
        ),
    ),
    mutant(
        "every_epoch_begins_with_0",
        "R9: what is known of an epoch may begin in its middle",
        _BELOW_WINDOW + "test_stored_parts_that_brokers_have_lost_are_no_gap_where_sequences_come_round",
        (
            "proxy.producer.duplicates",
            "    return begins_with_0 and not has_come_round",
            "    return not has_come_round",
        ),
    ),
)

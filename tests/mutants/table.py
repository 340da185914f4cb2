"""The mutants, in the order of their rules: one for each rule, and one for each part of a rule to which the executable
model has a counterexample of its own (dev/rules.md names these rows). At most 80: a new one takes another one's place.
Those of one form alone are in ``forms.py``.
And one made of each row of the table that says what is usual (``proxy/producer/usual.py``)."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from textwrap import dedent

from mutants.forms import FORMS
from mutants.mutant import Mutant, mutant

from idemproxy.proxy.producer.usual import Unusual, UsualCase
from testkit.virtual.mutant import Patch

_APPEND_RESERVATION = "unit/producer/test_owned.py"
_ANSWERS = "unit/rules/test_rule_answers.py"
_CONDITIONAL = "unit/rules/test_rule_conditional.py"
_DUPLICATES = "unit/rules/test_rule_duplicates.py"
_INTENTS = "unit/rules/test_rule_intents.py"
_PRODUCE_CONNECTIONS = "unit/rules/test_rule_produce_connections.py"
_LIVES = "unit/rules/test_rule_lives.py"
_LOG = "unit/rules/test_rule_log.py"
_MEMORY = "unit/state/test_redis_life.py"
_NAMES = "unit/rules/test_rule_names.py"
_FETCH = "unit/hidden_ranges/test_fetch.py"
_UPKEEP = "unit/hidden_ranges/test_upkeep.py"

BY_HAND = (
    mutant(
        "living_owner_robbed",
        "R1: an intent is taken over only when its owner's lease is gone",
        _INTENTS + "::test_an_intent_is_not_taken_over_while_its_owners_lease_lives",
        Patch("proxy.producer.takeover", "Takeover._is_over", "await MemberAlive(owner) is not False", "False"),
        deaths=("I1",),
    ),
    mutant(
        "robbed_as_all_registrations_are_gone",
        "R1: a proxy that lost its registration takes another's intent over only when earlier leases are over",
        "unit/engine/test_grace.py::test_who_has_lost_his_registration_robs_nobody_who_may_have_lost_his_too",
        Patch("proxy.producer.takeover", "Takeover._is_over", "owner != NOBODY", "False"),
    ),
    mutant(
        "no_intent",
        "R2: the intent is written before a byte goes to the broker",
        _INTENTS + "::test_the_intent_is_in_the_store_before_a_byte_goes_to_the_broker",
        Patch(
            "proxy.producer.append",
            "GroupAppend.start",
            "self._outside.swap(held.key, held.stored_version, value, ttl_ms, self._reserved, check)",
            "self._reserved(Swapped())",
        ),
        deaths=("I1",),
    ),
    mutant(
        "intent_expires",
        "R2: an entry with an open intent does not expire with those at rest",
        _INTENTS + "::test_an_entry_with_an_open_intent_does_not_expire_with_those_at_rest",
        Patch(
            "proxy.producer.append",
            "GroupAppend.start",
            "0 if stream.is_conditional else stream.instance.ids_ttl_ms",
            "0 if stream.is_conditional else stream.instance.expiry_ms",
        ),
    ),
    mutant(
        "without_the_store",
        "R2: nothing is sent before the store has confirmed the swap",
        _INTENTS + "::test_nothing_is_sent_without_an_answer_from_the_store",
        Patch("proxy.producer.append", "GroupAppend._reserved", "type(result) is not Swapped", "False"),
        deaths=("I1", "I3", "the user"),
    ),
    mutant(
        "pipelined_produce_connection",
        "R3: at most one unanswered produce per produce connection",
        _PRODUCE_CONNECTIONS + "::test_a_produce_connection_has_one_unanswered_request",
        Patch(
            "proxy.broker.produce_connection_pool",
            "ProduceConnectionPool._dispatch",
            "self._idle.pop()",
            "self._idle[-1]",
        ),
        Patch("proxy.broker.produce_connection", "ProduceConnection.send", "assert not self._appends", ""),
        deaths=("a produce behind", "R3", "I1", "I3"),
    ),
    mutant(
        "no_deadline",
        "R4: the lease is looked at in the step of every send",
        _PRODUCE_CONNECTIONS + "::test_no_byte_of_a_produce_leaves_after_the_deadline",
        Patch(
            "proxy.broker.produce_connection_pool",
            "ProduceConnectionPool._take",
            "None if self.may_send() else 'the lease has ended'",
            "None",
        ),
        Patch("proxy.broker.produce_connection", "ProduceConnection.connected", "wire.fence(self._may_write)", ""),
        deaths=("I1",),
    ),
    mutant(
        "error_with_offset_is_a_refusal",
        "R5: a base offset means appended, whatever the code",
        _LOG + "::test_what_a_broker_appended_and_answered_with_an_error_is_not_sent_again",
        Patch("proxy.flow.outcome", "classify", "base_offset >= 0", "base_offset >= 0 and error_code == 0"),
        deaths=("I1",),
    ),
    mutant(
        "error_with_offset_is_a_success",
        "R5: what was appended with an error may vanish yet",
        _LOG + "::test_what_was_appended_with_an_error_and_has_vanished_is_no_success",
        Patch("proxy.producer.recovery", "Recovery._confirmed", "outcome.error_code == 0", "True"),
        deaths=("I3",),
    ),
    mutant(
        "no_settle",
        "R6: a broker passed the quiescence check before the log is read",
        _LOG + "::test_the_log_is_not_read_before_the_brokers_quiescence_check",
        Patch(
            "proxy.partition_log.log_search",
            "LogSearch.__init__",
            "self._is_quiescent = wanted.brokers_to_check is None",
            "self._is_quiescent = True",
        ),
        deaths=("I1",),
    ),
    mutant(
        "scan_to_high_watermark",
        "R6: the log is read to its end, not to the high watermark",
        _LOG + "::test_the_log_is_read_to_its_end_once_that_is_replicated",
        Patch(
            "proxy.partition_log.log_offsets",
            "current_end",
            "LatestOffset(topic, partition, LOG_END_REPLICA_ID)",
            "LatestOffset(topic, partition, HIGH_WATERMARK_REPLICA_ID)",
        ),
        deaths=("I1",),
    ),
    mutant(
        "log_of_a_deposed_leader",
        "R6: nothing is concluded as long as two brokers say that they lead",
        "unit/partition_log/test_two_leaders.py::test_the_log_of_a_leader_that_has_been_deposed_proves_no_absence",
        Patch(
            "proxy.partition_log.log_offsets",
            "current_end",
            "not await _has_rival(topic, partition, leader, may_lead)",
            "True",
        ),
        deaths=("I1",),
    ),
    mutant(
        "first_part_sent_again",
        "R6: of an intent that is taken over what the log has is committed, also if that is less than all",
        "unit/producer/test_parts.py::test_of_a_partly_stored_batch_only_the_rest_is_sent",
        Patch(
            "proxy.producer.takeover",
            "Takeover._conclude",
            "min(records, batch.record_count)",
            "batch.record_count if records >= batch.record_count else 0",
        ),
        deaths=("I1",),
    ),
    mutant(
        "owned_taken_over_by_its_first_batch",
        "R6: whoever takes an append reservation over takes all that lies behind its bound",
        _APPEND_RESERVATION + "::test_all_that_a_dead_owner_has_appended_is_found_in_the_log",
        Patch(
            "proxy.producer.append",
            "GroupAppend.start",
            "value = held.take_append_reservation(entry, reservation, now)",
            "value = held.take_append_reservation(entry, reservation, now)\n"
            "entry.version -= 1\n"
            "where = plan.owner, plan.bound.offset, plan.bound.anchor, plan.wrapped[2], plan.leader\n"
            "value = entry.reserving(*where, group)\n"
            "entry.version += 1\n",
        ),
        deaths=("I1", "I2", "I3", "45", "the user"),
    ),
    mutant(
        "before_the_place_it_joined_unread",
        "R6: what comes before the place where a pass was joined is read last",
        "unit/partition_log/test_one_pass.py::test_a_rebuild_concludes_the_same_wherever_it_joins_a_pass[0]",
        Patch(
            "proxy.partition_log.log_search",
            "LogSearch._reads_to",
            "self._joined is not None and self._later is None and (self._next >= log_end)",
            "False",
        ),
        deaths=("I1",),
    ),
    mutant(
        "walk_stands_still",
        "R10: in a log of format v2 the batch that follows one that was found is known, too",
        "unit/partition_log/test_recognised.py::test_from_a_joint_the_log_is_walked_to_its_end",
        Patch("proxy.partition_log.recognised", "Recogniser._moves", "advance(base, count)", "base"),
    ),
    mutant(
        "commit_overwrites",
        "R7: a commit compares owner and version",
        _INTENTS + "::test_a_commit_does_not_overwrite_what_another_proxy_wrote_meanwhile",
        Patch(
            "proxy.producer.entry_cache",
            "CachedEntry.write",
            "self._take(result.value)",
            'there = int.from_bytes(result.value[1:9], "big") if result.value else 0\n'
            "self.stored_version = expected = there\n"
            "entry = replace(entry, version=there + 1)\n"
            "value = pack(entry)\n"
            "continue\n",
        ),
        deaths=("I1", "I2"),
    ),
    mutant(
        "log_end_as_bound",
        "R8: the bound of a first batch is a high watermark, never the log end",
        _LOG + "::test_a_first_batchs_bound_is_a_high_watermark_not_the_log_end",
        Patch("proxy.partition_log.log_offsets", "newest_position", "HIGH_WATERMARK_REPLICA_ID", "LOG_END_REPLICA_ID"),
        Patch(
            "proxy.partition_log.log_offsets",
            "newest_position",
            "below = await message_at(leader, topic, partition, answer.offset - 1)",
            "return Position(answer.offset, NO_ANCHOR)",
        ),
        deaths=("I1",),
    ),
    mutant(
        "no_anchor",
        "R8: the record below the bound is compared before every scan",
        _LOG + "::test_a_search_whose_anchor_is_another_record_begins_at_the_logs_start",
        Patch(
            "proxy.partition_log.log_search",
            "LogSearch._begin",
            "holds and bound.offset > 0 and (bound.anchor != NO_ANCHOR)",
            "False",
        ),
        deaths=("I1",),
    ),
    mutant(
        "unverified_from_the_newest_append",
        "R8: an unverified entry has only its own last commit as bound",
        _LOG + "::test_an_unverified_entry_has_no_other_bound_than_its_own_last_commit",
        Patch(
            "proxy.producer.takeover",
            "Takeover._bound_of_rebuild",
            "return bound_of(entry)",
            "bound = bound_of(entry)\n"
            "newest = self._bounds.known.get((self._stream.topic, self._stream.partition))\n"
            "return bound if newest is None or newest[1].offset <= bound.offset else newest[1]\n",
        ),
        deaths=("I1",),
    ),
    mutant(
        "bound_behind_what_is_out",
        "R8: the bound of an append reservation moves to its producer's last commit and no further",
        _APPEND_RESERVATION + "::test_a_written_append_reservation_is_bounded_by_the_last_commit_alone",
        Patch(
            "proxy.producer.append",
            "GroupAppend.write_append_reservation",
            "self._held.write_append_reservation(self._outside.swap, now)",
            "newest = self._bounds.known[self._place][1]\n"
            "if self._held.append_reservation is not None:\n"
            "    self._held.append_reservation.move_to(newest.offset, newest.anchor)\n"
            "self._held.write_append_reservation(self._outside.swap, now)\n",
        ),
        deaths=("I1", "I2", "I3", "45", "the user"),
    ),
    mutant(
        "duplicate_answered_from_state",
        "R9: a duplicate is looked at in the log before it is confirmed",
        _DUPLICATES + "::test_a_duplicate_lost_from_the_log_is_neither_confirmed_nor_sent_again",
        Patch(
            "proxy.producer.duplicates",
            "answer_duplicate",
            "found = await _look_for(stream, entry, batch, verdict.base_offset)",
            "pass",
        ),
        deaths=("I3",),
    ),
    mutant(
        "gap_without_a_search",
        "R9: below the window no 45 before the log was searched",
        _DUPLICATES + "::test_a_duplicate_from_before_the_window_is_known_because_the_log_has_it",
        Patch(
            "proxy.producer.sequencer",
            "Sequencer._turn_down",
            "await look_for_overlap(stream, batch, verdict.record_count, confirmed)",
            "stream.dismiss(batch, answers.not_in_log(), 'out_of_order')",
        ),
        deaths=("45",),
    ),
    mutant(
        "numbers_are_enough",
        "R9: what has the numbers of a stored batch and other records is no duplicate",
        "unit/producer/test_other_content.py::test_the_numbers_of_a_stored_batch_with_other_records_are_out_of_order",
        Patch("proxy.producer.duplicates", "answer_duplicate", "await digest_of(batch) != verdict.digest", "False"),
        deaths=("double is told 0",),
    ),
    mutant(
        "data_generation_ignored",
        "R10: an entry of an earlier data generation is unverified",
        _LIVES + "::test_an_entry_of_an_earlier_data_generation_may_lack_its_last_writes",
        Patch(
            "proxy.producer.entry_cache",
            "CachedEntry.is_unverified",
            "self.entry.data_generation != self._instance.data_generation",
            "False",
        ),
        Patch(
            "proxy.producer.entry_cache",
            "CachedEntry._take",
            "version < self.stored_version and (not self.may_have_expired)",
            "False",
        ),
        deaths=("I1",),
    ),
    mutant(
        "no_grace",
        "R10: the leases of the lost state run out before an entry is touched",
        _LIVES + "::test_no_unverified_entry_is_touched_before_the_lost_leases_end",
        Patch(
            "proxy.producer.takeover",
            "Takeover._is_quiet",
            "(now := await Now()) < self._instance.grace_until",
            "False",
        ),
        deaths=("I1",),
    ),
    mutant(
        "absent_entry_trusted",
        "R10: an absent entry is unverified, unless its producer id is of this data generation",
        _LIVES + "::test_an_absent_entry_is_unverified_unless_its_producer_id_is_of_this_life",
        Patch(
            "proxy.producer.entry_cache",
            "CachedEntry.is_unverified",
            "block is None or block.data_generation != self._instance.data_generation",
            "False",
        ),
        deaths=("I1",),
    ),
    mutant(
        "one_batch_rebuilt",
        "R10: every batch marker of the producer is taken, not only the batch asked for",
        _LIVES + "::test_a_rebuild_takes_everything_that_the_log_has_of_a_producer",
        Patch("state.commit", "rebuilt", "stored", "stored[:1]", which=1),
        deaths=("I1", "45"),
    ),
    mutant(
        "checkpoint_decides_a_gap_producer",
        "R10: a producer of which nothing is found after the checkpoint, and that goes on, is looked for below",
        "unit/producer/test_rebuild_from_checkpoints.py::test_a_producer_that_was_idle_for_longer_is_looked_for_in_the_whole_log",
        Patch("proxy.producer.rebuild", "is_enough", "lowest.base_sequence == due", "True"),
        deaths=("45",),
    ),
    mutant(
        "life_not_in_the_data_generation",
        "R10: a new life of the memory is a new data generation",
        _LIVES + "::test_each_data_generation_has_a_swap_script_of_its_own",
        Patch("state.redis_facts", "data_generation_of", 'f"{identity} {data_number}".encode()', "identity.encode()"),
        deaths=("I1",),
    ),
    mutant(
        "count_not_compared",
        "R10: a count of the memory's life that is not above what was seen shows that the memory went back",
        _MEMORY + "::test_memory_that_went_back_a_heartbeat_changes_the_data_generation_with_a_warning[4.5]",
        Patch("state.redis_data_number", "DataNumberCounter._looked", "int(reply) < self.newest", "False"),
        Patch("state.redis_data_number", "DataNumberCounter._raised", "reply <= self.newest", "False"),
        deaths=("I1",),
    ),
    mutant(
        "renewal_over_an_earlier_one",
        "R10: a heartbeat does not renew a registration that is an earlier one",
        _MEMORY + "::test_a_swap_after_the_heartbeat_that_shows_it_is_refused_too",
        Patch(
            "state.redis_store",
            "RedisStore._renew_again",
            "self._command.pack(self._own_key, before, written, ttl_ms)",
            'pack(b"SET", self._own_key, written, b"XX", b"PX", b"%d" % ttl_ms)',
        ),
        Patch("state.redis_store", "RedisStore._renew_again", "reply != 1", "False"),
    ),
    mutant(
        "out_of_order_in_doubt",
        "R11: never 45 for a batch in doubt",
        _LIVES + "::test_a_batch_in_doubt_never_gets_out_of_order",
        Patch(
            "proxy.producer.answers",
            "in_doubt",
            "ErrorCode.REQUEST_TIMED_OUT",
            "ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER",
        ),
        deaths=("I1", "45"),
    ),
    mutant(
        "successor_out_of_order",
        "R11: a batch behind one that failed retriably is no gap",
        _LIVES + "::test_a_batch_after_one_that_must_be_sent_again_is_no_gap",
        Patch("proxy.producer.stream", "Stream.answer", "answers.ends_epoch(answer.error_code)", "False"),
        deaths=("45",),
    ),
    mutant(
        "unrecoverable_waited_for",
        "R11: what a client has given up is waited for no longer",
        "unit/producer/test_retry_notes.py::test_a_batch_that_comes_again_waits_only_for_what_failed_after_it",
        Patch(
            "proxy.producer.retry_notes", "RetryNotes.has_failed_before", "self._failed_in(key, epoch, sequence)", "0"
        ),
        deaths=("liveness",),
    ),
    mutant(
        "failure_before_the_answer_to_a_lower_one",
        "R11: nothing fails for good whose answer leaves before that to a lower batch, which came again",
        "unit/producer/test_behind_failures.py"
        "::test_out_of_order_never_leaves_before_an_unrecoverable_batch_is_answered",
        Patch(
            "proxy.producer.retry_notes",
            "RetryNotes.has_failed_before",
            "last_epoch == epoch and request < last",
            "False",
        ),
    ),
    mutant(
        "unknown_outcome_is_a_gap",
        "R11: what is missing before a batch is no gap where it was unrecoverable and its client has not heard of that",
        "unit/producer/test_unrecoverable.py::test_the_batch_directly_after_it_fails_with_invalid_record",
        Patch("proxy.producer.sequencer", "Sequencer._turn_down", "self._is_after_unknown(batch, verdict)", "False"),
        deaths=("45",),
    ),
    mutant(
        "expired_begins_at_once",
        "R11: an expired producer begins in the middle only with a batch that comes for the second time",
        "unit/producer/test_expiry.py::test_it_does_not_begin_with_what_overtakes_its_first_batch_over_another_connection",
        Patch("proxy.producer.sequencer", "Sequencer._work_on", "not batch.is_retry(stream.key)", "False"),
        deaths=("45",),
    ),
    mutant(
        "refused_from_memory",
        "R11: before 45 or 47 the entry is confirmed by a swap",
        _LIVES + "::test_what_is_known_is_confirmed_before_a_refusal",
        Patch("proxy.producer.sequencer", "Sequencer._work_on", "await stream.confirm([batch])", "True"),
        deaths=("45",),
    ),
    mutant(
        "middle_is_out_of_order",
        "R11: a batch that is stored up to its middle goes on there",
        "unit/producer/test_refusals.py::test_a_batch_of_which_a_rebuild_found_the_first_part_gets_its_rest",
        Patch(
            "state.decide",
            "decide",
            "Overlap(overlap) if overlap else OutOfOrder(entry.next_sequence, 'there is a gap before this batch')",
            "Overlap(overlap) if overlap == batch.record_count else OutOfOrder(entry.next_sequence, '')",
        ),
        deaths=("45",),
    ),
    mutant(
        "gap_not_looked_for",
        "R11: after a rebuild a batch behind a gap is looked for itself, too",
        "unit/producer/test_owned.py::test_who_has_not_read_the_log_itself_reads_it",
        Patch("proxy.producer.sequencer", "Sequencer._work_on", "await is_absent(stream, batch)", "True"),
    ),
    mutant(
        "old_intent_ignored",
        "R12: a new epoch first resolves the open intent of the old one",
        _LIVES + "::test_an_older_epochs_open_intent_is_resolved_before_anything_newer",
        Patch(
            "proxy.producer.sequencer",
            "Sequencer._open_unknown_outcome",
            "entry.has_open_intent",
            "entry.has_open_intent and not stream.is_outdated(entry.intent.producer_epoch)",
        ),
        deaths=("I2",),
    ),
    mutant(
        "old_batch_sent_again",
        "R12: an old batch that is not found is dropped, never forwarded",
        _LIVES + "::test_an_old_batch_not_in_the_log_is_dropped_for_newer_epochs",
        Patch(
            "proxy.producer.stream",
            "Stream.why_not_sent",
            "self.is_outdated(batch.identity.producer_epoch)",
            "False",
        ),
        deaths=("I1", "I2"),
    ),
    mutant(
        "asked_and_kept",
        "R12: an owner that was asked hands over",
        _APPEND_RESERVATION + "::test_a_busy_owner_is_asked_for_its_append_reservation_and_hands_over",
        Patch("proxy.producer.append_reservation", "AppendReservation.answered", "self.is_asked_for = True", ""),
    ),
    mutant(
        "parked_for_ever",
        "R13: across proxies a retry parks and reads the value again",
        _INTENTS + "::test_who_waits_for_another_proxys_intent_reads_again_until_it_is_committed",
        Patch("proxy.producer.stream", "Stream.wait_to_read_again", "self.held.forget()", ""),
        deaths=("liveness",),
    ),
    mutant(
        "no_second_look",
        "R14: what was forwarded again is looked for twice in the log",
        _DUPLICATES + "::test_what_was_sent_again_is_looked_for_twice_in_the_log",
        Patch("proxy.producer.stream", "Stream.schedule_audit", "self.work_aside(flow)", "flow.close()"),
    ),
    mutant(
        "ends_with_commits_unwritten",
        "R15: SIGTERM: commits are written and intents are released",
        _ANSWERS + "::test_a_proxy_that_has_ended_leaves_no_unknown_outcome_and_no_lease",
        Patch(
            "proxy.engine.engine", "Engine._drain_ends", "not is_any_busy and not self._has_produce_in_flight()", "True"
        ),
    ),
    mutant(
        "acks_of_the_leader_only",
        "R16: idempotent batches go upstream with acks=-1",
        _ANSWERS + "::test_idempotent_batches_are_written_to_all_replicas_whatever_the_client_asks_for",
        Patch(
            "proxy.broker.produce_connection",
            "ProduceConnection.send",
            "encode_request(version, -1, timeout_ms, parts)",
            "encode_request(version, 1, timeout_ms, parts)",
        ),
        deaths=("I3",),
    ),
    mutant(
        "named_after_a_fin",
        "R17: after a FIN nothing is begun for a producer with an id",
        "unit/session/test_requests_at_the_end.py::test_nothing_is_begun_after_a_fin_for_a_producer_with_an_id",
        Patch(
            "proxy.session.session",
            "Session.part_if_gone",
            "self._shell.has_hung_up and self.is_idempotent and (not self.is_closed)",
            "False",
        ),
    ),
    mutant(
        "sent_for_the_dead",
        "R17: nothing is sent for a client that has gone",
        _INTENTS + "::test_nothing_is_sent_for_a_client_that_has_gone",
        Patch("proxy.producer.stream", "Stream.why_not_sent", "waiter.is_done or waiter.connection.is_closed", "False"),
        deaths=("I1",),
    ),
    mutant(
        "one_client_is_enough",
        "R17: every batch of a group needs its client",
        _INTENTS + "::test_every_batch_of_a_group_needs_its_client",
        Patch(
            "proxy.producer.stream",
            "Stream.why_not_sent",
            "group",
            "group[:1]",
        ),
        deaths=("I1",),
    ),
    mutant(
        "not_sent_not_released",
        "R17: a proxy that reserved owes a commit or a release",
        _INTENTS + "::test_who_reserved_and_sends_nothing_releases_what_he_holds",
        Patch("proxy.producer.recovery", "Recovery._not_sent", "self._let_go()", ""),
        deaths=("liveness",),
    ),
    mutant(
        "written_once_unconfirmed",
        "R17: a proxy that may have reserved writes until a reply confirms it",
        _INTENTS + "::test_who_may_have_reserved_writes_until_a_reply_confirms_it",
        Patch(
            "proxy.producer.entry_cache",
            "CachedEntry.write",
            "await Pause(self._bell, limits.PROBE_SECONDS)",
            "await Pause(self._bell, limits.PROBE_SECONDS)\nself.forget()\nreturn False\n",
        ),
        deaths=("liveness",),
    ),
    mutant(
        "release_keeps_the_version",
        "R17: every write raises the version, a release too",
        _INTENTS + "::test_a_release_raises_the_version_so_swaps_of_older_values_fail",
        Patch("state.commit", "_with_intent", "entry.version + 1", "entry.version + (intent is not None)"),
    ),
    mutant(
        "undecidable_is_released",
        "R17: an intent that cannot be decided is remembered, not released",
        _INTENTS + "::test_what_cannot_be_decided_is_remembered_and_never_sent_again",
        Patch("proxy.producer.recovery", "Recovery._give_up", "unrecoverable(entry)", "released(entry)"),
        deaths=("I1",),
    ),
    mutant(
        "unrecoverable_by_the_living_waited_for",
        "R17: no proxy waits for what a living one has given up",
        "unit/producer/test_several_proxies.py::test_a_living_owners_unrecoverable_batch_delays_nobody_in_a_new_data_generation",
        Patch(
            "proxy.producer.takeover",
            "Takeover._work",
            "entry is not None and entry.has_open_intent",
            "entry is not None",
        ),
        deaths=("liveness",),
    ),
    mutant(
        "owned_after_the_hand_over_is_sent",
        "R17: nothing begins under an append reservation from the moment on that the swap which ends it was sent",
        _APPEND_RESERVATION + "::test_nothing_begins_under_it_while_it_is_handed_over",
        Patch("proxy.producer.append_reservation", "AppendReservation.may_append", "not self.is_ending", "True"),
        Patch(
            "proxy.producer.sequencer",
            "Sequencer.goes_at_once",
            "self._running or stream.queue or stream.out",
            "stream.queue or stream.out",
        ),
        deaths=("I1", "I2", "I3"),
    ),
    mutant(
        "handed_over_in_flight",
        "R17: an append reservation is not handed over while a batch is in flight",
        _APPEND_RESERVATION + "::test_it_is_not_handed_over_while_a_batch_is_in_flight",
        Patch("proxy.producer.sequencer", "Sequencer.look", "not append.is_out", "True"),
        Patch("proxy.producer.sequencer", "Sequencer.flush", "not self._append.is_out", "True"),
        deaths=("I1", "I2", "I3", "the user"),
    ),
    mutant(
        "no_answer_in_time",
        "R18: a produce is answered after three quarters of its own timeout",
        _ANSWERS + "::test_a_produce_is_answered_after_three_quarters_of_its_own_time",
        Patch("proxy.session.sweeper", "Sweeper._sweeping", "call.answer_by <= now", "False"),
        deaths=("liveness",),
    ),
    mutant(
        "group_refused_as_a_whole",
        "R19: what depends on content is tried one batch at a time",
        _ANSWERS + "::test_batches_that_are_refused_together_are_tried_one_by_one",
        Patch(
            "proxy.producer.recovery", "Recovery._refused", "code in CONTENT_ERRORS and len(self._group) > 1", "False"
        ),
        deaths=("the user",),
    ),
    mutant(
        "plain_acks_raised",
        "R20: a batch without a producer id keeps its acks",
        _ANSWERS + "::test_a_batch_without_producer_id_keeps_acks_without_batch_marker_or_entry",
        Patch(
            "proxy.session.non_idempotent",
            "NonIdempotentBatches.send",
            "encode_request(version, acks, timeout_ms, self.sendable)",
            "encode_request(version, -1, timeout_ms, self.sendable)",
        ),
    ),
    mutant(
        "name_not_compared",
        "R22: the swap that reserves compares the newest instance of the name",
        _NAMES + "::test_the_name_is_compared_in_the_step_of_the_reserve",
        Patch("proxy.producer.append", "GroupAppend.start", "held.name is None", "True"),
        deaths=("zombie", "stored"),
    ),
    mutant(
        "name_of_a_lost_life_goes_on",
        "R22: after a new data generation the next instance gets a new id",
        _NAMES + "::test_when_redis_has_lost_the_last_instance_its_epoch_is_not_issued_again",
        Patch("state.names", "next_instance", "record.data_generation != data_generation", "False"),
    ),
    mutant(
        "higher_epoch_trusted",
        "R22: after a higher epoch was seen than is stored the next instance gets a new id",
        _NAMES + "::test_a_self_raised_epoch_counts_and_the_next_instance_has_another_id",
        Patch("state.names", "with_higher_epoch", "NO_DATA_GENERATION", "record.data_generation"),
    ),
    mutant(
        "one_id_for_clients_that_raise_epochs",
        "R22: by client id every instance has a producer id of its own",
        _NAMES + "::test_by_client_id_every_instance_has_a_producer_id_of_its_own",
        Patch("state.names", "next_instance", "not keeps_id", "False"),
    ),
    mutant(
        "name_outlives_its_state",
        "R22: what an id has is renewed before its next epoch is issued",
        _NAMES + "::test_an_epoch_is_issued_only_once_what_the_id_has_on_partitions_is_renewed",
        Patch("proxy.session.names", "Names._begin", "isinstance(verdict, Raised)", "False"),
    ),
    mutant(
        "conditional_partition_begins_at_zero",
        "R23: a conditional partition begins where its log ends",
        _CONDITIONAL + "::test_a_conditional_partition_begins_where_its_log_ends",
        Patch("state.conditional", "begun", "sequence_of(next_offset)", "0"),
    ),
    mutant(
        "same_numbers_same_batch",
        "R23: a batch of the same numbers is compared by its content",
        _CONDITIONAL + "::test_what_lies_at_the_offset_is_compared_by_its_content",
        Patch("proxy.producer.conditional", "_place_of", "await has_content_of(stream, batch, [piece])", "True"),
    ),
    mutant(
        "offset_not_compared",
        "R23: who is told success has the expected offset",
        _CONDITIONAL + "::test_who_writes_past_the_rules_fences_the_conditional_partition",
        Patch(
            "proxy.producer.append",
            "GroupAppend.answered",
            "stream.is_conditional and shift_of(plan.group[0].identity.base_sequence, base_offset)",
            "False",
        ),
    ),
    mutant(
        "looked_for_at_its_own_offset",
        "R23: behind foreign records a batch is looked for that may lie elsewhere",
        _CONDITIONAL + "::test_what_lies_elsewhere_is_found_though_redis_has_lost_the_fence",
        Patch(
            "proxy.producer.conditional",
            "_place_of",
            "await has_content_of(stream, batch, [piece])",
            "await has_content_of(stream, batch, [piece]) and piece.base_offset == offset",
        ),
    ),
    mutant(
        "lost_records_not_looked_for",
        "R23: a log that ends before where it ended fences, whoever looks",
        _CONDITIONAL + "::test_a_writer_that_read_a_shortened_log_learns_of_the_fence",
        Patch("proxy.producer.conditional", "_ends_there", "end[1] == entry.end_offset", "end[1] <= entry.end_offset"),
    ),
    mutant(
        "not_conditional_let_in",
        "R23: who is not conditional is refused",
        "unit/session/test_conditional_produce.py::test_who_is_not_conditional_is_refused",
        Patch(
            "proxy.session.produce",
            "ProduceCall._start_part",
            "is_conditional and refusal is None and producer_id != CONDITIONAL_ID",
            "False",
        ),
    ),
    mutant(
        "each_of_a_pipeline_by_itself",
        "R23: what a writer has in flight behind a refused batch is refused, too",
        _CONDITIONAL + "::test_batches_in_flight_after_a_conflict_are_refused_with_it",
        Patch(
            "proxy.producer.sequencer",
            "Sequencer._work_on_conditional",
            "Ahead.NOTHING if link is None else link.ahead",
            "Ahead.NOTHING",
        ),
    ),
    mutant(
        "only_refusals_are_heeded",
        "R23: nothing is appended in place of a batch that is to be sent again",
        _CONDITIONAL + "::test_a_batch_is_held_back_after_one_to_be_sent_again",
        Patch("state.conditional", "decide_conditional", "ahead in (Ahead.OPEN, Ahead.AGAIN)", "False"),
        Patch(
            "state.conditional",
            "decide_conditional",
            "_APPEND if ahead is Ahead.NOTHING else CutOff()",
            "CutOff() if ahead is Ahead.REFUSED else _APPEND",
        ),
    ),
    mutant(
        "named_by_offset_alone",
        "R24: a message with another checksum is another one",
        _FETCH + "::test_a_message_with_another_checksum_is_another_one",
        Patch("codecs.without_ranges", "without_ranges", "checksum == crc", "offset in noted"),
        deaths=("offset ",),
    ),
    mutant(
        "stands_before_what_is_left_out",
        "R24: where all is left out, the next fetch begins behind it",
        _FETCH + "::test_where_all_is_left_out_the_next_fetch_begins_after_it",
        Patch(
            "proxy.hidden_ranges.fetch",
            "FetchWithoutHiddenRanges._left_of",
            "self._skips.note(place, offset, end, logs)",
            "",
        ),
        deaths=("consumer-",),
    ),
    mutant(
        "moved_by_what_another_saw",
        "R24: what one client has seen is not believed for another one",
        _FETCH + "::test_what_one_client_has_seen_is_not_believed_for_another",
        Patch(
            "proxy.hidden_ranges.known",
            "Skips.__init__",
            "self._answers = 0",
            "self._answers = 0\nself._noted = globals().setdefault('of_everybody', self._noted)\n",
        ),
    ),
    mutant(
        "left_out_before_it_is_stored",
        "R24: a range counts once it is stored that its messages were seen",
        _UPKEEP + "::test_who_removes_a_range_while_a_proxy_looks_into_the_log_is_heard",
        Patch(
            "proxy.hidden_ranges.upkeep",
            "HiddenRangesUpkeep._follow",
            "await self._store(version, now)",
            "await self._store(version, now) or True",
        ),
    ),
    mutant(
        "lost_with_redis",
        "R24: what Redis loses is given back",
        _UPKEEP + "::test_what_redis_loses_is_given_back",
        Patch(
            "proxy.hidden_ranges.upkeep",
            "HiddenRangesUpkeep._follow",
            "[place for place, hidden_range in now.items() if theirs.get(place) != hidden_range]",
            "[place for place in theirs if theirs[place] != now[place]]",
        ),
        deaths=("b'",),
    ),
    mutant(
        "served_before_the_list_is_read",
        "R24: no fetch passes before the list was read",
        _UPKEEP + "::test_until_the_list_was_read_no_client_is_served",
        Patch("proxy.hidden_ranges.known", "KnownHiddenRanges", "is_read: bool = False", "is_read: bool = True"),
        deaths=("b'",),
    ),
)

_USUAL = "unit/producer/test_usual.py"
_SCENES_OF_ROWS = {
    Unusual.CONDITIONAL: "test_a_conditional_batch_is_prepared_by_a_flow",
    Unusual.NAMED: "test_a_producer_with_a_name_is_not_usual",
    Unusual.NOT_KNOWN: "test_a_producer_of_which_nothing_is_known_is_not_usual",
    Unusual.BOUND: "test_an_old_bound_is_as_good_as_none",
    Unusual.PART: "test_what_is_left_of_a_batch_is_prepared_by_a_flow",
}
"""The others have a scene each of the same test."""


def _of_the_table() -> Iterator[Mutant]:
    (function,) = ast.parse(dedent(inspect.getsource(UsualCase._why_not))).body
    for row in ast.walk(function):
        if isinstance(row, ast.If) and isinstance(row.body[0], ast.Return):
            returned = row.body[0].value
            assert isinstance(returned, ast.Attribute)
            unusual = Unusual[returned.attr]
            default = f"test_what_is_not_usual_is_prepared_by_a_flow_which_says_why[{unusual.label}]"
            yield mutant(
                f"usual_though_{unusual.label}",
                f"{unusual.rule}: it is not usual that {unusual.why}",
                f"{_USUAL}::{_SCENES_OF_ROWS.get(unusual, default)}",
                Patch("proxy.producer.usual", "UsualCase._why_not", ast.unparse(row.test), "False"),
            )


OF_THE_TABLE = tuple(_of_the_table())
MUTANTS = (*BY_HAND, *FORMS, *OF_THE_TABLE)

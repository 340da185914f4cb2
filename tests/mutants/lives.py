"""Mutants of the lives of data and epochs, and of what clients are told meanwhile: rules R10, R11, R12."""

from __future__ import annotations

from mutants.mutant import mutant

_SCENES = "unit/rules/test_rule_lives.py::"
_MARKS = "unit/producer/test_rebuild_from_checkpoints.py::"
_LOSS_UNNOTICED = (
    "proxy.producer.entry_cache",
    "        if version < self.stored_version and not self._may_have_expired:\n",
    "        if False:\n",
)

LIVES = (
    mutant(
        "generation_ignored",
        "R10: an entry of an earlier generation is suspect",
        _SCENES + "test_an_entry_of_an_earlier_life_of_the_data_may_lack_its_last_writes",
        (
            "proxy.producer.entry_cache",
            "            return self.entry.generation != self._life.generation\n",
            "            return False\n",
        ),
        _LOSS_UNNOTICED,  # else it is noticed that the value is older than what was written
        deaths=("I1",),
    ),
    mutant(
        "older_value_trusted",
        "R10: a stored version older than the one that was written is suspect",
        _SCENES + "test_a_value_that_is_older_than_what_was_written_is_suspect_in_the_same_life_too",
        _LOSS_UNNOTICED,
        deaths=("I1",),
    ),
    mutant(
        "absent_entry_trusted",
        "R10: an absent entry is suspect, unless its producer id is of this generation",
        _SCENES + "test_an_absent_entry_is_suspect_unless_its_producer_id_is_of_this_life",
        (
            "proxy.producer.entry_cache",
            "        return block is None or block.generation != self._life.generation\n",
            "        return False\n",
        ),
        deaths=("I1",),
    ),
    mutant(
        "one_batch_rebuilt",
        "R10: every marker of the producer is taken, not only the batch asked for",
        _SCENES + "test_everything_that_the_log_has_of_a_producer_is_taken_not_only_the_batch_asked_for",
        (
            "state.commit",
            "    for piece in stored:\n        if piece.producer_epoch > entry.producer_epoch:\n",
            "    for piece in stored[:1]:\n        if piece.producer_epoch > entry.producer_epoch:\n",
        ),
        deaths=("I1", "45"),
    ),
    mutant(
        "less_than_a_window_gathered",
        "R10: what is kept of a long log tells as much as all of it",
        "unit/state/test_commit.py::test_of_many_pieces_the_first_one_and_a_whole_window_are_kept",
        (
            "state.commit",
            "                del newest[self._start + 1 : -WINDOW_BATCHES_MAX]\n",
            "                del newest[self._start + 1 : -1]\n",
        ),
        deaths=("I1", "45"),
    ),
    mutant(
        "no_grace",
        "R10: the leases of the lost state run out before an entry is touched",
        _SCENES + "test_no_suspect_entry_is_touched_before_the_leases_of_the_lost_state_have_run_out",
        (
            "proxy.producer.takeover",
            "        if (now := await Now()) < self._life.grace_until:\n",
            "        if (now := await Now()) < 0:\n",
        ),
        deaths=("I1",),
    ),
    mutant(
        "grace_counts_from_the_loss",
        "R10: the leases of the lost state are counted from the registration of the proxy that waits for them",
        "unit/engine/test_grace.py::test_a_state_that_is_lost_while_a_proxy_is_cut_off_is_waited_for_from_its_registration",
        (
            "proxy.engine.life",
            "(life.incarnation, self._wait_for_old_leases)\n",
            "(life.incarnation, lambda: None)\n",
        ),
    ),
    mutant(
        "own_registration_not_looked_at",
        "R10: a missing registration is noticed before a suspect entry is touched",
        _SCENES + "test_a_suspect_entry_is_not_touched_while_our_own_registration_is_lost",
        (
            "proxy.producer.takeover",
            "        if await MemberAlive(self._life.incarnation) is not True:\n",
            "        if False:\n",
        ),
        deaths=("I1",),
    ),
    mutant(
        "checkpoint_without_anchor",
        "R10: a position without an anchor is no checkpoint",
        _MARKS + "test_a_position_without_an_anchor_is_no_checkpoint_as_the_log_may_have_been_cut_below_it",
        (
            "proxy.partition_log.offset_checkpoints",
            "        if offset > 0 and anchor == NO_ANCHOR:\n",
            "        if False:\n",
        ),
        deaths=("I1",),
    ),
    mutant(
        "pushed_out_before_it_is_old",
        "R10: where too many partitions are at work, those that have checkpoints keep them",
        "unit/partition_log/test_offset_checkpoints.py::test_a_partition_too_many_gets_none_and_takes_none_from_others",
        (
            "proxy.partition_log.offset_checkpoints",
            "        kept_seconds = limits.CHECKPOINTS_KEPT_HORIZONS * self.horizon_seconds\n",
            "        kept_seconds = -1\n",
        ),
    ),
    mutant(
        "checkpoint_before_its_position",
        "R10: a checkpoint is of a time at which its position was known",
        "unit/partition_log/test_bounds_of_many.py::test_many_are_taken_in_steps_and_each_at_its_own_time",
        (
            "proxy.partition_log.lower_bounds",
            "            self._take_some(now(), places",
            "            self._take_some(self._checkpoints_at, places",
        ),
    ),
    mutant(
        "young_checkpoint_used",
        "R10: a checkpoint is used when it is older than the client retry time",
        _MARKS + "test_a_checkpoint_that_is_younger_than_the_horizon_is_not_used",
        (
            "proxy.partition_log.offset_checkpoints",
            "        return now - then > self.horizon_seconds\n",
            "        return True\n",
        ),
        deaths=("I1",),
    ),
    mutant(
        "checkpoint_decides_a_gap_producer",
        "R10: a producer of which nothing is found after the checkpoint, and that goes on, is looked for below",
        _MARKS + "test_a_producer_that_was_idle_for_longer_is_looked_for_in_the_whole_log",
        (
            "proxy.producer.rebuild",
            "        return lowest.base_sequence == due\n",
            "        return True\n",
        ),
        deaths=("45",),
    ),
    mutant(
        "horizon_counts_from_the_rebuild",
        "R10: the horizon counts back from when the batch came",
        _MARKS + "test_the_horizon_counts_back_from_when_a_batch_came",
        (
            "proxy.producer.takeover",
            "        asked_at = min([await Now(), *(batch.arrived_at for batch in stream.queue)])\n",
            "        asked_at = await Now()\n",
        ),
        deaths=("I1",),
    ),
    mutant(
        "rebuild_not_looked_at_again",
        "R14: what a rebuild did not find is looked for again",
        _MARKS + "test_a_first_copy_that_comes_after_the_rebuild_is_told",
        (
            "proxy.producer.takeover",
            "        if missing is not None:\n",
            "        if False:\n",
        ),
    ),
    mutant(
        "old_life_written_on",
        "R10: what was learned in an earlier era is void",
        _SCENES + "test_what_was_learned_before_a_new_life_is_not_written_into_it",
        ("proxy.producer.entry_cache", "        if self._known_era != self._life.era:\n", "        if False:\n"),
        deaths=("I1", "I2", "I3"),
    ),
    mutant(
        "script_without_generation",
        "R10: the swap script carries the generation in its text",
        _SCENES + "test_the_swap_script_of_another_life_of_the_data_is_another_script",
        ("state.redis_facts", "generation=generation.hex(), not", "generation='', not"),
    ),
    mutant(
        "promotion_unnoticed",
        "R10: the generation is of run_id and of master_replid",
        _SCENES + "test_the_swap_script_of_another_life_of_the_data_is_another_script",
        ("state.redis_facts", 'blake2b(f"{run_id} {replication_id}".encode()', 'blake2b(f"{run_id}".encode()'),
    ),
    mutant(
        "script_loaded_again",
        "R10: an unknown script means another life of the data, never a second try",
        "integration/store/test_redis_store.py::test_an_unknown_script_ends_the_connection_and_is_loaded_only_on_the_next",
        ("state.redis_store", '_LIFE_CODES = ("NOSCRIPT", ', "_LIFE_CODES = ("),
        deaths=("liveness",),
        is_quick=False,
    ),
    mutant(
        "replica_written_on",
        "R10: READONLY means another life of the data",
        "integration/store/test_redis_store.py::test_a_server_that_became_a_replica_is_given_up_at_the_first_write",
        ("state.redis_store", '_LIFE_CODES = ("NOSCRIPT", "READONLY", ', '_LIFE_CODES = ("NOSCRIPT", '),
        is_quick=False,
    ),
    mutant(
        "lost_registration_unnoticed",
        "R10: a missing registration means that the store has lost its data",
        _SCENES + "test_a_registration_that_is_gone_is_the_end_of_the_incarnation",
        (
            "state.redis_store",
            'pack(b"SET", self._own_key, b"1", condition, b"PX", ',
            'pack(b"SET", self._own_key, b"1", b"PX", ',
        ),
        deaths=("I1",),
    ),
    mutant(
        "swap_of_the_unregistered",
        "R10: a swap counts only while its sender is registered",
        "integration/store/test_redis_store.py::"
        "test_a_command_that_arrives_late_after_a_flush_is_fenced_by_the_registration[0-None]",
        (
            "state.redis_facts",
            "if redis.call('EXISTS', KEYS[2]) == 0 then",
            "if redis.call('EXISTS', KEYS[2]) == 2 then",
        ),
        is_quick=False,
    ),
    mutant(
        "late_registration_used",
        "R10: an incarnation whose first registration may be executed yet is not used",
        "unit/state/test_redis_registration.py::"
        "test_an_incarnation_whose_first_registration_may_be_executed_yet_is_not_used[LATE]",
        ("state.redis_store", "            if lease.tries_unanswered > executed:\n", "            if False:\n"),
    ),
    mutant(
        "refused_and_not_noticed",
        "R10: a proxy that is refused as not registered begins anew, sooner than the next heartbeat",
        "unit/state/test_redis_registration.py::"
        "test_who_is_refused_as_not_registered_begins_anew_before_the_next_heartbeat",
        ("state.redis_store", '"READONLY", NOT_REGISTERED)', '"READONLY")'),
    ),
    mutant(
        "clients_stay_connected",
        "R10: the connections of idempotent clients are closed at a new generation",
        _SCENES + "test_connections_of_idempotent_clients_are_closed_when_the_data_begin_a_new_life",
        ("proxy.engine.engine", "            if session.is_idempotent:\n", "            if False:\n"),
        deaths=("I1", "I2", "I3", "45", "liveness"),
    ),
    mutant(
        "out_of_order_in_doubt",
        "R11: never 45 for a batch in doubt",
        _SCENES + "test_a_batch_in_doubt_is_never_told_to_be_out_of_order",
        (
            "proxy.producer.answers",
            "    return Answer(int(ErrorCode.REQUEST_TIMED_OUT), message=reason)\n",
            "    return Answer(int(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER), message=reason)\n",
        ),
        deaths=("I1", "45"),
    ),
    mutant(
        "successor_out_of_order",
        "R11: a batch behind one that failed retriably is no gap",
        _SCENES + "test_a_batch_behind_one_that_has_to_be_sent_again_is_no_gap",
        (
            "proxy.producer.stream",
            "        if answers.ends_epoch(answer.error_code) and batch.is_behind(",
            "        if False and batch.is_behind(",
        ),
        deaths=("45",),
    ),
    mutant(
        "older_epochs_forgotten",
        "R11: what an older epoch left to be sent again stands before a newer one",
        "unit/producer/test_behind_failures.py::test_an_epoch_that_begins_before_the_older_ones_batch_was_sent_again_has_no_gap",
        (
            "proxy.producer.retry_notes",
            "    return epoch < batch.producer_epoch and batch.base_sequence != 0\n",
            "    return False\n",
        ),
        deaths=("45",),
    ),
    mutant(
        "refused_from_memory",
        "R11: before 45 or 47 the entry is confirmed by a swap",
        _SCENES + "test_what_is_known_is_confirmed_before_a_refusal",
        (
            "proxy.producer.sequencer",
            "            if await stream.confirm([batch]):\n                await self",
            "            if True:\n                await self",
        ),
        deaths=("45",),
    ),
    mutant(
        "queue_in_order_of_arrival",
        "R11: no gap while a lower batch is queued",
        _SCENES + "test_a_batch_that_waits_behind_its_successor_is_taken_first",
        (
            "proxy.producer.stream",
            "        entry = self.held.entry\n        if entry is not None:\n            for batch in self.queue:\n",
            "        entry = self.held.entry\n        if False:\n            for batch in self.queue:\n",
        ),
        deaths=("45",),
    ),
    mutant(
        "begins_anywhere",
        "R11: an unknown producer begins at 0, unless its state has expired",
        _SCENES + "test_a_producer_that_is_known_to_nobody_begins_with_its_first_sequence",
        (
            "proxy.producer.entry_cache",
            "        return self._life.wall_clock_ms() - block.claimed_at_ms > expiry_ms\n",
            "        return True\n",
        ),
        deaths=("I2",),
    ),
    mutant(
        "old_intent_ignored",
        "R12: a new epoch first resolves the open intent of the old one",
        _SCENES + "test_the_open_intent_of_an_older_epoch_is_resolved_before_anything_of_the_newer_one",
        (
            "proxy.producer.sequencer",
            "            if not entry.is_rebuilt:  # as with nearly every batch\n",
            "            if entry.intent is not None and stream.is_outdated(entry.intent.producer_epoch):\n"
            "                return None\n"
            "            if not entry.is_rebuilt:\n",
        ),
        deaths=("I2",),
    ),
    mutant(
        "old_batch_sent_again",
        "R12: an old batch that is not found is dropped, never forwarded",
        _SCENES + "test_an_old_batch_that_is_not_found_is_dropped_once_a_newer_epoch_is_here",
        (
            "proxy.producer.forward",
            "        if self._stream.is_outdated(self._group[0].identity.producer_epoch):\n",
            "        if False:\n",
        ),
        deaths=("I1", "I2"),
    ),
    mutant(
        "epoch_begins_anywhere",
        "R12: a new epoch must start at sequence 0",
        _SCENES + "test_a_new_epoch_begins_at_sequence_0",
        (
            "state.decide",
            '        if batch.base_sequence == 0:\n            return _APPEND\n        return OutOfOrder(0, "a new',
            '        if True:\n            return _APPEND\n        return OutOfOrder(0, "a new',
        ),
        deaths=("I2",),
    ),
    mutant(
        "epoch_keeps_the_window",
        "R12: the window is cleared when the epoch changes",
        _SCENES + "test_a_new_epoch_has_a_window_of_its_own",
        ("state.commit", "        next_sequence=0,\n        window=(),\n", "        next_sequence=0,\n"),
        deaths=("I3",),
    ),
    mutant(
        "epoch_clears_the_bound",
        "R12: end and anchor of the last commit stay when the epoch changes",
        _SCENES + "test_the_end_of_the_last_commit_stays_a_bound_for_the_next_epoch",
        (
            "state.commit",
            "        window=(),\n        first_base_offset=NO_OFFSET,\n",
            "        window=(),\n        first_base_offset=NO_OFFSET,\n"
            "        end_offset=NO_OFFSET,\n        anchor=bytes(8),\n",
        ),
    ),
    mutant(
        "epoch_changes_at_the_commit",
        "R12: the epoch changes at the reserve",
        _SCENES + "test_a_lower_epoch_is_fenced_by_what_is_reserved",
        ("state.commit", "    if intent.producer_epoch > entry.producer_epoch:\n", "    if False:\n"),
    ),
    mutant(
        "made_anew_is_looked_for_anew",
        "R10: what a rebuild looks for is known by its records, not by its checksum",
        "unit/rules/test_rule_log.py::test_clients_that_make_a_batch_anew_before_the_search_ends_are_served_in_the_end",
        ("proxy.producer.takeover", "            if looked in self._looked:\n", "            if False:\n"),
        deaths=("liveness",),
    ),
    mutant(
        "made_anew_is_rebuilt_anew",
        "R10: what a rebuild has looked for is known by its records, not by its checksum",
        "unit/rules/test_rule_log.py::test_clients_that_make_a_batch_anew_before_the_search_ends_are_served_in_the_end",
        (
            "proxy.producer.sequencer",
            "        return looked_at(batch.identity, first, contents) in looked_for.looked\n",
            "        return False\n",
        ),
        deaths=("liveness",),
    ),
    mutant(
        "known_from_before_for_ever",
        "R10: what was known when Redis lost it is older than what others have stored behind it since",
        "unit/producer/test_known_from_before.py::test_what_retention_has_deleted_is_no_gap",
        (
            "proxy.producer.entry_cache",
            "self._lost is not None and self._goes_further(",
            "False and self._goes_further(",
        ),
    ),
    mutant(
        "looks_change_what_is_held",
        "R7: who looks from another thread keeps nothing",
        "unit/producer/test_looked_at_meanwhile.py::test_what_redis_has_is_not_made_older",
        ("proxy.producer.sequencer", "self.stream, self.stream.held.seen", "self.stream, self.stream.held.entry"),
    ),
    mutant(
        "lost_intent_forgotten",
        "R10: what was known of the intent counts though Redis has lost it",
        "unit/producer/test_blurred_and_lost.py::test_what_is_blurred_stays_so_though_redis_has_lost_it",
        (
            "proxy.producer.entry_cache",
            "            if intent is None and lost.intent is not None:",
            "            if False:",
        ),
    ),
    mutant(
        "expiry_counts_as_it_is_now",
        "R11: what was written under a shorter time to live expires after that",
        "unit/producer/test_expiry_raised.py::test_a_producer_that_expired_under_the_shorter_setting_is_no_gap",
        (
            "proxy.producer.entry_cache",
            "min(self._life.expiry_ms, self._life.shortest_expiry_ms)",
            "self._life.expiry_ms",
        ),
    ),
    mutant(
        "old_clients_heard_in_a_new_life",
        "R10: whom the proxy is about to disconnect is heard and answered no more",
        "unit/engine/test_new_life_steps.py::test_thousands_of_clients_are_closed_in_steps_and_none_goes_on",
        ("proxy.engine.engine", "                session.forsake()  #", "                pass  #"),
    ),
    mutant(
        "registered_under_another_cluster",
        "R1: nothing is registered before it is known whose state it is",
        "unit/state/test_redis_claim.py::test_a_proxy_of_another_cluster_writes_nothing_not_even_its_registration",
        ("state.redis_store", "        if self._compare is None:\n", "        if True:\n"),
    ),
)

"""Mutants of the fast path: what keeps it to the usual, and what it owes as the flows do. Rules R1, R2, R3, R5, R7, R8,
R9, R10, R11, R12, R15, R17, R18."""

from __future__ import annotations

from mutants.mutant import mutant

_TESTS = "unit/producer/test_fast_path.py::"
_UNUSUAL = _TESTS + "test_what_is_not_usual_goes_through_a_flow"
_ALIKE = _TESTS + "test_whatever_becomes_of_it_both_leave_the_same"
_CYCLES = "unit/engine/test_reference_cycles.py::test_a_request_and_its_connection_leave_nothing_to_collect"
_PATH = "proxy.producer.fast_path"
_CACHE = "proxy.producer.entry_cache"
_SEQUENCER = "proxy.producer.sequencer"

FAST = (
    mutant(
        "fast_of_an_ended_incarnation",
        "R1: nor does the fast path send what an incarnation reserved that has ended",
        _ALIKE + "[appended-Append-a new incarnation]",
        (_PATH, "        if self._owner != stream.life.incarnation:\n", "        if False:\n"),
        deaths=("I1",),
    ),
    mutant(
        "fast_without_the_store",
        "R2: the fast path sends nothing before the store has confirmed its swap",
        _ALIKE + "[appended-Swap-the store is away]",
        (_PATH, "        if type(result) is not Swapped or self._era", "        if self._era"),
        deaths=("I1", "I3", "the user"),
    ),
    mutant(
        "fast_beside_a_flow",
        "R3: where a flow is at work, nothing goes the fast path",
        _TESTS + "test_a_batch_that_comes_while_a_commit_is_written_waits_for_that",
        (_SEQUENCER, "        if self._running and not stream.is_resting:\n", "        if False:\n"),
    ),
    mutant(
        "fast_takes_an_error_for_success",
        "R5: what was appended with an error code may vanish yet, and does not end on the fast path",
        _ALIKE + "[appended, code 6-Append-nothing]",
        (_PATH, "            error_code\n            or base_offset < 0\n", "            base_offset < 0\n"),
        deaths=("I3",),
    ),
    mutant(
        "fast_without_a_marker",
        "R6: where no marker is stored, a doubt is not settled by what the fast path leaves",
        _UNUSUAL + "[the topic keeps no markers]",
        (_PATH, "            or topic in topics.unmarked  # R6\n", ""),
    ),
    mutant(
        "fast_is_not_read_back",
        "R6: whether a partition keeps markers is looked at anew",
        _UNUSUAL + "[the partition is to be probed]",
        (_PATH, "            or place not in context.marker_probe.probed  # R6\n", ""),
    ),
    mutant(
        "fast_commit_stays_unwritten",
        "R7: a commit that no reserve carries is written alone, after the fast path too",
        _ALIKE + "[appended-Append-nothing]",
        (_PATH, "            self._outside.flush_soon(sequencer)  # R7\n", "            pass\n"),
    ),
    mutant(
        "fast_from_an_old_bound",
        "R8: a bound that is old is read anew before a reserve",
        _UNUSUAL + "[the bound is old]",
        (_PATH, "            or context.time.now - bounds[place][0] > limits.BOUND_AGE_SECONDS  # R8\n", ""),
    ),
    mutant(
        "fast_leaves_no_bound",
        "R8: what is appended the fast path is the bound of what comes next",
        _ALIKE + "[appended-Append-nothing]",
        (_PATH, "        self._bounds.note(self.topic, self.partition, Position(end_offset, anchor))  # R8\n", ""),
    ),
    mutant(
        "fast_bound_of_another",
        "R8: the bound is the later one of the partition's and the producer's own",
        _TESTS + "test_the_later_of_two_bounds_is_taken[1]",
        (_PATH, "        if newest.offset > bound:  # R8\n", "        if True:\n"),
    ),
    mutant(
        "fast_forgets_who_acknowledged",
        "R9: the connection that acknowledged a batch is remembered",
        _ALIKE + "[appended-Append-nothing]",
        (_PATH, "        stream.remember_lane(group, lane)  # R9\n", ""),
    ),
    mutant(
        "fast_in_a_new_era",
        "R10: what was learned in an earlier era is void",
        _TESTS + "test_in_a_new_era_a_flow_reads_first_what_is_stored",
        (_CACHE, "            or self._known_era != life.era\n", ""),
        deaths=("I1", "I2", "I3"),
    ),
    mutant(
        "fast_of_an_earlier_generation",
        "R10: an entry of an earlier generation is suspect",
        _UNUSUAL + "[another generation]",
        (
            _CACHE,
            "            or packed.generation != life.generation\n            or self._lost",
            "            or self._lost",
        ),
    ),
    mutant(
        "fast_commits_in_a_new_era",
        "R10: what is answered in a later era than it was reserved in is not held to be written",
        _ALIKE + "[appended-Append-a new generation]",
        (_PATH, "            or self._era != stream.life.era\n", ""),
        (_PATH, "        if self._owner != stream.life.incarnation:\n", "        if False:\n"),
    ),
    mutant(
        "fast_after_a_rebuild",
        "R10: after a rebuild the log may have more of the producer",
        _UNUSUAL + "[state was rebuilt]",
        (_CACHE, " or entry.is_rebuilt or not entry.window", " or not entry.window"),
    ),
    mutant(
        "fast_with_a_gap",
        "R11: only the batch whose sequence is due goes the fast path",
        _UNUSUAL + "[a sequence that is not due]",
        (_PATH, "            identity.base_sequence != entry.next_sequence  # R11\n", "            False\n"),
        deaths=("I1", "I2", "I3", "45", "the user", "an error"),
    ),
    mutant(
        "fast_begins_an_epoch",
        "R12: a new epoch begins in a flow",
        _UNUSUAL + "[a newer epoch]",
        (_PATH, "            or identity.producer_epoch != entry.producer_epoch  # R12\n", ""),
        (_PATH, "            identity.base_sequence != entry.next_sequence  # R11\n", "            False\n"),
    ),
    mutant(
        "fast_of_an_older_epoch",
        "R12: the fast path sends nothing of an older epoch once a newer one waits",
        _ALIKE + "[appended-Append-nothing]",
        (_PATH, "        if stream.queue and stream.is_outdated(self._entry.producer_epoch):\n", "        if False:\n"),
        deaths=("I1", "I2"),
    ),
    mutant(
        "fast_while_ending",
        "R15: a process that ends reserves nothing the fast path",
        _UNUSUAL + "[the process ends]",
        (_PATH, "            or stream.life.is_draining  # R15\n", ""),
    ),
    mutant(
        "fast_for_the_dead",
        "R17: nor does the fast path send for a client that has gone",
        _ALIKE + "[appended-Append-the client leaves]",
        (
            _PATH,
            "                if not (waiter.is_done or waiter.connection.is_closed):\n",
            "                if True:\n",
        ),
        deaths=("I1",),
    ),
    mutant(
        "fast_over_what_was_given_up",
        "R17: what was given up is remembered, and a batch behind it is decided by a flow",
        _UNUSUAL + "[an intent was given up]",
        (
            _CACHE,
            " or entry.intent is not None or entry.is_rebuilt",
            " or entry.is_rebuilt",
        ),
        deaths=("I1",),
    ),
    mutant(
        "fast_leaves_an_intent_watched",
        "R17: an intent that may be open is looked at before anything goes the fast path",
        _TESTS + "test_an_intent_that_is_watched_is_looked_at_by_a_flow_first",
        (_PATH, "            or stream.watch_intent_until != NO_INTENT  # R17\n", ""),
    ),
    mutant(
        "due_behind_a_later_one",
        "R18: a request that was taken in steps is found behind those that came meanwhile",
        "unit/session/test_sweeper.py::"
        "test_a_request_that_was_taken_in_steps_is_answered_in_time_though_others_came_meanwhile",
        ("proxy.session.produce", "        if is_one_step:\n", "        if True:\n"),
    ),
    mutant(
        "answered_in_one_pass",
        "R18: of thousands whose time is up at once each is answered in its turn",
        "unit/session/test_sweeper.py::test_many_that_are_due_at_once_are_answered_in_steps",
        (
            "proxy.session.sweeper",
            "                if answered >= limits.ANSWERED_PER_STEP:\n",
            "                if False:\n",
        ),
    ),
    mutant(
        "fast_request_waits_for_ever",
        "R18: a usual request is answered in time as well",
        _CYCLES + "[fast-usual_and_time_is_up]",
        (
            "proxy.session.fast_produce",
            "                sweeper.lines[shape.timeout_ms][request] = ()  # R18\n",
            "                pass\n",
        ),
        deaths=("liveness",),
    ),
)

"""Mutants of who is answered what and when, and of what goes to the broker how: rules R15, R16, R18, R19, R20."""

from __future__ import annotations

from mutants.mutant import mutant

_SCENES = "unit/rules/test_rule_answers.py::"

ANSWERS = (
    mutant(
        "ends_with_requests_in_flight",
        "R15: SIGTERM: what is in flight is finished",
        _SCENES + "test_a_proxy_that_is_ended_finishes_what_is_in_flight",
        (
            "proxy.engine.engine",
            "        if any(session.has_produce_in_flight for session in self.sessions):",
            "        if False:",
        ),
        ("proxy.engine.engine", "        if is_any_busy:\n", "        if False:\n"),
    ),
    mutant(
        "ends_with_commits_unwritten",
        "R15: SIGTERM: commits are written and intents are released",
        _SCENES + "test_a_proxy_that_has_ended_leaves_no_doubt_and_no_lease",
        ("proxy.engine.engine", "        if is_any_busy:\n", "        if False:\n"),
    ),
    mutant(
        "ends_with_its_lease",
        "R15: SIGTERM: the lease is released",
        _SCENES + "test_a_proxy_that_has_ended_leaves_no_doubt_and_no_lease",
        ("state.redis_store", "        if was_ready and self._link is not None:\n", "        if False:\n"),
    ),
    mutant(
        "dead_for_others_before_the_reset",
        "R15: SIGTERM: what is out when the drain's time is over is reset before the lease is released",
        "unit/process/test_drain_end.py::"
        "test_what_is_out_after_a_drain_that_took_too_long_is_reset_before_others_take_the_proxy_for_dead",
        ("proxy.process.server", '            self.engine.reset_busy("the proxy ends")', "            pass"),
    ),
    mutant(
        "ends_and_goes_on_taking",
        "R15: SIGTERM: nothing new is accepted",
        _SCENES + "test_a_proxy_that_is_ending_takes_nothing_new",
        ("proxy.session.produce", "        if self.outside.is_draining:\n", "        if False:\n"),
    ),
    mutant(
        "no_answer_no_client",
        "R16: what wants no answer is passed on though its client has gone",
        _SCENES + "test_what_is_sent_without_wanting_an_answer_is_written_though_its_client_hangs_up",
        (
            "proxy.session.session",
            "        is_left = bool(waiting) or self.is_at_work\n",
            "        is_left = False\n",
        ),
    ),
    mutant(
        "named_after_a_fin",
        "R17: after a FIN nothing is begun for a producer with an id",
        "unit/session/test_requests_at_the_end.py::test_nothing_is_begun_after_a_fin_for_a_producer_with_an_id",
        (
            "proxy.session.session",
            "        if self.is_idempotent and not self.is_closed:\n",
            "        if False:\n",
        ),
    ),
    mutant(
        "acks_of_the_leader_only",
        "R16: idempotent batches go upstream with acks=-1",
        _SCENES + "test_idempotent_batches_are_written_to_all_replicas_whatever_the_client_asks_for",
        (
            "proxy.broker.lane",
            "encode_request(BROKER_VERSION_MAX, -1, ",
            "encode_request(BROKER_VERSION_MAX, 1, ",
        ),
        deaths=("I3",),
    ),
    mutant(
        "no_answer_in_time",
        "R18: a produce is answered after three quarters of its own timeout",
        _SCENES + "test_a_produce_is_answered_after_three_quarters_of_its_own_time",
        (
            "proxy.session.sweeper",
            "                if call.answer_by <= now:\n",
            "                if False:\n",
        ),
        deaths=("liveness",),
    ),
    mutant(
        "group_refused_as_a_whole",
        "R19: what depends on content is tried one batch at a time",
        _SCENES + "test_batches_that_are_refused_together_are_tried_one_by_one",
        (
            "proxy.producer.forward",
            "        if code in CONTENT_ERRORS and len(self._group) > 1:\n",
            "        if False:\n",
        ),
        deaths=("the user",),
    ),
    mutant(
        "taken_apart_without_end",
        "R19: however many records a fetch brings, others wait for so many only",
        "unit/partition_log/test_log_reader.py::test_a_chunk_of_many_records_ends_early_and_what_follows_is_read_next",
        (
            "proxy.partition_log.log_chunk",
            "                    self._foreign_count >= limits.CHUNK_RECORDS_MAX\n",
            "                    False\n",
        ),
    ),
    mutant(
        "unpacked_without_end",
        "R19: however much a fetch unpacks to, it takes so much memory only",
        "unit/partition_log/test_log_memory.py::test_a_chunk_ends_when_it_has_unpacked_so_much",
        (
            "proxy.partition_log.log_chunk",
            "                    or self._unpacked_bytes + self._noted_bytes >= limits.CHUNK_MEMORY_BYTES_MAX\n",
            "",
        ),
    ),
    mutant(
        "wrapper_in_one_step",
        "R19: however many records one message in the log holds, others have their turn in between",
        "unit/partition_log/test_log_memory.py::test_a_chunk_is_taken_apart_in_steps",
        ("codecs.convert", "        if taken_bytes >= STEP_BYTES or not count % STEP_RECORDS:", "        if False:"),
    ),
    mutant(
        "read_and_kept_for_ever",
        "R19: what was read of a log for one doubt is released when no search asks for it any more",
        "unit/partition_log/test_log_memory.py::test_what_was_read_is_let_go_when_nobody_asks_any_more",
        (
            "proxy.partition_log.log_reader",
            "            self._reactor.later(limits.CHUNK_KEPT_SECONDS, self._drop_old)\n",
            "            pass\n",
        ),
    ),
    mutant(
        "corrupt_for_ever",
        "R19: a 2 that remains becomes 87",
        _SCENES + "test_a_batch_that_the_broker_finds_corrupt_failed_for_good",
        (
            "proxy.producer.answers",
            "    if error_code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.UNKNOWN_SERVER_ERROR):\n",
            "    if error_code == ErrorCode.UNKNOWN_SERVER_ERROR:\n",
        ),
        deaths=("liveness",),
    ),
    mutant(
        "plain_acks_raised",
        "R20: a batch without a producer id keeps its acks",
        _SCENES + "test_what_has_no_producer_id_keeps_its_acks_and_gets_no_marker_and_no_entry",
        (
            "proxy.session.non_idempotent",
            "encode_request(_VERSION, acks, ",
            "encode_request(_VERSION, -1, ",
        ),
    ),
    mutant(
        "drained_beside_what_begins",
        "R15: what begins while a drain looks at all producers is finished, too",
        "unit/engine/test_drain_between_steps.py::test_a_first_batch_that_comes_between_two_steps_is_answered",
        ("proxy.engine.engine", "is_any_busy = is_any_busy or any(", "is_any_busy = is_any_busy or False and any("),
    ),
)

"""Mutants of where a search begins, and over which connection it reads: rules R6, R8."""

from __future__ import annotations

from mutants.mutant import mutant

_BOUNDS = "unit/partition_log/test_lower_bounds.py::"

BOUNDS = (
    mutant(
        "anchor_at_another_place",
        "R8: the record below a bound is the same only where it ends there",
        _BOUNDS + "test_the_message_below_a_bound_is_not_the_same_where_it_lies_elsewhere",
        ("proxy.partition_log.log_search", " and ends_below(below, bound.offset)\n", "\n"),
    ),
    mutant(
        "bound_trusted_again",
        "R8: a search that has seen the bound fail does not trust it when the log has grown",
        _BOUNDS + "test_a_search_that_has_seen_it_fail_does_not_trust_it_when_the_log_has_grown",
        (
            "proxy.partition_log.log_search",
            "            self.bound = bound = Position(",
            "            bound = Position(",
        ),
    ),
    mutant(
        "bound_kept_when_forwarded_again",
        "R8: a bound that did not hold is none of what is forwarded again",
        _BOUNDS + "test_a_bound_that_did_not_hold_is_none_of_what_is_forwarded_again",
        (
            "proxy.producer.forward",
            "            self._moved_to, self._bound = search.moved_to, search.bound\n",
            "            pass\n",
        ),
    ),
    mutant(
        "bound_known_for_the_next_batch",
        "R8: nor does the process take it for one of the next batch",
        _BOUNDS + "test_nor_does_the_process_take_it_for_one_of_the_next_batch",
        (
            "proxy.producer.resolution",
            "            stream.bounds.forget(stream.topic, stream.partition)\n        if era",
            "            pass\n        if era",
        ),
    ),
    mutant(
        "bound_handed_over",
        "R8: a proxy that hands a doubt over says that the bound does not hold",
        _BOUNDS + "test_who_hands_a_doubt_over_says_that_the_bound_does_not_hold",
        (
            "proxy.producer.takeover",
            "renewed(entry, owner, None, leader, self._moved_to)",
            "renewed(entry, owner, None, leader)",
        ),
    ),
    mutant(
        "bounds_of_all_times",
        "R8: a position that was not learned anew for long is forgotten, and read anew when it is wanted",
        "unit/partition_log/test_bounds_of_many.py::"
        "test_partitions_that_are_not_appended_to_are_forgotten_and_their_checkpoints_stay",
        (
            "proxy.partition_log.lower_bounds",
            "                if now - since > limits.BOUND_KEPT_SECONDS:\n",
            "                if False:\n",
        ),
    ),
    mutant(
        "probes_wait_behind_fetches",
        "R6: logs are read over a connection of its own",
        "unit/partition_log/test_whom_to_ask.py::test_a_doubt_does_not_wait_until_the_logs_of_its_broker_have_been_read",
        (
            "proxy.broker.broker",
            "            self._ask_over(self._reading, question, partial(self._fetched, done))\n",
            "            self._ask_over(self._control, question, partial(self._fetched, done))\n",
        ),
    ),
    mutant(
        "answers_have_five_seconds",
        "R6: an answer is waited for as long as bytes of it come",
        "unit/broker/test_connections_given_up.py::test_an_answer_is_waited_for_as_long_as_bytes_of_it_come",
        (
            "proxy.broker.broker",
            "max(self._pending[0].asked_at, self._heard_at)",
            "self._pending[0].asked_at",
        ),
    ),
    mutant(
        "closed_with_readers_waiting",
        "R6: when a broker is closed, who waits for its log is told so",
        "unit/broker/test_connections_given_up.py::test_a_broker_that_is_closed_answers_all_who_wait_for_its_logs",
        ("proxy.broker.broker", '        self._disconnected("closed")\n', "        pass\n"),
    ),
    mutant(
        "slow_fetches_stay_large",
        "R6: after a slow answer less is asked for",
        "unit/partition_log/test_log_reader.py::test_after_a_slow_answer_less_is_asked_for_and_later_more_again",
        ("proxy.partition_log.log_reader", "self._fetch_bytes // 4", "self._fetch_bytes"),
    ),
    mutant(
        "slow_behind_others",
        "R6: the time that a fetch waits behind those of other partitions is not that of its answer",
        "unit/partition_log/test_log_reader.py::test_a_fetch_that_waits_behind_those_of_other_partitions_is_not_slow",
        (
            "proxy.partition_log.log_reader",
            "        waiting.left_at = _NOT_YET\n",
            "        waiting.left_at = self._reactor.now()\n",
        ),
        (
            "proxy.partition_log.log_reader",
            "    def _leaves(self, waiting: _Waiting) -> None:\n",
            "    def _leaves(self, waiting: _Waiting) -> None:\n        return\n",
        ),
    ),
    mutant(
        "never_told_that_it_leaves",
        "R6: a broker that takes long for a piece of its log is asked for smaller ones",
        "unit/broker/test_connections_given_up.py::test_a_broker_that_is_slow_is_asked_for_less_of_its_logs",
        ("proxy.broker.broker", "            leaves()\n", "            pass\n"),
    ),
)

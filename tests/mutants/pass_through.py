"""Mutants of lanes that belong to one client: rules R3, R4, R13, R16, R17 where clients show brokers who they are."""

from __future__ import annotations

from mutants.mutant import mutant

_WIRE = "unit/pass_through/test_lane.py::"
_FORWARDS = "unit/pass_through/test_forwards.py::"

PASS_THROUGH = (
    mutant(
        "others_beside_a_batch",
        "R3: what a client asks while a batch of his is out waits behind it",
        _WIRE + "test_what_the_client_asks_meanwhile_waits_behind_it_in_its_order",
        (
            "proxy.pass_through.connection",
            "        if not self._is_wanted and not self.is_lent:\n",
            "        if True:\n",
        ),
        deaths=("a batch and something else",),
    ),
    mutant(
        "batch_behind_others",
        "R3: a batch leaves when everything before it on its connection is answered",
        _WIRE + "test_a_batch_leaves_when_everything_before_it_is_answered",
        (
            "proxy.session.pipe",
            "        return self._wire is not None and not self._expected\n",
            "        return self._wire is not None\n",
        ),
        deaths=("a batch and something else",),
    ),
    mutant(
        "silent_requests_are_taken_for_done",
        "R3: also what has no answer lies before it no longer",
        _WIRE + "test_behind_requests_without_an_answer_one_that_has_one_leaves_first",
        (
            "proxy.pass_through.connection",
            "        if self._is_last_silent:  # it may still lie in the broker\n",
            "        if False:\n",
        ),
    ),
    mutant(
        "pass_through_lane_not_fenced",
        "R4: the lease is looked at around every write of a client's batch",
        _WIRE + "test_past_the_deadline_the_rest_of_a_batch_does_not_leave",
        ("proxy.pass_through.connection", "not self.is_lent or self._may_send()", "True"),
    ),
    mutant(
        "pass_through_outlives_an_incarnation",
        "R4: what was out under the lease of another incarnation is reset",
        "unit/pass_through/test_whole_proxy.py::test_a_new_incarnation_resets_what_a_client_has_out_though_he_has_gone",
        ("proxy.engine.engine", "            lanes.give_up_busy(reason)\n", "            pass\n"),
    ),
    mutant(
        "retry_of_another_kind_joins",
        "R13: who sends over his own connection is joined by his like only",
        _FORWARDS + "test_a_batch_of_another_kind_of_client_does_not_join",
        ("proxy.producer.batch", "            and (self.way is None) == (other.way is None)\n", ""),
    ),
    mutant(
        "first_connection_for_ever",
        "R13: a batch goes over the connection of its newest retry",
        _FORWARDS + "test_a_batch_that_the_log_does_not_have_goes_again_over_the_connection_of_its_retry",
        (
            "proxy.producer.forward",
            "                self._group[0].way,\n",
            "                self.__dict__.setdefault('way', self._group[0].way),\n",
        ),
    ),
    mutant(
        "gone_with_the_client",
        "R13: what a retry still waits for is sent though the client of its connection has gone",
        _WIRE + "test_a_batch_that_is_still_waited_for_is_sent_though_he_has_gone",
        ("proxy.pass_through.lanes", "        return self._pool.waiting_appends > 0\n", "        return False\n"),
    ),
    mutant(
        "silent_behind_nobody",
        "R16: what wants no answer is sent though nobody waits any more for what was before it",
        _WIRE + "test_what_wants_no_answer_is_sent_though_nobody_waits_any_more_for_what_was_before_it",
        (
            "proxy.pass_through.connection",
            "        if self._behind:  # whoever wanted it alone wants it no more\n",
            "        if False:\n",
        ),
    ),
    mutant(
        "gone_and_held",
        "R16: what says that it has been taken is read, though its client read no answers before it went",
        _WIRE + "test_of_a_client_that_read_no_answers_and_has_gone_what_has_to_be_answered_is_read",
        (
            "proxy.pass_through.connection",
            "            self._read_or_not()  # else what",
            "            pass  # else what",
        ),
    ),
    mutant(
        "pool_for_everybody",
        "R17: a client's batch leaves over his own connection, or not at all",
        "unit/pass_through/test_whole_proxy.py::test_what_a_client_sends_is_appended_as_his_own",
        ("proxy.engine.perform", "    if effect.way is not None and (", "    if False and ("),
        deaths=("t-0: 'idemproxy' sends",),
    ),
    mutant(
        "pass_through_batch_to_any_broker",
        "R17: for another broker than that of the connection a batch is refused",
        _WIRE + "test_for_another_broker_it_is_refused_as_that_one_would_not_be_asked",
        ("proxy.pass_through.lanes", "        elif effect.broker_id != self.broker_id:\n", "        elif False:\n"),
    ),
    mutant(
        "asked_while_it_is_asked",
        "R17: one question about a client's rights is out at a time",
        "unit/pass_through/test_forwards.py::test_while_a_question_is_out_nothing_is_asked_again_however_many_wait",
        ("proxy.pass_through.write_acl", "        if self._asked or self._is_over:\n", "        if self._is_over:\n"),
    ),
    mutant(
        "looks_on_for_who_has_gone",
        "R17: of a client who has gone nothing is looked at again",
        "unit/pass_through/test_session_end.py::test_nothing_is_looked_at_again_when_he_has_gone",
        (
            "proxy.pass_through.backend",
            "        if self._is_over:\n            return\n        if self._connection",
            "        if self._connection",
        ),
    ),
    mutant(
        "told_before_it_was_asked",
        "R17: nothing is told from memory before the broker was asked since the request came",
        "unit/pass_through/test_whole_proxy.py::test_a_duplicate_is_told_only_after_the_broker_was_asked_again",
        ("proxy.pass_through.produce", "not answers.reveals_state(answer.error_code)", "True"),
    ),
)

"""Mutants of what leaves on a lane and when: rules R3, R4, R5, R6, R14, R19."""

from __future__ import annotations

from mutants.mutant import mutant

_SCENES = "unit/rules/test_rule_lanes.py::"
_POOL = "unit/broker/test_lane_pool.py::"
_HELD = "simulation/test_held_brokers.py::"
_NO_FENCE = ("proxy.broker.lane", "        wire.fence(self._may_write)\n", "")

LANES = (
    mutant(
        "pipelined_lane",
        "R3: at most one unanswered produce per lane",
        _SCENES + "test_a_lane_has_one_unanswered_request",
        ("proxy.broker.lane_pool", "lane = self._idle.pop()", "lane = self._idle[-1]"),
        ("proxy.broker.lane", "        assert not self._appends\n", ""),
        deaths=("a produce behind", "R3", "I1", "I3"),
    ),
    mutant(
        "partition_twice_in_a_request",
        "R3: a partition twice in one request: never",
        _SCENES + "test_a_request_names_a_partition_once",
        ("proxy.broker.append_queue", "                more += (queue,)\n", "                ring[queue] = None\n"),
        (
            "codecs.produce",
            '        assert partition not in partitions, f"{topic}-{partition} twice in one request"\n',
            "",
        ),
        deaths=("I3",),
    ),
    mutant(
        "two_appends_of_a_producer",
        "R3: at most one unanswered append per producer and partition",
        _SCENES + "test_a_producer_has_one_unanswered_append_on_a_partition",
        (
            "proxy.engine.engine",
            "        return self._sequencers.get(key, make)\n",
            "        return make()\n",
        ),
        deaths=("R3", "I1", "I2", "45"),
    ),
    mutant(
        "no_deadline",
        "R4: the lease is looked at in the step of every send",
        _SCENES + "test_no_byte_of_a_produce_leaves_after_the_deadline",
        (
            "proxy.broker.lane_pool",
            '        lease_refusal = None if self.may_send() else "the lease has ended"\n',
            "        lease_refusal = None\n",
        ),
        _NO_FENCE,
        deaths=("I1",),
    ),
    mutant(
        "late_rest_not_reset",
        "R4: past the deadline with a part of the frame out the connection is reset",
        _SCENES + "test_the_rest_of_a_frame_does_not_leave_after_the_deadline",
        _NO_FENCE,
        deaths=("I1",),
    ),
    mutant(
        "no_margin",
        "R4: now + 1 s < lease end",
        _SCENES + "test_the_deadline_is_a_second_before_the_lease_ends",
        (
            "state.lease",
            "        return now + MARGIN_SECONDS < self.ends_at\n",
            "        return now < self.ends_at\n",
        ),
    ),
    mutant(
        "lease_counts_from_the_reply",
        "R4: the lease ends for its owner before it ends in the store",
        _SCENES + "test_a_lease_ends_for_its_owner_before_it_ends_in_the_store",
        ("state.redis_store", "            lease.renewed(sent_at)\n", "            lease.renewed(now)\n"),
    ),
    mutant(
        "next_incarnation_sends_the_rest",
        "R4: a frame of one incarnation is not finished under the lease of the next",
        _SCENES + "test_what_left_in_part_under_one_incarnation_does_not_go_on_under_the_next",
        ("proxy.engine.engine", "            broker.pool.give_up_busy(reason)\n", "            pass\n"),
    ),
    mutant(
        "any_correlation_id",
        "R5: a wrong correlation id is doubt",
        _SCENES + "test_an_answer_with_a_wrong_correlation_id_says_nothing",
        (
            "proxy.broker.lane",
            "        if not self._appends or correlation_id != self._correlation_id:\n",
            "        if not self._appends:\n",
        ),
    ),
    mutant(
        "lost_connection_is_a_refusal",
        "R5: a disconnect is doubt",
        _SCENES + "test_a_lost_connection_is_doubt_and_no_refusal",
        (
            "proxy.broker.lane",
            "            append.done(InDoubt(reason, self._pool.broker_id, is_late=self._is_late))\n",
            "            append.answered(3, -1, -1, self, self._pool.broker_id)\n",
        ),
        deaths=("I1",),
    ),
    mutant(
        "throttled_is_lost",
        "R5: an answer that is late is slow, not lost: quotas delay answers",
        _SCENES + "test_an_answer_that_a_throttling_broker_holds_back_is_waited_for",
        (
            "proxy.broker.lane_pool",
            "            is_throttled = now < self._throttled_until and not lane.is_forsaken\n",
            "            is_throttled = False\n",
        ),
    ),
    mutant(
        "all_of_the_clients_time",
        "R5: the produce timeout upstream is the lesser of 5 s and half of the client's, at least 500 ms",
        _SCENES + "test_the_broker_is_given_half_of_the_clients_time_and_no_more_than_five_seconds",
        (
            "proxy.broker.lane",
            "        timeout_ms //= 2\n",
            "        timeout_ms = appends[0].timeout_ms\n",
        ),
    ),
    mutant(
        "most_impatient_for_all",
        "R5: a client with a much shorter timeout does not shorten the time of others",
        _POOL + "test_the_least_patient_client_does_not_shorten_the_time_of_others",
        (
            "proxy.broker.append_queue",
            "        key = (append.topic, append.partition, timeout_class)\n",
            "        key = (append.topic, append.partition, timeout_class := 0)\n",
        ),
    ),
    mutant(
        "given_up_without_a_reset",
        "R6: settling begins with a reset",
        _SCENES + "test_a_connection_that_is_given_up_is_reset_so_that_what_queues_in_the_broker_dies_with_it",
        (
            "proxy.broker.lane",
            "            self._wire.reset()\n            self._wire = None\n",
            "            self._wire = None\n",
        ),
        deaths=("I1",),
    ),
    mutant(
        "late_write_unnoticed",
        "R14: late after the write: alarm and second look",
        _SCENES + "test_a_write_over_which_the_deadline_passed_is_told",
        ("proxy.broker.lane", "        self._is_late = self._has_begun\n", "        pass\n"),
    ),
    mutant(
        "slow_partition_holds_others",
        "R19: a slow partition gets upstream requests of its own",
        _SCENES + "test_a_slow_partition_gets_requests_of_its_own",
        ("proxy.broker.lane_pool", "AppendQueue(self._paces.of)", "AppendQueue(lambda _place: USUAL)"),
    ),
    mutant(
        "late_only_when_answered",
        "R19: partitions are suspects while their request is out",
        _POOL + "test_partitions_are_suspects_while_their_request_is_out",
        (
            "proxy.broker.lane_pool",
            "            if lane.looks >= late_after and not lane.is_late and not is_throttled:\n",
            "            if False:\n",
        ),
    ),
    mutant(
        "suspects_together",
        "R19: a suspect goes alone",
        _POOL + "test_partitions_are_suspects_while_their_request_is_out",
        ("proxy.broker.lane_pool", "one=pace == SUSPECT)", "one=False)"),
    ),
    mutant(
        "slow_ones_in_every_lane",
        "R19: slow partitions have two lanes at most",
        _POOL + "test_slow_partitions_go_together_in_two_lanes_at_most",
        (
            "proxy.broker.lane_pool",
            "        slow = limits.SLOW_LANES_PER_BROKER - self._slow_out\n",
            "        slow = usual\n",
        ),
    ),
    mutant(
        "late_requests_take_lanes",
        "R19: a lane whose request waits for a slow partition is replaced",
        _POOL + "test_slow_partitions_take_no_lane_of_the_others",
        ("proxy.broker.lane_pool", " - max(0, self._late_out - most))\n", " - self._late_out)\n"),
    ),
    mutant(
        "first_come_first_lane",
        "R19: while lanes are scarce a request leaves with its share, or after a lane's share of an answer's time",
        "unit/broker/test_lane_rates.py::test_the_first_ones_that_are_ready_do_not_take_all_lanes",
        (
            "proxy.broker.lane_pool",
            "            if pace == USUAL and self._holds_back(most):\n                return\n",
            "",
        ),
    ),
    mutant(
        "all_of_them_in_one_pass",
        "R19: what is ready leaves before many others are converted",
        "unit/admission/test_loop_budget.py::test_what_is_ready_does_not_wait_until_many_others_are",
        (
            "proxy.admission.loop_budget",
            "        if self._due or self.seconds() > limits.TURN_SECONDS:\n",
            "        if False:\n",
        ),
    ),
    mutant(
        "many_refused_in_one_pass",
        "R19: of thousands that are refused at once each goes on in its turn",
        "unit/producer/test_fast_path.py::test_of_many_that_end_at_once_each_goes_on_in_its_turn",
        (
            "proxy.producer.fast_path",
            "        self._outside.in_turn(lambda _: self._hand_back(outcome))\n",
            "        self._hand_back(outcome)\n",
        ),
    ),
    mutant(
        "a_flood_before_all_others",
        "R19: a client that floods a partition keeps others waiting for one turn only",
        "unit/broker/test_append_queue.py::test_who_floods_a_partition_keeps_others_waiting_for_one_turn_only",
        ("proxy.broker.append_queue", "sender, waiting = append.sender, ", "sender, waiting = None, "),
    ),
    mutant(
        "held_broker_served",
        "R6: a broker that stores format v2, in which a batch could not be found again, is sent none",
        _HELD + "test_a_broker_that_stores_v2_gets_no_batch_and_one_that_stores_v1_does",
        (
            "proxy.broker.broker",
            "        self.takes_batches = not self.is_held\n",
            "        self.takes_batches = True\n",
        ),
    ),
    mutant(
        "read_in_the_new_format",
        "R6: what was sent in format v1 is looked for in format v1",
        _HELD + "test_what_was_sent_before_the_format_was_raised_is_found_in_the_log_or_waits",
        (
            "proxy.broker.broker",
            "        if question.api_key != ApiKey.FETCH or not self.is_held:\n",
            "        if True:\n",
        ),
    ),
)

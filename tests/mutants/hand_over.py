"""Mutants of the hand-over to brokers that give idempotence themselves: rule R21."""

from __future__ import annotations

from mutants.mutant import mutant

_FLOW = "unit/producer/test_hand_over.py::"
_SERVED = "unit/broker/test_who_gives_idempotence.py::"
_HAND_OVER = "proxy.producer.hand_over"
_UPGRADES = "simulation/test_hand_over_worlds.py::"
_WORLDS = "simulation.hand_over"

HAND_OVER = (
    mutant(
        "handed_over_to_some",
        "R21: producers are handed over when all brokers can take them",
        _SERVED + "test_producers_are_handed_over_when_all_brokers_have_their_own_format_and_tell_whom_they_know",
        (
            "proxy.broker.served",
            "and all(one is not None and one.takes_over",
            "and any(one is not None and one.takes_over",
        ),
        deaths=("R21: request",),
        worlds=_WORLDS,
    ),
    mutant(
        "handed_over_and_sent_in_the_old_way",
        "R21: what is reserved when producers are handed over does not leave in the old way",
        _FLOW + "test_what_was_reserved_when_producers_are_handed_over_is_released_and_goes_as_it_came",
        ("proxy.producer.forward", "        if self._life.hands_over:\n", "        if False:\n"),
        deaths=("R21: request",),
        worlds=_WORLDS,
    ),
    mutant(
        "handed_over_with_an_open_intent",
        "R21: an open intent is resolved before anything goes as it came",
        _FLOW + "test_an_intent_that_another_proxy_left_open_is_resolved_first",
        (
            "proxy.producer.sequencer",
            "            if doubt is not None:\n",
            "            if doubt is not None and not stream.life.hands_over:\n",
        ),
        deaths=("I1", "the user of", "liveness"),
        worlds=_WORLDS,
    ),
    mutant(
        "stored_and_passed_on",
        "R21: what the entry has is answered, not passed on",
        _FLOW + "test_what_is_stored_in_the_old_way_is_answered_and_not_sent_again",
        (_HAND_OVER, "    if await _is_of_the_old_way(stream, batch):\n", "    if False:\n"),
        deaths=("I1", "45", "liveness"),
        worlds=_WORLDS,
    ),
    mutant(
        "unknown_takes_any",
        "R21: to a leader that does not know the producer only the batch that is due goes",
        _FLOW + "test_of_a_producer_that_the_leader_does_not_know_only_what_is_due_is_sent",
        (_HAND_OVER, "    if comes_later or not isinstance(", "    if False and not isinstance("),
        deaths=("I2",),
        worlds=_WORLDS,
    ),
    mutant(
        "handed_over_unwritten",
        "R21: that a producer is handed over is in its entry before its first batch goes as it came",
        _FLOW + "test_a_producer_goes_on_where_it_was_and_nothing_is_reserved_any_more",
        (
            _HAND_OVER,
            "    return await stream.write(handed_over(",
            "    return True or await stream.write(handed_over(",
        ),
        deaths=("I1", "45", "the user of"),
        worlds=_WORLDS,
    ),
    mutant(
        "appended_though_handed_over",
        "R21: a proxy that finds a producer handed over appends nothing of it in the old way",
        _FLOW + "test_a_proxy_that_does_not_know_of_it_appends_nothing_and_tells_no_gap",
        (
            "proxy.producer.sequencer",
            "        is_due = is_due and not (held.entry is not None and held.entry.is_handed_over)\n",
            "",
        ),
        deaths=("I1", "I2"),
        worlds=_WORLDS,
    ),
    mutant(
        "fast_though_handed_over",
        "R21: nor does the fast path",
        _FLOW + "test_a_proxy_that_does_not_know_of_it_appends_nothing_and_tells_no_gap[True]",
        ("proxy.producer.entry_cache", " or entry.is_handed_over or not entry.window:", " or not entry.window:"),
    ),
    mutant(
        "gap_though_handed_over",
        "R21: what is due of a producer that was handed over is not told from its entry",
        _FLOW + "test_a_proxy_that_does_not_know_of_it_appends_nothing_and_tells_no_gap",
        (
            "proxy.producer.sequencer",
            "        elif held.entry is not None and held.entry.is_handed_over:\n",
            "        elif False:\n",
        ),
        deaths=("45", "I1", "proxy-"),
        worlds=_WORLDS,
    ),
    mutant(
        "leader_believed_unread",
        "R21: before a leader that knows the producer is believed the entry is read",
        _FLOW + "test_what_another_proxy_has_appended_meanwhile_is_read_before_a_leader_is_believed",
        (_HAND_OVER, "        if not is_handed_over:\n", "        if False:\n"),
        (_HAND_OVER, "        return is_handed_over\n", "        return True\n"),
    ),
    mutant(
        "bytes_pass_too_soon",
        "R21: bytes pass when the state of every producer that was idle since has expired, too",
        "unit/broker/test_hand_over_mark.py::test_bytes_pass_when_neither_a_retry_nor_an_idle_producer_of_before_can_come",
        ("proxy.broker.hand_over_mark", "    return max(expiry_seconds,", "    return min(expiry_seconds,"),
    ),
    mutant(
        "appended_with_an_error_told",
        "R21: what is appended and may vanish is not told as stored",
        _FLOW + "test_what_was_appended_and_may_vanish_is_not_told_as_stored",
        (
            _HAND_OVER,
            "    if isinstance(outcome, Appended) and outcome.error_code == 0:\n",
            "    if isinstance(outcome, Appended):\n",
        ),
        deaths=("I3",),
        worlds=_WORLDS,
    ),
    mutant(
        "held_broker_served",
        "R21: a broker that has its own format before the others is sent nothing",
        _UPGRADES + "test_a_raised_broker_gets_nothing_before_the_last_one_is_raised",
        (
            "proxy.broker.broker",
            "        self.takes_batches = not self.is_held\n",
            "        self.takes_batches = True\n",
        ),
        deaths=("R21: request",),
        worlds=_WORLDS,
    ),
    mutant(
        "read_in_the_new_format",
        "R21: what was sent in the old way is looked for in the old format, among batches of the new one",
        _UPGRADES + "test_a_doubt_that_is_open_at_the_hand_over_is_resolved_among_batches_of_the_new_format",
        (
            "proxy.broker.broker",
            "        if question.api_key != ApiKey.FETCH or judgement is None or not judgement.takes_over:\n",
            "        if True:\n",
        ),
        deaths=("the user of",),
        worlds=_WORLDS,
    ),
    mutant(
        "hand_over_not_marked",
        "R21: that producers were handed over is stored for proxies that start later",
        _UPGRADES + "test_a_proxy_that_starts_later_knows_that_producers_were_handed_over",
        (
            "proxy.broker.hand_over_mark",
            "        self._store.claim(handed_over_key",
            "        (lambda *_all: done())(handed_over_key",
        ),
        deaths=("liveness",),
        worlds=_WORLDS,
    ),
    mutant(
        "nobody_is_told_that_the_last_one_left",
        "R21: when the last broker that cannot take producers over has left, they are handed over",
        _UPGRADES + "test_when_the_last_old_broker_leaves_the_cluster_producers_are_handed_over_to_the_others",
        ("proxy.broker.topology", "        self._choose_mode()  # R21\n", ""),
    ),
    mutant(
        "handed_over_batches_for_ever",
        "R21: when sequences come round, the entry of a producer that is handed over names no old batches",
        _FLOW + "test_when_its_sequences_come_round_nothing_is_taken_for_what_was_stored_before",
        (_HAND_OVER, "        await _forget_the_old_way(stream, batch)\n", ""),
    ),
    mutant(
        "handed_over_batches_forgotten_early",
        "R21: not as long as a client may send one of them again",
        _FLOW + "test_a_late_retry_of_what_was_stored_in_the_old_way_is_still_known",
        ("state.commit", "SEQUENCE_MODULUS // 4 <= ahead", "0 < ahead"),
    ),
    mutant(
        "handed_over_and_taken_for_lost",
        "R21: an entry that is handed over lacks nothing, whatever the store has lost before",
        _FLOW + "test_what_others_have_handed_over_since_the_store_lost_a_write_of_ours_stays_so",
        (
            "proxy.producer.entry_cache",
            "        if lost is None or (stored is not None and stored.is_handed_over):",
            "        if lost is None:",
        ),
    ),
    mutant(
        "answered_and_still_out",
        "R21: a retry joins nothing that has its answer",
        _FLOW + "test_a_retry_that_comes_while_old_batches_are_forgotten_joins_nothing_that_is_answered",
        (_HAND_OVER, "        stream.out = []  # a retry that comes", "        pass  # a retry that comes"),
    ),
    mutant(
        "blurred_and_handed_over",
        "R21: what the log does not tell of an older epoch is no matter in a newer one that is handed over",
        _FLOW + "test_what_was_blurred_is_no_matter_in_the_next_epoch_of_what_is_handed_over",
        (
            "proxy.producer.duplicates",
            "    if entry.is_handed_over and batch.identity",
            "    if False and batch.identity",
        ),
    ),
    mutant(
        "forgotten_elsewhere_and_known_here",
        "R21: what another proxy has forgotten when sequences went on is told by nobody",
        _FLOW + "test_what_another_proxy_has_forgotten_is_forgotten_here",
        (_HAND_OVER, "    if is_told and not await stream.confirm([batch]):", "    if False:"),
    ),
    mutant(
        "given_up_for_ever",
        "R21: what takes the place of what was given up ends that",
        _FLOW + "test_what_takes_the_place_of_what_was_given_up_ends_that_in_the_new_way_as_in_the_old",
        (_HAND_OVER, "    return await stream.write(released(entry))", "    return True"),
    ),
)

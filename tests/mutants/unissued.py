"""Mutants of how searches share the reading of a log, and of producer ids that nobody issued: rules R6, R10, R17."""

from __future__ import annotations

from mutants.mutant import mutant

_PASS = "unit/partition_log/test_one_pass.py::"
_IDS = "unit/producer/test_unissued_ids.py::"

UNISSUED = (
    mutant(
        "each_search_begins_its_own_pass",
        "R6: searches that begin one after the other share one pass through the log",
        _PASS + "test_searches_that_begin_one_after_the_other_cost_two_readings_at_most[False]",
        (
            "proxy.partition_log.log_reader",
            "        if not bound:\n",
            "        if self.readers:\n            return self.readers[0][0].offset\n        if not bound:\n",
        ),
    ),
    mutant(
        "pass_is_not_joined",
        "R6: a rebuild joins a pass where it is",
        _PASS + "test_who_joins_a_pass_is_done_one_reading_later",
        (
            "proxy.partition_log.log_chunk",
            "        return self.joins and is_own and ",
            "        return False and is_own and ",
        ),
    ),
    mutant(
        "before_the_place_it_joined_unread",
        "R6: what comes before the place where a pass was joined is read last",
        _PASS + "test_a_rebuild_concludes_the_same_wherever_it_joins_a_pass[0]",
        (
            "proxy.partition_log.log_search",
            "        if self._joined is not None and self._later is None and self._next >= log_end:\n",
            "        if False:\n",
        ),
        deaths=("I1",),
    ),
    mutant(
        "notes_in_the_order_of_reading",
        "R6: what was read first and comes later in the log is noted as later",
        _PASS + "test_a_rebuild_concludes_the_same_wherever_it_joins_a_pass[0]",
        (
            "proxy.partition_log.log_search",
            "            self._notes.follow_with(self._later)\n",
            "            self._later.follow_with(self._notes)\n            self._notes = self._later\n",
        ),
        deaths=("I1",),
    ),
    mutant(
        "late_one_waits_for_the_next_pass",
        "R6: a pass goes back for a search that took a little longer",
        _PASS + "test_a_search_that_is_a_little_late_stays_in_the_pass",
        (
            "proxy.partition_log.log_reader",
            "        start = self.behind[0] if self.behind else self.at\n",
            "        start = self.at\n",
        ),
    ),
    mutant(
        "short_search_waits_for_a_long_one",
        "R6: a search near the end of a log takes turns with the pass through all of it",
        _PASS + "test_a_short_search_takes_turns_with_a_long_one",
        (
            "proxy.partition_log.log_reader",
            "            reach = Reach((self.last + ahead) % len(Reach))\n",
            "            reach = Reach(len(Reach) - ahead)\n",
        ),
    ),
    mutant(
        "rest_fetched_again",
        "R6: what a fetch brought and one chunk may not have is not fetched again",
        _PASS + "test_the_rest_of_a_fetch_is_not_fetched_again",
        (
            "proxy.partition_log.log_reader",
            "        if last is not None and len(last.rest) and ",
            "        if False and ",
        ),
    ),
    mutant(
        "all_searches_told_in_one_step",
        "R6: many searches are told of a chunk in several steps",
        _PASS + "test_many_searches_are_told_in_several_steps",
        (
            "proxy.partition_log.log_reader",
            "                if number % limits.READERS_PER_STEP == 0:\n",
            "                if False:\n",
        ),
    ),
    mutant(
        "fetched_for_nobody",
        "R17: nothing is fetched for a search that nobody waits for",
        _PASS + "test_nothing_is_read_for_a_search_that_nobody_waits_for",
        ("proxy.partition_log.log_reader", "if one[0].is_wanted()]\n", "]\n"),
    ),
    mutant(
        "rebuilt_for_nobody",
        "R17: an entry of which nothing is stored is rebuilt only while its client waits",
        _IDS + "test_the_log_is_not_read_on_for_a_client_that_has_left",
        ("proxy.producer.takeover", "            search.is_wanted = self._is_wanted\n", "            pass\n"),
    ),
    mutant(
        "let_go_of_at_once",
        "R17: a client that was told to come again is waited for",
        _IDS + "test_the_log_is_read_to_its_end_for_a_client_that_comes_again",
        ("proxy.producer.stream", "now - self._awaited_at <= limits.HAND_OVER_SECONDS\n", "now <= self._awaited_at\n"),
    ),
    mutant(
        "rebuilt_by_a_proxy_that_ends",
        "R17: a proxy that ends rebuilds nothing that is not stored",
        _IDS + "test_a_proxy_that_ends_reads_no_log_for_an_id_that_nobody_issued",
        ("proxy.producer.stream", "        return not self.life.is_draining and now", "        return now"),
    ),
    mutant(
        "claim_of_an_absent_entry_stored",
        "R10: nothing is stored of a producer id that nobody issued before a batch is reserved",
        _IDS + "test_the_log_is_not_read_on_for_a_client_that_has_left",
        (
            "proxy.producer.takeover",
            "        if not self._is_stored:\n            # N",
            "        if False:\n            # N",
        ),
    ),
    mutant(
        "blank_entry_stays",
        "R10: that nothing is stored is confirmed without leaving a key",
        _IDS + "test_nothing_is_left_of_an_id_that_nobody_issued",
        ("proxy.producer.entry_cache", "                ttl_ms = limits.BLANK_ENTRY_MS\n", "                pass\n"),
    ),
    mutant(
        "nothing_known_is_kept",
        "R10: of a producer of which nothing is known nothing is kept in memory",
        _IDS + "test_nothing_is_left_of_an_id_that_nobody_issued",
        ("proxy.producer.sequencer", "            stream.context.drop_unknown(stream.key)\n", "            pass\n"),
    ),
    mutant(
        "unissued_without_limit",
        "R10: so many outcomes of ids that nobody issued are looked for at a time",
        _IDS + "test_beyond_the_limit_a_batch_gets_a_retriable_code_at_once_and_is_taken_later[proxy]",
        ("proxy.producer.unissued", "        if self.count >= limits.UNISSUED_OUTCOMES_MAX:\n", "        if False:\n"),
    ),
    mutant(
        "unissued_of_one_without_limit",
        "R10: and fewer of one address or principal",
        _IDS + "test_one_address_or_principal_does_not_use_up_what_all_have",
        (
            "proxy.producer.unissued",
            "        if any(self._of[key] >= limits.UNISSUED_OUTCOMES_OF_ONE_MAX for key in keys):\n",
            "        if False:\n",
        ),
    ),
    mutant(
        "unissued_refused_at_any_pace",
        "R10: nothing more is taken for a while of a connection that brings more of them",
        _IDS + "test_a_client_whose_batches_are_refused_brings_a_few_a_second",
        ("proxy.producer.takeover", "                self._slow_down()\n", ""),
    ),
    mutant(
        "unissued_counted_for_ever",
        "R10: an outcome that is known is counted no longer",
        _IDS + "test_nothing_is_left_of_an_id_that_nobody_issued",
        (
            "proxy.producer.takeover",
            "            if admitted is not None:\n                admitted.end()\n",
            "            pass\n",
        ),
    ),
    mutant(
        "issued_before_is_unissued",
        "R10: an id whose block is stored was issued, in whichever life of the data",
        _IDS + "test_an_id_whose_block_is_known_is_not_counted",
        ("proxy.producer.entry_cache", "            self.is_unissued = value is None\n", ""),
        (
            "proxy.producer.entry_cache",
            "        self.is_unissued = False\n        block",
            "        self.is_unissued = True\n        block",
        ),
    ),
    mutant(
        "found_is_written_over_what_is_stored",
        "R10: what was found without a claim is not written over what somebody has stored meanwhile",
        _IDS + "test_another_proxy_that_has_written_meanwhile_is_not_overwritten",
        (
            "proxy.producer.entry_cache",
            "                if expected == NO_VERSION and _is_passing(result.value):\n",
            "                if expected == NO_VERSION and result.value:\n"
            '                    expected = int.from_bytes(result.value[1:9], "big")\n'
            "                    continue\n"
            "                if False:\n",
        ),
        deaths=("I1",),
    ),
)

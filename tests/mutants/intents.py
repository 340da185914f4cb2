"""Mutants of what an intent means: rules R1, R2, R7, R13, R17."""

from __future__ import annotations

from mutants.mutant import mutant

_SCENES = "unit/rules/test_rule_intents.py::"
_COMMIT_FIRST = """\
            if stream.held.entry is not None and stream.held.entry.intent is not None:
                reserved_entry, offset, window = stream.held.entry, stream.held.entry.intent.lower_bound, []
                for batch in self._group:
                    count = batch.identity.record_count
                    window.append(WindowBatch(batch.identity.base_sequence, count, offset))
                    offset += count
                await stream.write(committed(reserved_entry, window, offset, piece.anchor))
                stream.held.entry = reserved_entry
"""

INTENTS = (
    mutant(
        "living_owner_robbed",
        "R1: an intent is taken over only when its owner's lease is gone",
        _SCENES + "test_an_intent_is_not_taken_over_while_its_owners_lease_lives",
        ("proxy.producer.takeover", "        if await MemberAlive(owner) is not False:\n", "        if False:\n"),
        deaths=("I1",),
    ),
    mutant(
        "robbed_as_all_registrations_are_gone",
        "R1: a proxy that lost its registration takes another's intent over only when earlier leases are over",
        "unit/engine/test_grace.py::test_who_has_lost_his_registration_robs_nobody_who_may_have_lost_his_too",
        ("proxy.producer.takeover", "        is_strangers = owner != NOBODY and ", "        is_strangers = False and "),
    ),
    mutant(
        "taken_over_unread",
        "R1: an intent that is taken over is looked for in the log",
        _SCENES + "test_an_intent_that_is_taken_over_is_looked_for_in_the_log",
        (
            "proxy.producer.takeover",
            "        records = sum(piece.record_count for piece in stored)\n",
            "        records = 0\n",
        ),
        deaths=("I1",),
    ),
    mutant(
        "ended_incarnation_sends",
        "R1: what an incarnation reserved that has ended is not sent",
        _SCENES + "test_what_an_incarnation_reserved_that_has_ended_is_not_sent_by_the_next_one",
        ("proxy.producer.forward", "        if self._life.incarnation != self._owner:\n", "        if False:\n"),
        deaths=("I1",),
    ),
    mutant(
        "asked_and_forgotten",
        "R1: an intent that was met is looked after until its owner's lease would be over",
        _SCENES + "test_what_a_dead_proxy_left_open_is_resolved_though_the_one_client_that_asked_has_gone",
        (
            "proxy.producer.takeover",
            "                    stream.watch_intent(lease_ends)\n",
            "                    pass\n",
        ),
    ),
    mutant(
        "no_intent",
        "R2: the intent is written before a byte goes to the broker",
        _SCENES + "test_the_intent_is_in_the_store_before_a_byte_goes_to_the_broker",
        (
            "proxy.producer.sequencer",
            "        if await stream.write("
            "reserved(stream.held.or_fresh(first, group[0].principal), intent), is_reserve=True):\n",
            "        stream.held.entry = reserved(stream.held.or_fresh(first, group[0].principal), intent)\n"
            "        if True:\n",
        ),
        deaths=("I1",),
    ),
    mutant(
        "sends_without_the_store",
        "R2: without an answer from the store nothing is forwarded",
        _SCENES + "test_nothing_is_sent_without_an_answer_from_the_store",
        (
            "proxy.producer.entry_cache",
            "            if isinstance(result, Swapped):\n",
            "            if isinstance(result, Swapped | StoreAway):\n",
        ),
        deaths=("I1",),
    ),
    mutant(
        "intent_expires",
        "R2: an entry with an open intent does not expire with those at rest",
        _SCENES + "test_an_entry_with_an_open_intent_does_not_expire_with_those_at_rest",
        ("proxy.producer.entry_cache", "self._life.ids_ttl_ms if entry.has_open_intent else self._life", "self._life"),
    ),
    mutant(
        "swap_without_comparing",
        "R2: a swap compares the version",
        "integration/store/test_redis_store.py::test_a_conflict_brings_the_stored_value_along",
        (
            "state.redis_facts",
            "  fits = redis.call('GETRANGE', KEYS[1], 1, 8) == ARGV[1]\n",
            "  fits = ARGV[2] ~= ''\n",
        ),
    ),
    mutant(
        "waits_for_the_store_for_ever",
        "R2: a request waits for the store for a quarter of its timeout",
        _SCENES + "test_a_request_waits_for_the_store_for_a_quarter_of_its_time_and_no_longer",
        (
            "proxy.producer.stream",
            "            if batch.is_wanted and (now - batch.arrived_at >= patience or ",
            "            if batch.is_wanted and (",
        ),
    ),
    mutant(
        "commit_before_the_answer",
        "R7: a commit comes after the broker's answer",
        _SCENES + "test_what_never_came_to_the_broker_was_not_committed",
        (
            "proxy.producer.forward",
            "            piece = self._pieces[0]\n",
            "            piece = self._pieces[0]\n" + _COMMIT_FIRST,
        ),
        deaths=("I3", "the user"),
    ),
    mutant(
        "commit_overwrites",
        "R7: a commit compares owner and version",
        _SCENES + "test_a_commit_does_not_overwrite_what_another_proxy_wrote_meanwhile",
        (
            "proxy.producer.entry_cache",
            "                self._take(result.value)\n                return False\n",
            "                there = int.from_bytes(result.value[1:9], 'big') if result.value else 0\n"
            "                self.stored_version = expected = there\n"
            "                entry = replace(entry, version=there + 1)\n"
            "                value = pack(entry)\n"
            "                continue\n",
        ),
        deaths=("I1", "I2"),
    ),
    mutant(
        "retries_do_not_join",
        "R13: a retry that meets its own batch in flight waits for the same answer",
        _SCENES + "test_every_retry_of_a_batch_in_doubt_gets_its_answer_however_many_there_are",
        (
            "proxy.producer.stream",
            "            if other.is_same(batch):\n",
            "            if False:\n",
        ),
    ),
    mutant(
        "retry_replaces_who_waits",
        "R13: all waiting requests are kept",
        _SCENES + "test_a_retry_does_not_take_the_place_of_another_that_waits",
        (
            "proxy.producer.batch",
            "        self.waiters = [waiter for waiter in self.waiters if not waiter.is_gone] + other.waiters\n",
            "        self.waiters = other.waiters\n",
        ),
    ),
    mutant(
        "parked_for_ever",
        "R13: across proxies a retry parks and reads the value again",
        _SCENES + "test_who_waits_for_another_proxys_intent_reads_again_until_it_is_committed",
        (
            "proxy.producer.stream",
            "        await Pause(self.bell, seconds)\n        self.held.forget()\n",
            "        await Pause(self.bell, seconds)\n",
        ),
        deaths=("liveness",),
    ),
    mutant(
        "sends_for_the_dead",
        "R17: nothing is forwarded for a client that is known to have gone",
        _SCENES + "test_nothing_is_sent_for_a_client_that_has_gone",
        (
            "proxy.producer.forward",
            '            if not batch.is_wanted:\n                return "a c',
            '            if False:\n                return "a c',
        ),
        deaths=("I1",),
    ),
    mutant(
        "one_client_is_enough",
        "R17: every batch of a group needs its client",
        _SCENES + "test_every_batch_of_a_group_needs_its_client",
        (
            "proxy.producer.forward",
            '            if not batch.is_wanted:\n                return "a c',
            '            if not any(one.is_wanted for one in self._group):\n                return "a c',
        ),
        deaths=("I1",),
    ),
    mutant(
        "not_sent_not_released",
        "R17: a proxy that reserved owes a commit or a release",
        _SCENES + "test_who_reserved_and_sends_nothing_releases_what_he_holds",
        (
            "proxy.producer.forward",
            'the batches that are still wanted are due again."""\n        self._let_go()\n',
            'the batches that are still wanted are due again."""\n',
        ),
        deaths=("liveness",),
    ),
    mutant(
        "written_once_unconfirmed",
        "R17: a proxy that may have reserved writes until a reply confirms it",
        _SCENES + "test_who_may_have_reserved_writes_until_a_reply_confirms_it",
        (
            "proxy.producer.entry_cache",
            "            await Pause(self._bell, limits.PROBE_SECONDS)\n",
            "            await Pause(self._bell, limits.PROBE_SECONDS)\n"
            "            self.forget()\n"
            "            return False\n",
        ),
        deaths=("liveness",),
    ),
    mutant(
        "release_keeps_the_version",
        "R17: every write raises the version, a release too",
        _SCENES + "test_a_release_raises_the_version_so_that_what_was_made_from_an_older_value_fails",
        (
            "state.commit",
            "    return Entry(\n        entry.version + 1,\n        entry.generation,\n        entry.principal,\n"
            "        entry.producer_epoch,\n        entry.next_sequence,\n",
            "    return Entry(\n        entry.version + (intent is not None),\n        entry.generation,\n"
            "        entry.principal,\n        entry.producer_epoch,\n        entry.next_sequence,\n",
        ),
    ),
    mutant(
        "kept_by_a_living_proxy",
        "R17: a proxy that cannot decide in time leaves the intent to all",
        _SCENES + "test_who_cannot_decide_in_time_leaves_the_intent_to_everybody",
        (
            "proxy.producer.forward",
            "        self._stream.held.hold(renewed(entry, NOBODY, moved_to=self._moved_to))\n",
            "        self._stream.held.hold(renewed(entry, entry.intent.owner if entry.intent else NOBODY))\n",
        ),
        deaths=("liveness",),
    ),
    mutant(
        "undecidable_is_released",
        "R17: an intent that cannot be decided is remembered, not released",
        _SCENES + "test_what_cannot_be_decided_is_remembered_and_never_sent_again",
        (
            "proxy.producer.forward",
            "        self._stream.held.hold(given_up(entry))\n",
            "        self._stream.held.hold(released(entry))\n",
        ),
        deaths=("I1",),
    ),
    mutant(
        "undecidable_of_the_dead_is_released",
        "R17: nor one that a dead proxy left",
        _SCENES + "test_what_a_dead_proxy_left_undecidable_is_remembered_too",
        (
            "proxy.producer.takeover",
            "            await stream.write(given_up(entry_now) if intent.batches else ",
            "            await stream.write(released(entry_now) if intent.batches else ",
        ),
        deaths=("I1",),
    ),
    mutant(
        "left_open_with_nobody_there",
        "R17: a proxy that cannot decide gives up, also if no request waits at that moment",
        "unit/producer/test_given_up.py::test_an_append_that_cannot_be_decided_late_is_given_up_though_nobody_waits",
        (
            "proxy.producer.resolution",
            "        is_endless = isinstance(result, Later)",
            "        is_endless = True",
        ),
    ),
    mutant(
        "left_open_though_it_comes_further",
        "R17: what ends by itself is not left open for a moment in which nobody waits",
        "unit/producer/test_long_looks.py::test_a_long_rebuild_is_not_left_open_while_its_client_is_away_for_a_second",
        (
            "proxy.producer.resolution",
            "        comes_further = search.keeps_end and",
            "        comes_further = False and",
        ),
    ),
    mutant(
        "claim_without_its_content",
        "R17: a rebuild's claim keeps the content of what was given up",
        "unit/producer/test_given_up.py::test_a_proxy_that_dies_in_the_middle_of_a_rebuild_does_not_take_it_along",
        ("proxy.producer.rebuild", "content=left.content", "content=bytes(8)"),
        deaths=("I1",),
    ),
    mutant(
        "left_open_by_who_took_it_over",
        "R17: nor is it left open by the proxy that took it over",
        "unit/producer/test_given_up.py::"
        "test_what_a_dead_proxy_left_that_cannot_be_decided_late_is_given_up_though_nobody_waits",
        (
            "proxy.producer.resolution",
            "        is_endless = isinstance(result, Later)",
            "        is_endless = True",
        ),
    ),
)

"""Mutants of appending under an ownership: its conditions (docs/OWNERSHIP.md), each of which has a row in the model.
Rules R1, R2, R6, R8, R10, R11, R12, R17."""

from __future__ import annotations

from mutants.mutant import mutant

_TESTS = "unit/producer/test_owned.py::"
_PATH = "proxy.producer.fast_path"
_CACHE = "proxy.producer.entry_cache"
_SEQUENCER = "proxy.producer.sequencer"
_OWNERSHIP = "proxy.producer.ownership"
_SWAP = "        self._outside.swap(held.key, held.stored_version, value, self._reserved)\n"
_NOW = """        if self._owned is not None:
            self._outside.swap(held.key, held.stored_version, value, lambda _result: held.took_ownership(owned))
            self.sender = first.waiters[-1].connection.address
            self._outside.push(broker, self)
            return True
"""
_TAKE = "            value = held.take_ownership(entry, owned, now)\n"
_TAKE_PLAIN = """            value = held.take_ownership(entry, owned, now)
            entry.version -= 1
            value = entry.reserving(life.incarnation, bound, anchor, self._content, broker.id, members, batches)
            entry.version += 1
"""
_WRITE = "        self._held.write_owned(self._outside.swap, now)\n"
_WRITE_BEHIND = """        newest = self._bounds.known[self._place][1]
        if self._held.ownership is not None:
            self._held.ownership.move_to(newest.offset, newest.anchor)
        self._held.write_owned(self._outside.swap, now)
"""

OWNED = (
    mutant(
        "owned_before_it_is_confirmed",
        "R2: nothing leaves before the swap that takes an ownership is confirmed",
        _TESTS + "test_nothing_leaves_before_the_swap_that_takes_it_is_confirmed",
        (_PATH, _SWAP, _NOW + _SWAP),
        deaths=("I1", "I3", "the user"),
    ),
    mutant(
        "owned_for_ever_without_the_store",
        "R2: an ownership of which the store has confirmed nothing for a second is not used",
        _TESTS + "test_while_the_store_is_away_it_is_used_for_a_second_and_no_longer",
        (_OWNERSHIP, "            and now - self.confirmed_at <= limits.OWNED_SECONDS_MAX\n", ""),
    ),
    mutant(
        "owned_expires",
        "R2: an entry that somebody owns does not expire with those at rest, whoever writes it",
        _TESTS + "test_it_is_asked_once_for_each_version",
        (
            _CACHE,
            "            ttl_ms = self._life.ids_ttl_ms if entry.has_open_intent else",
            "            is_owned = entry.intent is not None and entry.intent.is_ownership\n"
            "            ttl_ms = self._life.ids_ttl_ms if entry.has_open_intent and not is_owned else",
        ),
    ),
    mutant(
        "owned_taken_over_by_its_first_batch",
        "R6: whoever takes an ownership over takes all that lies behind its bound",
        _TESTS + "test_all_that_a_dead_owner_has_appended_is_found_in_the_log",
        (_PATH, _TAKE, _TAKE_PLAIN),
        deaths=("I1", "I2", "I3", "45", "the user"),
    ),
    mutant(
        "ownership_forgotten_in_its_takeover",
        "R6: and so does whoever finishes that takeover for another",
        _TESTS + "test_who_finishes_the_takeover_of_another_knows_that_it_was_an_ownership",
        (
            "proxy.producer.takeover",
            "        attempts = TAKEN_OVER if intent.is_ownership else None\n",
            "        attempts = 0 if intent.is_ownership else None\n",
        ),
        deaths=("I1", "I2", "45"),
    ),
    mutant(
        "owned_without_a_marker",
        "R6: what leaves without a marker has an intent of its own",
        _TESTS + "test_what_it_does_not_cover_has_an_intent_of_its_own[no markers]",
        (
            _PATH,
            "            or topic in topics.unmarked  # R6\n",
            "            or (topic in topics.unmarked and self._held.ownership is None)  # R6\n",
        ),
    ),
    mutant(
        "owned_of_another_leader",
        "R6: what goes to another broker than the one that the ownership names has an intent of its own",
        _TESTS + "test_what_it_does_not_cover_has_an_intent_of_its_own[another leader]",
        (_OWNERSHIP, "            and leader == self.leader\n", ""),
    ),
    mutant(
        "bound_behind_what_is_out",
        "R8: the bound of an ownership moves to its producer's last commit and no further",
        _TESTS + "test_what_is_written_has_the_end_of_the_last_commit_as_its_bound_whatever_else_is_known",
        (_PATH, _WRITE, _WRITE_BEHIND),
        deaths=("I1", "I2", "I3", "45", "the user"),
    ),
    mutant(
        "owned_in_a_new_era",
        "R10: an ownership of an earlier era is not written on",
        _TESTS + "test_in_a_new_era_nothing_of_it_is_written_on",
        (
            _CACHE,
            "        if owned is None or packed is None or self._known_era != self._life.era:\n",
            "        if owned is None or packed is None:\n",
        ),
    ),
    mutant(
        "asked_and_kept",
        "R12: an owner that was asked hands over",
        _TESTS + "test_an_owner_that_goes_on_is_asked_and_hands_over",
        (_OWNERSHIP, "        self.is_asked_for = True\n", ""),
    ),
    mutant(
        "owned_after_the_hand_over_is_sent",
        "R17: nothing begins under an ownership from the moment on that the swap which ends it was sent",
        _TESTS + "test_nothing_begins_under_it_while_it_is_handed_over",
        (_OWNERSHIP, "            and not self.is_ending\n            and leader", "            and leader"),
        (_SEQUENCER, "        if self._running and not stream.is_resting:\n", "        if False:\n"),
        deaths=("I1", "I2", "I3"),
    ),
    mutant(
        "handed_over_in_flight",
        "R17: an ownership is not handed over while a batch is in flight",
        _TESTS + "test_it_is_not_handed_over_while_a_batch_is_in_flight",
        (_SEQUENCER, "        if not fast.is_out and (owned.is_asked_for or", "        if (owned.is_asked_for or"),
        (
            _SEQUENCER,
            "        if self.stream.held.is_unwritten and not self._is_out_fast and not self._running:\n",
            "        if self.stream.held.is_unwritten and not self._running:\n",
        ),
        deaths=("I1", "I2", "I3", "the user"),
    ),
    mutant(
        "value_taken_with_the_version",
        "R17: of a write that is refused by its own name an owner takes the version, never the value",
        _TESTS + "test_what_the_owner_knows_is_not_lost_when_it_is_asked",
        (
            _CACHE,
            "                    entry = replace(entry, version=max(entry.version, found + 1))\n",
            "                    stored = unpack(result.value or b'')\n"
            "                    entry = replace(stored, version=found + 1, intent=entry.intent)\n",
        ),
        deaths=("I1", "I2", "I3", "45", "the user"),
    ),
    mutant(
        "idle_and_kept",
        "R17: an ownership that nobody uses is handed over",
        _TESTS + "test_what_nobody_uses_is_handed_over",
        (
            _SEQUENCER,
            "(owned.is_asked_for or fast.committed_at <= now - limits.OWNED_WRITE_SECONDS)",
            "owned.is_asked_for",
        ),
    ),
    mutant(
        "refused_take_left",
        "R17: a swap that was to take an ownership and is refused by its own name has taken it",
        _TESTS + "test_a_swap_that_was_to_take_it_and_is_refused_by_its_own_name_hands_it_over",
        (
            _CACHE,
            "                found = None if owned is None else owned.version_of(result.value)\n",
            "                is_known = owned is not None and owned.is_confirmed\n"
            "                found = owned.version_of(result.value) if is_known else None\n",
        ),
    ),
    mutant(
        "owned_though_given_up",
        "R17: an entry that remembers what was given up is reserved batch by batch",
        _TESTS + "test_beside_what_was_given_up_none_is_taken",
        (
            _CACHE,
            " or entry.intent is not None or entry.is_rebuilt",
            " or (entry.intent is not None and not self.is_unwritten) or entry.is_rebuilt",
        ),
    ),
    mutant(
        "ownership_forgotten_by_a_rebuild",
        "R11: a gap behind an ownership is none where records have no marker, also in a new life of the store",
        _TESTS + "test_in_a_new_life_of_the_store_it_is_known_that_it_was_an_ownership",
        ("proxy.producer.takeover", "            TAKEN_OVER if self._was_owned else 0,\n", "            0,\n"),
    ),
    mutant(
        "ownership_known_to_who_read_the_log_alone",
        "R11: nor for a proxy that has not read the log itself",
        _TESTS + "test_nor_for_who_has_not_read_the_log_itself",
        (_SEQUENCER, "            return stream.context.owns  #", "            return False  #"),
        deaths=("45",),
    ),
    mutant(
        "deleted_records_of_a_dead_owner_in_a_new_life",
        "R10: what retention has deleted of an ownership is in doubt, whatever has become of the store since",
        _TESTS + "test_nor_are_they_in_a_new_life_of_the_store",
        (
            "proxy.producer.takeover",
            "        elif isinstance(result, Searched) and result.is_cut and self._was_owned:\n",
            "        elif False:\n",
        ),
        deaths=("I1", "45"),
    ),
    mutant(
        "blurred_until_a_new_life",
        "R10: and a blurred entry stays one",
        _TESTS + "test_what_is_blurred_stays_so_in_a_new_life_of_the_store",
        ("proxy.producer.takeover", "        self._was_owned = entry.is_blurred or (", "        self._was_owned = ("),
        deaths=("I1", "45"),
    ),
    mutant(
        "looked_for_in_an_earlier_state",
        "R10: what a rebuild has looked for counts as long as the entry is as that has left it",
        _TESTS + "test_nor_for_who_read_the_log_before_another_owner_died",
        ("proxy.producer.rebuild", " and self.state == state_read(entry)\n", "\n"),
        deaths=("I1", "45"),
    ),
)

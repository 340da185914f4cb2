"""Mutants of tombstones: rule R24."""

from __future__ import annotations

from mutants.mutant import Mutant, mutant

_FETCH = "unit/tombstones/test_fetch.py::"
_LEAVING_OUT = "unit/tombstones/test_leaving_out.py::"
_UPKEEP = "unit/tombstones/test_upkeep.py::"
_WORLDS = "simulation.tombstones"
_PASSED_OVER, _SHOWN, _STANDS = "offset ", "b'", "consumer-"
"""How the complaints of random worlds begin: not named and passed over, named and delivered, no progress."""


def _tombstones(
    name: str, rule: str, test: str, *patches: tuple[str, str, str], deaths: tuple[str, ...] = ()
) -> Mutant:
    return mutant(name, f"R24: {rule}", test, *patches, deaths=deaths, worlds=_WORLDS)


TOMBSTONES = (
    _tombstones(
        "named_by_offset_alone",
        "a message with another checksum is another one",
        _FETCH + "test_a_message_with_another_checksum_is_another_one",
        ("codecs.without_ranges", "        if checksum == crc:\n", "        if offset in noted:\n"),
        deaths=(_PASSED_OVER,),
    ),
    _tombstones(
        "earlier_log_counts_in_a_wrapper",
        "a range counts only in messages that it was seen to be in",
        _FETCH + "test_a_range_of_an_earlier_log_does_not_count_in_a_wrapper_of_a_later_one",
        (
            "proxy.tombstones.known",
            "        log = next((log for log in logs if log.end <= message[2]), None)\n",
            "        log = next(iter(logs), None)\n",
        ),
        deaths=(_PASSED_OVER, _SHOWN),
    ),
    _tombstones(
        "range_counts_beside_its_messages",
        "of a range that lies in two logs each part counts in its own",
        _FETCH + "test_a_range_counts_in_no_message_beside_those_that_it_was_seen_to_be_in",
        (
            "proxy.tombstones.known",
            "            start, end = max(place.first, first), min(place.end, offset + 1)\n",
            "            start, end = place.first, place.end\n",
        ),
        deaths=(_PASSED_OVER, _SHOWN),
    ),
    _tombstones(
        "stands_before_what_is_left_out",
        "where all is left out, the next fetch begins behind it",
        _FETCH + "test_where_all_is_left_out_the_next_fetch_goes_on_behind_it",
        ("proxy.tombstones.fetch", "        self._skips.note(place, offset, end, logs)\n", ""),
        deaths=(_STANDS,),
    ),
    _tombstones(
        "stands_in_a_wrapper",
        "a wrapper of which a client has had all that is left does not hold it up",
        _FETCH + "test_who_has_had_the_first_records_of_a_wrapper_goes_on_behind_it",
        ("proxy.tombstones.fetch", "        if any(end > offset for end in _ends_in(left)):\n", "        if left:\n"),
        deaths=(_STANDS,),
    ),
    _tombstones(
        "moved_by_what_another_saw",
        "what one client has seen is not believed for another one",
        _FETCH + "test_what_one_client_has_seen_is_not_believed_for_another",
        (
            "proxy.tombstones.known",
            "    def __init__(self, now: Callable[[], float]) -> None:\n        self._noted: TTLCache[",
            "    def __init__(self, now: Callable[[], float], everybodys: list[Skips] = []) -> None:\n"
            "        everybodys.append(self)\n"
            "        if len(everybodys) > 1:\n"
            "            self._noted, self._answers = everybodys[0]._noted, 0\n"
            "            return\n"
            "        self._noted: TTLCache[",
        ),
    ),
    _tombstones(
        "moved_after_an_error",
        "an error ends a skip: the log may be another one",
        _FETCH + "test_an_error_ends_a_skip",
        (
            "proxy.tombstones.fetch",
            "                    # The log may be another one than it was.\n"
            "                    self._skips.forget(place)\n",
            "",
        ),
        deaths=(_PASSED_OVER,),
    ),
    _tombstones(
        "moved_though_it_came_back",
        "a client that stood elsewhere meanwhile is not moved",
        _FETCH + "test_who_stood_elsewhere_meanwhile_is_not_moved",
        ("proxy.tombstones.known", "        self.forget(place)\n        return offset\n", "        return offset\n"),
    ),
    _tombstones(
        "moved_though_it_is_shown_again",
        "a skip ends with the ranges that it was made of",
        _FETCH + "test_a_skip_ends_with_its_range_and_not_with_another",
        (
            "proxy.tombstones.known",
            "        if at == offset and noted is ranges:\n",
            "        if at == offset:\n",
        ),
        deaths=(_PASSED_OVER,),
    ),
    _tombstones(
        "out_of_a_range_it_never_asked_for",
        "an error of the offset that the client did not say is not its own",
        _FETCH + "test_a_log_that_no_longer_goes_so_far_is_no_error_of_the_clients_own_offset",
        ("proxy.tombstones.fetch", "ErrorCode.OFFSET_OUT_OF_RANGE and place in self._moved:\n", "-2:\n"),
    ),
    _tombstones(
        "walked_without_end",
        "so much of an answer is looked into in one step",
        _LEAVING_OUT + "test_all_partitions_of_an_answer_have_one_limit",
        ("proxy.tombstones.leaving_out", "        self._looked_bytes += position * len(logs)\n", ""),
    ),
    _tombstones(
        "parts_without_end",
        "so many wrappers of an answer are taken apart in one step",
        _LEAVING_OUT + "test_so_many_wrappers_are_taken_apart_for_one_answer",
        ("proxy.tombstones.leaving_out", "        self._parts += 1\n", ""),
    ),
    _tombstones(
        "one_partition_before_the_others",
        "partitions have turns, where an answer has no time for all",
        _FETCH + "test_no_partition_waits_for_another_one",
        ("proxy.tombstones.known", "        first = self._answers % max(len(rows), 1)\n", "        first = 0\n"),
    ),
    _tombstones(
        "moved_over_what_was_cut_off",
        "the next fetch begins where this answer was cut off",
        _FETCH + "test_what_was_cut_off_is_fetched_next",
        (
            "proxy.tombstones.fetch",
            "        records, left = self._leaving_out.of(records, logs)\n",
            "        left = self._leaving_out.of(records, logs)[1]\n",
        ),
        deaths=(_PASSED_OVER,),
    ),
    _tombstones(
        "looked_for_without_end",
        "what was added or removed is heard while many ranges are looked for",
        _UPKEEP + "test_what_takes_long_is_looked_for_in_several_looks_and_counts_as_it_is_found",
        ("proxy.tombstones.upkeep", "            if await Now() >= until:\n", "            if False:\n"),
    ),
    _tombstones(
        "silent_leader_first_for_ever",
        "who answers nothing is asked last",
        _UPKEEP + "test_a_leader_that_takes_a_whole_look_to_answer_nothing_is_asked_last",
        ("proxy.tombstones.upkeep", "                self._unseen.add(place)\n", ""),
    ),
    _tombstones(
        "left_out_before_it_is_stored",
        "a range counts once it is stored that its messages were seen",
        _UPKEEP + "test_who_removes_a_range_while_a_proxy_looks_into_the_log_is_heard",
        (
            "proxy.tombstones.upkeep",
            "        if not own or await self._store(version, now):\n            await self._take(now)\n",
            "        is_stored = not own or await self._store(version, now)\n"
            "        await self._take(now)\n"
            "        if is_stored:\n",
        ),
    ),
    _tombstones(
        "left_out_unseen",
        "only what the log has as a whole is left out",
        _UPKEEP + "test_what_the_log_does_not_have_as_a_whole_is_refused",
        (
            "proxy.tombstones.upkeep",
            "        if not earliest.offset <= place.first < place.end <= latest.offset:\n",
            "        if False:\n",
        ),
    ),
    _tombstones(
        "lost_with_redis",
        "what Redis loses is given back",
        _UPKEEP + "test_what_redis_loses_is_given_back",
        (
            "proxy.tombstones.upkeep",
            "        own = [place for place, tombstone in now.items() if theirs.get(place) != tombstone]\n",
            "        own = [place for place in theirs if theirs[place] != now[place]]\n",
        ),
        deaths=(_SHOWN,),
    ),
    _tombstones(
        "asked_for_in_vain_for_ever",
        "a range that was asked for in vain may be taken out of the list",
        _UPKEEP + "test_what_was_asked_for_in_vain_and_taken_out_of_the_list_is_not_written_back",
        (
            "proxy.tombstones.upkeep",
            "    return {place: one for place, one in known.items() if place in theirs or one.state in lost}\n",
            "    return known\n",
        ),
    ),
    _tombstones(
        "refused_before_the_cluster_is_known",
        "a topic is missing only if the cluster was asked twice",
        _UPKEEP + "test_a_topic_that_is_not_there_is_refused_with_the_second_look",
        ("proxy.tombstones.upkeep", "        return was_absent\n", "        return True\n"),
    ),
    _tombstones(
        "held_up_by_a_silent_leader",
        "a log that cannot be looked into holds up no other range",
        _UPKEEP + "test_a_leader_that_stands_still_holds_up_no_other_range_and_is_asked_once",
        (
            "proxy.tombstones.upkeep",
            "        await self._take(now)  # what others have found counts while logs are looked into\n",
            "",
        ),
    ),
    _tombstones(
        "served_before_the_list_is_read",
        "no fetch passes before the list was read",
        _UPKEEP + "test_until_the_list_was_read_no_client_is_served",
        ("proxy.tombstones.known", "    is_read: bool = False\n", "    is_read: bool = True\n"),
        deaths=(_SHOWN,),
    ),
    _tombstones(
        "shown_as_the_list_is_unreadable",
        "a list that cannot be read leaves all as it was",
        _UPKEEP + "test_a_list_that_cannot_be_read_leaves_all_as_it_was_and_is_told",
        (
            "proxy.tombstones.upkeep",
            "            self._is_read()\n            return\n",
            "            self._is_read()\n            self._known.take({})\n            return\n",
        ),
    ),
)

"""Mutants of named producers: rule R22."""

from __future__ import annotations

from mutants.mutant import mutant

_SCENES = "unit/rules/test_rule_names.py::"
_STOPPED = "unit/session/test_describe_producers.py::"
_STATE = "unit/state/test_names.py::"

NAMES = (
    mutant(
        "name_not_compared",
        "R22: the swap that reserves compares the newest instance of the name",
        _SCENES + "test_the_name_is_compared_in_the_step_of_the_reserve",
        (
            "proxy.producer.entry_cache",
            "name.check(entry) if is_reserve else None\n",
            "name.check(entry) if False else None\n",
        ),
        deaths=("zombie", "stored"),
    ),
    mutant(
        "name_not_looked_at",
        "R22: a batch of an older instance is turned away, also where the newer one never wrote",
        _SCENES + "test_an_older_instance_is_fenced_on_a_partition_where_the_newer_one_never_wrote",
        (
            "proxy.producer.sequencer",
            "            if name is not None and stream.queue and not await stream.heeds_name(name):\n",
            "            if False and name is not None and not await stream.heeds_name(name):\n",
        ),
    ),
    mutant(
        "name_of_a_lost_life_goes_on",
        "R22: after a new life of the data the next instance gets a new id",
        _SCENES + "test_when_redis_has_lost_the_last_instance_its_epoch_is_not_issued_again",
        ("state.names", "record.generation != generation or record", "record"),
    ),
    mutant(
        "higher_epoch_trusted",
        "R22: after a higher epoch was seen than is stored the next instance gets a new id",
        _SCENES + "test_an_epoch_that_a_client_raises_itself_is_taken_over_and_the_next_instance_gets_a_new_id",
        (
            "state.names",
            "        generation=NO_GENERATION,\n        raised_from=NO_EPOCH,\n",
            "        raised_from=NO_EPOCH,\n",
        ),
    ),
    mutant(
        "higher_epoch_refused",
        "R22: the last instance goes on when Redis has lost that it was issued",
        _SCENES + "test_when_redis_has_lost_the_last_instance_that_one_goes_on_and_fences_the_older_one",
        ("state.names", "or producer_epoch < record.producer_epoch\n", "or producer_epoch != record.producer_epoch\n"),
    ),
    mutant(
        "one_id_for_clients_that_raise_epochs",
        "R22: by client id every instance has a producer id of its own",
        _SCENES + "test_by_client_id_every_instance_has_a_producer_id_of_its_own",
        ("state.names", "    elif not keeps_id:\n", "    elif False:\n"),
    ),
    mutant(
        "epoch_wraps",
        "R22: after the last epoch comes a new id",
        _STATE + "test_after_the_last_epoch_comes_a_new_id",
        ("state.names", " or record.producer_epoch >= EPOCH_MAX:\n", ":\n"),
    ),
    mutant(
        "named_state_expires",
        "R22: the state of a named producer does not expire before its name",
        _SCENES + "test_the_state_of_an_id_that_its_name_has_no_longer_expires",
        (
            "proxy.producer.entry_cache",
            "            ttl_ms = self._life.ids_ttl_ms if is_reserve",
            "            ttl_ms = self._life.expiry_ms if is_reserve",
        ),
    ),
    mutant(
        "state_expires_under_its_name",
        "R22: with a name all is renewed that it has on partitions",
        _SCENES + "test_what_a_name_has_on_every_partition_lives_as_long_as_it_is_in_use_on_one",
        (
            "proxy.producer.ids_in_use",
            "            ExpireAll(index, life.ids_ttl_ms, now_ms, renews=True),\n",
            "",
        ),
    ),
    mutant(
        "name_expires_in_use",
        "R22: a name that is in use is renewed",
        _SCENES + "test_what_a_name_has_on_every_partition_lives_as_long_as_it_is_in_use_on_one",
        (
            "proxy.producer.name_guard",
            "        if self._life.is_renewal_due(self._producer_id):",
            "        if False:",
        ),
    ),
    mutant(
        "block_expires_in_use",
        "R22: the block of a producer without a name is kept while one of its ids is in use",
        _SCENES + "test_a_block_of_ids_is_kept_while_one_of_them_is_in_use_and_no_longer",
        ("proxy.producer.ids_in_use", "            if now >= looked_at + every:\n", "            if False:\n"),
    ),
    mutant(
        "name_outlives_its_state",
        "R22: what an id has is renewed before its next epoch is issued",
        _SCENES + "test_an_epoch_is_issued_only_once_what_the_id_has_on_partitions_is_renewed",
        (
            "proxy.session.names",
            "            if isinstance(verdict, Raised):  # what the id has",
            "            if False:  # what the id has",
        ),
    ),
    mutant(
        "name_for_ever",
        "R22: a name that is used no more expires",
        _SCENES + "test_a_principal_has_so_many_names_and_others_go_on",
        (
            "proxy.session.names",
            "await Swap(key, expected, pack_name(following), self._life.name_ttl_ms)",
            "await Swap(key, expected, pack_name(following), 0)",
        ),
    ),
    mutant(
        "names_without_end",
        "R22: a principal has so many names",
        _SCENES + "test_a_principal_has_so_many_names_and_others_go_on",
        ("proxy.session.names", "limits.NAMES_PER_PRINCIPAL_MAX if is_new else None\n", "None\n"),
    ),
    mutant(
        "block_for_ever",
        "R22: the block of a producer without a name expires",
        _SCENES + "test_a_block_of_ids_is_kept_while_one_of_them_is_in_use_and_no_longer",
        ("proxy.session.init_producer", "value, self._life.ids_ttl_ms, claimed)", "value, 0, claimed)"),
    ),
    mutant(
        "ids_without_end",
        "R22: an address asks so often for producer ids",
        _SCENES + "test_an_address_that_asks_for_ids_without_end_is_told_to_ask_again_a_second_later",
        ("proxy.engine.engine", "        if not per_ip or (wait", "        if True or (wait"),
    ),
    mutant(
        "named_state_for_ever",
        "R22: the state of an id that its name has no longer expires",
        _SCENES + "test_the_state_of_an_id_that_its_name_has_no_longer_expires",
        ("proxy.session.names", "                if following.last_id != NO_ID:\n", "                if False:\n"),
    ),
    mutant(
        "name_of_anybody",
        "R22: a name belongs to the principal that made it",
        _SCENES + "test_a_name_belongs_to_the_principal_that_made_it",
        ("state.names", "and record.principal != principal:\n", "and False:\n"),
    ),
    mutant(
        "epoch_raised_by_anybody",
        "R22: only the principal to whom the id was issued raises its epoch",
        _SCENES + "test_the_id_of_a_name_is_of_no_use_to_another_principal",
        (
            "proxy.producer.name_guard",
            "            if self.principal is not None and self.principal != principal:\n",
            "            if False:\n",
        ),
    ),
    mutant(
        "asked_again_is_outdated",
        "R22: who asks for a higher epoch again is told the same again",
        _STATE + "test_who_asks_for_a_higher_epoch_again_is_told_the_same",
        ("state.names", "        if record.raised_from != NO_EPOCH and", "        if False and"),
    ),
    mutant(
        "open_is_told",
        "R22: where a producer stopped is told when what is open was found out",
        _STOPPED + "test_what_a_dead_proxy_has_left_open_is_found_out_first",
        ("proxy.session.describe_producers", "        if not entry.has_open_intent:\n", "        if True:\n"),
        deaths=("proxy-1 tells", "proxy-2 tells", "proxy-3 tells"),
    ),
    mutant(
        "told_while_it_is_taken_over",
        "R22: what is open is told as it is only while its owner goes on",
        _STOPPED + "test_what_a_dead_proxy_has_left_open_is_found_out_first",
        ("proxy.session.describe_producers", "seen not in (None, entry.window)", "seen is not None"),
        deaths=("proxy-1 tells", "proxy-2 tells", "proxy-3 tells"),
    ),
    mutant(
        "suspect_is_told",
        "R22: where a producer stopped is told when the log was read for what Redis may have lost",
        _STOPPED + "test_after_a_loss_of_redis_the_log_is_read_first",
        (
            "proxy.session.describe_producers",
            "        if entry.generation != self._life.generation:\n",
            "        if False:\n",
        ),
        deaths=("proxy-1 tells", "proxy-2 tells", "proxy-3 tells"),
    ),
    mutant(
        "told_as_it_was_read",
        "R22: where a producer stopped is confirmed by a swap before it is told",
        _STOPPED + "test_what_a_server_tells_that_is_the_master_no_longer_is_not_told",
        (
            "proxy.session.describe_producers",
            "            return await self._is_confirmed(entry)\n",
            "            return True\n",
        ),
        deaths=("proxy-1 tells", "proxy-2 tells", "proxy-3 tells"),
    ),
    mutant(
        "readable_for_those_who_know_no_names",
        "R22: proxies that know no names cannot read the entries of named producers",
        _STATE + "test_proxies_that_know_no_names_take_a_named_entry_for_damaged",
        ("state.entry", "    packed[_FLAGS_AT] |= _IS_NAMED\n", ""),
    ),
    mutant(
        "same_words_of_two_instances",
        "R22: no two instances write the same, which the store would take for one",
        _SCENES + "test_instances_that_begin_in_the_same_moment_have_different_epochs",
        ("proxy.session.names", "replace(following, version=following.version + apart)", "following"),
    ),
    mutant(
        "new_id_asked_for_again",
        "R22: who asks again for a higher epoch gets the same answer, also a new producer id",
        _SCENES + "test_who_asks_again_for_a_higher_epoch_is_told_the_same_also_where_that_is_a_new_id",
        ("state.names", "record.producer_id if record.producer_epoch else record.last_id", "record.producer_id"),
    ),
    mutant(
        "version_alone_tells_a_loss",
        "R22: what a process knows to be issued is not issued again, whatever version others wrote since",
        _SCENES + "test_an_epoch_is_not_issued_again_by_who_knows_that_redis_has_lost_it",
        (
            "proxy.session.names",
            "    return is_other and record.producer_id ==",
            "    return False and record.producer_id ==",
        ),
    ),
    mutant(
        "given_up_is_told",
        "R22: of a producer of which a batch was given up nobody is told where it stopped",
        _STOPPED + "test_where_a_batch_was_given_up_it_is_not_told_that_the_producer_stopped_before_it",
        ("proxy.session.describe_producers", " and entry.intent.is_given_up:  # R17", " and False:  # R17"),
    ),
)

"""Mutants of what one form alone decides (``proxy/flow/form.py``)."""

from __future__ import annotations

from mutants.mutant import mutant

from testkit.virtual.mutant import Patch

_V2 = "unit/producer/test_logs_of_format_v2.py"
_OWN_IDS = "simulation/test_own_ids.py"

FORMS = (
    mutant(
        "own_ids_numbers_refused_at_once",
        "R5: what a broker says of epoch and sequence is for the log to decide",
        _OWN_IDS + "::test_more_records_than_the_batch_has_are_refused_by_name",
        Patch("proxy.flow.outcome", "classify", "error_code in NUMBER_ERRORS", "False"),
    ),
    mutant(
        "own_ids_not_left_out_where_they_are_refused",
        "R6: what a broker refuses that has less of the epoch is sent without its numbers",
        _OWN_IDS + "::test_a_broker_that_knows_less_than_the_log_has_is_no_reason_for_an_error",
        Patch(
            "proxy.producer.recovery",
            "Recovery._without_numbers",
            "self._stream.marked_epoch = self._sent[0].producer_epoch",
            "",
        ),
    ),
    mutant(
        "own_ids_left_out_of_a_new_epoch",
        "R12: a new epoch has its own numbers at every broker",
        _OWN_IDS + "::test_a_new_leader_that_lacks_records_gets_the_rest_of_the_epoch_without_its_numbers",
        Patch(
            "proxy.producer.sequencer",
            "Sequencer._prepare",
            "stream.marked_epoch != epoch",
            "False",
        ),
    ),
    mutant(
        "own_ids_old_offset_is_a_success",
        "R9: an offset below the bound is that of an older append",
        _OWN_IDS + "::test_other_records_under_the_due_sequence_are_not_taken_for_the_batch[1]",
        Patch(
            "proxy.producer.append",
            "GroupAppend.answered",
            "base_offset < plan.bound.offset and self.form is Form.OWN_IDS",
            "False",
        ),
    ),
    mutant(
        "own_ids_content_not_compared",
        "R9: a broker compares no content, so the proxy does",
        _OWN_IDS + "::test_other_records_under_the_due_sequence_are_not_taken_for_the_batch[1]",
        Patch("proxy.producer.recovery", "Recovery._compared", "digest in (NO_DIGEST, self._group[0].digest)", "True"),
    ),
    mutant(
        "taken_over_by_the_numbers_alone",
        "R9: what a takeover finds under an intent's numbers may be another batch",
        _OWN_IDS + "::test_another_batch_with_the_same_numbers_is_not_committed_by_a_takeover",
        Patch("proxy.producer.takeover", "Takeover._compared", "is_own is True", "True"),
    ),
    mutant(
        "own_ids_in_the_place_of_an_unrecoverable_batch",
        "R9: what takes the place of an unrecoverable batch has no numbers that the broker may know",
        _OWN_IDS
        + "::test_what_takes_the_place_of_an_unrecoverable_batch_is_stored_before_it_is_a_success"
        + "[BrokerFault.NONE-gone]",
        Patch(
            "proxy.producer.sequencer",
            "Sequencer._prepare",
            "left.producer_epoch == epoch",
            "False",
        ),
    ),
    mutant(
        "own_ids_on_a_conditional_partition",
        "R23: what is published conditionally has no producer id that a broker could know",
        _OWN_IDS + "::test_conditional_batches_have_a_batch_marker_all_the_same",
        Patch(
            "proxy.producer.stream",
            "Stream.form_at",
            "self.is_conditional or self.marked_epoch != NO_EPOCH",
            "self.marked_epoch != NO_EPOCH",
        ),
    ),
    mutant(
        "own_ids_end_of_a_transaction_is_a_batch",
        "R10: the end of a transaction is no batch of its producer",
        "unit/partition_log/test_recognised.py"
        "::test_a_batch_with_its_own_producer_id_is_known_without_supposing_anything",
        Patch("proxy.partition_log.recognised", "Recogniser.is_it", "header.base_sequence < 0", "False"),
    ),
    mutant(
        "own_ids_copies_not_seen",
        "R14: copies of batches with a producer id are found by it",
        _OWN_IDS + "::test_a_copy_that_was_appended_late_is_found_by_the_audit",
        Patch(
            "proxy.partition_log.log_chunk",
            "LogChunk.copies_from",
            "names.get(batch.header[6:9], ()) if batch.marker is None else markers.get(batch.marker, ())",
            "markers.get(batch.marker, ())",
        ),
    ),
    mutant(
        "walk_leaves_own_ids_out",
        "R10: a batch with a marker may follow one with its producer's own ids",
        "unit/partition_log/test_recognised.py::test_a_batch_with_a_brokers_own_producer_id_is_its_producers",
        Patch(
            "proxy.partition_log.recognised",
            "Recogniser.is_it",
            "self._moves(header.producer_epoch, header.base_sequence, count)",
            "None",
        ),
    ),
    mutant(
        "newer_epochs_unknown",
        "R10: in a log of format v2 newer epochs of the producer are looked for as well",
        "unit/partition_log/test_recognised.py"
        "::test_newer_epochs_are_recognised_as_far_as_their_number_is_near_to_a_known_one",
        Patch("proxy.partition_log.recognised", "Recogniser._bases", "self._newest + limits.EPOCHS_AHEAD", "-1"),
    ),
    mutant(
        "deleted_front_is_absence",
        "R10: where the front of a log of format v2 is deleted, what nobody recognises is not absent",
        _V2 + "::test_a_batch_is_undecidable_where_retention_may_have_deleted_it_before_others_of_its_producer[2]",
        Patch("proxy.partition_log.log_search", "_Notes.doubtful", "self.hidden_to > NO_OFFSET", "False"),
    ),
    mutant(
        "front_before_a_bound_that_does_not_hold",
        "R10: the same where the log was truncated below the bound",
        _V2 + "::test_a_front_that_was_deleted_is_missed_also_where_the_bound_does_not_hold",
        Patch("proxy.partition_log.log_search", "LogSearch._begin", "self.moved_to != NO_OFFSET", "False"),
    ),
    mutant(
        "front_below_a_checkpoint",
        "R10: what was deleted below a checkpoint from which the log was read is older than any retry",
        _V2 + "::test_what_was_deleted_below_a_checkpoint_is_older_than_any_retry[5-2-45]",
        Patch("proxy.producer.resolution", "_search", "search.bound.offset", "0"),
    ),
    mutant(
        "unrecognised_is_complete",
        "R10: where a log of format v2 has batches that nobody recognised, the entry may lack some",
        _V2 + "::test_a_batch_of_an_epoch_that_a_rebuild_did_not_look_for_is_undecidable",
        Patch(
            "proxy.partition_log.log_search",
            "LogSearch._scan",
            "max(notes.unmarked_to, notes.hidden_to)",
            "notes.unmarked_to",
        ),
    ),
    mutant(
        "gap_by_content_alone",
        "R11: in a log of format v2 a batch after a gap is looked for by its sequences, too",
        _V2 + "::test_a_batch_of_an_epoch_that_a_rebuild_did_not_look_for_is_undecidable",
        Patch("proxy.producer.duplicates", "_search_after_gap", "stream.log_may_hide_producers", "False"),
    ),
    mutant(
        "other_epoch_waited_for",
        "R11: what a log of format v2 has of an epoch that was not looked for is undecidable in the end",
        _V2 + "::test_a_batch_of_an_epoch_that_a_rebuild_did_not_look_for_is_undecidable",
        Patch("proxy.producer.duplicates", "is_absent", "is_news and stream.log_may_hide_producers", "False"),
    ),
    mutant(
        "form_of_a_dead_broker",
        "R6: a new produce connection is used once the broker has answered since",
        "simulation/test_forms.py"
        "::test_a_broker_that_died_unnoticed_gets_nothing_in_the_format_that_it_stored_before[up]",
        Patch(
            "proxy.broker.produce_connection_pool",
            "ProduceConnectionPool.produce_connection_opened",
            "self._confirm(partial(self._confirmed, produce_connection))",
            "self._confirmed(produce_connection, True)",
        ),
    ),
    mutant(
        "form_of_a_dead_broker_for_a_client",
        "R6: so is a client's own connection",
        "simulation/test_forms.py::test_nor_over_a_clients_own_new_connection_to_it",
        Patch("proxy.pass_through.backend", "ClientBackend.__init__", "broker.confirm", "lambda done: done(True)"),
    ),
)

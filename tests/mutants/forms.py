"""Mutants of what one form alone decides (``proxy/flow/form.py``)."""

from __future__ import annotations

from mutants.mutant import mutant

from testkit.virtual.mutant import Patch

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
            "stream.marked_epoch != first.identity.producer_epoch",
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
        Patch("proxy.producer.recovery", "Recovery._compared", "found in (NO_DIGEST, digest)", "True"),
    ),
    mutant(
        "own_ids_in_the_place_of_an_unrecoverable_batch",
        "R17: what takes the place of an unrecoverable batch is read back",
        _OWN_IDS + "::test_what_takes_the_place_of_an_unrecoverable_batch_is_compared_with_what_is_stored",
        Patch(
            "proxy.producer.sequencer",
            "Sequencer._prepare",
            "form is Form.OWN_IDS and held.unrecoverable is not None",
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
            "own.get(batch.header[6:9]) if batch.marker is None else markers.get(batch.marker)",
            "markers.get(batch.marker)",
        ),
    ),
)

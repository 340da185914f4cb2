"""Mutants of what old clients in front of Kafka 4 rely on. No rule has a number here: each says what is missing. Their
scenes are unit tests; ``testkit.virtual.raised_trials`` has some that random worlds notice as well."""

from __future__ import annotations

from mutants.mutant import Mutant, mutant

from testkit.virtual.mutant import Patch

_PRODUCE, _PRODUCED = "proxy.bridge.upward.produce", "unit/bridge/test_upward_produce.py"
_FETCH, _FETCHED = "proxy.bridge.upward.fetch", "unit/bridge/test_upward_fetch.py"
_LOWERING, _LOWERED = "codecs.old_formats.lowering", "unit/codecs/test_lowering.py"


def _old(name: str, missing: str, test: str, *patches: Patch) -> Mutant:
    return mutant(name, f"old: {missing}", test, *patches)


OLD_CLIENTS = (
    _old(
        "old_batch_sent_again_with_new_numbers",
        "a batch whose answer was lost is sent again with the same numbers",
        _PRODUCED + "::test_after_a_lost_answer_the_same_bytes_are_sent_again",
        Patch(
            "producing.partition_queue",
            "PartitionQueue.lost",
            "self._came_back(batch)",
            "self._came_back(batch)\nself.failure = OutOfOrder(self.place, 0, 1, '')\nreturn self._drop(batch)",
        ),
    ),
    _old(
        "old_base_offset_of_the_last_piece",
        "the offset of a set that was split is that of its first batch",
        _PRODUCED + "::test_a_batch_that_is_too_large_is_split_until_it_fits",
        Patch(_PRODUCE, "RaisedProduce._stored", "not one.is_appended", "True"),
    ),
    _old(
        "old_client_gets_a_code_that_it_lacks",
        "no code is above those of the client's time",
        _PRODUCED + "::test_whatever_the_broker_answers_the_client_knows_the_code_in_time",
        Patch(
            "proxy.bridge.upward.error_codes",
            "produced_code",
            "code if code <= OF_0_10_2 else ErrorCode.UNKNOWN_SERVER_ERROR",
            "code",
        ),
    ),
    _old(
        "old_code_of_what_may_be_in_the_log_says_absent",
        "of a batch that may be in the log the client is not told that it is absent",
        _PRODUCED + "::test_after_an_unknown_outcome_the_connection_continues_in_the_next_epoch",
        Patch(
            _PRODUCE,
            "RaisedProduce._take",
            "self._end(one, ErrorCode.REQUEST_TIMED_OUT, is_outcome_unknown=True)",
            "self._end(one, ErrorCode.NOT_LEADER_OR_FOLLOWER)",
        ),
    ),
    _old(
        "old_set_in_the_log_in_part_is_retried",
        "a set that is in the log in part gets no code that clients retry for ever",
        _PRODUCED + "::test_a_set_in_the_log_in_part_gets_no_code_that_clients_retry",
        Patch(_PRODUCE, "RaisedProduce._end", "one.is_appended and one.code == ErrorCode.CORRUPT_MESSAGE", "False"),
    ),
    _old(
        "old_acks_of_all_replicas",
        "the client's acks are kept",
        _PRODUCED + "::test_the_clients_acks_are_kept_but_for_none",
        Patch(_PRODUCE, "RaisedProduce._send", "self._request.acks or 1", "-1"),
    ),
    _old(
        "old_id_returns_in_the_same_epoch",
        "an id under which a batch may still arrive returns in its next epoch",
        _PRODUCED + "::test_after_an_unknown_outcome_the_connection_continues_in_the_next_epoch",
        Patch(
            "proxy.bridge.upward.producer_ids",
            "ProducerIdPool.begin_next_epoch",
            "lent.producer_id.epoch + 1",
            "lent.producer_id.epoch",
        ),
    ),
    _old(
        "old_id_for_each_connection",
        "connections that take turns share producer ids",
        _PRODUCED + "::test_a_client_that_connects_again_waits_for_the_outcome",
        Patch("proxy.bridge.upward.producer_ids", "ProducerIdPool.lend", "self._idle", "None", which=4),
    ),
    _old(
        "old_retry_overtakes_what_is_out",
        "a client that connects again waits for what its earlier connection has out",
        _PRODUCED + "::test_a_client_that_connects_again_waits_for_the_outcome",
        Patch(
            "proxy.bridge.upward.departed_clients",
            "DepartedClients.has_open_before",
            "oldest is not connection and number <= count",
            "False",
        ),
    ),
    _old(
        "old_batch_behind_a_lost_one_is_refused",
        "a batch behind one that an election has lost continues in the next epoch",
        _PRODUCED + "::test_a_batch_behind_a_lost_one_continues_in_the_next_epoch",
        Patch(
            _PRODUCE,
            "RaisedProduce._take",
            "isinstance(result, OutOfOrder | UnknownProducer | Fenced | BehindFailed)",
            "isinstance(result, Fenced)",
        ),
    ),
    _old(
        "old_batch_in_doubt_under_another_id",
        "a batch that may be in the log is not written under another id",
        _PRODUCED + "::test_a_batch_that_may_be_in_the_log_is_not_written_under_another_id",
        Patch(_PRODUCE, "RaisedProduce._renew_later", "was_doubtful and isinstance(error, Fenced)", "False"),
    ),
    _old(
        "old_refusal_leaves_a_gap",
        "the sequence of a batch that was refused is the next one's",
        _PRODUCED + "::test_a_batch_that_is_too_large_is_split_until_it_fits",
        Patch(
            _PRODUCE,
            "RaisedProduce._refused",
            "self._core.start_at(one.place, error.base_sequence, was_used=False)",
            "self._core.start_at(one.place, error.base_sequence + error.record_count, was_used=False)",
        ),
    ),
    _old(
        "old_fetch_stays_at_a_control_batch",
        "what holds no record for the client is passed over",
        _FETCHED + "::test_after_a_control_batch_at_the_end_the_broker_waits_for_records_and_is_asked_once_a_wait",
        Patch(_FETCH, "RaisedFetch._note", "lowered.next_offset > position.next_offset", "False"),
    ),
    _old(
        "old_fetch_stays_at_a_compacted_tail",
        "an empty answer is not the client's while the log has more",
        _FETCHED + "::test_a_compacted_tail_is_passed_within_one_fetch",
        Patch(_FETCH, "RaisedFetch.response", "is_empty and is_moved and left_ms > 0", "False"),
    ),
    _old(
        "old_wrapper_behind_plain_messages",
        "no wrapper follows a plain message",
        _LOWERED + "::test_no_wrapper_follows_a_plain_message",
        Patch(
            _LOWERING,
            "_MessageSet._has_room",
            "size_bytes <= self._room and not (is_wrapper and self._is_plain_last)",
            "size_bytes <= self._room",
        ),
    ),
    _old(
        "old_lz4_in_v0",
        "format v0 has no lz4",
        _LOWERED + "::test_a_compressed_batch_is_one_wrapper_in_a_codec_that_its_clients_read",
        Patch(
            _LOWERING,
            "_readable",
            "codec is Codec.ZSTD or (codec is Codec.LZ4 and not magic)",
            "codec is Codec.ZSTD",
        ),
    ),
    _old(
        "old_message_above_the_limit",
        "each fetch brings a message, whatever the limit",
        _LOWERED + "::test_a_large_record_is_whole_whatever_the_limit",
        Patch(_LOWERING, "_MessageSet._appending_plain", "self.last_offset < 0", "False"),
    ),
    _old(
        "old_offsets_inside_a_wrapper_are_absolute",
        "format v1 has relative offsets inside a wrapper",
        _LOWERED + "::test_a_compressed_batch_is_one_wrapper_in_a_codec_that_its_clients_read",
        Patch(
            _LOWERING, "_MessageSet._appending_wrapper", "-(yield from messages.finding_first())", "batch.base_offset"
        ),
    ),
)

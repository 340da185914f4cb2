"""Every limit of the producer without I/O, with its unit and its reason. Only numbers."""

from __future__ import annotations

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB

IN_FLIGHT_MAX: Final = 5
"""Batches of one partition that were sent and may have to be sent again, and requests on one connection: servers keep
the sequences of a producer's last five batches, and recognise no older one (Kafka's NUM_BATCHES_TO_RETAIN)."""
DELIVERY_SECONDS_MAX: Final = 120.0
"""From ``send`` until an outcome is reported, known or not: Kafka's delivery.timeout.ms."""
REQUEST_SECONDS_MAX: Final = 30.0
"""A connection without an answer, or a further part of one, for so long is closed: Kafka's request.timeout.ms. The
proxy answers a produce within three quarters of the timeout in the request, even if the outcome is not known by then
(rule R18)."""
REQUEST_BYTES_MAX: Final = 4 * MIB
"""The batches in one produce request; a larger batch goes alone. With five in flight 20 MiB for each leader."""
CORRUPT_TRIES_MAX: Final = 3
"""Answers CORRUPT_MESSAGE in a row after which a batch has failed. The checksum was right when the batch was sent, and
damage on the way does not happen three times in a row: old brokers use the code for other faults as well, such as a
record without a key on a compacted topic."""
THROTTLE_SECONDS_MAX: Final = 30.0
"""The longest pause for a quota (throttle_time_ms) that is kept at once."""
BACKOFF_SECONDS_MIN: Final = 0.05
BACKOFF_SECONDS_MAX: Final = 1.0
"""The pause between tries; it doubles. Kafka's reconnect.backoff.ms and reconnect.backoff.max.ms; a produce begins with
twice the first, Kafka's retry.backoff.ms."""
METADATA_SECONDS_MIN: Final = 0.1
"""Between two questions for the leaders."""

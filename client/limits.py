"""Every limit of the client, with its unit and its reason; those of producing are in ``producing/limits.py``. Only
numbers."""

from __future__ import annotations

from typing import Final

from ..producing.limits import KIB, MIB

# Producing
PRODUCE_TIMEOUT_SHARE: Final = 0.8
"""The timeout in a produce request, as a share of ``REQUEST_SECONDS_MAX``, so that the server answers before the client
gives up."""
BUFFERED_BYTES_MAX: Final = 64 * MIB
"""Batches without an outcome in one producer; above it ``send`` waits. Enough for two leaders with five full requests
in flight, and some that are ready to follow."""

# Connections
CONNECT_SECONDS_MAX: Final = 10.0
"""For TCP, TLS, SASL and ApiVersions together, each try."""
RESPONSE_BYTES_MAX: Final = 257 * MIB
"""One answer: ``WHOLE_FETCH_BYTES_MAX``, and what stands around the records."""
SASL_FRAME_BYTES_MAX: Final = 64 * KIB
"""An answer before the server has accepted us."""
RECEIVE_BYTES: Final = 256 * KIB
"""One recv."""

# Reading
FETCH_BYTES: Final = 4 * MIB
"""One fetch; a message that is larger comes alone, or is asked for with twice as much."""
FETCH_BYTES_MAX: Final = 128 * MIB
"""No message of a broker is larger: message.max.bytes is 1 MiB by default, and what is above 100 MiB is not taken."""
WHOLE_FETCH_BYTES_MAX: Final = 256 * MIB
"""One fetch of bytes as they are stored: before Fetch version 3 a message comes only whole."""
THROTTLED_FETCH_BYTES_MIN: Final = 16 * KIB
"""One fetch, where a consumer quota lets no larger one through; one message comes whole in any case."""
THROTTLED_FETCH_SECONDS_MAX: Final = 600.0
"""The longest that one fetch of stored bytes waits for a quota in all: others with the same client id may use it up
without end."""
READING_PAUSES_SECONDS: Final = (0.2, 0.5, 1.0, 2.0, 4.0)
"""Between the tries of one question about a log, in sum longer than an election takes."""
LEADERS_SECONDS_MAX: Final = 1.0
"""Leader and replicas that are older than this are asked for again before the end of a log is asked for."""
FETCH_WAIT_MS_MAX: Final = 500
"""How long the broker waits for records where there are none: Kafka's fetch.max.wait.ms."""
LEFT_OUT_MESSAGES_MAX: Final = 50_000
"""The proxies' list of hidden ranges, 1 MiB, has no room for more messages of one partition. So no more fetches than
this can be empty because a proxy leaves everything out (rule R24)."""
OFFSETS_KEPT_MS: Final = 10 * 365 * 24 * 60 * 60 * 1000
"""How long a coordinator keeps what is committed: ten years. Its own default is a day before 2.0 and a week since
(KIP-186), and a program that finds no offset begins again."""
METADATA_BYTES_MAX: Final = 4096
"""The text that is committed with an offset: the broker's offset.metadata.max.bytes."""
DECOMPRESSED_BYTES_MAX: Final = 256 * MIB
"""One stored batch, unpacked."""

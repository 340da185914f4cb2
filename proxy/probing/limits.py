"""Every limit of a probe, with its unit and its reason. Only numbers."""

from __future__ import annotations

from typing import Final

REQUEST_SECONDS_MAX: Final = 10.0
"""For one response, or a further part of it: brokers return a produce in milliseconds, and 0.10 a topic in a second."""
PROBE_SECONDS_MAX: Final = 120.0
"""From the first connection to the last fetch. A probe of a broker takes two seconds; a service that is silent now and
then costs ``REQUEST_SECONDS_MAX`` each time."""
DELETION_SECONDS_MAX: Final = 20.0
"""To delete the topic, also after a failure or Ctrl-C: a controller that moves meanwhile is found."""
TOPIC_SECONDS_MAX: Final = 30.0
"""To create the topic, and until a broker names its leader: a cluster of many brokers needs some seconds."""
RETRY_SECONDS_MAX: Final = 20.0
"""For a request that is refused with an error that passes: a broker that has just started has no producer ids yet."""
UNCERTAIN_SECONDS_MAX: Final = 3.0
"""For which a topic is looked for whose creation was not confirmed."""
PAUSE_SECONDS: Final = 0.2
"""Between two tries."""
READ_SECONDS_MAX: Final = 10.0
"""Until all that was acknowledged can be fetched."""
FETCH_WAIT_MS: Final = 500
"""How long one fetch waits for records."""
FETCH_BYTES: Final = 1 << 20
"""One fetch: a probe writes some 10 KB."""
LOG_BYTES_MAX: Final = 4 << 20
"""All that is read: above it, the topic is somebody else's as well."""
PRODUCE_TIMEOUT_MS: Final = 5_000
"""The timeout in a produce request, below ``REQUEST_SECONDS_MAX``."""
PIPELINED: Final = 5
"""Requests that are sent at once: Kafka's max.in.flight.requests.per.connection."""
WRAPPERS: Final = 3
"""Compressed messages of format v1 that are sent one after the other."""

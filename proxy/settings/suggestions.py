"""What may have been meant by a word that is not known. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Final

RENAMED: Final[Mapping[str, str]] = {
    "advertise": "listeners[].advertised",
    "cluster": "cluster_name",
    "data_dir": "data_directory",
    "retry_horizon_seconds": "producers.client_retry_seconds_max",
    "trust_clients": "upstream.allow_unauthenticated_clients",
    "unsent_bytes_max": "limits.client_response_bytes_max",
    "unanswered_bytes_max": "limits.response_bytes_total_max",
    "bytes_in_flight_max": "limits.request_bytes_total_max",
    "connections_per_address_max": "limits.connections_per_ip_max",
    "accepts_per_second_max": "limits.connection_creation_rate_max",
}
"""Keys of the file that had another name once, and where they are now. What looks alike may be another setting."""


def now_called(name: str, known: Sequence[str]) -> str:
    """Return what a key is called that is not known: its new name, or ``meant``. ``known``: keys beside it."""
    new = RENAMED.get(name)
    if new is None:
        return meant(name, known)
    own = new.rpartition(".")[2]
    return f"; it is {own if own in known else new} now"


def meant(name: str, known: Sequence[str], *, lists_all: bool = True) -> str:
    """Return what may have been meant by an unknown name, or all known names (``lists_all``), after a semicolon."""
    begun = [one for one in known if len(name) > 2 and one.startswith(name)]
    close = begun or difflib.get_close_matches(name, known, 1)
    if close:
        return f"; did you mean {close[0]}?"
    return f"; there are {', '.join(known)}" if lists_all else ""

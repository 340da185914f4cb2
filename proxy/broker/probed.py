"""What a probe has found out about brokers that do not show that they are Kafka: which these are, what they are served
as, and how that is kept for all proxies of a cluster. Pure: ``process/prober.py`` probes.

A broker is known again by the versions that it lists: with others it may do otherwise with batches."""

from __future__ import annotations

import hashlib
import json
from typing import Self

from ...values import value
from .. import limits
from ..flow.form import Form
from ..versions import NEWER, BrokerRanges, Detected
from .served import WITHOUT_IDS, Judgement, Kind, Refusal, has_producer_ids, shows_kafka

_LOG_FORMS = (Form.MARKED_V2, Form.WRAPPER_V1)
"""In which the proxy gives idempotence, in the order in which they are preferred."""
_SEEN = "a probe has seen: {}"
_NOT_BY_IDS = Refusal(
    Kind.UNSERVED, "its producer ids give no idempotence, as a probe has seen, and the brokers are to give it"
)
_NOT_BY_LOG = Refusal(
    Kind.UNSERVED, "only its own producer ids give idempotence, as a probe has seen, and the proxy is to give it"
)
_UNPROBED = (
    "it does not show that it is Kafka, and a probe cannot find out what it does with batches: {}. Or set "
    "upstream.idempotence after you have run `idemproxy probe`: native (v2, own ids) or proxy (any other verdict)"
)


def needs_probe(found: Detected) -> bool:
    """Has a broker to be probed before it is known what it can be served as? Where that is configured, it is not."""
    if not found.ranges:
        return False
    return not shows_kafka(found.ranges) or (found.version == NEWER and not has_producer_ids(found.ranges))


def fingerprint_of(ranges: BrokerRanges) -> str:
    """Return by what brokers that list the same versions are known: 16 hexadecimal digits."""
    listed = ",".join(f"{int(key)}:{low}-{high}" for key, (low, high) in sorted(ranges.items()))
    return hashlib.sha256(listed.encode()).hexdigest()[:16]


@value(frozen=True, slots=True)
class Probed:
    """What a probe has found out. ``forms``: those of which nothing is missing; none: the brokers cannot be served,
    ``because`` of these rows. ``fingerprints``: of the brokers that it is about. ``unprobed``: why there was no
    verdict, empty: there was one."""

    forms: tuple[Form, ...]
    because: tuple[str, ...]
    fingerprints: frozenset[str]
    unprobed: str = ""

    def is_about(self, ranges: BrokerRanges) -> bool:
        """Is it about brokers that list these versions?"""
        return fingerprint_of(ranges) in self.fingerprints

    @property
    def judgement(self) -> Judgement:
        """Return what these brokers are served as."""
        if self.unprobed:
            return _refused(_UNPROBED.format(self.unprobed))
        if not self.forms:
            return _refused(_SEEN.format("; ".join(self.because)))
        in_log = next((form for form in _LOG_FORMS if form in self.forms), None)
        in_native = _NOT_BY_IDS if in_log is not Form.WRAPPER_V1 else WITHOUT_IDS
        return Judgement(
            None if in_log is not None else _NOT_BY_LOG,
            None if Form.OWN_IDS in self.forms else in_native,
            in_log or Form.MARKED_V2,
            takes_ids=Form.OWN_IDS in self.forms,
        )

    def pack(self) -> bytes:
        """Return the bytes to keep."""
        assert not self.unprobed
        because = [one[: limits.PROBE_REASON_LENGTH_MAX] for one in self.because[: limits.PROBE_REASONS_MAX]]
        kept = {
            "forms": [form.label for form in self.forms],
            "because": because,
            "brokers": sorted(self.fingerprints)[: limits.PROBED_RANGES_MAX],
        }
        return json.dumps(kept).encode()

    @classmethod
    def unpack(cls, kept: bytes | None) -> Self | None:
        """Return what ``pack`` made; None for anything else: then it is probed again."""
        by_label = {form.label: form for form in Form}
        try:
            found = json.loads(kept or b"")
            forms = tuple(by_label[label] for label in found["forms"])
            because, brokers = tuple(found["because"]), frozenset(found["brokers"])
        except (ValueError, KeyError, TypeError):
            return None
        if not all(isinstance(one, str) for one in (*because, *brokers)) or bool(forms) == bool(because):
            return None
        return cls(forms, because, brokers)


def _refused(reason: str) -> Judgement:
    refusal = Refusal(Kind.UNSERVED, reason)
    return Judgement(refusal, refusal)

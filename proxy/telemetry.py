"""Turns events into log lines, counters and OpenTelemetry spans: the one room that knows their names. Decides nothing.

Nothing of OpenTelemetry is loaded unless the standard OTEL_* variables ask for it.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from typing import Any

from ..state import store
from . import events

_LOG = logging.getLogger("idemproxy")
_LEVELS = {"info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


class Telemetry:
    """Takes every event of one process. ``counts``: metric name -> count."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def __call__(self, event: Any) -> None:
        """Take one event."""
        handler = _HANDLERS.get(type(event))
        if handler is not None:
            handler(self, event)

    def log(self, level: int, text: str, *values: object) -> None:
        """Write one line."""
        _LOG.log(level, text, *values)


def _said(telemetry: Telemetry, event: events.Said) -> None:
    telemetry.log(_LEVELS[event.level], "%s", event.what)


def _answered(telemetry: Telemetry, event: events.BatchAnswered) -> None:
    telemetry.counts[f"batches_{event.verdict}_total"] += 1
    if event.verdict == "duplicate":
        telemetry.log(
            logging.INFO,
            "duplicate: producer %d epoch %d sequence %d on %s-%d answered with offset %d",
            event.producer_id,
            event.producer_epoch,
            event.base_sequence,
            event.topic,
            event.partition,
            event.base_offset,
        )
    elif event.verdict != "appended":
        telemetry.log(
            logging.WARNING if event.error_code else logging.INFO,
            "%s: producer %d epoch %d sequence %d on %s-%d: code %d: %s",
            event.verdict,
            event.producer_id,
            event.producer_epoch,
            event.base_sequence,
            event.topic,
            event.partition,
            event.error_code,
            event.message,
        )


def _doubt_opened(telemetry: Telemetry, event: events.DoubtOpened) -> None:
    telemetry.counts["doubts_opened_total"] += 1
    telemetry.log(
        logging.INFO,
        "in doubt: producer %d sequence %d on %s-%d: %s",
        event.producer_id,
        event.base_sequence,
        event.topic,
        event.partition,
        event.reason,
    )


def _doubt_resolved(telemetry: Telemetry, event: events.DoubtResolved) -> None:
    telemetry.counts[f"doubts_{event.result}_total"] += 1
    telemetry.log(
        logging.INFO if event.result != "unknown" else logging.ERROR,
        "resolved as %s: producer %d sequence %d on %s-%d, %d bytes read in %.1f s %s",
        event.result,
        event.producer_id,
        event.base_sequence,
        event.topic,
        event.partition,
        event.bytes_read,
        event.seconds,
        event.detail,
    )


def _reforwarded(telemetry: Telemetry, event: events.Reforwarded) -> None:
    telemetry.counts["reforwards_total"] += 1


def _taken_over(telemetry: Telemetry, event: events.TakenOver) -> None:
    telemetry.counts["intents_taken_over_total"] += 1


def _issued(telemetry: Telemetry, event: events.ProducerIdIssued) -> None:
    telemetry.counts["producer_ids_issued_total"] += 1


def _generation(telemetry: Telemetry, event: events.GenerationChanged) -> None:
    telemetry.counts["store_generations_total"] += 1
    telemetry.log(logging.INFO, "the store's data has generation %s", event.generation.hex())


def _refused(telemetry: Telemetry, event: events.ClientRefused) -> None:
    telemetry.counts["bad_input_total"] += 1
    telemetry.log(logging.WARNING, "refused from %r: %s", event.client, event.what)


def _lane_lost(telemetry: Telemetry, event: events.LaneLost) -> None:
    telemetry.counts["lanes_lost_total"] += 1


def _failed(telemetry: Telemetry, event: events.FlowFailed) -> None:
    telemetry.counts["failures_total"] += 1
    _LOG.error("error of ours in %s", event.where, exc_info=event.error)


def _store_ready(telemetry: Telemetry, event: store.StoreReady) -> None:
    telemetry.log(logging.INFO, "Redis is ready")


def _store_lost(telemetry: Telemetry, event: store.StoreLost) -> None:
    telemetry.counts["store_lost_total"] += 1
    telemetry.log(logging.WARNING, "Redis is away: %s", event.reason)


def _store_refused(telemetry: Telemetry, event: store.StoreRefused) -> None:
    telemetry.log(logging.ERROR, "Redis cannot be used: %s", event.reason)


def _store_warning(telemetry: Telemetry, event: store.StoreWarning) -> None:
    telemetry.log(logging.WARNING, "Redis: %s", event.text)


_HANDLERS: dict[type, Any] = {
    events.Said: _said,
    events.BatchAnswered: _answered,
    events.DoubtOpened: _doubt_opened,
    events.DoubtResolved: _doubt_resolved,
    events.Reforwarded: _reforwarded,
    events.TakenOver: _taken_over,
    events.ProducerIdIssued: _issued,
    events.GenerationChanged: _generation,
    events.ClientRefused: _refused,
    events.LaneLost: _lane_lost,
    events.FlowFailed: _failed,
    store.StoreReady: _store_ready,
    store.StoreLost: _store_lost,
    store.StoreRefused: _store_refused,
    store.StoreWarning: _store_warning,
}


def wants_traces() -> bool:
    """Do the standard variables name a place to send spans to?"""
    return bool(os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT") or os.environ.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"))

"""Arithmetic on sequence numbers, modulo 2**31. The codecs do not import this folder and have the modulus once more; a
test holds the two together.

A sequence counts records of one producer on one partition and one epoch. Base and last sequence of a batch are both
inclusive. Source: Kafka DefaultRecordBatch.incrementSequence, decrementSequence; ProducerAppendInfo.inSequence. Two
well-known implementations wrap one too early, so the modulus is a parameter and the tests walk a small ring
completely."""

from __future__ import annotations

SEQUENCE_MODULUS = 2**31


def advance(sequence: int, records: int, modulus: int = SEQUENCE_MODULUS) -> int:
    """Return the sequence that comes ``records`` after ``sequence``; negative counts go back."""
    return (sequence + records) % modulus


def last_of(base_sequence: int, record_count: int, modulus: int = SEQUENCE_MODULUS) -> int:
    """Return the last sequence of a batch, inclusive."""
    return (base_sequence + record_count - 1) % modulus


def distance(earlier: int, later: int, modulus: int = SEQUENCE_MODULUS) -> int:
    """Return how many records lie from ``earlier`` up to ``later``, going forwards: 0 <= distance < modulus."""
    return (later - earlier) % modulus


def is_ahead(expected: int, sequence: int, modulus: int = SEQUENCE_MODULUS) -> bool:
    """Tell whether ``sequence`` lies after ``expected``: in the half of the ring that follows it."""
    return 0 < (sequence - expected) % modulus < modulus // 2

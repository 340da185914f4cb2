"""What an operator says about SASL towards the brokers: one principal for everything that the proxy asks and sends by
itself. Plain data; ``proxy/broker/sasl_login.py`` speaks it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from ...codecs.sasl import OAUTHBEARER, PLAIN

CLEAR_TEXT = (PLAIN, OAUTHBEARER)
"""Mechanisms that send the secret itself."""


@dataclass(frozen=True, slots=True)
class SaslClient:
    """The login at the brokers: ``username`` and ``password`` for PLAIN and SCRAM, ``token_file`` for OAUTHBEARER; the
    others are None."""

    mechanism: str
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    token_file: Path | None = None

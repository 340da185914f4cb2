"""The certificates that a configuration names, each with its place there: listeners, brokers, Redis. Reads them all, or
says everything that is wrong with them."""

from __future__ import annotations

from collections.abc import Mapping

from ..events import Report
from ..settings.config import ConfigError, Settings
from ..settings.tls import TlsClient, TlsServer
from .tls import Certificates, Later, TlsSide, problems

UPSTREAM_PLACE, REDIS_PLACE = "upstream.tls", "redis.tls"


def _tls_of(settings: Settings) -> dict[str, tuple[TlsServer | TlsClient, str]]:
    """Return all TLS settings with their places in the file, by the listener's name or the name of the servers."""
    wanted: dict[str, tuple[TlsServer | TlsClient, str]] = {}
    for index, one in enumerate(settings.listeners):
        if one.tls is not None:
            wanted[one.name] = one.tls, f"listeners[{index}].tls"
    for place, tls in ((UPSTREAM_PLACE, settings.upstream_tls), (REDIS_PLACE, settings.redis_tls)):
        if tls is not None:
            wanted[place] = tls, place
    return wanted


def tls_by_place(settings: Settings) -> dict[str, TlsServer | TlsClient]:
    """Return all TLS settings, each by its place in the file, such as ``listeners[0].tls``."""
    return {place: tls for tls, place in _tls_of(settings).values()}


def certificate_problems(settings: Settings) -> list[str]:
    """Return what is wrong with keys and certificates, a sentence each."""
    return [problem for tls, place in _tls_of(settings).values() for problem in problems(tls, place)]


def read_certificates(settings: Settings, report: Report, later: Later) -> tuple[Certificates, Mapping[str, TlsSide]]:
    """Read all certificates; return them and the TLS contexts by the listener's name or ``UPSTREAM_PLACE``,
    ``REDIS_PLACE``. Raises ConfigError."""
    if found := certificate_problems(settings):
        raise ConfigError(*found)
    certificates = Certificates(report, later)
    return certificates, {name: certificates.side(tls, place) for name, (tls, place) in _tls_of(settings).items()}

"""The table of limits in docs/SECURITY.md is true: every number is the one in proxy/limits.py, every setting has its
default."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from idemproxy.proxy import limits
from idemproxy.proxy.settings.config import Caps

SECURITY = Path(__file__).resolve().parents[3] / "docs" / "SECURITY.md"
SECTIONS = ("One client connection", "TLS", "SASL")
"""Of limits.py: who adds a limit of clients there adds a row."""
INNER = {
    "BACKLOG_BYTES",
    "BACKLOG_LOOK_SECONDS",
    "PAUSED_LOOK_SECONDS",
    "REST_LOOK_SECONDS",
    "SEARCHED_REQUEST_BYTES_MAX",
    "IDLE_LOOK_SECONDS",
    "QUIET_LOOK_SECONDS",
    "TURNED_AWAY_SHARE",
    "DESCRIPTORS_PER_CLIENT",
    "HOSTS_RESOLVED_MAX",
    "RESOLVE_SECONDS_MAX",
    "STANDSTILL_LOOK_SECONDS",
    "STANDSTILL_SECONDS",
    "CERTIFICATE_LOOK_SECONDS",
    "CERTIFICATE_WARN_DAYS",
    "SASL_BACKOFF_SECONDS_MIN",
    "SASL_BACKOFF_SECONDS_MAX",
}
"""What is no limit to a client but a pace of ours, or said in the text of a row."""
OTHER_SETTINGS = {"drain_seconds"}


def rows() -> list[list[str]]:
    """The cells of the table of what is limited."""
    text = SECURITY.read_text().partition("### What is limited")[2].partition("### What is not limited")[0]
    found = [[cell.strip() for cell in line[1:-1].split(" |")] for line in text.splitlines() if line.startswith("|")]
    assert found[0] == ["limit", "number", "setting", "what happens at it", "why this number"]
    assert all(len(row) == len(found[0]) for row in found)
    return found[2:]


def named(text: str) -> list[tuple[str, str]]:
    """Every name of a limit with the number behind it."""
    return re.findall(r"`([A-Z][A-Z_]+)` ([\d.,]+(?: (?:KiB|MiB|s|h)\b)?)", text)


def as_written(name: str) -> str:
    """A limit as it stands in the table."""
    value = getattr(limits, name)
    if "_BYTES" in name:
        unit, size = ("MiB", limits.MIB) if value >= limits.MIB else ("KiB", limits.KIB)
        assert value % size == 0
        return f"{value // size} {unit}"
    if "SECONDS" in name:
        return f"{value // 3600} h" if value >= 3600 else f"{value:g} s"
    return f"{value:,}"


def names_of_section(title: str) -> set[str]:
    """The names that are defined below a heading of limits.py."""
    assert limits.__file__ is not None
    text = Path(limits.__file__).read_text().partition(f"\n# {title}\n")[2]
    assert text, title
    return set(re.findall(r"^([A-Z_]+): Final", re.split(r"\n# ", text)[0], re.MULTILINE))


def test_every_number_is_the_one_in_the_code() -> None:
    found = [pair for row in rows() for pair in named(" ".join(row))]
    assert len(found) > 40
    assert found == [(name, as_written(name)) for name, _ in found]
    names = [name for row in rows() for name, _ in named(row[1])]
    assert len(names) == len(rows()) == len(set(names)), "one limit in each row"


@pytest.mark.parametrize("section", SECTIONS)
def test_every_limit_of_clients_has_a_row(section: str) -> None:
    told = {name for row in rows() for name, _ in named(" ".join(row))}
    assert names_of_section(section) - INNER - told == set()


def test_every_setting_stands_beside_the_limit_that_is_its_default() -> None:
    caps = {field.name: field.default for field in fields(Caps)} | {
        "producers.expiry_seconds": limits.PRODUCER_EXPIRY_SECONDS,
        "log.lines_per_minute_max": limits.LINES_PER_MINUTE_MAX,
    }
    told = {setting: named(row[1])[0][0] for row in rows() for setting in re.findall(r"`([\w.]+)`", row[2])}
    assert set(told) == set(caps) - OTHER_SETTINGS
    assert {setting: getattr(limits, name) for setting, name in told.items()} == {
        setting: caps[setting] for setting in told
    }

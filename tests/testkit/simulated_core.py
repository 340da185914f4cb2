"""Which files of the product the simulation judges, and a digest of what is in them.

A seed says something about these files and nothing about others: what was run stays valid while they stay as they are,
whatever else a commit changes. Reads files only.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WHOLE_FOLDERS = ("codecs", "state")
PROTOCOL_MODULES = (
    "answers",
    "batch",
    "demand",
    "doubt",
    "duplicates",
    "effects",
    "flow_runner",
    "forward",
    "freshness",
    "guest_call",
    "guest_lane",
    "held_entry",
    "init_producer",
    "lane",
    "load",
    "lane_pool",
    "log_chunk",
    "log_ends",
    "log_reader",
    "long_work",
    "marks",
    "outcome",
    "pace",
    "parcel",
    "plan",
    "produce",
    "read_back",
    "rebuild",
    "refreshes",
    "resolver",
    "rights",
    "second_look",
    "sequencer",
    "shared",
    "topology",
    "upstream",
    "waiting",
)
"""Of ``proxy/``: what decides about a batch. Sessions, bridges, configuration and telemetry carry it or tell of it."""
SHELL_MODULES = (
    "__init__",
    "attempts",
    "bucket",
    "check",
    "check_connect",
    "check_files",
    "client_answers",
    "cluster_name",
    "crowd",
    "data_directory",
    "descriptors",
    "door",
    "engine",
    "events",
    "guest",
    "holdings",
    "kept_marks",
    "last_words",
    "limits",
    "listeners",
    "main",
    "memory",
    "passes",
    "patience",
    "pipe",
    "places",
    "plain",
    "run",
    "served",
    "server",
    "session",
    "session_host",
    "sockets",
    "store_memory",
    "transport",
    "turns",
    "unserved",
    "versions",
)
"""The others beside them, so that a new module is in one of the two on purpose."""
DIGEST_CHARACTERS = 12


def core_files(root: Path = ROOT) -> list[Path]:
    """Every file of the core, in one order."""
    values = root / "src" / "idemproxy" / "values.py"
    found = [values, *(path for folder in WHOLE_FOLDERS for path in (root / folder).rglob("*.py"))]
    return sorted([*found, *(root / "proxy" / f"{name}.py" for name in PROTOCOL_MODULES)])


def core_digest(root: Path = ROOT) -> str:
    """A short name of what the core is now; another one after any change to it."""
    digest = hashlib.sha256()
    for path in core_files(root):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(root)} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:DIGEST_CHARACTERS]

"""Which files of the product the simulation judges, and a digest of what is in them.

A seed says something about these files and nothing about others: what was run stays valid while they stay as they are,
whatever else a commit changes. Reads files only.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WHOLE_FOLDERS = ("codecs", "state", "proxy/producer", "proxy/broker", "proxy/partition_log", "proxy/flow")
SINGLE_FILES = (
    "src/idemproxy/values.py",
    "proxy/admission/long_work.py",
    "proxy/session/fast_produce.py",
    "proxy/session/produce.py",
    "proxy/session/init_producer.py",
    "proxy/pass_through/connection.py",
    "proxy/pass_through/lanes.py",
    "proxy/pass_through/produce.py",
    "proxy/pass_through/write_acl.py",
)
"""Of the other rooms: what decides about a batch. The rest of them carries it, or tells of it."""
OTHER_FOLDERS = (
    "admin",
    "admission",
    "bridge",
    "commands",
    "engine",
    "native",
    "net",
    "pass_through",
    "process",
    "session",
    "settings",
    "telemetry",
    "tombstones",
)
"""The rooms of ``proxy/`` that are not the core as a whole, so that a new one is in one of the two on purpose."""
DIGEST_CHARACTERS = 12


def core_files(root: Path = ROOT) -> list[Path]:
    """Every file of the core, in one order."""
    found = [path for folder in WHOLE_FOLDERS for path in (root / folder).rglob("*.py")]
    return sorted([*found, *(root / name for name in SINGLE_FILES)])


def core_digest(root: Path = ROOT) -> str:
    """A short name of what the core is now; another one after any change to it."""
    digest = hashlib.sha256()
    for path in core_files(root):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(root)} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:DIGEST_CHARACTERS]

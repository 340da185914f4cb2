"""What a running process has in memory, as the kernel says it."""

from __future__ import annotations

from pathlib import Path


def resident_bytes(process_id: int) -> int:
    """Now."""
    return _status_bytes(process_id, "VmRSS")


def peak_bytes(process_id: int) -> int:
    """The most it ever had."""
    return _status_bytes(process_id, "VmHWM")


def _status_bytes(process_id: int, name: str) -> int:
    for line in Path(f"/proc/{process_id}/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("the process has ended")

"""An external Redis for several proxies: started, broken and looked at past them.

Owns the server's process and data files.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path

from idemproxy.demo.ports import HOST, free_ports
from idemproxy.state.entry import Entry, StoredFormatError, unpack
from idemproxy.state.store import member_key

from .redis_process import RedisProcess, server_binary

_ENTRY_KEYS = "idem:*:{*"
_CLUSTER = "default"


class ExternalRedis(RedisProcess):
    """One server with an append-only file, in a directory of its own with a short path. A context manager."""

    def __init__(self, *options: str) -> None:
        (port,) = free_ports(1)
        self.directory = Path(tempfile.mkdtemp(prefix="ipr"))
        self.address = (HOST, port)
        # Without protected configs the directory of the snapshots could not be broken at runtime.
        # A replica's first copy begins at once, and not after the five seconds in which others may join it.
        at_once = ("--repl-diskless-sync-delay", "0")
        settings = ("--enable-protected-configs", "yes", *at_once, *options)
        super().__init__(self.directory, *settings, port=port, binary=server_binary())

    def __enter__(self) -> ExternalRedis:
        return self

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        shutil.rmtree(self.directory, ignore_errors=True)

    # ------------------------------------------------------------------ ends and beginnings
    def stop(self) -> None:
        """End it by SIGTERM: everything is written before."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(60)
        self._process = None

    def forget_tail(self, size_bytes: int) -> None:
        """Cut the end off the append-only file of a server that does not run: its last writes never reached a disk."""
        assert self._process is None
        newest = max(self.directory.glob("appendonlydir/*.incr.aof"), key=lambda path: int(path.name.split(".")[-3]))
        kept = max(0, newest.stat().st_size - size_bytes)
        os.truncate(newest, kept)

    # ------------------------------------------------------------------ what is stored
    def values(self) -> Mapping[bytes, bytes]:
        """All stored entries, by key, whatever is in them."""
        keys = self.call("KEYS", _ENTRY_KEYS)
        found = self.call("MGET", *keys) if keys else []
        return {key: value for key, value in zip(keys, found, strict=True) if isinstance(value, bytes)}

    def entries(self) -> Mapping[bytes, Entry]:
        """All stored entries that can be read, by key."""
        found = {}
        for key, value in self.values().items():
            with suppress(StoredFormatError):
                found[key] = unpack(value)
        return found

    def intents_of_the_dead(self) -> list[bytes]:
        """Keys of the entries with an open intent whose owner has no lease."""
        found = []
        for key, entry in self.entries().items():
            if entry.has_open_intent and entry.intent is not None:
                owner = member_key(_CLUSTER, entry.intent.owner)
                if not self.call("EXISTS", owner):
                    found.append(key)
        return found

    def wait_until_quiet(
        self,
        seconds_max: float = 90.0,
        *,
        place: tuple[str, int] | None = None,
        keys: Collection[bytes] | None = None,
    ) -> None:
        """Return when no entry, or none of that topic and partition or of these ``keys``, has an open intent; an
        AssertionError shows those that have one. After a new data generation of Redis leases and the time of grace come
        first, 13 s, and then the search.

        A Redis that lost its last writes may show an intent of long ago again, of a producer that never comes back:
        it stays, as guarantees.md says. Who makes Redis lose writes names the place or the keys that it waits
        for."""
        end = time.monotonic() + seconds_max
        part = b"" if place is None else b"{%s/%d}" % (place[0].encode(), place[1])

        def is_asked_for(key: bytes) -> bool:
            return part in key and (keys is None or key in keys)

        while open_ones := {k: one for k, one in self.entries().items() if is_asked_for(k) and one.has_open_intent}:
            assert time.monotonic() < end, f"open for {seconds_max:.0f} s: {open_ones}"
            time.sleep(0.1)

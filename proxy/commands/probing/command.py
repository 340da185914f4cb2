"""Runs ``idemproxy probe``: probes, prints, returns the exit status."""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path
from typing import Final

import trio

from ....producing.errors import ClientError
from ...probe.seen import Seen
from ...probe.verdict import rows_of, verdict_of
from ...probing.cluster_probe import ClusterProbe
from ...probing.topic import CannotProbe
from ...settings.addresses import join_host_and_port
from ...settings.config import ConfigError
from ...settings.load import load
from ..inspection.table import printable
from .shown import lines_of, object_of

_SERVED, _NOT_SERVED, _WRONG = 0, 1, 2
_ENDED_BY_SIGNAL: Final = 128
"""Added to the number of the signal, as shells do."""


def run_probe(options: argparse.Namespace) -> int:
    """Return 0 for a cluster that can be served, 1 for one that cannot or where there is no verdict, 2 for wrong
    options, 130 after Ctrl-C, 143 after SIGTERM."""
    try:
        settings = load(Path(options.config) if options.config else None, {"upstream": options.upstream})
        probing = ClusterProbe(settings, options.topic)
    except ConfigError as problem:
        # Here it is no option.
        shown = str(problem).replace("--upstream: ", "HOST:PORT: ").replace("(--upstream,", "(as an argument,")
        return _complain(shown, _WRONG)
    try:
        seen = trio.run(_until_signal, probing)
    except CannotProbe as problem:
        return _complain(problem, _NOT_SERVED)
    except ClientError as problem:
        shown = ", ".join(join_host_and_port(*address) for address in settings.upstream)
        return _complain(f"{shown} cannot be probed: {problem}", _NOT_SERVED)
    if isinstance(seen, int):
        return _ENDED_BY_SIGNAL + seen
    rows = rows_of(seen)
    verdict = verdict_of(rows, seen)
    if options.json:
        print(object_of(rows, verdict, probing.used_topic, probing.topic_left))
    else:
        for line in lines_of(rows, verdict, sys.stdout):
            print(line)
    return _NOT_SERVED if verdict.form is None else _SERVED


async def _until_signal(probing: ClusterProbe) -> Seen | int:
    """Return what was seen, or the number of the signal that came: that ends the probe, and would leave its topic."""
    came: list[int] = []
    problem: ClientError | CannotProbe | None = None
    seen: Seen | None = None

    async def watch() -> None:
        with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            watching.set()
            async for number in signals:
                came.append(number)
                probing.interrupt()

    watching = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch)
        await watching.wait()
        try:
            seen = await probing.run()
        except (ClientError, CannotProbe) as error:
            problem = error  # outside of the nursery, so that it comes as it is and not in a group
        nursery.cancel_scope.cancel()
    if probing.why_left:
        _complain(probing.why_left, _NOT_SERVED)
    if came:
        return came[0]
    if problem is not None:
        raise problem
    assert seen is not None
    return seen


def _complain(problem: object, status: int) -> int:
    print(f"idemproxy probe: {printable(str(problem))}", file=sys.stderr)  # it may have words of the server
    return status

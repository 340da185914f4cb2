"""Runs the admin port alongside the proxy: hypercorn on the same trio loop, and the totals taken once a second."""

from __future__ import annotations

import errno
import logging
import os
import socket
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final

import trio
from hypercorn.config import Config
from hypercorn.trio import serve as serve_http

from ... import __version__
from ...state.redis_store import RedisStore
from ..engine.engine import Engine
from ..events import InternalError, OperatorMessage, Report
from ..net.socket_errors import why_not_open
from ..settings.addresses import join_host_and_port
from ..settings.config import ConfigError
from ..telemetry.metrics_export import MetricExport
from ..telemetry.otel import metric_exporter_from_environment, resource
from ..telemetry.reports import Telemetry
from .app import make_app
from .health import Watched, api_name, samples
from .rates import STEP_SECONDS, Rates
from .views import durations, totals

_READ_SECONDS: Final = 10
"""A client of the admin port that sends nothing for so long is disconnected."""
_PAUSE_SECONDS: Final = 1.0


class Admin:
    """The admin port of one proxy, and the metrics that are sent by OTLP."""

    def __init__(self, address: tuple[str, int] | str | None) -> None:
        """Open the port, or the unix socket; nothing is answered before ``run``. None: there is none, metrics are only
        sent. Raises ConfigError when it cannot be opened."""
        self._socket = None if address is None else bound(address)

    async def run(
        self,
        engine: Engine,
        telemetry: Telemetry,
        store: Callable[[], RedisStore | None],
        is_listening: Callable[[], bool],
        ports_taken: Callable[[], Sequence[str]],
        **more: Any,
    ) -> None:
        """Answer until cancelled. ``more``: the last fields of ``Watched``."""
        ports = (is_listening, ports_taken)
        watched = Watched(engine, telemetry, store, engine.now, time.time, *ports, engine.now(), __version__, **more)
        metrics = telemetry.metrics
        engine.measure_request = lambda key, seconds: metrics.request_answered(api_name(key), seconds)
        exporter = metric_exporter_from_environment()
        export = MetricExport(
            lambda: samples(watched), metrics.histograms, resource(), exporter, requests=metrics.requests
        )
        try:
            if self._socket is None:
                await trio.sleep_forever()
            else:
                await self._serve(self._socket, watched, export)
        finally:
            if self._socket is not None:
                self._socket.close()
            with trio.CancelScope(shield=True):  # bounded by the SDK's own timeouts
                await trio.to_thread.run_sync(export.close)

    async def _serve(self, port: socket.socket, watched: Watched, export: MetricExport) -> None:
        rates = Rates()
        app = make_app(watched, rates, export.text)
        await serve_forever(port, app, watched.telemetry, partial(_take_totals, watched, rates))


async def serve_forever(
    port: socket.socket, app: Any, report: Report, beside: Callable[[], Awaitable[None]] = trio.sleep_forever
) -> None:
    """Answer on this socket until cancelled, with ``beside`` running. An error is reported and serving begins again:
    the admin port must not end the proxy."""
    while True:
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(beside)
                serving = partial(serve_http, app, _config(port), shutdown_trigger=trio.sleep_forever)
                binds = await nursery.start(serving)
                if port.family != socket.AF_UNIX:
                    report(OperatorMessage("info", f"admin port: {binds[0]}"))
        except Exception as error:  # not a cancellation
            report(InternalError("the admin port", error))
            await trio.sleep(_PAUSE_SECONDS)


def _config(port: socket.socket) -> Config:
    config = Config()
    config.bind = [f"fd://{os.dup(port.fileno())}"]  # closed when serving ends; the port itself stays ours
    config.errorlog = _quiet_log()
    config.include_server_header = False
    config.read_timeout = _READ_SECONDS
    return config


def bound(address: tuple[str, int] | str) -> socket.socket:
    """Return a socket that is bound there: at a host and port, or at the path of a unix socket. Raises ConfigError."""
    if isinstance(address, str):
        opened = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        opened.bind(address)
        return opened
    host, port = address
    opened = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind((host, port))
    except OSError as error:
        opened.close()
        what = f"admin: cannot listen on {join_host_and_port(host, port)}: {why_not_open(error)}"
        todo = "; end it, or give the admin port another address (--admin-bind; in the file admin.bind)"
        raise ConfigError(what + (todo if error.errno == errno.EADDRINUSE else "")) from None
    return opened


async def _take_totals(watched: Watched, rates: Rates) -> None:
    while True:
        rates.take_sample(watched.now(), totals(watched), durations(watched))
        await trio.sleep(STEP_SECONDS)


def _quiet_log() -> logging.Logger:
    """The log of hypercorn's errors; its other lines are dropped, as we log the port ourselves."""
    log = logging.getLogger("idemproxy.admin")
    log.setLevel(logging.WARNING)
    return log

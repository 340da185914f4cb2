"""Starts several workers, replaces those that die or hang, and ends when all have ended.

They share the listeners' ports (SO_REUSEPORT) and one Redis, private or not; each has a proxy instance and a directory
of its own inside the data directory. A worker that is started in the directory of one that has died ends the lease of
that one at once, so what it had open is taken over without waiting (rule R1). Passes on SIGHUP and SIGTERM, and has the
admin port of them all. Serves no client itself."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import trio

from ...state.redis_server import SOCKET_PATH_BYTES_MAX, EmbeddedRedis, EmbeddedRedisError
from .. import limits
from ..events import OperatorMessage, Report
from ..settings.config import ConfigError, Settings
from ..settings.load import load
from ..settings.reload import changes
from ..telemetry.logs import set_up
from ..telemetry.reports import Telemetry
from .data_directory import DataDirectory, is_in_use
from .listeners import try_ports
from .pulses import Pulses
from .server import EndedItselfError
from .worker import COULD_NOT_START, ENDED_WHILE_SERVING, Order, Place, command, give

_GOODBYE_SECONDS = 5.0
"""Beyond what a worker may take to drain and to give its lease back; then it is killed."""
_ORPHAN_POLL_SECONDS = 0.1
_BEATS_READ_BYTES = 4096


def supervise(settings: Settings, count: int, config: Path | None, options: Mapping[str, Any]) -> None:
    """Run so many workers until SIGTERM or SIGINT. ``config``, ``options``: what the settings are read from again.
    Raises ConfigError and EmbeddedRedisError for what stops the start, EndedItselfError where a worker found something
    that ends it."""
    trio.run(Supervisor(settings, count, config, options, Telemetry()).run)


class Supervisor:
    """One ``idemproxy run --workers``."""

    def __init__(
        self, settings: Settings, count: int, config: Path | None, options: Mapping[str, Any], report: Report
    ) -> None:
        """Raises ConfigError where another process uses the data directory, or the admin port."""
        self._settings = settings
        self._count = count
        self._config = config
        self._options = options
        self._report = report
        self._directory = DataDirectory(settings.data_directory)
        self._embedded = EmbeddedRedis(settings.data_directory / "redis") if settings.redis is None else None
        self._private_redis: str | None = None
        self._sockets = _Sockets(settings.data_directory.absolute()) if settings.admin is not None else None
        self._running: dict[int, trio.Process] = {}
        self._restarts = 0
        self._pulses = Pulses()
        self._hung = 0
        """How many workers were killed because they had been silent for too long."""
        self._redis_launches = 0
        """How often the private Redis had been launched when the start was complete."""
        self._stop = trio.Event()
        self._why_ending: str | None = None
        self._has_failed = False

    async def run(self) -> None:
        """Serve until a signal."""
        # Open until the private Redis has ended: a signal that came meanwhile would leave it running.
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
            await self._run(signals)

    async def _run(self, signals: AsyncIterator[int]) -> None:
        admin = self._open_admin()
        problem: ConfigError | EmbeddedRedisError | None = None
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._handle_signals, signals)
                try:
                    await self._prepare()
                except (ConfigError, EmbeddedRedisError) as error:  # raised below as it is, not in an ExceptionGroup
                    problem = error
                else:
                    await self._keep_all(nursery, admin)
                nursery.cancel_scope.cancel()
        finally:
            with trio.CancelScope(shield=True):
                await trio.to_thread.run_sync(self._clean_up)
        if problem is not None:
            raise problem
        if self._has_failed:
            raise EndedItselfError(True)

    async def _prepare(self) -> None:
        """Do what comes before the first worker; a signal ends it. Raises ConfigError and EmbeddedRedisError."""
        await self._wait_for_orphans()
        if self._stop.is_set():
            return
        try_ports(self._settings.listeners)
        if self._embedded is not None:
            self._private_redis = await trio.to_thread.run_sync(self._embedded.start)
            self._redis_launches = self._embedded.launches

    async def _keep_all(self, nursery: trio.Nursery, admin: Callable[[], Awaitable[None]] | None) -> None:
        """Keep workers, Redis and the admin port running until a signal."""
        if self._stop.is_set():
            return
        self._report(OperatorMessage("info", f"{self._count} workers share the ports; each logs under its number"))
        nursery.start_soon(self._keep_redis)
        nursery.start_soon(self._watch)
        if admin is not None:
            nursery.start_soon(admin)
        async with trio.open_nursery() as lives:
            for number in range(1, self._count + 1):
                lives.start_soon(self._keep, number)
            lives.start_soon(self._end_all)

    def _clean_up(self) -> None:
        if self._embedded is not None and self._embedded.is_started:
            try:
                self._embedded.stop()
            except EmbeddedRedisError as problem:
                self._report(OperatorMessage("error", str(problem)))
        if self._sockets is not None:
            self._sockets.remove()
        self._directory.close()

    # ------------------------------------------------------------------ workers
    async def _wait_for_orphans(self) -> None:
        """Where an earlier supervisor was killed, its workers have noticed that, and drain; until they have ended, they
        hold the ports and their leases."""
        directories = sorted(self._settings.data_directory.glob("worker-*"))
        orphans = [one.name for one in directories if is_in_use(one)]
        if not orphans:
            return
        what = "of an earlier start, whose supervisor was killed, finishes what is in flight: waiting for up to"
        self._report(OperatorMessage("warning", f"{', '.join(orphans)} {what} {self._drain_seconds:g} s"))
        with trio.move_on_after(self._drain_seconds):
            while any(map(is_in_use, directories)) and not self._stop.is_set():
                with trio.move_on_after(_ORPHAN_POLL_SECONDS):
                    await self._stop.wait()

    @property
    def _drain_seconds(self) -> float:
        """How long a worker may take to end after SIGTERM."""
        return self._settings.limits.drain_seconds + limits.ASK_SECONDS_MAX + _GOODBYE_SECONDS

    async def _keep(self, number: int) -> None:
        """Keep this worker running until all end. If its first start fails, the whole proxy ends, as without workers,
        and so it does whenever a serving worker has found what ends the proxy. Later starts that fail are repeated: the
        cause may pass, and the other workers are unaffected meanwhile."""
        pause = limits.WORKER_RESTART_SECONDS_MIN
        is_first = True
        while not self._stop.is_set():
            begun = trio.current_time()
            try:
                process, beats = await self._start(number)
            except (OSError, RuntimeError) as error:  # RuntimeError: no thread, so no process
                how = f"cannot be started: {error}"
                if is_first:
                    self._fail(f"worker {number} {how}; allow more processes, descriptors or memory, or fewer workers")
                    return
            else:
                self._running[number] = process
                status = await self._until_ended(number, process, beats)
                del self._running[number]
                if self._stop.is_set():
                    return
                if status == ENDED_WHILE_SERVING or (status == COULD_NOT_START and is_first):
                    self._fail(f"worker {number} has found what ends the proxy; its lines above say what")
                    return
                how = _how_ended(status)
            is_first = False
            self._restarts += 1
            if trio.current_time() - begun >= limits.WORKER_STEADY_SECONDS:
                pause = limits.WORKER_RESTART_SECONDS_MIN
            what = f"worker {number} {how}; the other workers are unaffected, it is started again in {pause:g} s"
            self._report(OperatorMessage("error", what))
            with trio.move_on_after(pause):
                await self._stop.wait()
            pause = min(2 * pause, limits.WORKER_RESTART_SECONDS_MAX)

    async def _until_ended(self, number: int, process: trio.Process, beats: trio.SocketStream) -> int:
        """Return the exit status; meanwhile the worker's beats are heard."""
        self._pulses.begin(number, trio.current_time())

        async def hear() -> None:
            with suppress(trio.BrokenResourceError):  # it has ended
                while await beats.receive_some(_BEATS_READ_BYTES):
                    self._pulses.beat(number, trio.current_time())

        async with beats, trio.open_nursery() as nursery:
            nursery.start_soon(hear)
            status = await process.wait()
            nursery.cancel_scope.cancel()
        self._pulses.end(number)
        return status

    async def _watch(self) -> None:
        """Kill each worker that hangs: ``_keep`` starts it again, and the kernel resets what waits at its ports, so its
        clients connect to the others. One that hangs while all drain is killed, too: nobody waits for it."""
        while True:
            await trio.sleep(limits.WORKER_LOOK_SECONDS)
            for number in self._pulses.look(trio.current_time()):
                self._hung += 1
                what = "its event loop hangs or its process was stopped; it is killed and started again"
                self._report(OperatorMessage("error", f"worker {number} has not answered for too long: {what}"))
                self._running[number].kill()

    async def _start(self, number: int) -> tuple[trio.Process, trio.SocketStream]:
        """Return the process, and our end of its standard input. Raises OSError, and RuntimeError where there is no
        thread."""
        admin = None if self._sockets is None else self._sockets.fresh(number)
        place = Place(number, admin, self._private_redis)
        order = Order(place, place.settings_of(self._settings), self._config, self._options)
        ours, its = socket.socketpair()
        beats = trio.SocketStream(trio.socket.from_stdlib_socket(ours))
        try:
            with its:
                # A session of its own: Ctrl-C is for us, and we pass it on.
                process = await trio.lowlevel.open_process(command(), stdin=its, start_new_session=True)
            with suppress(trio.BrokenResourceError):  # it has ended: its exit status says more
                await beats.send_all(give(order))
        except BaseException:
            await trio.aclose_forcefully(beats)
            raise
        if self._stop.is_set():
            process.terminate()
        return process, beats

    async def _end_all(self) -> None:
        """Wait for the end; then have all workers drain, and kill those that do not end in time."""
        await self._stop.wait()
        self._signal(signal.SIGTERM)
        drain = self._drain_seconds
        with trio.move_on_after(drain):
            for process in list(self._running.values()):
                await process.wait()
        for number, process in self._running.items():
            self._report(OperatorMessage("error", f"worker {number} has not ended {drain:g} s after SIGTERM: killed"))
            process.kill()

    def _signal(self, number: signal.Signals) -> None:
        for process in self._running.values():
            process.send_signal(number)

    def _fail(self, why: str) -> None:
        self._has_failed = True
        self._end(why)

    def _end(self, why: str) -> None:
        self._why_ending = why
        self._report(OperatorMessage("error" if self._has_failed else "info", why))
        self._stop.set()

    # ------------------------------------------------------------------ signals
    async def _handle_signals(self, signals: AsyncIterator[int]) -> None:
        """Once the workers drain, another signal changes nothing."""
        async for number in signals:
            if self._stop.is_set():
                continue
            if number == signal.SIGHUP:
                await self._reload()
            else:
                self._end("draining: all workers finish what is in flight")

    async def _reload(self) -> None:
        """SIGHUP: if the new settings cannot be taken, say so once and tell no worker; else have each worker reload
        them itself, and start later ones with them."""
        try:
            new = await trio.to_thread.run_sync(load, self._config, self._options)
        except ConfigError as problem:
            faults = list(problem.problems)
        except RuntimeError as error:  # no thread to read it
            faults = [str(error)]
        else:
            faults = [f"{name}: only a restart can change this" for name in changes(self._settings, new).refused]
        if faults:
            for sentence in faults:
                self._report(OperatorMessage("error", f"not reloaded: {sentence}"))
            return
        self._settings = new
        set_up(new.log_level, new.log_format)
        self._signal(signal.SIGHUP)

    async def _keep_redis(self) -> None:
        """Start the private server again when it has died; it has another data generation then (rule R10)."""
        if self._embedded is None:
            return
        while True:
            await trio.sleep(limits.LEASE_RENEW_SECONDS)
            try:
                await trio.to_thread.run_sync(self._embedded.start)
            except (EmbeddedRedisError, RuntimeError) as problem:  # RuntimeError: no thread for it
                self._report(OperatorMessage("error", str(problem)))

    # ------------------------------------------------------------------ admin
    def _open_admin(self) -> Any:
        """Return what serves the admin port; None: there is none. Raises ConfigError."""
        address = self._settings.admin
        if address is None:
            return None
        from ..admin.serve import bound, serve_forever  # and with it what serves HTTP
        from ..admin.workers import Workers, make_app

        port = bound(address)

        def look() -> Workers:
            assert self._sockets is not None
            paths = {number: self._sockets.path(number) for number in self._running}
            launches = 0 if self._embedded is None else self._embedded.launches
            redis_restarts = launches - self._redis_launches
            now = trio.current_time()
            return Workers(
                paths,
                self._count,
                self._restarts,
                self._why_ending,
                redis_restarts,
                self._hung,
                self._pulses.silent(now),
                self._pulses.unkillable(now),
            )

        async def serve() -> None:
            await serve_forever(port, make_app(look), self._report)

        return serve


def _how_ended(status: int) -> str:
    if status == COULD_NOT_START:
        return "cannot start again, its lines above say why"
    return f"has ended with signal {-status}" if status < 0 else f"has ended with status {status}"


class _Sockets:
    """Where the workers' admin sockets are: in the data directory, or, where that path is too long for a unix socket,
    in a temporary directory that only this user can enter."""

    def __init__(self, directory: Path) -> None:
        longest = directory / f"worker-{limits.WORKERS_MAX}" / "admin.sock"
        self._temporary: str | None = None
        self._directory = directory
        if len(os.fsencode(longest)) > SOCKET_PATH_BYTES_MAX:
            self._temporary = tempfile.mkdtemp(prefix="idemproxy-")
            self._directory = Path(self._temporary)

    def path(self, number: int) -> str:
        """Return the path of one worker's socket."""
        return os.fspath(self._directory / f"worker-{number}" / "admin.sock")

    def fresh(self, number: int) -> str:
        """The same, with nothing at the path: an earlier worker may have left its socket."""
        path = Path(self.path(number))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        return os.fspath(path)

    def remove(self) -> None:
        """Take away what lies outside of the data directory."""
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)

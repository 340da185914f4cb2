"""The admin port of a supervisor: asks every worker over its unix socket, and shows all of them as one (``summed.py``).

A worker that does not answer is left out of the numbers and named in ``concerns`` or ``/readyz``; what it has counted
stays in the metrics (``worker_counters.py``)."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import trio
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from .. import limits
from ..telemetry.metric_names import REDIS_RESTARTS, WORKER_HANGS, WORKER_RESTARTS, WORKERS
from . import summed
from .app import METRICS_TYPE, WithHeaders, page_routes
from .summed import WorkerAnswer
from .worker_counters import WorkerCounters

_OK: Final = 200
_NOT_READY: Final = 503


@dataclass(frozen=True, slots=True)
class Workers:
    """What the supervisor knows of its workers. ``sockets``: of those that run, by their numbers; ``count``: how many
    there should be; ``why_ending``: why the supervisor ends, None while it does not; ``redis_restarts``: of the private
    Redis, which is the supervisor's; ``hung``: how many were killed because they did not answer; ``silent``: for how
    many seconds those have been silent that have missed beats; ``unkillable``: those that SIGKILL does not end."""

    sockets: Mapping[int, str]
    count: int
    restarts: int
    why_ending: str | None
    redis_restarts: int = 0
    hung: int = 0
    silent: Mapping[int, float] = field(default_factory=dict)
    unkillable: Collection[int] = ()

    @property
    def missing(self) -> list[str]:
        """Return a sentence for each that does not run."""
        return [
            f"worker {number} has ended and is started again"
            for number in range(1, self.count + 1)
            if number not in self.sockets
        ]

    @property
    def hanging(self) -> list[str]:
        """Return a sentence for each that runs and does not answer."""
        return [
            f"worker {number} has not answered for {seconds:.0f} s"
            + (" and SIGKILL does not end it: restart the proxy" if number in self.unkillable else "")
            for number, seconds in sorted(self.silent.items())
        ]


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("worker", timeout=limits.WORKER_ASKED_SECONDS_MAX)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def _ask(path: str, target: str) -> tuple[int, bytes]:
    """Return status and body; status 0 where nothing was answered."""
    connection = _UnixConnection(path)
    try:
        connection.request("GET", target)
        response = connection.getresponse()
        return response.status, response.read()
    except (OSError, http.client.HTTPException):
        return 0, b""
    finally:
        connection.close()


async def _ask_all(workers: Workers, target: str) -> dict[int, tuple[int, bytes]]:
    """Return what each worker that runs has answered, by its number."""
    found: dict[int, tuple[int, bytes]] = {}

    async def ask(number: int, path: str) -> None:
        found[number] = await trio.to_thread.run_sync(_ask, path, target)

    async with trio.open_nursery() as nursery:
        for number, path in workers.sockets.items():
            nursery.start_soon(ask, number, path)
    return dict(sorted(found.items()))


def make_app(look: Callable[[], Workers]) -> Starlette:
    """Return the application. ``look``: the workers as they are now."""

    counters = WorkerCounters()
    one_at_a_time = trio.CapacityLimiter(1)

    async def livez(_request: Request) -> Response:
        """A worker that hangs is replaced within seconds: only where that fails has somebody else to act."""
        workers = look()
        lines = workers.hanging or ["ok"]
        return PlainTextResponse("".join(f"{line}\n" for line in lines), _NOT_READY if workers.unkillable else _OK)

    async def readyz(request: Request) -> Response:
        workers = look()
        if workers.why_ending is not None:
            return PlainTextResponse(f"{workers.why_ending}\n", _NOT_READY)
        answers = await _ask_all(workers, _target(request))
        for status, body in answers.values():
            if status not in (0, _OK, _NOT_READY):  # the request's own mistake
                return Response(body, status, media_type="text/plain")
        reported = [WorkerAnswer(number, _sentences(*answer)) for number, answer in answers.items()]
        if any(not one.answer for one in reported) and not any(one.answer for one in reported):
            return PlainTextResponse("ok\n")  # a worker that is being restarted takes no connections
        reasons = summed.reasons(reported) + workers.missing
        return PlainTextResponse("".join(f"{reason}\n" for reason in reasons), _NOT_READY)

    async def metrics(_request: Request) -> Response:
        workers, asked_at = look(), trio.current_time()
        answers = await _ask_all(workers, "/metrics")
        texts = {number: body.decode() for number, (status, body) in answers.items() if status == _OK}
        more = f"# TYPE {REDIS_RESTARTS.prometheus_name} counter\n{_redis_restarts(workers)}\n"
        add = partial(counters.metrics, texts, asked_at, trio.current_time(), more, _own(workers))
        text = await trio.to_thread.run_sync(add, limiter=one_at_a_time)
        return Response(text, headers={"content-type": METRICS_TYPE})

    def json_route(name: str, add: summed.Add) -> Route:
        async def answer(request: Request) -> Response:
            workers = look()
            answers = await _ask_all(workers, _target(request))
            reported = [
                WorkerAnswer(number, json.loads(body)) for number, (status, body) in answers.items() if status == _OK
            ]
            if reported:
                found = add(reported)
                if name == "page":
                    found["status"]["concerns"] += workers.missing + workers.hanging
                return JSONResponse(found)
            for status, body in answers.values():
                if status:
                    return Response(body, status, media_type="application/json")
            return JSONResponse({"problem": "no worker answers"}, _NOT_READY)

        return Route(f"/api/v1/{name}", answer)

    return Starlette(
        routes=[
            Route("/livez", livez),
            Route("/readyz", readyz),
            Route("/metrics", metrics),
            *(json_route(name, add) for name, add in summed.VIEWS.items()),
            *page_routes(),
        ],
        middleware=[Middleware(WithHeaders)],
    )


def _target(request: Request) -> str:
    return f"{request.url.path}?{request.url.query}" if request.url.query else request.url.path


def _sentences(status: int, body: bytes) -> Sequence[str]:
    """Why a worker is not ready; empty: it is."""
    if status == 0:
        return ["does not answer"]
    return [] if status == _OK else body.decode().splitlines()


def _redis_restarts(workers: Workers) -> str:
    return f"{REDIS_RESTARTS.prometheus_name} {workers.redis_restarts}"


def _own(workers: Workers) -> list[GaugeMetricFamily | CounterMetricFamily]:
    counters = ((WORKER_RESTARTS, workers.restarts), (WORKER_HANGS, workers.hung))
    return [
        GaugeMetricFamily(WORKERS.prometheus_name, WORKERS.help, len(workers.sockets)),
        *(CounterMetricFamily(one.prometheus_name.removesuffix("_total"), one.help, count) for one, count in counters),
    ]

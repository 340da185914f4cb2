"""The routes of the admin port. Reading only: there is nothing here that changes the proxy."""

from __future__ import annotations

from collections.abc import Callable
from importlib.resources import files
from typing import Any, Final

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..limits import CLIENT_IDS_ASKED_MAX
from . import views
from .health import CHECKS, Watched, reasons_not_ready
from .rates import Rates

METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_PAGE: Final = {"/": "index.html", "/page.css": "page.css", "/page.js": "page.js"}
_TYPES: Final = {"html": "text/html; charset=utf-8", "css": "text/css; charset=utf-8", "js": "text/javascript"}
_HEADERS: Final = (
    (b"content-security-policy", b"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
     b"img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
)  # fmt: skip


class WithHeaders:
    """Adds the headers by which browsers restrict what the page may do."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_more(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *_HEADERS]
            await send(message)

        await self._app(scope, receive, send_more)


def make_app(watched: Watched, rates: Rates, metrics_text: Callable[[], bytes]) -> Starlette:
    """Return the application. ``metrics_text``: everything in Prometheus' text format."""

    async def livez(_request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def readyz(request: Request) -> Response:
        excluded = request.query_params.getlist("exclude")
        if unknown := sorted(set(excluded) - set(CHECKS)):
            known = ", ".join(CHECKS)
            return PlainTextResponse(f"exclude={unknown[0][:32]!r}: there is no such check; known are {known}\n", 400)
        reasons = reasons_not_ready(watched, excluded)
        if reasons:
            return PlainTextResponse("".join(f"{reason}\n" for reason in reasons), 503)
        return PlainTextResponse("ok\n")

    async def metrics(_request: Request) -> Response:
        text = await run_in_threadpool(metrics_text)  # some milliseconds: batches need not wait for them
        return Response(text, headers={"content-type": METRICS_TYPE})

    def json_route(path: str, make: Callable[[Request], Any]) -> Route:
        async def answer(request: Request) -> Response:
            try:
                return JSONResponse(await run_in_threadpool(make, request))
            except _BadQuery as problem:
                return JSONResponse({"problem": str(problem)}, 400)

        return Route(path, answer)

    def producers(request: Request) -> Any:
        text = request.query_params.get("producer_id")
        producer_id = None if text is None else _whole("producer_id", text, 2**63 - 1)
        return views.producers(watched, producer_id, request.query_params.get("topic"))

    return Starlette(
        routes=[
            Route("/livez", livez),
            Route("/readyz", readyz),
            Route("/metrics", metrics),
            json_route("/api/v1/client_ids", lambda request: views.client_ids(watched, _producer_ids(request))),
            json_route("/api/v1/producers", producers),
            json_route("/api/v1/old_clients", lambda _: views.old_clients(watched)),
            json_route("/api/v1/page", lambda _: views.page(watched, rates)),
            *page_routes(),
        ],
        middleware=[Middleware(WithHeaders)],
    )


class _BadQuery(Exception):
    """A parameter that cannot be used; one sentence."""


def _producer_ids(request: Request) -> set[int]:
    """Which producers are meant, with commas between them."""
    texts = request.query_params.get("producer_ids", "").split(",")
    if len(texts) > CLIENT_IDS_ASKED_MAX:
        raise _BadQuery(f"producer_ids has {len(texts)} of them, the limit is {CLIENT_IDS_ASKED_MAX}")
    return {_whole("producer_ids", text, 2**63 - 1) for text in texts}


def _whole(name: str, text: str, highest: int) -> int:
    if not text.isascii() or not text.isdecimal() or len(text) > 19 or int(text) > highest:
        raise _BadQuery(f"{name}={text[:32]!r}: a whole number is wanted, at most {highest}")
    return int(text)


def page_routes() -> list[Route]:
    """Return the routes of the status page."""
    return [_page_route(path, name) for path, name in _PAGE.items()]


def _page_route(path: str, name: str) -> Route:
    content = files(__package__).joinpath("page", name).read_bytes()
    media_type = _TYPES[name.rpartition(".")[2]]

    async def answer(_request: Request) -> Response:
        return Response(content, media_type=media_type)

    return Route(path, answer)

"""The page's server: which path gives what. Starlette carries HTTP; nothing here draws or decides.

Everything is JSON but the page itself and `/metrics`. Whatever asks the cluster does so with a
client of its own in a thread of the pool: a slow broker keeps only its own question waiting.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from strandline.client.cluster import ClusterClient
from strandline.client.retry import is_worth_waiting_for
from strandline.client.security.settings import PLAINTEXT, Security
from strandline.client.settings import ClientSettings
from strandline.errors import ErrorCode, MalformedFrame, ProtocolError, StrandlineError
from strandline.schemas.sources import Schemas
from strandline.sim.scenarios.script import BadScript
from strandline.ui import editing, questions, scenario_list, scenarios
from strandline.ui.access import Access, Tokens
from strandline.ui.faults import FAULT_BYTES_MAX, FaultInjector, wanted_fault
from strandline.ui.guard import Guard
from strandline.ui.lag_sampler import sample_lags
from strandline.ui.live import Streams
from strandline.ui.request_cache import RequestCache
from strandline.ui.series import KINDS
from strandline.ui.watcher import Watcher

STATIC: Final = Path(__file__).parent / "static"

_CLIENT: Final = ClientSettings(
    client_id="strandline-ui", request_timeout_ms=10_000, operation_timeout_ms=10_000
)
_ASKING: Final = replace(_CLIENT, connect_timeout_ms=5_000, request_timeout_ms=5_000)
"""What one paused broker does not answer, another one can be asked in time."""
_NOT_THERE: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.GROUP_ID_NOT_FOUND)
_FAULT_STATUS: Final = {ErrorCode.POLICY_VIOLATION: 403, ErrorCode.INVALID_REQUEST: 409}
"""Not allowed at all, or not as the brokers are; anything else is trouble on the way."""


def application(
    bootstrap: str | None,
    hosts: tuple[str, ...] = (),
    injector: FaultInjector | None = None,
    schemas: Schemas | None = None,
    *,
    may_edit: bool = False,
    tables: questions.Question | None = None,
    tokens: Tokens | None = None,
    is_secure: bool = False,
    security: Security = PLAINTEXT,
) -> Starlette:
    """The server for one cluster; without one it serves scenarios only.

    `injector` causes faults, `schemas` are for the records; with `may_edit` pages may produce
    records and reset groups. `tables` is asked for what lakehouse tables are there. With
    `tokens` it answers to those that have one, by any name; `is_secure` if that is over TLS.
    `security` is what lets its clients in at the brokers.
    """
    middleware = [Middleware(Guard, hosts=hosts if tokens is None else None)]
    if tokens is not None:
        middleware.append(Middleware(Access, tokens=tokens, is_secure=is_secure))
    client, asking = (replace(each, security=security) for each in (_CLIENT, _ASKING))
    watcher = None if bootstrap is None else Watcher(bootstrap, security)
    cache = None if bootstrap is None else RequestCache(bootstrap, asking)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        del app
        sampling = None
        if watcher is not None and cache is not None:
            watcher.start()
            sampling = asyncio.create_task(sample_lags(watcher, cache))
        yield
        if sampling is not None:
            sampling.cancel()
        if watcher is not None:
            await run_in_threadpool(watcher.close)
        if cache is not None:
            cache.close()

    routes = [
        Route("/", _page),
        Route("/api/scenarios", _scenarios, methods=["GET"]),
        Route("/api/scenarios", _play(scenarios.Player()), methods=["POST"]),
        Route("/api/scenarios/{name}", _scenario),
        Mount("/static", StaticFiles(directory=STATIC)),
    ]
    if watcher is not None and cache is not None and bootstrap is not None:
        routes += _live_routes(watcher, cache)
        routes += _question_routes(watcher, cache, bootstrap, asking, schemas or Schemas())
        routes += _edit_routes(bootstrap, client, may_edit=may_edit)
        routes.append(Route("/api/tables", _polled(cache, tables or _no_tables)))
    else:
        routes.append(Route("/api/moments", _no_moments))
    if injector is not None:
        routes += _fault_routes(injector)
    return Starlette(
        routes=routes,
        lifespan=lifespan,
        middleware=middleware,
        exception_handlers={HTTPException: _http_error, StrandlineError: _refused},
    )


def _live_routes(watcher: Watcher, cache: RequestCache) -> list[Route]:
    streams, time_line = Streams(watcher), watcher.time_line

    async def stream(request: Request) -> Response:
        return streams.open(request)

    async def moments(request: Request) -> Response:
        after = questions.number(request.query_params, "after", 0)
        return answer({"moments": time_line.moments(after), "oldest": time_line.oldest})

    async def over_time(request: Request) -> Response:
        wanted = request.query_params
        kind = wanted.get("of", "fine")
        if kind not in KINDS:
            raise HTTPException(400, f"'of' is one of {', '.join(KINDS)}, not '{kind}'.")
        return answer(watcher.series.told(kind, questions.number(wanted, "after", 0)))

    async def past(request: Request) -> Response:
        found = await run_in_threadpool(time_line.picture, request.path_params["number"])
        if found is None:
            raise HTTPException(404, "That moment is no longer kept.")
        wanted = request.query_params
        if "topic" in wanted:
            key = [wanted["topic"], questions.number(wanted, "partition")]
            found["partitions"] = [row for row in found["partitions"] if row[:2] == key]
        return answer(found)

    async def metrics(request: Request) -> Response:
        del request
        return Response(
            await cache.ask(questions.metrics, {}),
            media_type="text/plain; version=0.0.4; charset=utf-8",
        )

    return [
        Route("/api/events", stream),
        Route("/api/series", over_time),
        Route("/api/moments", moments),
        Route("/api/moments/{number:int}", past),
        Route("/metrics", metrics),
    ]


def _question_routes(
    watcher: Watcher,
    cache: RequestCache,
    bootstrap: str,
    asking: ClientSettings,
    schemas: Schemas,
) -> list[Route]:
    ask_partition = _polled(cache, questions.partition)

    async def partition(request: Request) -> Any:
        key = (request.path_params["topic"], request.path_params["partition"])
        if watcher.latest is not None and key in watcher.latest.partitions:
            watcher.put_on_screen(key)
        return await ask_partition(request)

    def responder(function: questions.Question) -> Callable[[Request], Any]:
        if function is questions.partition:
            return partition
        if function in questions.POLLED:
            return _polled(cache, function)
        return _question(bootstrap, asking, function)

    return [
        Route(path, responder(function)) for path, function in questions.by_path(schemas).items()
    ]


def _fault_routes(injector: FaultInjector) -> list[Route]:
    async def states(request: Request) -> Response:
        del request
        return answer(await injector.states())

    async def cause(request: Request) -> Response:
        if int(request.headers["content-length"]) > FAULT_BYTES_MAX:
            raise HTTPException(413, f"A fault is asked for in at most {FAULT_BYTES_MAX} bytes.")
        try:
            return answer(await injector.cause(wanted_fault(await request.body())))
        except questions.BadQuestion as error:
            raise HTTPException(400, str(error)) from error
        except ProtocolError as error:
            status = _FAULT_STATUS.get(error.code, 503)
            raise HTTPException(status, error.message) from error

    return [
        Route("/api/faults", states, methods=["GET"]),
        Route("/api/faults", cause, methods=["POST"]),
    ]


def _edit_routes(bootstrap: str, client: ClientSettings, *, may_edit: bool) -> list[Route]:
    async def allowed(request: Request) -> Response:
        del request
        return answer({"allowed": may_edit})

    def editor(function: editing.Edit) -> Callable[[Request], Awaitable[Response]]:
        def edit(name: str, body: bytes) -> Any:
            with ClusterClient(bootstrap, client) as cluster:
                return function(cluster, name, editing.body_of(body))

        async def respond(request: Request) -> Response:
            if not may_edit:
                raise HTTPException(403, "The page changes nothing unless it runs with --edit.")
            (name,) = request.path_params.values()
            return answer(await run_in_threadpool(edit, name, await request.body()))

        return respond

    return [
        Route("/api/edit", allowed),
        Route("/api/topics/{topic}/records", editor(editing.produce), methods=["POST"]),
        Route("/api/groups/{group}/offsets", editor(editing.reset), methods=["POST"]),
    ]


async def _no_moments(request: Request) -> Response:
    """There is no cluster: what a page asks first, to know that."""
    del request
    return answer({"moments": None})


def _no_tables(cluster: ClusterClient, values: Mapping[str, str]) -> Any:
    """Of a page that was started without."""
    del cluster, values
    return {"directory": None, "tables": [], "left_out": 0}


# -- Answers -----------------------------------------------------------------------------------


def answer(value: object, status: int = 200) -> Response:
    """JSON. Escaped to ASCII: header names may hold bytes that are no text."""
    return Response(json.dumps(value), status, media_type="application/json")


async def _http_error(request: Request, error: Exception) -> Response:
    del request
    assert isinstance(error, HTTPException)
    return answer({"error": error.detail}, error.status_code)


async def _refused(request: Request, error: Exception) -> Response:
    """What a broker, or the reading of its answer, refused.

    That a broker is down or a leader being elected is a state of the cluster and no failure of the
    page's server: a page that reads is told it as such, `{"not_now": "..."}`, and asks again.
    """
    if isinstance(error, BadScript | questions.BadQuestion):
        return answer({"error": str(error)}, 400)
    if not isinstance(error, ProtocolError):
        return answer({"error": str(error)}, 502)
    sentence = f"{error.message} [{error.code.name}]"
    if error.code in _NOT_THERE:
        return answer({"error": sentence}, 404)
    if not is_worth_waiting_for(error):
        return answer({"error": sentence}, 502)
    if request.method == "GET" and request.url.path.startswith("/api/"):
        return answer({"not_now": sentence})
    return answer({"error": sentence}, 503)


# -- The page and its scenarios ----------------------------------------------------------------


async def _page(request: Request) -> Response:
    del request
    return FileResponse(STATIC / "index.html", headers={"cache-control": "no-cache"})


async def _scenarios(request: Request) -> Response:
    del request
    return answer({"groups": scenario_list.listing()})


async def _scenario(request: Request) -> Response:
    name = request.path_params["name"]
    return answer(await run_in_threadpool(scenario_list.played, name))


def _play(player: scenarios.Player) -> Callable[[Request], Awaitable[Response]]:
    async def play(request: Request) -> Response:
        try:
            text = json.loads(await request.body())["text"]
            if not isinstance(text, str):
                raise TypeError  # noqa: TRY301 - answered below, like a missing text
        except (ValueError, TypeError, KeyError, RecursionError):
            raise HTTPException(400, 'A script is sent as {"text": "..."}.') from None
        try:
            return answer(await player.played(text))
        except scenarios.TooManyScripts as error:
            raise HTTPException(429, str(error)) from error

    return play


# -- Questions to the cluster ------------------------------------------------------------------


def _question(
    bootstrap: str, asking: ClientSettings, function: questions.Question
) -> Callable[[Request], Any]:
    """Asked with a client of its own, as often as it is requested."""

    def ask(values: Mapping[str, str]) -> Any:
        with ClusterClient(bootstrap, asking) as cluster:
            return function(cluster, values)

    return _respond(lambda values: run_in_threadpool(ask, values))


def _polled(cache: RequestCache, function: questions.Question) -> Callable[[Request], Any]:
    """Asked for all pages together."""
    return _respond(lambda values: cache.ask(function, values))


def _respond(ask: Callable[[Mapping[str, str]], Awaitable[Any]]) -> Callable[[Request], Any]:
    async def respond(request: Request) -> Response:
        try:
            return answer(await ask({**request.query_params, **request.path_params}))
        except MalformedFrame as error:
            raise HTTPException(502, f"The broker's answer cannot be read: {error}") from error

    return respond

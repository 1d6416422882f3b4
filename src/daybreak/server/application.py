"""Builds the application: all routes, each with its policy, behind the edge."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from typing import Any, Final, cast

from litestar import Litestar, Request, Response

from daybreak.api.app import Daybreak
from daybreak.client.client import Client
from daybreak.core.errors import StoreError
from daybreak.server.access.identify import ANONYMOUS, Identification
from daybreak.server.access.rate_limit import RateLimit
from daybreak.server.dashboard import assets, operations, overview
from daybreak.server.dashboard import jobs as job_pages
from daybreak.server.dashboard import runs as run_pages
from daybreak.server.dashboard import sagas as saga_pages
from daybreak.server.edge import ASGIApp, Edge
from daybreak.server.exposition import Exposition
from daybreak.server.idempotency import Writes
from daybreak.server.live_feed import LiveFeed
from daybreak.server.problems import problem_of
from daybreak.server.routes import (
    alerts,
    audit,
    blobs,
    cache,
    detached_jobs,
    events,
    health,
    job_changes,
    jobs,
    locks,
    metrics,
    openapi,
    queues,
    resources,
    runs,
    sagas,
    schedules,
    sign_in,
    stats,
    workers,
)
from daybreak.server.routing import Policy, Route, Routes, handler_of
from daybreak.server.settings import ServerSettings

ALL: Final[tuple[Routes, ...]] = (
    jobs.routes,
    job_changes.routes,
    detached_jobs.routes,
    runs.routes,
    sagas.routes,
    schedules.routes,
    events.routes,
    queues.routes,
    resources.routes,
    locks.routes,
    workers.routes,
    blobs.routes,
    cache.routes,
    alerts.routes,
    metrics.routes,
    stats.routes,
    audit.routes,
    openapi.routes,
    sign_in.routes,
    health.routes,
    overview.routes,
    job_pages.routes,
    run_pages.routes,
    saga_pages.routes,
    operations.routes,
    assets.routes,
)  # the order of the OpenAPI document and of the reference page
MOST_CLIENTS: Final = 1000


class Server:
    """The objects that all requests of one application share."""

    def __init__(self, app: Daybreak, settings: ServerSettings, routes: Iterable[Route]) -> None:
        self.app = app
        self.settings = settings
        self.routes = list(routes)
        self.identification = Identification(app, settings)
        self.rate_limit = RateLimit(settings.requests_per_second, settings.request_burst)
        self.writes = Writes(self)
        self.live = LiveFeed(app, settings.max_listeners)
        self.metrics = Exposition(settings.metric_names, app.world)
        self.nobody = ANONYMOUS
        self._clients: dict[str, Client] = {}

    async def client(self, by: str) -> Client:
        """A client of the app's store, on the running loop, that writes `by` into every change."""
        shared = await self.app.client()
        found = self._clients.get(by)
        if found is None or found.store is not shared.store:
            if len(self._clients) >= MOST_CLIENTS:
                self._clients.clear()
            found = self._clients[by] = Client(shared.store, by=by, world=self.app.world)
        return found

    async def close(self) -> None:
        """Write the counts of submits that were not written yet."""
        with contextlib.suppress(StoreError):
            await self.writes.audit.submits.write((await self.app.client()).store)


def all_routes() -> list[Route]:
    return [route for routes in ALL for route in routes.all]


def build(app: Daybreak, settings: ServerSettings, more: Sequence[Routes] = ()) -> Edge:
    """The ASGI application. A route without a policy is a mistake of the program, and is refused here."""
    server = Server(app, settings, [*all_routes(), *(route for routes in more for route in routes.all)])
    return Edge(cast("ASGIApp", litestar_of(server)), settings, on_stop=server.live.stop, on_close=server.close)


def litestar_of(server: Server) -> Litestar:
    for route in server.routes:
        if not isinstance(route.policy, Policy):
            raise TypeError(f"{route.method} {route.path} has no policy: declare who may call it")
    return Litestar(
        [handler_of(route, server) for route in server.routes],
        openapi_config=None,  # ours is made from the routes: routes/openapi.py
        logging_config=None,
        exception_handlers={Exception: _answer_problem},
        request_max_body_size=server.settings.max_body,
    )


def _answer_problem(_: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    """The response to errors outside of any route: an unknown path or method."""
    return problem_of(error).response()

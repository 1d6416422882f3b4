"""The server: REST, health, metrics and the live feed of one store, as an ordinary ASGI application.

    from daybreak.server import asgi

    fastapi_app.mount("/daybreak", asgi(app))

`daybreak serve` runs the same application with uvicorn.

| module | what it holds |
|---|---|
| `application` | builds the application from the routes |
| `routing` | what a route declares, and the steps that every request takes |
| `routes/` | one module per noun |
| `bodies` | request and response bodies; they are the schema of the OpenAPI document |
| `problems` | every error as an RFC 9457 problem document |
| `access/` | tokens, roles, sign-in, rate limit |
| `edge` | checks that hold for every request before a route is chosen: Host, Origin |
| `live_feed` | events by SSE |
| `exposition` | `/metrics`: the text for Prometheus |
| `idempotency`, `audit` | answers kept under an `Idempotency-Key`, and who changed what |
| `openapi` | the OpenAPI document, built from the routes |
| `process`, `certificate` | `daybreak serve`: which binds and certificates are allowed, and uvicorn |

This file imports nothing at first, so that `daybreak tokens` works without the extra `server`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from daybreak.core.errors import Unsupported

if TYPE_CHECKING:
    from daybreak.api.app import Daybreak
    from daybreak.server.edge import Edge
    from daybreak.server.routing import Routes
    from daybreak.server.settings import ServerSettings

__all__ = ["asgi"]


def asgi(app: Daybreak, settings: ServerSettings | None = None, routes: Sequence[Routes] = ()) -> Edge:
    """The server of this app as an ASGI application, to be mounted in a FastAPI, Starlette or Django project.

    It uses the app's store on the event loop that serves the requests, and needs no lifespan events. Without
    `settings`, every route but the health checks needs a token, and the Host header is left to the outer application.
    `routes` are served beside Daybreak's own, with the same access rules and problem documents."""
    try:
        from daybreak.server.application import build  # noqa: PLC0415 - only servers need Litestar
        from daybreak.server.settings import ServerSettings  # noqa: PLC0415
    except ImportError as error:
        raise missing_extra(error) from error
    return build(app, settings or ServerSettings(), routes)


def missing_extra(error: ImportError) -> Unsupported:
    """The error to raise where a package of the extra `server` is not installed."""
    return Unsupported(
        f"the server needs packages that are not installed ({error}); install them with: pip install 'daybreak[server]'"
    )

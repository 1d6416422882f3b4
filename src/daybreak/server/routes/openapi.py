"""`GET /api/v1/openapi.json`."""

from __future__ import annotations

from typing import Any

from litestar import Response

from daybreak.server.openapi import document
from daybreak.server.routing import PUBLIC, Call, Routes

routes = Routes("openapi")


@routes.get("/openapi.json", PUBLIC, answer=dict[str, Any], summary="This API as an OpenAPI 3.1 document")
async def show_openapi(call: Call[None, None]) -> Any:
    return Response(document(call.server.routes), media_type="application/json")

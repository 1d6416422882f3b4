"""`GET /metrics`: figures for Prometheus."""

from __future__ import annotations

from typing import Any

from litestar import Response

from daybreak.server.exposition import CONTENT_TYPE
from daybreak.server.routing import Call, Routes, may

routes = Routes("metrics", prefix="")


@routes.get(
    "/metrics", may("read", needs_all_queues=True), answer=str, answer_type="text/plain",
    summary="Metrics for Prometheus",
)  # fmt: skip
async def show_metrics(call: Call[None, None]) -> Any:
    """Read from the store at each scrape, so all servers of a store answer the same."""
    text = await call.server.metrics.text(await call.client())
    return Response(text, media_type=CONTENT_TYPE)

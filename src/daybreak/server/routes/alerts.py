"""`GET /alerts`: what is wrong now, and the latest notices."""

from __future__ import annotations

from typing import Any

from daybreak.api.alerts import read_alerts
from daybreak.api.views.alert import alerts_view
from daybreak.server.bodies.alerts import AlertList
from daybreak.server.routing import Call, Routes, may

routes = Routes("alerts")


@routes.get("/alerts", may("read", needs_all_queues=True), answer=AlertList, summary="Alerts and notices")
async def list_alerts(call: Call[None, None]) -> Any:
    """The alerts, the worst first, and the latest notices, the newest first. A notice whose delivery failed says
    why."""
    return alerts_view(await read_alerts(await call.client()))

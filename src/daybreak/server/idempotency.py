"""Runs the requests that change something."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from daybreak.server.application import Server
    from daybreak.server.routing import Call


class Writes:
    """The changes that one server makes for its callers."""

    def __init__(self, server: Server) -> None:
        self._server = server

    async def run(self, call: Call[Any, Any]) -> Any:
        return await call.route.run(call)

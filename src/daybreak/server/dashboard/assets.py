"""Scripts and styles of the dashboard, from the files of the package."""

from __future__ import annotations

import hashlib
from importlib import resources
from typing import Any, Final

from litestar import Response

from daybreak.server.problems import NOT_FOUND, Problem
from daybreak.server.routing import PUBLIC, Call, Routes

routes = Routes("dashboard", prefix="")

TYPES: Final = {
    ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml",
}  # fmt: skip
_FOLDER: Final = resources.files("daybreak.server.dashboard") / "static"


def _assets() -> dict[str, tuple[bytes, str, str]]:
    found = {}
    for file in _FOLDER.iterdir():
        name = file.name
        kind = TYPES.get(name[name.rfind(".") :])
        if kind is not None:
            data = file.read_bytes()
            found[name] = (data, kind, f'"{hashlib.sha256(data).hexdigest()[:16]}"')
    return found


_ASSETS: Final = _assets()


@routes.get("/static/{name}", PUBLIC, answer=str, answer_type="text/plain", summary="A script or style")
async def show_asset(call: Call[None, None]) -> Any:
    """Only the files of the package; nothing is read from disk for a request."""
    asset = _ASSETS.get(call.path["name"])
    if asset is None:
        raise Problem(NOT_FOUND, f"no file named {call.path['name'][:100]!r}")
    data, kind, tag = asset
    headers = {"etag": tag, "cache-control": "no-cache"}
    if call.request.headers.get("if-none-match") == tag:
        return Response(b"", status_code=304, headers=headers)
    return Response(data, media_type=kind, headers=headers)

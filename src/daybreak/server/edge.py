"""Checks of every request before a route is chosen: the Host and Origin headers. Also adds headers to every response.

A web page of another site can make a browser send requests here. Two checks stop it. A page whose host name was
re-pointed at this machine (DNS rebinding) sends its own name in the Host header. A page that posts across sites sends
its own name in the Origin header."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final
from urllib.parse import unquote

from daybreak.server.problems import CROSS_ORIGIN, MEDIA_TYPE, MISDIRECTED, Problem
from daybreak.server.settings import ServerSettings

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
ASGIApp = Callable[[Scope, Receive, Send], Awaitable[None]]

SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
# A slash inside one part of a path (a queue named a/b, sent as a%2Fb) travels through the router as this character.
INNER_SLASH: Final = "\x1f"

# A route may set another value for any of these.
HEADERS: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
)
_HOST: Final = re.compile(r"(?P<name>\[[0-9a-fA-F:.]+\]|[^\s:/\\@\[\]]+)(?::(?P<port>[0-9]{1,5}))?")


class Edge:
    """The outermost ASGI application."""

    def __init__(
        self,
        inner: ASGIApp,
        settings: ServerSettings,
        on_stop: Callable[[], None],
        on_close: Callable[[], Awaitable[None]],
    ) -> None:
        self._inner = inner
        self._settings = settings
        self._on_stop = on_stop
        self._on_close = on_close

    def stop(self) -> None:
        """End the event streams, which would never end by themselves, because the server stops."""
        self._on_stop()

    async def close(self) -> None:
        """Write the pending records, once all requests have ended."""
        await self._on_close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self._inner(scope, receive, send)
            return
        try:
            self._check(scope)
        except Problem as problem:
            await _answer(problem, _with_headers(send))
            return
        await self._inner(_with_inner_slashes(scope), receive, _with_headers(send))

    def _check(self, scope: Scope) -> None:
        host = _one_header(scope, b"host")
        found = _HOST.fullmatch(host)
        if found is None:
            raise Problem(MISDIRECTED, "the request names no valid host", hint="send one Host header")
        name = found["name"].lower()
        if not is_allowed(name, self._settings.hosts):
            raise Problem(
                MISDIRECTED,
                f"this server does not serve the host name {name[:200]!r}",
                hint="if the name is yours, start the server with: daybreak serve --allow-host NAME",
            )
        if scope["method"] not in SAFE_METHODS:
            _check_origin(scope, host)


def is_allowed(name: str, hosts: frozenset[str] | None) -> bool:
    """Whether a server that answers for `hosts` answers for this name. An address cannot be re-pointed as a name can,
    so it is always allowed."""
    return hosts is None or name in hosts or is_address(name)


def is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True


def _check_origin(scope: Scope, host: str) -> None:
    """Browsers send an Origin with every request that changes something. Other programs send none."""
    origin = _one_header(scope, b"origin")
    # The scheme is not compared: behind a proxy it differs, and no attacker controls it.
    if origin and origin.lower().partition("://")[2] != host.lower():
        raise Problem(
            CROSS_ORIGIN,
            f"a page of {origin[:200]!r} may not change anything here",
            hint="use the pages of this server, or a program with a token",
        )
    site = _one_header(scope, b"sec-fetch-site")
    if site and site not in ("same-origin", "none"):
        raise Problem(CROSS_ORIGIN, f"a request from a {site[:40]!r} page may not change anything here")


def _one_header(scope: Scope, name: bytes) -> str:
    """The value of a header. Two different values count as an invalid one."""
    found = {value for key, value in scope["headers"] if key.lower() == name}
    if len(found) > 1:
        return "\x00"
    return next(iter(found), b"").decode("latin-1").strip()


def _with_inner_slashes(scope: Scope) -> Scope:
    raw = scope.get("raw_path")
    if not raw or b"%2f" not in raw.lower():
        return scope
    parts = raw.decode("latin-1").partition("?")[0].split("/")
    return {**scope, "path": "/".join(unquote(part).replace("/", INNER_SLASH) for part in parts)}


def _with_headers(send: Send) -> Send:
    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            there = list(message.get("headers", ()))
            names = {name.lower() for name, _ in there}
            message = {**message, "headers": there + [pair for pair in HEADERS if pair[0] not in names]}
        await send(message)

    return send_with_headers


async def _answer(problem: Problem, send: Send) -> None:
    body = problem.body()
    headers = [(b"content-type", MEDIA_TYPE.encode()), (b"content-length", str(len(body)).encode())]
    headers += [(name.encode(), value.encode()) for name, value in problem.headers.items()]
    await send({"type": "http.response.start", "status": problem.kind.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})

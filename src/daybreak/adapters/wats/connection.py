"""One request over httpx: its limits, and what a broken connection means."""

from __future__ import annotations

import ssl
import time
from datetime import timedelta
from typing import Any, Final, NamedTuple

from daybreak.adapters.wats.address import is_loopback
from daybreak.adapters.wats.answers import Answer
from daybreak.adapters.wats.calls import Request
from daybreak.adapters.wats.errors import AnswerLost, BadAnswer, WatsError, WatsUnavailable
from daybreak.core.errors import BadInput
from daybreak.core.text import safe
from daybreak.core.units import duration
from daybreak.values.secret import HIDDEN, Secret

try:
    import httpx
except ImportError as error:
    raise ImportError("daybreak.adapters.wats needs httpx: install daybreak[wats]") from error

MAX_ANSWER_BYTES: Final = 64 * 1024 * 1024
MAX_CONNECTIONS: Final = 100


class Settings(NamedTuple):
    """How to reach a server."""

    url: str
    token: Secret[str]
    connect_timeout: timedelta
    timeout: timedelta
    proxy: str | None = None
    verify: bool | str | ssl.SSLContext = True

    def client_options(self) -> dict[str, Any]:
        """The arguments of `httpx.Client` and `httpx.AsyncClient`."""
        connect, total = self.connect_timeout.total_seconds(), self.timeout.total_seconds()
        return {
            "headers": {"Authorization": f"Basic {self.token.reveal()}", "Accept": "application/json"},
            "timeout": httpx.Timeout(total, connect=min(connect, total)),
            "limits": httpx.Limits(max_connections=MAX_CONNECTIONS),
            "follow_redirects": False,  # a redirected POST would become a GET, and the token would go elsewhere
            "proxy": self.proxy,
            "trust_env": not is_loopback(self.url),
            "verify": _tls(self.verify),
        }


def open_client(settings: Settings) -> httpx.Client:
    return httpx.Client(**_checked(settings))


def open_async_client(settings: Settings) -> httpx.AsyncClient:
    return httpx.AsyncClient(**_checked(settings))


def _checked(settings: Settings) -> dict[str, Any]:
    if settings.proxy is not None:
        try:
            httpx.Proxy(settings.proxy)
        except (ValueError, TypeError, httpx.InvalidURL) as error:  # which does not show the proxy's password
            raise BadInput(f"proxy: {error}; write http://HOST:PORT") from None
    return settings.client_options()


def check_limit(value: timedelta | str, what: str) -> timedelta:
    limit = duration(value, what)
    if not limit:
        raise BadInput(f"{what}: a call must have time; write '30s'")
    return limit


def send(client: httpx.Client, settings: Settings, request: Request) -> Answer:
    """The answer, read whole. Raises `WatsUnavailable` if nothing was sent, `AnswerLost` if something may have been."""
    deadline, body = time.monotonic() + settings.timeout.total_seconds(), bytearray()
    try:
        with client.stream(request.method, settings.url + request.path, **_content(request)) as response:
            for chunk in response.iter_bytes():
                _add(body, chunk, request)
                if time.monotonic() > deadline:
                    raise httpx.ReadTimeout("the answer did not end in time")
            return _answer(response, body, settings)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise broken(error, settings, request) from None


async def send_async(client: httpx.AsyncClient, settings: Settings, request: Request) -> Answer:
    """As `send`, on an event loop."""
    deadline, body = time.monotonic() + settings.timeout.total_seconds(), bytearray()
    try:
        async with client.stream(request.method, settings.url + request.path, **_content(request)) as response:
            async for chunk in response.aiter_bytes():
                _add(body, chunk, request)
                if time.monotonic() > deadline:
                    raise httpx.ReadTimeout("the answer did not end in time")
            return _answer(response, body, settings)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise broken(error, settings, request) from None


def broken(error: Exception, settings: Settings, request: Request) -> WatsError:
    """What an error of the connection means for the report."""
    words = safe(f"{type(error).__name__}: {error}".rstrip(": "))[:300]
    match error:
        case httpx.ConnectError() | httpx.ConnectTimeout() | httpx.ProxyError():
            return WatsUnavailable(f"WATS cannot be reached at {settings.url} ({words}); nothing was sent")
        case httpx.PoolTimeout():
            return WatsUnavailable(
                f"{request.what}: no connection was free within {settings.timeout}; nothing was sent"
            )
        case httpx.TimeoutException():
            seconds = settings.timeout.total_seconds()
            return AnswerLost(f"{request.what}: WATS at {settings.url} did not answer within {seconds:g} s")
        case _:
            return AnswerLost(f"{request.what}: the connection to {settings.url} was lost before the answer ({words})")


def _content(request: Request) -> dict[str, Any]:
    if request.content is None:
        return {}
    return {"content": request.content, "headers": {"Content-Type": "application/json"}}


def _answer(response: httpx.Response, body: bytearray, settings: Settings) -> Answer:
    """The answer. An error does not show the token, although it may repeat what was sent."""
    content = bytes(body)
    if response.status_code >= 400:
        content = content.replace(settings.token.reveal().encode(), HIDDEN.encode())
    return Answer(response.status_code, response.headers, content)


def _add(body: bytearray, chunk: bytes, request: Request) -> None:
    body += chunk
    if len(body) > MAX_ANSWER_BYTES:
        raise BadAnswer(f"{request.what}: the answer is over {MAX_ANSWER_BYTES // 1024 // 1024} MiB")


def _tls(verify: bool | str | ssl.SSLContext) -> bool | ssl.SSLContext:
    if not isinstance(verify, str):
        return verify
    try:
        return ssl.create_default_context(cafile=verify)
    except (OSError, ssl.SSLError) as error:
        raise BadInput(f"verify={verify!r:.200}: certificates cannot be read from this file ({error})") from None

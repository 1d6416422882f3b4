"""Finds out who sends a request: by a token in the Authorization header, or by the cookie of a session."""

from __future__ import annotations

import hashlib
import hmac
from datetime import datetime, timedelta
from typing import Any, Final

from litestar import Request

from daybreak.api.app import Daybreak
from daybreak.core.units import moment, span
from daybreak.server.access.callers import Caller
from daybreak.server.access.sessions import find_session
from daybreak.server.access.tokens import Token, find_token
from daybreak.server.edge import SAFE_METHODS
from daybreak.server.problems import FORBIDDEN, UNAUTHENTICATED, Problem
from daybreak.server.settings import ServerSettings

AnyRequest = Request[Any, Any, Any]

COOKIE: Final = "daybreak_session"
SECURE_COOKIE: Final = "__Host-daybreak_session"
CSRF_HEADER: Final = "x-csrf-token"
# A server caches a token for this long. A revoked token is refused at the latest after this time.
CACHED_FOR: Final = timedelta(seconds=2)
MAX_CACHED: Final = 1000

ANONYMOUS: Final = Caller(by="anonymous", kind="anonymous")
READER: Final = Caller(by="anonymous", kind="anonymous", roles=frozenset({"read"}))
CHALLENGE: Final = {"www-authenticate": 'Bearer realm="daybreak"'}


class Identification:
    """The callers of one server."""

    def __init__(self, app: Daybreak, settings: ServerSettings) -> None:
        self._app = app
        self._settings = settings
        self._cache: dict[bytes, tuple[Token, int]] = {}
        self._without_credentials = READER if settings.anonymous_reads else ANONYMOUS

    @property
    def cookie(self) -> str:
        """The name of the cookie. Browsers accept the prefix `__Host-` only by https, and only from this host."""
        return SECURE_COOKIE if self._settings.secure_cookies else COOKIE

    async def caller(self, request: AnyRequest) -> Caller:
        """The caller of this request. Invalid credentials are an error; they are never ignored."""
        sent = request.headers.getall("authorization", [])
        if len(sent) > 1:
            raise _refused("two Authorization headers were sent")
        if sent:
            return await self._by_token(sent[0])
        secret = request.cookies.get(self.cookie)
        if secret:
            return await self._by_cookie(request, secret)
        return self._without_credentials

    async def _by_token(self, header: str) -> Caller:
        scheme, _, text = header.partition(" ")
        if scheme.lower() != "bearer":
            raise _refused("the Authorization header must say: Bearer TOKEN")
        token = await self._token(text.strip())
        if token is None:
            raise _refused("this server does not know this token")
        state = token.state(self._now())
        if state != "active":
            raise _refused(f"token {token.name!r} is {state}")
        queues = None if token.queues is None else frozenset(token.queues)
        return Caller(by=token.name, kind="token", roles=frozenset(token.roles), queues=queues)

    async def _token(self, text: str) -> Token | None:
        key = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
        cached = self._cache.get(key)
        now = self._app.world.steady()
        if cached is not None and cached[1] > now:
            return cached[0]
        self._cache.pop(key, None)
        token = await find_token((await self._app.client()).store, text)
        if token is not None:
            if len(self._cache) >= MAX_CACHED:
                self._cache.clear()
            self._cache[key] = (token, now + span(CACHED_FOR))
        return token

    async def _by_cookie(self, request: AnyRequest, secret: str) -> Caller:
        session = await find_session((await self._app.client()).store, secret, now=self._now())
        if session is None:
            return self._without_credentials
        if request.method not in SAFE_METHODS:
            sent = request.headers.get(CSRF_HEADER, "")
            if not hmac.compare_digest(sent.encode("utf-8", "surrogatepass"), session.csrf.encode()):
                raise Problem(
                    FORBIDDEN,
                    f"a change by a signed-in browser needs the header {CSRF_HEADER}",
                    hint="its value is in GET /api/v1/session",
                )
        return Caller(by=session.by, kind="session", roles=frozenset({"admin"}), csrf=session.csrf)

    def _now(self) -> datetime:
        return moment(self._app.world.wall())


def _refused(detail: str, role: str = "read") -> Problem:
    create = f"daybreak tokens create NAME --role {role}"
    return Problem(
        UNAUTHENTICATED,
        detail,
        hint=f"create a token with: {create}; send it as: Authorization: Bearer TOKEN",
        headers=CHALLENGE,
    )


def needs_token(role: str) -> Problem:
    """The response to a caller without credentials where a role is needed."""
    return _refused(f"this needs a token with the role {role!r}", role)

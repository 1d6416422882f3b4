"""Every error as a problem document (RFC 9457): `type`, `title`, `status`, `detail`, and often a `hint`.

The type is a URN, `urn:daybreak:problem:not-found`: programs compare it, and it names no host that would have to
exist. The reference page docs/reference/rest.md lists all of them."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

import msgspec
from litestar import Response
from litestar.exceptions import HTTPException
from msgspec import Struct

from daybreak.core import errors

_log = logging.getLogger("daybreak.server")

MEDIA_TYPE: Final = "application/problem+json"
URN: Final = "urn:daybreak:problem:"


class ProblemKind(Struct, frozen=True):
    """One kind of error: the last part of its type, its status and its title."""

    name: str
    status: int
    title: str


BAD_JSON: Final = ProblemKind("bad-json", 400, "The body is not valid JSON")
UNAUTHENTICATED: Final = ProblemKind("unauthenticated", 401, "A valid token is needed")
FORBIDDEN: Final = ProblemKind("forbidden", 403, "The caller may not do this")
CROSS_ORIGIN: Final = ProblemKind("cross-origin", 403, "The request comes from another web site")
NOT_FOUND: Final = ProblemKind("not-found", 404, "The requested object does not exist")
METHOD_NOT_ALLOWED: Final = ProblemKind("method-not-allowed", 405, "The path does not take this method")
CONFLICT: Final = ProblemKind("conflict", 409, "The current state does not allow this")
IN_PROGRESS: Final = ProblemKind("in-progress", 409, "The first request with this idempotency key is still running")
CURSOR_EXPIRED: Final = ProblemKind("cursor-expired", 410, "The events after this cursor were purged")
TOO_LARGE: Final = ProblemKind("too-large", 413, "The body is too large")
MEDIA_TYPE_NOT_SUPPORTED: Final = ProblemKind("unsupported-media-type", 415, "The body must be JSON")
MISDIRECTED: Final = ProblemKind("misdirected", 421, "The server does not answer for this host name")
INVALID: Final = ProblemKind("invalid", 422, "The request is not valid")
KEY_REUSED: Final = ProblemKind("key-reused", 422, "The idempotency key was used for another request")
RATE_LIMITED: Final = ProblemKind("rate-limited", 429, "Too many requests")
QUEUE_FULL: Final = ProblemKind("queue-full", 429, "The queue is full")
INTERNAL: Final = ProblemKind("internal", 500, "Internal server error")
STORE_UNAVAILABLE: Final = ProblemKind("store-unavailable", 503, "The store cannot be used now")

KINDS: Final = (
    BAD_JSON, UNAUTHENTICATED, FORBIDDEN, CROSS_ORIGIN, NOT_FOUND, METHOD_NOT_ALLOWED, CONFLICT, IN_PROGRESS,
    CURSOR_EXPIRED, TOO_LARGE, MEDIA_TYPE_NOT_SUPPORTED, MISDIRECTED, INVALID, KEY_REUSED, RATE_LIMITED, QUEUE_FULL,
    INTERNAL, STORE_UNAVAILABLE,
)  # fmt: skip

_BY_STATUS: Final = {
    400: INVALID, 401: UNAUTHENTICATED, 403: FORBIDDEN, 404: NOT_FOUND, 405: METHOD_NOT_ALLOWED, 413: TOO_LARGE,
    415: MEDIA_TYPE_NOT_SUPPORTED, 429: RATE_LIMITED,
}  # fmt: skip

# The first class that fits counts.
_BY_ERROR: Final[tuple[tuple[type[Exception], ProblemKind], ...]] = (
    (errors.QueueFull, QUEUE_FULL),
    (errors.NotAllowed, FORBIDDEN),
    (errors.Refused, CONFLICT),
    (errors.RecordChanged, CONFLICT),
    (errors.LeaseLost, CONFLICT),
    (errors.JobNotFound, NOT_FOUND),
    (errors.RunNotFound, NOT_FOUND),
    (errors.ScheduleNotFound, NOT_FOUND),
    (errors.SagaNotFound, NOT_FOUND),
    (errors.CursorExpired, CURSOR_EXPIRED),
    (errors.StoreError, STORE_UNAVAILABLE),
    (errors.BadInput, INVALID),
    (msgspec.ValidationError, INVALID),
    (msgspec.DecodeError, BAD_JSON),
    (RecursionError, INVALID),
)

RETRY_STORE_AFTER: Final = timedelta(seconds=2)


class Problem(Exception):
    """An error that is sent as a problem document. `hint` says what to do; `more` are additional members."""

    def __init__(
        self,
        kind: ProblemKind,
        detail: str,
        *,
        hint: str = "",
        retry_after: timedelta | None = None,
        headers: Mapping[str, str] | None = None,
        more: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(detail)
        self.kind = kind
        self.detail = detail
        self.hint = hint
        self.headers = dict(headers or {})
        self.more = dict(more or {})
        if retry_after is not None:
            # Whole seconds, and never less than the caller has to wait.
            self.headers["retry-after"] = str(max(1, math.ceil(retry_after.total_seconds())))

    def data(self) -> dict[str, Any]:
        """The members of the document, in the order in which they are documented."""
        found: dict[str, Any] = {
            "type": URN + self.kind.name,
            "title": self.kind.title,
            "status": self.kind.status,
            "detail": self.detail,
        }
        if self.hint:
            found["hint"] = self.hint
        return {**found, **self.more}

    def body(self) -> bytes:
        # Half a surrogate pair, from a hostile path or name, has no UTF-8 form: it is escaped.
        return msgspec.json.encode(_encodable(self.data()))

    def response(self) -> Response[bytes]:
        return Response(self.body(), status_code=self.kind.status, media_type=MEDIA_TYPE, headers=self.headers)


def problem_of(error: BaseException) -> Problem:
    """The problem document for an error. An unexpected error is logged with its traceback, and its text is not shown to
    the caller."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, HTTPException):
        return _of_litestar(error)
    for kind_of_error, kind in _BY_ERROR:
        if isinstance(error, kind_of_error):
            return Problem(
                kind, _detail(error), hint=_hint(error), retry_after=_retry_after(error), more=_members(error)
            )
    _log.error("a request failed with an unexpected error: %r", error, exc_info=error)
    return Problem(
        INTERNAL, "an unexpected error occurred; the server logged it", hint="report it with the server's log"
    )


def _of_litestar(error: HTTPException) -> Problem:
    kind = _BY_STATUS.get(error.status_code, INTERNAL)
    headers = {name.lower(): str(value) for name, value in (error.headers or {}).items()}
    match kind.status:
        case 404:
            return Problem(kind, "no route has this path", hint="the routes are listed in /api/v1/openapi.json")
        case 405:
            return Problem(kind, f"this path takes {headers.get('allow', 'other methods')}", headers=headers)
        case 413:
            return Problem(kind, "the body is larger than this server accepts", hint="send less in one request")
        case 500:
            _log.error("a request failed with an unexpected error: %r", error, exc_info=error)
            return Problem(kind, "an unexpected error occurred; the server logged it")
        case _:
            return Problem(kind, error.detail, headers=headers)


def _detail(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "the JSON is nested too deeply"
    return str(error)


def _hint(error: Exception) -> str:
    if isinstance(error, errors.OutcomeUnknown):
        return "the change may have happened; send the same request again with the same Idempotency-Key"
    if isinstance(error, errors.StoreUnavailable):
        return "try again later"
    return ""


def _retry_after(error: Exception) -> timedelta | None:
    if isinstance(error, errors.QueueFull):
        return error.retry_after
    if isinstance(error, errors.StoreError):
        return RETRY_STORE_AFTER
    return None


def _members(error: Exception) -> dict[str, Any]:
    """Members for programs: the job that conflicts, or the queue that is full."""
    return {name: value for name in ("job", "queue") if isinstance(value := getattr(error, name, None), str) and value}


def _encodable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {name: _encodable(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_encodable(item) for item in value]
    return value

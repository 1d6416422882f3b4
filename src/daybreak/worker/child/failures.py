"""Turns an exception into a `Failure`, which can be stored after the process that raised it is gone."""

from __future__ import annotations

import contextlib
import email.utils
import traceback
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from daybreak.core.errors import BadInput, Permanent, Transient
from daybreak.core.model import Failure
from daybreak.core.units import clean, duration

MAX_MESSAGE_CHARS: Final = 4000
MAX_TRACEBACK_CHARS: Final = 16_000
_OWN_FILES: Final = str(Path(__file__).parents[2])


def failure_of(error: BaseException) -> Failure:
    """The failure for an exception. An invalid `Transient(retry_after=...)` is reported instead of the exception."""
    if isinstance(error, Transient) and isinstance(error.retry_after, str):
        try:
            duration(error.retry_after, f"{error!r}, retry_after")
        except BadInput as invalid:  # Transient itself refuses values that are not text
            error = invalid.with_traceback(error.__traceback__)
    return Failure(
        message=message_of(error),
        kinds=tuple(clean(_name(kind)) for kind in type(error).__mro__ if kind not in (object, BaseException)),
        traceback=_traceback(error),
        verdict=_verdict(error),
        status=_status(error),
        retry_after=_retry_after(error),
    )


def message_of(error: BaseException) -> str:
    """The text of an exception, at most 4,000 characters."""
    try:
        text = str(error)
    except Exception as other:  # noqa: BLE001 - an error whose __str__ fails is still an error
        text = f"(its text cannot be shown: {type(other).__name__})"
    if len(text) > MAX_MESSAGE_CHARS:
        text = text[:MAX_MESSAGE_CHARS] + " ..."
    return clean(text)


def _name(kind: type) -> str:
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _traceback(error: BaseException) -> str:
    """The traceback as Python prints it, without Daybreak's own frames: at most its last 16,000 characters."""
    try:
        formatted = traceback.TracebackException.from_exception(error, limit=-50, compact=True)
        frames = [frame for frame in formatted.stack if not frame.filename.startswith(_OWN_FILES)]
        if frames:
            formatted.stack = traceback.StackSummary.from_list(frames)
        text = "".join(formatted.format())
    except Exception:  # noqa: BLE001 - whatever the error holds, the failure must be reported
        text = f"{type(error).__name__} (its traceback cannot be shown)"
    if len(text) > MAX_TRACEBACK_CHARS:
        text = "... " + text[-MAX_TRACEBACK_CHARS:]
    return clean(text)


def _verdict(error: BaseException) -> Any:
    if isinstance(error, Permanent):
        return "permanent"
    if isinstance(error, Transient):
        return "transient"
    return None


def _get(value: object, name: str) -> Any:
    """An attribute, or None if it is missing or raises."""
    try:
        return getattr(value, name, None)
    except Exception:  # noqa: BLE001 - a property of the user's class
        return None


def _status(error: BaseException) -> int | None:
    """The HTTP status of an error from one of the usual clients (requests, httpx, aiohttp, urllib)."""
    response = _get(error, "response")
    for holder, name in ((response, "status_code"), (response, "status"), (error, "status"), (error, "code")):
        found = _get(holder, name)
        if isinstance(found, int) and not isinstance(found, bool) and 100 <= found <= 599:
            return int(found)
    return None


def _retry_after(error: BaseException) -> timedelta | None:
    """How long to wait before a retry: from the attribute `retry_after` of the error, or from the HTTP header."""
    wanted = _get(error, "retry_after")
    with contextlib.suppress(BadInput):  # an attribute of that name with another meaning
        if isinstance(wanted, timedelta):
            return wanted
        if isinstance(wanted, str):
            return duration(wanted)
    try:
        headers = _get(_get(error, "response"), "headers") or _get(error, "headers")
        text = str(headers["Retry-After"]).strip()
        if text.isdigit():
            return timedelta(seconds=int(text))
        wait = email.utils.parsedate_to_datetime(text) - datetime.now(UTC)
    except Exception:  # noqa: BLE001 - no such header, or one that cannot be parsed
        return None
    return max(wait, timedelta())

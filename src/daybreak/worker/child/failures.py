"""An exception as a Failure: what is known of it once the process in which it happened is gone."""

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

MESSAGE_LIMIT: Final = 4000
TRACEBACK_LIMIT: Final = 16_000
_HERE: Final = str(Path(__file__).parents[2])


def failure_of(error: BaseException) -> Failure:
    if isinstance(error, Transient) and isinstance(error.retry_after, str):
        try:
            duration(error.retry_after, f"{error!r}, retry_after")
        except BadInput as wrong:  # as for what is no text, which the error itself refuses
            error = wrong.with_traceback(error.__traceback__)
    return Failure(
        message=message_of(error),
        kinds=tuple(clean(_name(kind)) for kind in type(error).__mro__ if kind not in (object, BaseException)),
        traceback=_traceback(error),
        verdict=_verdict(error),
        status=_status(error),
        retry_after=_retry_after(error),
    )


def message_of(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception as worse:  # noqa: BLE001 - an error whose own text fails is still an error
        text = f"(its text cannot be shown: {type(worse).__name__})"
    return clean(text if len(text) <= MESSAGE_LIMIT else text[:MESSAGE_LIMIT] + " ...")


def _name(kind: type) -> str:
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _traceback(error: BaseException) -> str:
    """As Python would print it, without the frames that are ours, at most 16,000 characters of its end."""
    try:
        told = traceback.TracebackException.from_exception(error, limit=-50, compact=True)
        frames = [frame for frame in told.stack if not frame.filename.startswith(_HERE)]
        if frames:
            told.stack = traceback.StackSummary.from_list(frames)
        text = "".join(told.format())
    except Exception:  # noqa: BLE001 - whatever it holds, the failure must be told
        text = f"{type(error).__name__} (its traceback cannot be shown)"
    return clean(text if len(text) <= TRACEBACK_LIMIT else "... " + text[-TRACEBACK_LIMIT:])


def _verdict(error: BaseException) -> Any:
    if isinstance(error, Permanent):
        return "permanent"
    return "transient" if isinstance(error, Transient) else None


def _get(thing: object, name: str) -> Any:
    try:
        return getattr(thing, name, None)
    except Exception:  # noqa: BLE001 - a property of the user's own
        return None


def _status(error: BaseException) -> int | None:
    """The HTTP status behind an error of any of the usual clients (requests, httpx, aiohttp, urllib)."""
    response = _get(error, "response")
    for place, name in ((response, "status_code"), (response, "status"), (error, "status"), (error, "code")):
        found = _get(place, name)
        if isinstance(found, int) and not isinstance(found, bool) and 100 <= found <= 599:
            return int(found)
    return None


def _retry_after(error: BaseException) -> timedelta | None:
    said = _get(error, "retry_after")
    with contextlib.suppress(BadInput):  # an attribute of that name that says something else
        if isinstance(said, timedelta | str):
            return said if isinstance(said, timedelta) else duration(said)
    try:
        headers = _get(_get(error, "response"), "headers") or _get(error, "headers")
        text = str(headers["Retry-After"]).strip()
        if text.isdigit():
            return timedelta(seconds=int(text))
        wait = email.utils.parsedate_to_datetime(text) - datetime.now(UTC)
    except Exception:  # noqa: BLE001 - no such header, or one that nobody can read
        return None
    return max(wait, timedelta())

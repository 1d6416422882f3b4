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


def failure_of(trouble: BaseException) -> Failure:
    if isinstance(trouble, Transient) and isinstance(trouble.retry_after, str):
        try:
            duration(trouble.retry_after, f"{trouble!r}, retry_after")
        except BadInput as wrong:  # as for what is no text, which the error itself refuses
            trouble = wrong.with_traceback(trouble.__traceback__)
    return Failure(
        message=message_of(trouble),
        kinds=tuple(clean(_name(kind)) for kind in type(trouble).__mro__ if kind not in (object, BaseException)),
        traceback=_traceback(trouble),
        verdict=_verdict(trouble),
        status=_status(trouble),
        retry_after=_retry_after(trouble),
    )


def message_of(trouble: BaseException) -> str:
    try:
        text = str(trouble)
    except Exception as worse:  # noqa: BLE001 - an error whose own text fails is still an error
        text = f"(its text cannot be shown: {type(worse).__name__})"
    return clean(text if len(text) <= MESSAGE_LIMIT else text[:MESSAGE_LIMIT] + " ...")


def _name(kind: type) -> str:
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _traceback(trouble: BaseException) -> str:
    """As Python would print it, without the frames that are ours, at most 16,000 characters of its end."""
    try:
        told = traceback.TracebackException.from_exception(trouble, limit=-50, compact=True)
        frames = [frame for frame in told.stack if not frame.filename.startswith(_HERE)]
        if frames:
            told.stack = traceback.StackSummary.from_list(frames)
        text = "".join(told.format())
    except Exception:  # noqa: BLE001 - whatever it holds, the failure must be told
        text = f"{type(trouble).__name__} (its traceback cannot be shown)"
    return clean(text if len(text) <= TRACEBACK_LIMIT else "... " + text[-TRACEBACK_LIMIT:])


def _verdict(trouble: BaseException) -> Any:
    if isinstance(trouble, Permanent):
        return "permanent"
    return "transient" if isinstance(trouble, Transient) else None


def _get(thing: object, name: str) -> Any:
    try:
        return getattr(thing, name, None)
    except Exception:  # noqa: BLE001 - a property of the user's own
        return None


def _status(trouble: BaseException) -> int | None:
    """The HTTP status behind an error of any of the usual clients (requests, httpx, aiohttp, urllib)."""
    response = _get(trouble, "response")
    for place, name in ((response, "status_code"), (response, "status"), (trouble, "status"), (trouble, "code")):
        found = _get(place, name)
        if isinstance(found, int) and not isinstance(found, bool) and 100 <= found <= 599:
            return int(found)
    return None


def _retry_after(trouble: BaseException) -> timedelta | None:
    said = _get(trouble, "retry_after")
    with contextlib.suppress(BadInput):  # an attribute of that name that says something else
        if isinstance(said, timedelta | str):
            return said if isinstance(said, timedelta) else duration(said)
    try:
        headers = _get(_get(trouble, "response"), "headers") or _get(trouble, "headers")
        text = str(headers["Retry-After"]).strip()
        if text.isdigit():
            return timedelta(seconds=int(text))
        wait = email.utils.parsedate_to_datetime(text) - datetime.now(UTC)
    except Exception:  # noqa: BLE001 - no such header, or one that nobody can read
        return None
    return max(wait, timedelta())

"""What an answer of the server means: a receipt, a report, or the error that its status code stands for."""

from __future__ import annotations

import email.utils
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

import msgspec

from daybreak.adapters.wats.errors import (
    BadAnswer,
    NotAuthorized,
    ReportRejected,
    WatsBusy,
    WatsError,
    WrongAddress,
)
from daybreak.core.text import safe

MAX_RETRY_AFTER: Final = timedelta(days=1)
MAX_WORDS: Final = 500
_BUSY: Final = frozenset({408, 425, 429, *range(500, 600)})
_ID_NAMES: Final = ("ID", "id", "Id", "uuid")
_MESSAGE_NAMES: Final = ("message", "Message", "error", "title", "detail")


class Answer(NamedTuple):
    """An answer that was read whole."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Receipt(NamedTuple):
    """The server has the report. `is_confirmed` says that its answer was lost, and that it was asked."""

    id: str
    is_confirmed: bool = False


def error_of(answer: Answer, what: str) -> WatsError | None:
    """The error that the status code stands for; None if there is none."""
    status = answer.status
    if 200 <= status < 300:
        return None
    message = f"{what}: WATS answered HTTP {status}"
    if status in _BUSY:
        return WatsBusy(message + _words(answer), status=status, retry_after=retry_after(answer.headers))
    if 300 <= status < 400:
        to = safe(answer.headers.get("location", "another address"))[:200]
        return WrongAddress(f"{message}, which points to {to}: is the address right?", status=status)
    if status in (401, 403):
        return NotAuthorized(f"{message}: check the token and what it may do{_words(answer)}", status=status)
    if status in (404, 405):
        return WrongAddress(f"{message}: is the address that of a WATS server?{_words(answer)}", status=status)
    if 400 <= status < 500:
        return ReportRejected(message + _words(answer), status=status)
    return BadAnswer(f"{message}, which is not an answer of WATS")


def retry_after(headers: Mapping[str, str], now: datetime | None = None) -> timedelta | None:
    """How long the server asks to wait, in seconds or as a date: at most a day."""
    text = headers.get("retry-after", "").strip()
    if text.isdecimal():
        return min(timedelta(seconds=int(text[:10])), MAX_RETRY_AFTER)
    try:
        wait = email.utils.parsedate_to_datetime(text) - (now or datetime.now(UTC))
    except (ValueError, TypeError, OverflowError):
        return None
    return min(max(wait, timedelta()), MAX_RETRY_AFTER)


def receipt_id(body: bytes) -> str | None:
    """The id in an answer to a submission: in a list of objects, in an object, or as text. None if there is none."""
    found = parse_json(body)
    if isinstance(found, list) and found:
        found = found[0]
    if isinstance(found, dict):
        found = next((found[name] for name in _ID_NAMES if name in found), None)
    return found.lower() if isinstance(found, str) else None


def parse_json(body: bytes) -> Any:
    """The content of a JSON body; None if it is no JSON."""
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _words(answer: Answer) -> str:
    """What the server itself says, as the end of a message."""
    found = parse_json(answer.body)
    if isinstance(found, dict):
        found = next((found[name] for name in _MESSAGE_NAMES if found.get(name)), None)
    elif found is None and "html" not in answer.headers.get("content-type", "html"):
        found = answer.body[: 4 * MAX_WORDS].decode("utf-8", "replace")
    if not isinstance(found, str) or not found.strip():
        return ""
    text = safe(" ".join(found.split()))
    if len(text) > MAX_WORDS:
        text = text[:MAX_WORDS] + " ..."
    return f": {text}"

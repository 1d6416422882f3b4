"""The calls of WATS without input and output. Each is a generator that yields requests and is sent answers, so that the
blocking and the async client are the same."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, NamedTuple

from daybreak.adapters.wats.answers import Answer, Receipt, error_of, parse_json, receipt_id
from daybreak.adapters.wats.errors import AnswerLost, BadAnswer, WatsError
from daybreak.adapters.wats.reports import Report, check_id, contains

WSJF_PATH = "/api/Report/WSJF"
VERSION_PATH = "/api/App/Version"


class Request(NamedTuple):
    """A request, and what it does, for error messages."""

    method: str
    path: str
    what: str
    content: bytes | None = None


def submit(report: Report) -> Generator[Request, Answer, Receipt]:
    """Upload a report. If the answer is lost, the server is asked whether it has the report."""
    request = Request("POST", WSJF_PATH, f"upload of report {report.id}", report.content)
    try:
        answer = yield request
    except AnswerLost as lost:
        return (yield from _confirm(report, lost))
    _check(answer, request)
    named = receipt_id(answer.body)
    if named == report.id:
        return Receipt(report.id)
    doubt = BadAnswer(f"{request.what}: HTTP {answer.status}, but the answer does not name the report: is it WATS?")
    return (yield from _confirm(report, doubt))


def fetch(report_id: str) -> Generator[Request, Answer, dict[str, Any] | None]:
    """The report as the server has it; None if it has no such report."""
    report_id = check_id(report_id)
    request = Request("GET", f"/api/Report/Wsjf/{report_id}", f"reading of report {report_id}")
    answer = yield request
    if answer.status == 404:
        return None
    _check(answer, request)
    found = parse_json(answer.body)
    if not isinstance(found, dict) or str(found.get("id")).lower() != report_id:
        raise BadAnswer(f"{request.what}: HTTP {answer.status}, but the answer is not that report: is it WATS?")
    return found


def version() -> Generator[Request, Answer, str]:
    """The version of the server."""
    request = Request("GET", VERSION_PATH, "reading of the version")
    answer = yield request
    _check(answer, request)
    found = parse_json(answer.body)
    return str(found if found is not None else answer.body[:100].decode("utf-8", "replace"))


def _confirm(report: Report, doubt: WatsError) -> Generator[Request, Answer, Receipt]:
    """Ask whether the server has the report with this content. If that is not certain, the doubt is the error, which is
    transient: a second upload replaces the first."""
    try:
        stored = yield from fetch(report.id)
    except WatsError as error:
        raise doubt from error
    if stored is None or not contains(stored, report.fields):
        raise doubt
    return Receipt(report.id, is_confirmed=True)


def _check(answer: Answer, request: Request) -> None:
    error = error_of(answer, request.what)
    if error is not None:
        raise error

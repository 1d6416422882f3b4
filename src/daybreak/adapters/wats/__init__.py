"""WATS, the server for test reports: a client over HTTP for tasks. It needs `daybreak[wats]`.

client      the calls, blocking and async: submit, fetch, version
upload      the resource and the retries for tasks that upload reports
reports     a report in WSJF, and its id
calls       the calls without input and output; what is done when an answer is lost
answers     which status codes are transient, and which are permanent
connection  one request over httpx: limits, proxies, TLS
address     the server's address and token, checked
errors      the errors
stand_in    a server that speaks the same protocol, for tests and documents; it is not WATS"""

from daybreak.adapters.wats.answers import Receipt
from daybreak.adapters.wats.client import AsyncWats, Wats
from daybreak.adapters.wats.errors import (
    AnswerLost,
    BadAnswer,
    InvalidReport,
    NotAuthorized,
    ReportRejected,
    WatsBusy,
    WatsError,
    WatsUnavailable,
    WrongAddress,
)
from daybreak.adapters.wats.reports import Report, report_of
from daybreak.adapters.wats.upload import WATS_RETRY, wats_resource

__all__ = [
    "WATS_RETRY",
    "AnswerLost",
    "AsyncWats",
    "BadAnswer",
    "InvalidReport",
    "NotAuthorized",
    "Receipt",
    "Report",
    "ReportRejected",
    "Wats",
    "WatsBusy",
    "WatsError",
    "WatsUnavailable",
    "WrongAddress",
    "report_of",
    "wats_resource",
]

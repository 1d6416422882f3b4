"""What can go wrong with a WATS server.

WatsError
├── Transient: a retry may help
│   ├── WatsUnavailable   nothing answers at the address; nothing was sent
│   ├── WatsBusy          the server answered 408, 425, 429 or 5xx; `retry_after` is what it asked for
│   ├── AnswerLost        the report was sent, but no answer came: the server may or may not have it
│   └── BadAnswer         an answer that WATS does not give, such as the sign-in page of a proxy
└── Permanent: the same call will fail again
    ├── InvalidReport     the content is no WSJF report; nothing was sent
    ├── ReportRejected    the server answered 400, 409, 422 or another 4xx; its own words are in the message
    ├── NotAuthorized     the server answered 401 or 403: the token is wrong, or may not submit reports
    └── WrongAddress      the server answered 404, 405 or a redirect: there is no WATS at this address
"""

from __future__ import annotations

from datetime import timedelta

from daybreak.core.errors import DaybreakError, Permanent, Transient


class WatsError(DaybreakError):
    """Any error of a call to WATS. `status` is the HTTP status of the answer, if there was one."""

    status: int | None = None


class WatsUnavailable(Transient, WatsError):
    """Nothing answers at the address. Nothing was sent."""


class WatsBusy(Transient, WatsError):
    """The server cannot take the report now. It is not sent again before `retry_after`."""

    def __init__(self, message: str, *, status: int, retry_after: timedelta | None = None) -> None:
        super().__init__(message, retry_after=retry_after)
        self.status = status


class AnswerLost(Transient, WatsError):
    """The report was sent, but no answer came. Sending it again is safe: the server knows a report by its id."""


class BadAnswer(Transient, WatsError):
    """The answer is not one that WATS gives, so the report does not count as uploaded."""


class InvalidReport(Permanent, WatsError):
    """The content is no WSJF report. Nothing was sent."""


class _Refused(Permanent, WatsError):
    def __init__(self, message: str, *, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class ReportRejected(_Refused):
    """The server refuses the report. Its own words are in the message."""


class NotAuthorized(_Refused):
    """The token is wrong, or it may not do this."""


class WrongAddress(_Refused):
    """There is no WATS at this address."""

"""The WATS clients of the document: `pyWATS` blocks, `AsyncWATS` is for asyncio. They need `daybreak[wats]`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from daybreak.adapters.wats import (
    AsyncWats,
    InvalidReport,
    NotAuthorized,
    ReportRejected,
    Wats,
    WatsError,
    WrongAddress,
)

from .errors import AuthenticationError, NetworkError, ValidationError
from .reports import UUTReport


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    """Permanent refusals are ValidationError, what may pass is NetworkError."""
    try:
        yield
    except (InvalidReport, ReportRejected, WrongAddress) as error:
        raise ValidationError(str(error), error.status) from error
    except NotAuthorized as error:
        raise AuthenticationError(str(error), error.status) from error
    except WatsError as error:
        raise NetworkError(str(error), error.status) from error


def _content(report: UUTReport | Mapping[str, Any]) -> Mapping[str, Any]:
    return report.to_dict() if isinstance(report, UUTReport) else report


class _Reports:
    def create_uut_report(self, serial_number: str, part_number: str, **fields: Any) -> UUTReport:
        """A new report, to which steps are added. `fields` are further fields of UUTReport."""
        return UUTReport(serial_number, part_number, **fields)


class ReportDomain(_Reports):
    """`api.report` of the blocking client."""

    def __init__(self, client: Wats) -> None:
        self._client = client

    def submit_uut(self, report: UUTReport | Mapping[str, Any]) -> str:
        """Upload a report; returns its id when the server has it. Uploading it again replaces it."""
        with _translated():
            return self._client.submit(_content(report)).id


class AsyncReportDomain(_Reports):
    """`api.report` of the async client."""

    def __init__(self, client: AsyncWats) -> None:
        self._client = client

    async def submit_uut(self, report: UUTReport | Mapping[str, Any]) -> str:
        with _translated():
            return (await self._client.submit(_content(report))).id


class pyWATS:  # noqa: N801 - the document's name
    """A WATS server: `pyWATS(service="https://python.wats.com", api_token="...")`. Threads can share it."""

    def __init__(self, service: str, api_token: str, **options: Any) -> None:
        self.client = Wats(service, api_token, **options)
        self.report = ReportDomain(self.client)

    def close(self) -> None:
        self.client.close()


class AsyncWATS:
    """The same for asyncio."""

    def __init__(self, service: str, api_token: str, **options: Any) -> None:
        self.client = AsyncWats(service, api_token, **options)
        self.report = AsyncReportDomain(self.client)

    async def close(self) -> None:
        await self.client.close()

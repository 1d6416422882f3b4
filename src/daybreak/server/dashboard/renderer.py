"""Renders pages from the templates. Every value is escaped, and control characters are shown, never sent."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any, Final
from urllib.parse import quote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from litestar import Response

from daybreak.api.views.job_stack import memory_text
from daybreak.api.views.scalars import finite
from daybreak.core.text import ago, cause_text, counted, first_line, lasted, local, number, percent, priority_name, safe
from daybreak.core.units import moment
from daybreak.server.routing import Call, root_path

CSP: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS: Final = {"content-security-policy": CSP, "referrer-policy": "same-origin"}
NAVIGATION: Final = (
    ("now", "", "Now"),
    ("jobs", "jobs", "Jobs"),
    ("runs", "runs", "Runs"),
    ("failures", "failures", "Failures"),
    ("queues", "queues", "Queues"),
    ("resources", "resources", "Resources"),
    ("cache", "cache", "Cache"),
    ("locks", "locks", "Locks"),
    ("schedules", "schedules", "Schedules"),
    ("sagas", "sagas", "Sagas"),
    ("workers", "workers", "Workers"),
    ("audit", "audit", "Audit"),
)


def _text(value: object) -> str:
    """Any value as text without control characters; for a template it is still to be escaped."""
    return "" if value is None else safe(str(value))


def _lines(value: str | None) -> str:
    return safe(value or "", lines=True)


def _json(value: object) -> str:
    return safe(json.dumps(finite(value), indent=2, ensure_ascii=False, default=str), lines=True)


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("daybreak.server.dashboard"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: "" if value is None else value,
    )
    environment.filters.update(
        text=_text, lines=_lines, as_json=_json, number=number, lasted=lasted, local=local, percent=percent,
        priority_name=priority_name, first_line=first_line, memory=memory_text, cause=cause_text,
        part=lambda value: quote(str(value), safe=""),
    )  # fmt: skip
    environment.globals.update(counted=counted, navigation=NAVIGATION)
    return environment


_ENVIRONMENT: Final = _environment()


def render(call: Call[Any, Any], template: str, *, status: int = 200, **values: Any) -> Response[str]:
    """A page as a response. Templates know who looks, what they may do, and where the server is mounted."""
    now = moment(call.server.app.world.wall())
    caller = call.caller
    page = _ENVIRONMENT.get_template(template).render(
        root=root_path(call),
        caller=caller,
        may_submit=caller.may("submit"),
        may_admin=caller.may("admin"),
        now=now,
        ago=lambda when: ago(when, now) if isinstance(when, datetime) else "",
        address=str(call.request.url.path),
        **values,
    )
    return Response(page, status_code=status, media_type="text/html", headers=HEADERS)


def query_text(**values: object) -> str:
    """A query string without the empty values."""
    return urlencode([(name, str(value)) for name, value in values.items() if value not in (None, "", ())])

"""Why a job waits, and the causes of all waiting jobs, as JSON data."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from daybreak.api.views.scalars import instant
from daybreak.api.why import Cause, CauseCount, SagaPart, Why


def why_view(why: Why) -> dict[str, Any]:
    """The causes in order of importance, and the expected start as a range."""
    return {
        "job": why.job,
        "state": why.state.value,
        "causes": [_cause_view(cause) for cause in why.causes],
        "saga": None if why.saga is None else _saga_view(why.saga),
        "starts_after": instant(why.starts_after),
        "starts_before": instant(why.starts_before),
    }


def _saga_view(part: SagaPart) -> dict[str, Any]:
    return {"id": part.id, "name": part.name, "step": part.step, "undo": part.is_undo}


def _cause_view(cause: Cause) -> dict[str, Any]:
    return {
        "kind": cause.kind,
        "text": cause.text,
        "holders": list(cause.holders),
        "command": cause.command_line or None,
    }


def summary_view(causes: Iterable[CauseCount]) -> list[dict[str, Any]]:
    """One entry for each cause, the most frequent first."""
    return [
        {"kind": cause.kind, "subject": cause.subject, "jobs": cause.n, "command": cause.command_line or None}
        for cause in causes
    ]

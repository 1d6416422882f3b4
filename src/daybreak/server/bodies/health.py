"""Health checks."""

from __future__ import annotations

from typing import Literal

from daybreak.server.bodies.base import Answer

Verdict = Literal["pass", "warn", "fail"]


class Health(Answer, frozen=True):
    status: Verdict


class HealthCheck(Answer, frozen=True):
    """One check, and the reason for its status."""

    name: str
    status: Verdict
    reason: str


class Readiness(Answer, frozen=True):
    status: Verdict
    checks: list[HealthCheck]

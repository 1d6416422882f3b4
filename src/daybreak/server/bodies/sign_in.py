"""Signing in, and the caller's session."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from daybreak.server.bodies.base import Answer, Request

Code = Annotated[str, Meta(min_length=1, max_length=100)]


class SignInQuery(Request, frozen=True):
    code: Code


class SignInForm(Request, frozen=True):
    code: Code


class SessionBody(Answer, frozen=True):
    """The caller. `queues` of null means all queues; `csrf` is there for signed-in browsers only."""

    by: str
    kind: Literal["anonymous", "token", "session"]
    roles: list[Literal["read", "submit", "work", "admin"]]
    queues: list[str] | None
    csrf: str | None

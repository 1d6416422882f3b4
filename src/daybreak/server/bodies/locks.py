"""Locks."""

from __future__ import annotations

from daybreak.server.bodies.base import Answer, Name, Request, StateName


class LockBody(Answer, frozen=True):
    """A holder of a lock (`running`), or a waiter for it (`blocked`, with a position)."""

    job: str
    locks: list[str]
    who: str
    state: StateName
    priority: int
    since: str
    fence: int
    until: str | None
    position: int | None


class LockQuery(Request, frozen=True):
    name: Name | None = None


class LockList(Answer, frozen=True):
    """The holders first, then the waiters in the order in which they will be served."""

    locks: list[LockBody]


class ReleaseBody(Request, frozen=True):
    """Without an `owner`, the lock is released whoever holds it; with one, only if this owner holds it."""

    owner: Name | None = None


class Released(Answer, frozen=True):
    released: list[str]

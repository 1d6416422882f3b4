"""Locks."""

from __future__ import annotations

from daybreak.server.bodies.base import Answer, Name, Request, StateName


class LockBody(Answer, frozen=True):
    """Who holds a lock (`running`), or waits for it (`blocked`, with a position)."""

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
    """Those who hold a lock come first, then those who wait, the first in line first."""

    locks: list[LockBody]


class ReleaseBody(Request, frozen=True):
    """Without an `owner`, the lock is taken from whoever holds it. With one, only if it is theirs."""

    owner: Name | None = None


class Released(Answer, frozen=True):
    released: list[str]

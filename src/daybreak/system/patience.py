"""Time limits of calls to a store: callers set them, and the stores that have a server enforce them.

A limit is a context variable, so that it need not be a parameter of every method of the seam. A request that is in
flight when its limit ends is abandoned and its connection closed, so that a late reply is never taken for the reply to
another request.

Outside of any block each request may take `PATIENCE`. Workers call `unbound`: then only the store's own limit applies
(`answer_within` of PostgreSQL, `timeout` of Redis)."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator
from contextvars import ContextVar, Token
from datetime import timedelta
from typing import Final

PATIENCE: Final = timedelta(seconds=10)
_SECONDS: Final = PATIENCE.total_seconds()

_ends_at: ContextVar[float | None] = ContextVar("daybreak.patience.ends_at", default=None)
_each: ContextVar[float | None] = ContextVar("daybreak.patience.each", default=_SECONDS)
_soon: ContextVar[float | None] = ContextVar("daybreak.patience.soon", default=None)


def ends_at() -> float | None:
    """When a request that is sent now must be answered, by `time.monotonic`; None: only the store's limit applies."""
    until, each = _ends_at.get(), _each.get()
    if until is not None or each is None:
        return until
    return time.monotonic() + each


def left(at_most: float = math.inf) -> float:
    """The seconds that a request may take if it is sent now; 0 or less if the limit has ended."""
    until, each = _ends_at.get(), _each.get()
    if until is None:
        return at_most if each is None else min(each, at_most)
    return min(until - time.monotonic(), at_most)


def of(seconds: float) -> float:
    """The seconds that a call with this limit may take, or what is left of the block around it if that is less."""
    until = _ends_at.get()
    if until is None:
        return seconds
    return min(until - time.monotonic(), seconds)


def is_over() -> bool:
    """Whether the limit of the current block has ended."""
    until = _ends_at.get()
    return until is not None and time.monotonic() >= until


def wanted_within() -> float:
    """The seconds within which the caller needs a connection: as `left`, but `soon` also counts, which abandons no
    request."""
    soon = _soon.get()
    return left() if soon is None else min(left(), soon - time.monotonic())


Limits = tuple[float | None, float | None]


def current_limits() -> Limits:
    """The limits of this call, to be applied with `applied` in the thread that does the work."""
    return ends_at(), _soon.get()


@contextlib.contextmanager
def applied(limits: Limits) -> Iterator[None]:
    """A block with the limits of another thread's call."""
    with _Set(_ends_at, limits[0]), _Set(_soon, limits[1]):
        yield


class _Set:
    """A block in which a context variable has this value."""

    __slots__ = ("_token", "_value", "_variable")

    def __init__(self, variable: ContextVar[float | None], value: float | None) -> None:
        self._variable = variable
        self._value = value

    def __enter__(self) -> None:
        self._token: Token[float | None] = self._variable.set(self._value)

    def __exit__(self, *_: object) -> None:
        self._variable.reset(self._token)


def within(seconds: float) -> _Set:
    """A block that may take so long in total, or what is left of the block around it if that is less."""
    until, outer = time.monotonic() + seconds, _ends_at.get()
    return _Set(_ends_at, until if outer is None else min(until, outer))


def ending_at(until: float | None) -> _Set:
    """A block with this limit instead of the one around it: for work that is done for several callers."""
    return _Set(_ends_at, until)


def soon(seconds: float) -> _Set:
    """A block that needs its connection within this time. No request is abandoned when the time is over."""
    return _Set(_soon, time.monotonic() + seconds)


def unbound() -> None:
    """For background work: from now on only the store's own limits apply, in this task and all that it starts."""
    _ends_at.set(None)
    _each.set(None)
    _soon.set(None)

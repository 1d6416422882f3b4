"""How long a call to a store may take: set by the caller, kept by the stores that have a server.

A limit goes with the context of the call, not with each method of the seam. A question that is under way when the limit
ends is given up and its connection closed, so that a late answer is never taken for the answer to another question.

Outside of any block each question may take `PATIENCE`; workers run `unbounded`, where the store's own limit holds
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
    """When a question that is asked now has to be answered, by `time.monotonic`; None: the store's own limit holds."""
    until, each = _ends_at.get(), _each.get()
    if until is not None or each is None:
        return until
    return time.monotonic() + each


def left(at_most: float = math.inf) -> float:
    """Seconds that a question may take if it is asked now; 0 or less when the time is over."""
    until, each = _ends_at.get(), _each.get()
    if until is None:
        return at_most if each is None else min(each, at_most)
    return min(until - time.monotonic(), at_most)


def of(seconds: float) -> float:
    """Seconds that a call may take whose own patience is this; what is left of the block around it, if that is less."""
    until = _ends_at.get()
    return seconds if until is None else min(until - time.monotonic(), seconds)


def is_over() -> bool:
    until = _ends_at.get()
    return until is not None and time.monotonic() >= until


def wanted_within() -> float:
    """Seconds in which the caller has use for a connection: as `left`, but also where nothing is given up for it."""
    soon = _soon.get()
    return left() if soon is None else min(left(), soon - time.monotonic())


Handed = tuple[float | None, float | None]


def handed_over() -> Handed:
    """The limits of this call, for the thread that does it: see `taken`."""
    return ends_at(), _soon.get()


@contextlib.contextmanager
def taken(limits: Handed) -> Iterator[None]:
    """A block with the limits of the call for which it is done."""
    with _Set(_ends_at, limits[0]), _Set(_soon, limits[1]):
        yield


class _Set:
    """A block in which a context variable has another value."""

    __slots__ = ("_token", "_value", "_variable")

    def __init__(self, variable: ContextVar[float | None], value: float | None) -> None:
        self._variable = variable
        self._value = value

    def __enter__(self) -> None:
        self._token: Token[float | None] = self._variable.set(self._value)

    def __exit__(self, *_: object) -> None:
        self._variable.reset(self._token)


def within(seconds: float) -> _Set:
    """A block that may take so long altogether, or what is left of the block around it, if that is less."""
    until, outer = time.monotonic() + seconds, _ends_at.get()
    return _Set(_ends_at, until if outer is None else min(until, outer))


def ending_at(until: float | None) -> _Set:
    """A block with this limit instead of the one around it: for work that was handed over, and may be for others."""
    return _Set(_ends_at, until)


def soon(seconds: float) -> _Set:
    """A block that needs its connection this soon. Nothing is given up when the time is over."""
    return _Set(_soon, time.monotonic() + seconds)


def unbound() -> None:
    """From now on, in this task and all it starts, only the store's own limits hold: for background work."""
    _ends_at.set(None)
    _each.set(None)
    _soon.set(None)

"""Which ticks of a schedule are fired now, and which are skipped."""

from __future__ import annotations

import hashlib
from datetime import datetime, timedelta
from typing import Final, Literal

from msgspec import Struct

from daybreak.core.units import MICROSECOND
from daybreak.policy.schedules.timing import Timing, count_ticks, latest_tick, ticks_until

CatchUp = Literal["skip", "latest", "all"]
Overlap = Literal["skip", "queue", "allow"]
CATCH_UP: Final = ("skip", "latest", "all")
OVERLAP: Final = ("skip", "queue", "allow")
MAX_COUNTED: Final = 1000  # skipped ticks; more are not counted
MAX_AHEAD: Final = timedelta(minutes=10)


class DueTicks(Struct, frozen=True):
    """What is to be done at one instant: these ticks are fired, in order; `skipped` are not, counted up to 1,000. After
    that everything up to `through` is done. `more`: further ticks are due at once."""

    fire: tuple[datetime, ...] = ()
    skipped: int = 0
    through: datetime | None = None
    more: bool = False


NOTHING: Final = DueTicks()


def due_ticks(
    timing: Timing, *, catch_up: CatchUp, grace: timedelta, through: datetime, now: datetime, limit: int
) -> DueTicks:
    """The ticks after `through` that are due, at most `limit` that are fired. A tick is on time for `grace`, and is
    fired then. `catch_up` decides about the ticks that are older: none is fired, or each, or only the latest, and that
    only if no tick is on time."""
    if catch_up == "all":
        return _fired(ticks_until(timing, through, now, limit + 1), 0, limit)
    on_time_after = max(through, now - grace - MICROSECOND)
    on_time = ticks_until(timing, on_time_after, now, limit + 1)
    missed = latest_tick(timing, through, on_time_after)
    if missed is None:
        return _fired(on_time, 0, limit)
    skipped = count_ticks(timing, through, on_time_after, MAX_COUNTED)
    if on_time:
        return _fired(on_time, skipped, limit)
    if catch_up == "latest":
        return DueTicks((missed,), skipped - 1, missed)
    return DueTicks((), skipped, missed)


def _fired(found: list[datetime], skipped: int, limit: int) -> DueTicks:
    if not found:
        return NOTHING
    fire = tuple(found[:limit])
    return DueTicks(fire, skipped, fire[-1], more=len(found) > limit)


def is_ahead(through: datetime, now: datetime) -> bool:
    """Whether a schedule has done ticks that are so far in the future that a clock must have been wrong, then or now.
    Clocks of several machines differ by less."""
    return through - now > MAX_AHEAD


def jitter_of(name: str, tick: datetime, jitter: timedelta) -> timedelta:
    """How much later than its tick a job is run: up to `jitter`, and always the same for one tick."""
    if not jitter:
        return jitter
    digest = hashlib.blake2b(f"{name}\0{tick.isoformat()}".encode(), digest_size=8).digest()
    return jitter * (int.from_bytes(digest) / 2**64)

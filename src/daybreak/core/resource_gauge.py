"""The arithmetic of resources: slots, pace, and a gate that is shut for a while.

Stores keep the numbers and do this inside the transaction in which a lease begins or ends. Times are microseconds of
the store's steady clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final, NamedTuple

from daybreak.core.model import NO_GATE, UNLIMITED, Gate, JobSpec, Need, ResourceSettings
from daybreak.core.units import span

MAX_PARKED_PER_CLAIM: Final = 100
MAX_OFFERED: Final = 100
RECHECK_INTERVAL: Final = span(timedelta(seconds=10))
RESERVE_AFTER: Final = span(timedelta(seconds=30))
FIRST_ATTEMPTS_PER_RETRY: Final = 10  # of a failing resource, for each retry
CREDIT: Final = (-100, 1000)  # first tries that can be owed, or saved up
RETRY_INTERVAL: Final = span(timedelta(seconds=1))  # where no first tries come
RETRY_CAUSE_PREFIX: Final = "retries of "  # what a retry waits for that must spare its resource


class Reservation(NamedTuple):
    """Slots that are kept free for a job which was passed over for too long."""

    seq: int
    priority: int
    slots: int

    def is_behind(self, seq: int, priority: int) -> bool:
        """Whether that job goes before the one for which these are kept: it is more urgent, or as urgent and came
        first."""
        return (priority, seq) < (self.priority, self.seq)


@dataclass(slots=True)
class Gauge:
    """One resource: what is allowed (from its records), and what is in use.

    `tat` is when the next start would come if all came evenly (GCRA). `look` is when those who wait should be looked at
    again, because time alone may have freed it. `taken_at` is the wall time of the latest start, as leases keep it in
    `started`; 0 is unknown. `fence` is the highest that a holder of it was ever given.

    While it fails, until `sparing_until`, retries are few: each costs ten first tries, of which `credit` are saved up.
    Where neither comes, a retry may go at `spare_at`."""

    settings: ResourceSettings = UNLIMITED
    gate: Gate = NO_GATE
    shut_until: int = 0
    used: int = 0
    tat: int = 0
    look: int | None = None
    kept: Reservation | None = None
    fence: int = 0
    sparing_until: int = 0
    credit: int = 0
    spare_at: int = 0
    taken_at: int = 0

    @property
    def limit(self) -> int | None:
        """While a breaker probes, no more slots than it lets try, and never more than there are."""
        slots, probes = self.settings.slots, self.gate.probes
        return slots if probes is None else probes if slots is None else min(slots, probes)

    @property
    def every(self) -> int:
        return 0 if self.settings.every is None else span(self.settings.every)

    def is_shut(self, now: int) -> bool:
        return now < self.shut_until

    def lacks(self, slots: int, now: int, *, seq: int, priority: int) -> bool:
        """Whether a job that needs so many slots must wait for it."""
        if now < self.shut_until or (self.every and self._early(now) > 0):
            return True
        wanted = self.used + slots + self._kept_from(seq, priority)
        limit = self.limit
        if self.gate.probes is not None and self.used == 0:
            limit = self.settings.slots  # the first to probe may need more than one: else nobody ever could
        return limit is not None and wanted > limit

    def _kept_from(self, seq: int, priority: int) -> int:
        kept = self.kept
        return 0 if kept is None or kept.seq == seq or kept.is_behind(seq, priority) else kept.slots

    def may_keep(self, slots: int, now: int, *, seq: int, priority: int) -> bool:
        """Whether so many slots can be kept for this job: nothing is kept for one that goes before it."""
        if now < self.shut_until:
            return False
        limit = self.limit
        return limit is None or (slots <= limit and (self.kept is None or self.kept.is_behind(seq, priority)))

    def _early(self, now: int) -> int:
        """How long until the next start is allowed; not above 0 when it is."""
        return max(self.tat, now) - (max(self.settings.burst, 1) - 1) * self.every - now

    def take(self, slots: int, now: int, *, wall: int, is_retry: bool) -> bool:
        """Whether this makes a retry possible that was not. `wall` is what its lease keeps in `started`."""
        self.used += slots
        if self.every:
            self.tat = max(self.tat, now) + self.every
            self.taken_at = wall
        if now >= self.sparing_until:
            return False
        self.spare_at = now + RETRY_INTERVAL
        if is_retry:
            self.credit = max(self.credit - FIRST_ATTEMPTS_PER_RETRY, CREDIT[0])
            return False
        self.credit = min(self.credit + 1, CREDIT[1])
        return self.credit % FIRST_ATTEMPTS_PER_RETRY == 0 and self.credit > 0

    def give(self, slots: int) -> None:
        self.used -= slots

    def give_start(self, started: int | None) -> None:
        """A lease that began then was never used: give its start back, less the time from it to the latest start.

        `tat` is the largest of `t + k * every` over all starts, where k counts the start at t and all later ones.
        Without this start k is one less for those before it. For those after it k stays, but it was more for this
        one: so they exceed `tat - every` by no more than the time from this one to the latest."""
        if not self.every or started is None:
            return
        since = self.taken_at - started
        if 0 <= since < self.every:
            self.tat -= self.every - since

    def set_up(self, settings: ResourceSettings) -> None:
        if settings.every != self.settings.every:
            self.taken_at = 0  # earlier starts were counted at another pace
        self.settings = settings

    def starts(self, now: int) -> int:
        """How many jobs may start now, by pace."""
        if not self.every:
            return MAX_OFFERED
        return min(MAX_OFFERED, max(0, -self._early(now) // self.every + 1))

    def is_full(self, beside: int = 0) -> bool:
        limit = self.limit
        return limit is not None and self.used + beside >= limit

    def plan(self, now: int, *, offered: int, more: bool) -> None:
        """When to look at those who still wait, `offered` having just been told to try; `more` might be."""
        if now < self.shut_until:
            self.look = self.shut_until
        elif more and offered:  # else it would be the same ones again
            self.look = now
        elif self.is_full():
            self.look = None  # whoever gives a slot back looks
        else:
            # What is lacking is a start, or else slots: of those there are too few, and somebody will give some back.
            early = self._early(now) + offered * self.every if self.every else 0
            self.look = now + (early if early > 0 else RECHECK_INTERVAL)

    # -- sparing it ----------------------------------------------------------------------------------------------------

    def spare(self, spare_for: timedelta, now: int) -> None:
        if now >= self.sparing_until:
            self.credit, self.spare_at = 0, now + RETRY_INTERVAL
        self.sparing_until = now + span(spare_for) if spare_for else 0

    def retries(self, now: int) -> int:
        """How many retries may start now."""
        if now >= self.sparing_until:
            return MAX_OFFERED
        return min(MAX_OFFERED, max(self.credit // FIRST_ATTEMPTS_PER_RETRY, int(now >= self.spare_at)))

    def look_at_retries(self, now: int, *, offered: int, more: bool) -> int:
        """When to look again at retries that wait for it."""
        if more and offered and now >= self.sparing_until:
            return now
        if now >= self.sparing_until:
            return now + RECHECK_INTERVAL
        # One that may go now was just offered: the next may a second after it went.
        return min(self.sparing_until, self.spare_at if now < self.spare_at else now + RETRY_INTERVAL)

    # -- its gate ------------------------------------------------------------------------------------------------------

    def shut(self, gate: Gate, now: int) -> None:
        self.gate = gate
        self.shut_until = now + span(gate.shut_for) if gate.shut_for else 0


def need_of(spec: JobSpec, resource: str) -> int:
    return next((need.slots for need in spec.options.resources if need.resource == resource), 0)


def spared_resource(cause: str) -> str | None:
    """The resource whose failing is why a retry waits for this."""
    return cause.removeprefix(RETRY_CAUSE_PREFIX) if cause.startswith(RETRY_CAUSE_PREFIX) else None


def is_passed_over(needs: tuple[Need, ...], since: int | None, now: int) -> bool:
    """Whether a job that has waited `since` then was passed over for too long. Only one that needs several slots, or
    several resources, can be passed over for ever, by those that need less."""
    is_hard_to_place = len(needs) > 1 or any(need.slots > 1 for need in needs)
    return is_hard_to_place and since is not None and now - since >= RESERVE_AFTER

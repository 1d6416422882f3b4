"""The arithmetic of a resource: its slots, its rate, its breaker's gate, and its retry budget.

Stores keep these numbers and do this arithmetic in the transaction in which a lease begins or ends. Times are
microseconds of the store's steady clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final, NamedTuple

from daybreak.core.model import NO_GATE, UNLIMITED, Gate, JobSpec, Need, ResourceSettings
from daybreak.core.units import span

MAX_PARKED_PER_CLAIM: Final = 100
MAX_OFFERED: Final = 100  # waiting jobs of one lane that are queued again at once
RECHECK_INTERVAL: Final = span(timedelta(seconds=10))
RESERVE_AFTER: Final = span(timedelta(seconds=30))  # a job that was passed over for this long gets slots reserved
FIRST_ATTEMPTS_PER_RETRY: Final = 10  # the retry budget of a failing resource: one retry per ten first attempts
MIN_CREDIT, MAX_CREDIT = -100, 1000  # bounds of the retry budget, in first attempts
RETRY_INTERVAL: Final = span(timedelta(seconds=1))  # one retry may start this often even without first attempts
RETRY_CAUSE_PREFIX: Final = "retries of "  # `blocked_on` of a retry that waits for the retry budget of a resource


class Reservation(NamedTuple):
    """Slots that are kept free for a job that was passed over for too long."""

    seq: int
    priority: int
    slots: int

    def is_behind(self, seq: int, priority: int) -> bool:
        """Whether the given job goes before the one that holds the reservation: it is more urgent, or equally urgent
        and older."""
        return (priority, seq) < (self.priority, self.seq)


@dataclass(slots=True)
class Gauge:
    """One resource: its limits (from its records), and what is in use.

    `tat` is the theoretical arrival time of GCRA: when the next start is due if starts are evenly spaced. `look` is
    when the waiting jobs must be checked again because time alone may have freed the resource; None means that
    whoever returns a slot checks them. `taken_at` is the wall time of the latest start, as the lease keeps it in
    `started`; 0 is unknown. `fence` is the highest fence that a holder of the resource was ever given. `kept` is the
    reservation for a job that was passed over for too long.

    While the resource fails, until `sparing_until`, retries are limited by a budget: each retry costs ten first
    attempts, and `credit` counts the first attempts saved up. Independently of the budget, one retry may start at
    `spare_at`."""

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

    def copy(self) -> Gauge:
        """A copy that can be changed on its own. Quicker than copy.copy: a transaction copies every gauge it reads."""
        return Gauge(
            self.settings, self.gate, self.shut_until, self.used, self.tat, self.look, self.kept, self.fence,
            self.sparing_until, self.credit, self.spare_at, self.taken_at,
        )  # fmt: skip

    @property
    def limit(self) -> int | None:
        """How many slots may be in use; None is unlimited. While the breaker probes, at most its number of probes."""
        slots, probes = self.settings.slots, self.gate.probes
        if probes is None:
            return slots
        if slots is None:
            return probes
        return min(slots, probes)

    @property
    def every(self) -> int:
        """The interval between two starts, in microseconds; 0 if the rate is not limited."""
        return 0 if self.settings.every is None else span(self.settings.every)

    def is_shut(self, now: int) -> bool:
        """Whether the breaker lets nothing start now."""
        return now < self.shut_until

    def lacks(self, slots: int, now: int, *, seq: int, priority: int) -> bool:
        """Whether a job that needs so many slots must wait for the resource."""
        if now < self.shut_until or (self.every and self._early(now) > 0):
            return True
        wanted = self.used + slots + self._kept_from(seq, priority)
        limit = self.limit
        if self.gate.probes is not None and self.used == 0:
            # A job that needs more slots than there are probes may be the only probe: otherwise it could never start.
            limit = self.settings.slots
        return limit is not None and wanted > limit

    def _kept_from(self, seq: int, priority: int) -> int:
        kept = self.kept
        return 0 if kept is None or kept.seq == seq or kept.is_behind(seq, priority) else kept.slots

    def may_keep(self, slots: int, now: int, *, seq: int, priority: int) -> bool:
        """Whether so many slots can be reserved for this job, that is, no job that goes before it has a reservation."""
        if now < self.shut_until:
            return False
        limit = self.limit
        return limit is None or (slots <= limit and (self.kept is None or self.kept.is_behind(seq, priority)))

    def _early(self, now: int) -> int:
        """How long until the rate allows the next start; 0 or less means now."""
        return max(self.tat, now) - (max(self.settings.burst, 1) - 1) * self.every - now

    def take(self, slots: int, now: int, *, wall: int, is_retry: bool) -> bool:
        """Take slots and a rate token for a job that starts. Returns whether this start makes another retry possible.
        `wall` is the time that the lease keeps in `started`."""
        self.used += slots
        if self.every:
            self.tat = max(self.tat, now) + self.every
            self.taken_at = wall
        if now >= self.sparing_until:
            return False
        self.spare_at = now + RETRY_INTERVAL
        if is_retry:
            self.credit = max(self.credit - FIRST_ATTEMPTS_PER_RETRY, MIN_CREDIT)
            return False
        self.credit = min(self.credit + 1, MAX_CREDIT)
        return self.credit % FIRST_ATTEMPTS_PER_RETRY == 0 and self.credit > 0

    def give(self, slots: int) -> None:
        """Return the slots of a job that has ended."""
        self.used -= slots

    def give_start(self, started: int | None) -> None:
        """Return the rate token of a lease that started at this wall time and was never used, less the time from that
        start to the latest one.

        `tat` is the maximum of `t + k * every` over all starts, where k counts the start at t and all later ones.
        Without this start, k is one less for the starts before it. For the starts after it k stays the same, but this
        start had a larger k: so they exceed `tat - every` by at most the time from this start to the latest one."""
        if not self.every or started is None:
            return
        since = self.taken_at - started
        if 0 <= since < self.every:
            self.tat -= self.every - since

    def set_up(self, settings: ResourceSettings) -> None:
        """Apply new limits."""
        if settings.every != self.settings.every:
            self.taken_at = 0  # the tokens of earlier starts were counted at another rate
        self.settings = settings

    def starts(self, now: int) -> int:
        """How many jobs the rate allows to start now."""
        if not self.every:
            return MAX_OFFERED
        return min(MAX_OFFERED, max(0, -self._early(now) // self.every + 1))

    def is_full(self, beside: int = 0) -> bool:
        """Whether no slot is free, counting `beside` slots as used too."""
        limit = self.limit
        return limit is not None and self.used + beside >= limit

    def plan(self, now: int, *, offered: int, more: bool) -> None:
        """Set when the jobs that still wait must be checked again. `offered` jobs were just queued to try, and `more`
        says that further ones are waiting."""
        if now < self.shut_until:
            self.look = self.shut_until
        elif more and offered:  # without `offered` it would be the same jobs again
            self.look = now
        elif self.is_full():
            self.look = None  # whoever returns a slot checks the waiting jobs
        else:
            # Either the rate does not allow a start yet, or too few slots are free and a holder will return some.
            early = self._early(now) + offered * self.every if self.every else 0
            self.look = now + (early if early > 0 else RECHECK_INTERVAL)

    # -- the retry budget of a failing resource ------------------------------------------------------------------------

    def spare(self, spare_for: timedelta, now: int) -> None:
        """Limit retries for this long; a duration of 0 ends the limit."""
        if now >= self.sparing_until:
            self.credit, self.spare_at = 0, now + RETRY_INTERVAL
        self.sparing_until = now + span(spare_for) if spare_for else 0

    def retries(self, now: int) -> int:
        """How many retries may start now."""
        if now >= self.sparing_until:
            return MAX_OFFERED
        return min(MAX_OFFERED, max(self.credit // FIRST_ATTEMPTS_PER_RETRY, int(now >= self.spare_at)))

    def look_at_retries(self, now: int, *, offered: int, more: bool) -> int:
        """When the retries that wait for this resource must be checked again."""
        if more and offered and now >= self.sparing_until:
            return now
        if now >= self.sparing_until:
            return now + RECHECK_INTERVAL
        # A retry that may start now was just offered; the next may start one interval after it.
        next_retry = self.spare_at if now < self.spare_at else now + RETRY_INTERVAL
        return min(self.sparing_until, next_retry)

    # -- the breaker's gate --------------------------------------------------------------------------------------------

    def shut(self, gate: Gate, now: int) -> None:
        """Apply what the breaker decided."""
        self.gate = gate
        self.shut_until = now + span(gate.shut_for) if gate.shut_for else 0


def need_of(spec: JobSpec, resource: str) -> int:
    """How many slots of the resource a job needs."""
    return next((need.slots for need in spec.options.resources if need.resource == resource), 0)


def spared_resource(cause: str) -> str | None:
    """The resource whose retry budget a job waits for, if that is what `cause`, its `blocked_on`, says."""
    if not cause.startswith(RETRY_CAUSE_PREFIX):
        return None
    return cause.removeprefix(RETRY_CAUSE_PREFIX)


def is_passed_over(needs: tuple[Need, ...], since: int | None, now: int) -> bool:
    """Whether a job that has been waiting since `since` was passed over for too long.

    Only a job that needs several slots or several resources can be passed over forever, by jobs that need less."""
    needs_several = len(needs) > 1 or any(need.slots > 1 for need in needs)
    return needs_several and since is not None and now - since >= RESERVE_AFTER

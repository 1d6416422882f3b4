"""What jobs share: who must wait for a resource, and who may try when it is free."""

from __future__ import annotations

from daybreak.core.events import Event
from daybreak.core.model import Reason, State
from daybreak.core.resource_gauge import MAX_OFFERED, Gauge, Reservation, is_passed_over, spared_resource
from daybreak.core.units import span
from daybreak.store.protocol import job_topic
from daybreak.stores.sqlite import gauge_rows, job_moves
from daybreak.stores.sqlite.ledger import Ledger
from daybreak.stores.sqlite.rows import Row, pack_carry, unpack_options
from daybreak.stores.sqlite.statements import sql


def park(ledger: Ledger, row: Row, resource: str) -> None:
    """Let it wait for this resource, out of the way of claims; what else it was offered is for others."""
    gauge_rows.wait_no_more(ledger, row)
    ledger.freed.discard(resource)
    job_moves.leave(ledger, row)
    row.state, row.cause = State.BLOCKED, resource
    if row.carry.blocked_since is None:
        row.carry.blocked_since = ledger.steady
    job_moves.tell(ledger, row, "blocked", "", state=State.BLOCKED, note=resource)
    job_moves.enter(ledger, row)
    if (spared := spared_resource(resource)) is not None:
        ledger.count(row.lane, row.priority, {"spared": (1, 0)})
        look = gauge_rows.gauge_of(ledger, spared).look_at_retries(ledger.steady, offered=0, more=False)
        gauge_rows.changed(ledger, resource).look = look
        return
    _keep_for(ledger, row)
    gauge_rows.changed(ledger, resource).plan(ledger.steady, offered=0, more=False)


def fail_fast(ledger: Ledger, row: Row, resource: str) -> None:
    """One that will not wait for a breaker ends where it meets an open one."""
    note = f"the breaker of resource {resource} is open"
    job_moves.finish(ledger, row, State.FAILED, by="", reason=Reason.ERROR, note=note)


def _may_keep_for(ledger: Ledger, row: Row) -> bool:
    needs = gauge_rows.needs_of(row)
    return is_passed_over(needs, row.carry.blocked_since, ledger.steady) and all(
        gauge_rows.gauge_of(ledger, need.resource).may_keep(
            need.slots, ledger.steady, seq=row.seq, priority=row.priority
        )
        for need in needs
    )


def _keep_for(ledger: Ledger, row: Row) -> None:
    """Those that need much are passed over by those that need little. After a while what they need is kept for them as
    it comes free: all of it or nothing, and for the first of them in rank. So nobody waits for ever, and no two wait
    for one another."""
    if not _may_keep_for(ledger, row):
        return
    for need in gauge_rows.needs_of(row):
        gauge = gauge_rows.gauge_of(ledger, need.resource)
        if gauge.limit is not None:
            if gauge.kept is not None and (other := job_moves.load(ledger, gauge.kept.seq)):
                gauge_rows.keep_no_more(ledger, gauge_rows.needs_of(other), other.seq)
            gauge_rows.changed(ledger, need.resource).kept = Reservation(row.seq, row.priority, need.slots)


# -- offering ----------------------------------------------------------------------------------------------------------


def offer_freed(ledger: Ledger) -> bool:
    """Before a request ends: whatever it freed is offered to those who wait for it. Was there anyone?"""
    any_tried = False
    while ledger.freed:
        resource = min(ledger.freed)
        ledger.freed.discard(resource)
        spared = spared_resource(resource)
        is_tried = _offer(ledger, resource) if spared is None else _offer_retries(ledger, resource, spared)
        any_tried = is_tried or any_tried
    return any_tried


def offer_what_time_freed(ledger: Ledger) -> None:
    due = [resource for (resource,) in ledger.rows(sql.gauges_to_look_at, (ledger.steady, MAX_OFFERED))]
    kept = {kept.seq for resource in due if (kept := gauge_rows.gauge_of(ledger, resource).kept) is not None}
    for seq in sorted(kept):
        if (row := job_moves.load(ledger, seq)) is not None:
            _ask_for(ledger, row)
    ledger.freed.update(due)
    offer_freed(ledger)
    gauge_rows.write(ledger)


def _ask_for(ledger: Ledger, row: Row) -> None:
    """Nothing is kept for long for a job that no claim may have: its queue is paused, say. Let a claim find it, which
    keeps the slots for it again. If none has come until the next look, they are for others."""
    if row.state is State.QUEUED:
        gauge_rows.keep_no_more(ledger, gauge_rows.needs_of(row), row.seq)
    elif row.spec.holder is None:
        _unblock(ledger, row)


def _offer(ledger: Ledger, resource: str) -> bool:
    """The best-ranked of every lane may try, as many as there is room for: so that no paused queue and no task without
    a worker sits on what others could use."""
    gauge = gauge_rows.changed(ledger, resource)
    offered, more = 0, False
    if gauge.is_shut(ledger.steady):
        _fail_those_in_haste(ledger, resource)
    elif not gauge.is_full():
        for lane in _waiting_lanes(ledger, resource):
            tried, rest = _offer_lane(ledger, resource, gauge, lane)
            offered, more = max(offered, tried), more or rest
    if ledger.value(sql.count_waiting, (resource, 1)):
        gauge.plan(ledger.steady, offered=offered, more=more)
    else:
        gauge.look = None
    return offered > 0


def _waiting_lanes(ledger: Ledger, cause: str) -> list[int]:
    return sorted((lane for (lane,) in ledger.rows(sql.waiting_lanes, (cause,))), key=ledger.name_of)


def _offer_lane(ledger: Ledger, resource: str, gauge: Gauge, lane: int) -> tuple[int, bool]:
    """How many were told to try, and whether others might be who were not looked at."""
    starts, tried, beside = gauge.starts(ledger.steady), 0, 0
    waiting = ledger.rows(sql.waiting_in_lane, (resource, lane, min(starts, MAX_OFFERED) and MAX_OFFERED + 1))
    for (seq,) in waiting[:MAX_OFFERED]:
        if tried >= starts or gauge.is_full(beside):
            return tried, False
        row = job_moves.load(ledger, seq)
        assert row is not None
        slots = next(need.slots for need in gauge_rows.needs_of(row) if need.resource == resource)
        if row.expires is not None and row.expires <= ledger.steady:
            job_moves.expire(ledger, row)
        elif row.spec.holder is not None:
            _grant(ledger, row, row.spec.holder)
            starts = min(starts, tried + gauge.starts(ledger.steady))
        elif gauge.lacks(beside + slots, ledger.steady, seq=seq, priority=row.priority):
            if not tried and _may_keep_for(ledger, row):
                _unblock(ledger, row)  # the claim that finds it keeps slots for it: so somebody would run it
                return 1, False
        else:
            beside += slots
            tried += 1
            _unblock(ledger, row)
    return tried, len(waiting) > MAX_OFFERED


def _fail_those_in_haste(ledger: Ledger, resource: str) -> None:
    for lane in _waiting_lanes(ledger, resource):
        for seq, options in ledger.rows(sql.options_in_lane, (resource, lane, MAX_OFFERED)):
            if (shut := gauge_rows.refusing(ledger, unpack_options(options))) and (row := job_moves.load(ledger, seq)):
                fail_fast(ledger, row, shut)


def _offer_retries(ledger: Ledger, cause: str, spared: str) -> bool:
    """As `_offer`, to retries that wait because their resource fails."""
    may_start = gauge_rows.gauge_of(ledger, spared).retries(ledger.steady)
    offered, more = 0, False
    for lane in _waiting_lanes(ledger, cause):
        waiting = ledger.rows(sql.waiting_in_lane, (cause, lane, may_start + 1))
        for (seq,) in waiting[:may_start]:
            row = job_moves.load(ledger, seq)
            assert row is not None
            _unblock(ledger, row)
        offered, more = max(offered, min(may_start, len(waiting))), more or len(waiting) > may_start
    look = None
    if ledger.value(sql.count_waiting, (cause, 1)):
        look = gauge_rows.gauge_of(ledger, spared).look_at_retries(ledger.steady, offered=offered, more=more)
    gauge_rows.changed(ledger, cause).look = look
    return offered > 0


def _unblock(ledger: Ledger, row: Row) -> None:
    job_moves.leave(ledger, row)
    row.state = State.QUEUED
    job_moves.tell(ledger, row, "unblocked", "", state=State.QUEUED)
    job_moves.enter(ledger, row)


def _grant(ledger: Ledger, row: Row, holder: str) -> None:
    """To its holder, who waits to be told."""
    needs = gauge_rows.needs_of(row)
    lacking = gauge_rows.lacking(ledger, needs, row.seq, row.priority, is_retry=row.attempt > 0)
    if lacking is None:
        _lease(ledger, row, needs, holder)
        ledger.wake(job_topic(row.id))
    elif lacking != row.cause:
        park(ledger, row, lacking)
    else:
        _keep_for(ledger, row)


def _lease(ledger: Ledger, row: Row, needs: gauge_rows.Needs, holder: str) -> None:
    gauge_rows.keep_no_more(ledger, needs, row.seq)
    job_moves.leave(ledger, row)
    gauge_rows.take(ledger, needs, is_retry=row.attempt > 0)
    row.attempt += 1
    row.fence = gauge_rows.raise_fence(ledger, needs, row.fence + 1)
    carry, term = row.carry, span(row.spec.hold_for)
    carry.note, carry.message, carry.started, carry.progress, carry.blocked_since = "", "", None, None, None
    job_moves.forget_expiry(ledger, row)
    job_moves.remember(
        ledger,
        row,
        Event(
            n=row.n + 1, kind="started", job=row.id, at=ledger.at, by=holder, state=State.RUNNING, attempt=row.attempt,
            fence=row.fence,
        ),
    )  # fmt: skip
    row.state = State.RUNNING
    ledger.execute(
        sql.insert_lease,
        (
            row.seq, row.lane, row.priority, row.uniq, row.attempt, row.fence, row.n, holder, ledger.steady + term,
            term, ledger.wall, None, pack_carry(carry), row.history, gauge_rows.pack_needs(needs), False,
        ),
    )  # fmt: skip
    ledger.tally(row.lane, row.priority, State.RUNNING)

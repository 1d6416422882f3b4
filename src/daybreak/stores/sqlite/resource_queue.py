"""The jobs that wait for a resource, and which of them may try when it is free."""

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
    """Block a job until this resource is free. Whatever else it was offered goes to other jobs."""
    gauge_rows.release_offers(ledger, row)
    ledger.freed.discard(resource)
    job_moves.leave(ledger, row)
    row.state, row.cause = State.BLOCKED, resource
    if row.carry.blocked_since is None:
        row.carry.blocked_since = ledger.steady
    job_moves.record(ledger, row, "blocked", "", state=State.BLOCKED, note=resource)
    job_moves.enter(ledger, row)
    if (spared := spared_resource(resource)) is not None:
        ledger.count(row.lane, row.priority, {"spared": (1, 0)})
        look = gauge_rows.gauge_of(ledger, spared).look_at_retries(ledger.steady, offered=0, more=False)
        gauge_rows.changed(ledger, resource).look = look
        return
    _reserve_for(ledger, row)
    gauge_rows.changed(ledger, resource).plan(ledger.steady, offered=0, more=False)


def fail_fast(ledger: Ledger, row: Row, resource: str) -> None:
    """Fail a job that asked not to wait for an open breaker."""
    note = f"the breaker of resource {resource} is open"
    job_moves.finish(ledger, row, State.FAILED, by="", reason=Reason.ERROR, note=note)


def _may_reserve_for(ledger: Ledger, row: Row) -> bool:
    needs = gauge_rows.needs_of(row)
    return is_passed_over(needs, row.carry.blocked_since, ledger.steady) and all(
        gauge_rows.gauge_of(ledger, need.resource).may_keep(
            need.slots, ledger.steady, seq=row.seq, priority=row.priority
        )
        for need in needs
    )


def _reserve_for(ledger: Ledger, row: Row) -> None:
    """Reserve free slots for a job that was passed over for too long by jobs that need fewer. Slots of all its
    resources are reserved, or none, and only for the first such job in rank. So no job waits forever, and no two jobs
    wait for each other."""
    if not _may_reserve_for(ledger, row):
        return
    for need in gauge_rows.needs_of(row):
        gauge = gauge_rows.gauge_of(ledger, need.resource)
        if gauge.limit is not None:
            if gauge.kept is not None and (other := job_moves.load(ledger, gauge.kept.seq)):
                gauge_rows.release_reservation(ledger, gauge_rows.needs_of(other), other.seq)
            gauge_rows.changed(ledger, need.resource).kept = Reservation(row.seq, row.priority, need.slots)


# -- offering ----------------------------------------------------------------------------------------------------------


def offer_freed(ledger: Ledger) -> bool:
    """Offer what this request freed to the jobs that wait for it. Returns whether any job may try now."""
    any_tried = False
    while ledger.freed:
        resource = min(ledger.freed)
        ledger.freed.discard(resource)
        spared = spared_resource(resource)
        is_tried = _offer(ledger, resource) if spared is None else _offer_retries(ledger, resource, spared)
        any_tried = is_tried or any_tried
    return any_tried


def offer_due_resources(ledger: Ledger) -> None:
    due = [resource for (resource,) in ledger.rows(sql.gauges_to_look_at, (ledger.steady, MAX_OFFERED))]
    kept = {kept.seq for resource in due if (kept := gauge_rows.gauge_of(ledger, resource).kept) is not None}
    for seq in sorted(kept):
        if (row := job_moves.load(ledger, seq)) is not None:
            _let_claim_decide(ledger, row)
    ledger.freed.update(due)
    offer_freed(ledger)
    gauge_rows.write(ledger)


def _let_claim_decide(ledger: Ledger, row: Row) -> None:
    """Slots must not stay reserved for a job that no claim takes, for example because its queue is paused. So the job
    is queued: a claim that finds it reserves the slots again. If no claim has by the next check, they go to other
    jobs."""
    if row.state is State.QUEUED:
        gauge_rows.release_reservation(ledger, gauge_rows.needs_of(row), row.seq)
    elif row.spec.holder is None:
        _unblock(ledger, row)


def _offer(ledger: Ledger, resource: str) -> bool:
    """Let the best-ranked jobs of every lane try, as many as there is room for. One lane is not enough: a paused queue,
    or a task without a worker, would block what others could use."""
    gauge = gauge_rows.changed(ledger, resource)
    offered, more = 0, False
    if gauge.is_shut(ledger.steady):
        _fail_fast_waiters(ledger, resource)
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
    """How many jobs may try now, and whether there are more that were not checked."""
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
            if not tried and _may_reserve_for(ledger, row):
                # A claim that finds it reserves the slots: only then is it known that some worker would run it.
                _unblock(ledger, row)
                return 1, False
        else:
            beside += slots
            tried += 1
            _unblock(ledger, row)
    return tried, len(waiting) > MAX_OFFERED


def _fail_fast_waiters(ledger: Ledger, resource: str) -> None:
    for lane in _waiting_lanes(ledger, resource):
        for seq, options in ledger.rows(sql.options_in_lane, (resource, lane, MAX_OFFERED)):
            if (shut := gauge_rows.refusing(ledger, unpack_options(options))) and (row := job_moves.load(ledger, seq)):
                fail_fast(ledger, row, shut)


def _offer_retries(ledger: Ledger, cause: str, spared: str) -> bool:
    """Like `_offer`, for retries that wait because their resource is failing."""
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
    job_moves.record(ledger, row, "unblocked", "", state=State.QUEUED)
    job_moves.enter(ledger, row)


def _grant(ledger: Ledger, row: Row, holder: str) -> None:
    """Lease a job to its holder, if all its resources are free."""
    needs = gauge_rows.needs_of(row)
    lacking = gauge_rows.lacking(ledger, needs, row.seq, row.priority, is_retry=row.attempt > 0)
    if lacking is None:
        _lease_to_holder(ledger, row, needs, holder)
        ledger.wake(job_topic(row.id))
    elif lacking != row.cause:
        park(ledger, row, lacking)
    else:
        _reserve_for(ledger, row)


def _lease_to_holder(ledger: Ledger, row: Row, needs: gauge_rows.Needs, holder: str) -> None:
    gauge_rows.release_reservation(ledger, needs, row.seq)
    job_moves.leave(ledger, row)
    gauge_rows.take(ledger, needs, is_retry=row.attempt > 0)
    row.attempt += 1
    row.fence = gauge_rows.raise_fence(ledger, needs, row.fence + 1)
    carry, term = row.carry, span(row.spec.hold_for)
    carry.note, carry.message, carry.started, carry.progress, carry.blocked_since = "", "", None, None, None
    job_moves.forget_expiry(ledger, row)
    job_moves.record_event(
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

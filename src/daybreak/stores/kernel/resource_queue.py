"""The jobs that wait for a resource, and which of them may try when it is free."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from daybreak.core.model import Gate, Health, Reason, ResourceSettings, State
from daybreak.core.resource_gauge import MAX_OFFERED, RETRY_CAUSE_PREFIX, Gauge, need_of, spared_resource
from daybreak.core.units import span
from daybreak.store.protocol import job_topic
from daybreak.stores.kernel import moves
from daybreak.stores.kernel.row import Row
from daybreak.stores.kernel.transaction import Transaction

# -- settings ----------------------------------------------------------------------------------------------------------


def set_resource(tx: Transaction, name: str, settings: ResourceSettings) -> None:
    """Apply new limits of a resource."""
    tx.gauges[name].set_up(settings)
    tx.gauges.freed.add(name)


def set_gate(tx: Transaction, name: str, gate: Gate) -> None:
    """Apply what the breaker of a resource decided."""
    gauge = tx.gauges[name]
    gauge.shut(gate, tx.steady)
    if gauge.kept is not None and gauge.shut_until:
        tx.gauges.release_reservation_at(gauge)  # a shut resource must not hold back the slots of others
    tx.gauges.freed.add(name)


def set_health(tx: Transaction, name: str, health: Health) -> None:
    """Limit the retries of a failing resource, or end the limit."""
    tx.gauges[name].spare(health.spare_for, tx.steady)
    tx.gauges.freed.add(RETRY_CAUSE_PREFIX + name)


# -- waiting -----------------------------------------------------------------------------------------------------------


def block(tx: Transaction, row: Row, resource: str) -> None:
    """Block a job until this resource is free. The gauges know of it already."""
    row.state, row.cause = State.BLOCKED, resource
    if row.blocked_since is None:
        row.blocked_since = tx.steady
    tx.record(row, "blocked", "", state=State.BLOCKED, note=resource)
    if spared_resource(resource) is not None:
        tx.count(row, "spared")
    tx.change(row)


def fail_fast(tx: Transaction, row: Row) -> None:
    """Fail a job that asked not to wait for an open breaker."""
    note = f"the breaker of resource {tx.gauges.shut(row.needs)} is open"
    moves.finish(tx, row, State.FAILED, by="", reason=Reason.ERROR, note=note)


# -- offering ----------------------------------------------------------------------------------------------------------


def offer_freed(tx: Transaction) -> bool:
    """Offer what this transaction freed to the jobs that wait for it. Returns whether any job may try now."""
    _leave_calls(tx)
    any_tried, freed = False, tx.gauges.freed
    while freed:
        tx.gauges.load(freed)
        resource = min(freed)
        freed.discard(resource)
        spared = spared_resource(resource)
        is_tried = _offer(tx, resource) if spared is None else _offer_retries(tx, resource, tx.gauges[spared])
        any_tried = is_tried or any_tried
    return any_tried


def _leave_calls(tx: Transaction) -> None:
    """Give back the slots of batch calls whose last lease has ended. While any job of a call runs, the call holds them:
    whichever of its jobs is settled first."""
    if not tx.left_calls:
        return
    left, tx.left_calls = tx.left_calls, {}
    tx.write()
    for group, needs in sorted(left.items()):
        if not tx.leases_of_group(group):
            tx.gauges.give(needs)


def offer_due_resources(tx: Transaction) -> None:
    """Offer the resources that may be free because of the time."""
    due = tx.gauges_to_look_at(MAX_OFFERED)
    tx.gauges.load(due)
    reserved = sorted({kept.seq for name in due if (kept := tx.gauges[name].kept) is not None})
    for row in tx.load(reserved).values():
        _let_claim_decide(tx, row)
    tx.gauges.freed.update(due)
    offer_freed(tx)


def _let_claim_decide(tx: Transaction, row: Row) -> None:
    """Slots must not stay reserved for a job that no claim takes, for example because its queue is paused. So the job
    is queued: a claim that finds it reserves the slots again. If no claim has by the next check, they go to other
    jobs."""
    if row.state is State.QUEUED:
        tx.gauges.release_reservation(row)
    elif row.spec.holder is None:
        _unblock(tx, row)


def _unblock(tx: Transaction, row: Row) -> None:
    row.state, row.cause = State.QUEUED, None
    tx.record(row, "unblocked", "", state=State.QUEUED)
    tx.change(row)


def _offer(tx: Transaction, resource: str) -> bool:
    """Let the best-ranked jobs of every lane try, as many as there is room for. One lane is not enough: a paused queue,
    or a task without a worker, would block what others could use."""
    gauge, now = tx.gauges[resource], tx.steady
    offered, more = 0, False
    if is_waited_for(tx, resource):
        if gauge.is_shut(now):
            _fail_fast_waiters(tx, resource)
        elif gauge.starts(now) and not gauge.is_full():
            for seqs in _waiting_by_lane(tx, resource):
                tried, rest = _offer_lane(tx, resource, gauge, seqs)
                offered, more = max(offered, tried), more or rest
        if is_waited_for(tx, resource):
            gauge.plan(now, offered=offered, more=more)
            return offered > 0
    gauge.look = None
    return offered > 0


def is_waited_for(tx: Transaction, cause: str) -> bool:
    """Whether any job is blocked on this."""
    tx.write()
    return tx.waiting(cause, 1) > 0


def _waiting_by_lane(tx: Transaction, cause: str) -> list[list[int]]:
    """The first waiting jobs of each lane, and one more if a lane has more."""
    tx.write()
    return tx.waiting_by_lane(cause, MAX_OFFERED + 1)


def _offer_lane(tx: Transaction, resource: str, gauge: Gauge, seqs: Sequence[int]) -> tuple[int, bool]:
    """How many jobs of one lane may try now, and whether there are more that were not checked."""
    now, starts, tried, beside = tx.steady, gauge.starts(tx.steady), 0, 0
    rows = _in_growing_batches(tx, seqs)
    for _ in seqs[:MAX_OFFERED]:
        if tried >= starts or gauge.is_full(beside):
            return tried, False
        row = next(rows)
        slots = need_of(row.spec, resource)
        if moves.is_overdue(tx, row):
            moves.expire(tx, row)
        elif row.spec.holder is not None:
            _grant(tx, row, row.spec.holder)
            starts = min(starts, tried + gauge.starts(now))
        elif gauge.lacks(beside + slots, now, seq=row.seq, priority=row.priority):
            if not tried and tx.gauges.may_reserve_for(row, since=row.blocked_since):
                # A claim that finds it reserves the slots: only then is it known that some worker would run it.
                _unblock(tx, row)
                return 1, False
        else:
            beside += slots
            tried += 1
            _unblock(tx, row)
    return tried, len(seqs) > MAX_OFFERED


def _in_growing_batches(tx: Transaction, seqs: Sequence[int]) -> Iterator[Row]:
    """Load jobs in batches of 2, 4, 8, ...: often there is room for one job only, and jobs may be large."""
    start, size = 0, 2
    while batch := seqs[start : start + size]:
        yield from tx.load(batch).values()
        start, size = start + size, 2 * size


def _fail_fast_waiters(tx: Transaction, resource: str) -> None:
    first = [seq for seqs in _waiting_by_lane(tx, resource) for seq in seqs[:MAX_OFFERED]]
    among = tx.fail_fast_among(first)
    for row in tx.load([seq for seq in first if seq in among]).values():
        if tx.gauges.shut(row.needs) is not None:
            fail_fast(tx, row)


def _offer_retries(tx: Transaction, cause: str, gauge: Gauge) -> bool:
    """Like `_offer`, for retries that wait because their resource is failing."""
    may_start = gauge.retries(tx.steady)
    offered, more = 0, False
    for seqs in _waiting_by_lane(tx, cause) if is_waited_for(tx, cause) else ():
        for row in tx.load(seqs[:may_start]).values():
            _unblock(tx, row)
        offered, more = max(offered, min(may_start, len(seqs))), more or len(seqs) > may_start
    look = gauge.look_at_retries(tx.steady, offered=offered, more=more) if is_waited_for(tx, cause) else None
    tx.gauges[cause].look = look
    return offered > 0


def _grant(tx: Transaction, row: Row, holder: str) -> None:
    """Lease a job to its holder, if all its resources are free."""
    lacking = tx.gauges.lacking(row)
    if lacking is None:
        tx.gauges.take(row)
        moves.start_lease(tx, row, worker=holder, term=span(row.spec.hold_for))
        tx.wake(job_topic(row.id))
    elif lacking != row.cause:
        tx.gauges.park(row, lacking, was_queued=False)
        block(tx, row, lacking)
    else:
        tx.gauges.reserve_for(row, since=row.blocked_since)

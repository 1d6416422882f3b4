"""The jobs that wait for a resource, and which of them may try when it is free.

Everything here runs under the resource lock. No other transaction changes a blocked job, or a job that needs a
resource, without that lock, so these jobs need no row locks here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from daybreak.core.model import Gate, Health, Reason, ResourceSettings, State
from daybreak.core.resource_gauge import MAX_OFFERED, RETRY_CAUSE_PREFIX, Gauge, need_of, spared_resource
from daybreak.core.units import span
from daybreak.store.protocol import job_topic
from daybreak.stores.postgres import job_moves
from daybreak.stores.postgres.arrays import Bigints
from daybreak.stores.postgres.ledger import Ledger
from daybreak.stores.postgres.rows import Row, pack_carry, pack_needs, unpack_options

# -- settings ----------------------------------------------------------------------------------------------------------


def set_resource(ledger: Ledger, name: str, settings: ResourceSettings) -> None:
    ledger.gauges[name].set_up(settings)
    ledger.gauges.freed.add(name)


def set_gate(ledger: Ledger, name: str, gate: Gate) -> None:
    gauge = ledger.gauges[name]
    gauge.shut(gate, ledger.steady)
    if gauge.kept is not None and gauge.shut_until:
        ledger.gauges.release_reservation(
            _row_of(ledger, gauge.kept.seq)
        )  # a shut resource must not hold back the slots of others
    ledger.gauges.freed.add(name)


def set_health(ledger: Ledger, name: str, health: Health) -> None:
    ledger.gauges[name].spare(health.spare_for, ledger.steady)
    ledger.gauges.freed.add(RETRY_CAUSE_PREFIX + name)


def _row_of(ledger: Ledger, seq: int) -> Row:
    return job_moves.read_rows(ledger, [seq])[seq]


# -- waiting -----------------------------------------------------------------------------------------------------------


def block(ledger: Ledger, row: Row, resource: str) -> None:
    """Record that a job must wait for a resource. The caller moves it between the tables."""
    row.cause = resource
    if row.carry.since is None:
        row.carry.since = ledger.steady
    job_moves.record(ledger, row, "blocked", "", state=State.BLOCKED, note=resource)
    if spared_resource(resource) is not None:
        ledger.totals.count(row.lane, row.priority, "spared")


# -- failing fast ------------------------------------------------------------------------------------------------------


def find_fail_fast(ledger: Ledger, seqs: Sequence[int]) -> list[int]:
    """The jobs among them that fail fast."""
    if not seqs:
        return []
    found = ledger.rows(ledger.sql.options_of, (Bigints(seqs),))
    fail_fast_seqs = {seq for seq, options in found if unpack_options(options).fail_fast}
    return [seq for seq in seqs if seq in fail_fast_seqs]


def fail_fast(ledger: Ledger, row: Row) -> None:
    """End a fail-fast job at an open breaker."""
    shut = ledger.gauges.shut(row.needs, ledger.steady)
    note = f"the breaker of resource {shut} is open"
    job_moves.finish(ledger, row, State.FAILED, by="", reason=Reason.ERROR, note=note)


# -- offering ----------------------------------------------------------------------------------------------------------


def offer_freed(ledger: Ledger) -> bool:
    """Offer what this transaction freed to the jobs that wait for it; returns whether any job may try. Called before
    the transaction ends."""
    any_tried = False
    while ledger.has_resource_lock and ledger.gauges.freed:
        ledger.gauges.load(ledger.gauges.freed)
        resource = min(ledger.gauges.freed)
        ledger.gauges.freed.discard(resource)
        offer = _offer if spared_resource(resource) is None else _offer_retries
        any_tried = offer(ledger, resource) or any_tried
    return any_tried


def free_due_resources(ledger: Ledger) -> None:
    gauges = ledger.gauges
    due = [name for (name,) in ledger.rows(ledger.sql.gauges_to_look_at, (ledger.steady, MAX_OFFERED))]
    gauges.load(due)
    if seqs := sorted({kept.seq for name in due if (kept := gauges[name].kept) is not None}):
        rows = job_moves.read_rows(ledger, seqs)
        for seq in seqs:
            _let_claim_decide(ledger, rows[seq])
    gauges.freed.update(due)


def _let_claim_decide(ledger: Ledger, row: Row) -> None:
    """Do not reserve slots for long for a job that no claim may take, for example because its queue is paused. Queue
    the job: a claim that finds it reserves the slots again. If none has by the next check, others get them."""
    if row.state is State.QUEUED:
        ledger.gauges.release_reservation(row)
    elif row.spec.holder is None:
        _unblock(ledger, [row])


def _unblock(ledger: Ledger, rows: list[Row]) -> None:
    for row in rows:
        job_moves.record(ledger, row, "unblocked", "", state=State.QUEUED)
    job_moves.move_all(ledger, rows, State.QUEUED)


def _offer(ledger: Ledger, resource: str) -> bool:
    """Let the best-ranked jobs of every lane try, as many as there is room for. Every lane, so that a paused queue or a
    task without a worker does not hold slots that others could use."""
    gauge, waiting, now = ledger.gauges[resource], ledger.gauges.waiting, ledger.steady
    offered, more = 0, False
    if waiting(resource) and gauge.is_shut(now):
        _fail_fast_waiters(ledger, resource)
    elif waiting(resource) and gauge.starts(now) and not gauge.is_full():
        for seqs in _lanes(ledger, resource):
            count, has_more = _offer_lane(ledger, resource, gauge, seqs)
            offered, more = max(offered, count), more or has_more
    if waiting(resource):
        gauge.plan(now, offered=offered, more=more)
    else:
        gauge.look = None
    return offered > 0


def _fail_fast_waiters(ledger: Ledger, resource: str) -> None:
    first = [seq for seqs in _lanes(ledger, resource) for seq in seqs[:MAX_OFFERED]]
    if failing := find_fail_fast(ledger, first):
        rows = job_moves.read_rows(ledger, failing)
        for seq in failing:
            fail_fast(ledger, rows[seq])


def _offer_retries(ledger: Ledger, cause: str) -> bool:
    """As `_offer`, for retries that wait because their resource is failing."""
    gauges, now = ledger.gauges, ledger.steady
    gauge = gauges[spared_resource(cause) or ""]
    offered, more = 0, False
    for seqs in _lanes(ledger, cause) if gauges.waiting(cause) else ():
        may_start = gauge.retries(now)
        rows = job_moves.read_rows(ledger, seqs[:may_start]) if may_start else {}
        _unblock(ledger, [rows[seq] for seq in seqs[:may_start]])
        offered, more = max(offered, min(may_start, len(seqs))), more or len(seqs) > may_start
    if gauges.waiting(cause):
        gauges[cause].look = gauge.look_at_retries(now, offered=offered, more=more)
    else:
        gauges[cause].look = None
    return offered > 0


def _lanes(ledger: Ledger, resource: str) -> list[list[int]]:
    """The first waiting jobs of each lane, and one extra job if a lane has more."""
    lanes: dict[int, list[int]] = {}
    for lane, seq in ledger.rows(ledger.sql.waiting_in_lanes, {"cause": resource, "limit": MAX_OFFERED + 1}):
        lanes.setdefault(lane, []).append(seq)
    return [lanes[lane] for lane in sorted(lanes, key=ledger.name_of)]


def _offer_lane(ledger: Ledger, resource: str, gauge: Gauge, seqs: list[int]) -> tuple[int, bool]:
    """Offer to one lane; returns how many jobs may try, and whether jobs that were not examined might, too."""
    now = ledger.steady
    starts, slots_offered = gauge.starts(now), 0
    offered_rows: list[Row] = []
    more = len(seqs) > MAX_OFFERED
    rows = _read_in_growing_batches(ledger, seqs)
    for _ in seqs[:MAX_OFFERED]:
        if len(offered_rows) >= starts or gauge.is_full(slots_offered):
            more = False
            break
        row = next(rows)
        slots = need_of(row.spec, resource)
        if row.expires is not None and row.expires <= now:
            job_moves.expire(ledger, row)
        elif row.spec.holder is not None:
            _grant(ledger, row)
            starts = min(starts, len(offered_rows) + gauge.starts(now))
        elif gauge.lacks(slots_offered + slots, now, seq=row.seq, priority=row.priority):
            if not offered_rows and ledger.gauges.may_reserve_for(row, now, since=row.since):
                offered_rows.append(
                    row
                )  # the claim that finds it reserves slots for it, which proves that a worker would run it
                more = False
                break
        else:
            slots_offered += slots
            offered_rows.append(row)
    _unblock(ledger, offered_rows)
    return len(offered_rows), more


def _read_in_growing_batches(ledger: Ledger, seqs: list[int]) -> Iterator[Row]:
    """Read rows in batches of 2, 4, 8, ...: often there is room for one job only, and jobs may be large."""
    start, size = 0, 2
    while batch := seqs[start : start + size]:
        rows = job_moves.read_rows(ledger, batch)
        yield from (rows[seq] for seq in batch)
        start, size = start + size, 2 * size


def _grant(ledger: Ledger, row: Row) -> None:
    """Start a job that its own holder runs, and wake the holder; or let it wait for the next resource."""
    gauges, now = ledger.gauges, ledger.steady
    lacking = gauges.lacking(row, now)
    if lacking is None:
        _lease(ledger, row)
        ledger.wake(job_topic(row.id))
    elif lacking != row.cause:
        job_moves.leave(ledger, row)
        gauges.park(row, lacking, now, was_queued=False)
        block(ledger, row, lacking)
        job_moves.enter(ledger, row)
    else:
        gauges.reserve_for(row, now, since=row.since)


def _lease(ledger: Ledger, row: Row) -> None:
    holder, term = row.spec.holder, span(row.spec.hold_for)
    assert holder is not None
    job_moves.leave(ledger, row)
    ledger.gauges.take(row, ledger.steady, ledger.wall)
    row.attempt, row.carry.since = row.attempt + 1, None
    row.fence = ledger.gauges.next_fence(row.needs, row.fence + 1)
    job_moves.record(ledger, row, "started", holder, state=State.RUNNING, attempt=row.attempt, fence=row.fence)
    lease = (
        row.seq, row.lane, row.priority, row.uniq, row.attempt, row.fence, row.n, holder, ledger.steady + term, term,
        ledger.wall, None, pack_carry(row.carry), row.history, pack_needs(row.needs), False,
    )  # fmt: skip
    job_moves.enter_leases(ledger, [lease])
    if row.expires is not None:
        ledger.run(ledger.sql.forget_expiry, (Bigints([row.seq]),))

"""What jobs share: who must wait for a resource, and who may try when it is free.

Nobody else changes a blocked job, nor any that needs a resource, while one is alone with all of them: so these need no
lock of their own here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from daybreak.core.model import Gate, Health, Reason, ResourceSettings, State
from daybreak.core.resource_gauge import OFFERED_AT_ONCE, RETRIES_OF, Gauge, need_of, spared_by
from daybreak.core.units import span
from daybreak.store.protocol import job_topic
from daybreak.stores.postgres import job_moves
from daybreak.stores.postgres.arrays import Bigints
from daybreak.stores.postgres.ledger import Ledger
from daybreak.stores.postgres.rows import Row, pack_carry, pack_needs, unpack_options

# -- what people and breakers set --------------------------------------------------------------------------------------


def set_resource(ledger: Ledger, name: str, settings: ResourceSettings) -> None:
    ledger.gauges[name].set_up(settings)
    ledger.gauges.freed.add(name)


def set_gate(ledger: Ledger, name: str, gate: Gate) -> None:
    gauge = ledger.gauges[name]
    gauge.shut(gate, ledger.steady)
    if gauge.kept is not None and gauge.shut_until:
        ledger.gauges.keep_no_more(_kept(ledger, gauge.kept.seq))  # others should not wait for what will not come soon
    ledger.gauges.freed.add(name)


def set_health(ledger: Ledger, name: str, health: Health) -> None:
    ledger.gauges[name].spare(health.spare_for, ledger.steady)
    ledger.gauges.freed.add(RETRIES_OF + name)


def _kept(ledger: Ledger, seq: int) -> Row:
    return job_moves.look(ledger, [seq])[seq]


# -- waiting -----------------------------------------------------------------------------------------------------------


def block(ledger: Ledger, row: Row, resource: str) -> None:
    """What is written of a job that must wait, wherever it stands until it is moved."""
    row.cause = resource
    if row.carry.since is None:
        row.carry.since = ledger.steady
    job_moves.tell(ledger, row, "blocked", "", state=State.BLOCKED, note=resource)
    if spared_by(resource) is not None:
        ledger.totals.count(row.lane, row.priority, "spared")


# -- failing fast ------------------------------------------------------------------------------------------------------


def hasty(ledger: Ledger, seqs: Sequence[int]) -> list[int]:
    """Those of them that will not wait for a breaker."""
    if not seqs:
        return []
    found = ledger.rows(ledger.sql.options_of, (Bigints(seqs),))
    in_haste = {seq for seq, options in found if unpack_options(options).fail_fast}
    return [seq for seq in seqs if seq in in_haste]


def fail_fast(ledger: Ledger, row: Row) -> None:
    """One that will not wait for a breaker ends where it meets an open one."""
    shut = ledger.gauges.shut(row.needs, ledger.steady)
    note = f"the breaker of resource {shut} is open"
    job_moves.finish(ledger, row, State.FAILED, by="", reason=Reason.ERROR, note=note)


# -- offering ----------------------------------------------------------------------------------------------------------


def offer_freed(ledger: Ledger) -> bool:
    """Before a transaction ends: whatever it freed is offered to those who wait for it. Was there anyone?"""
    any_tried = False
    while ledger.is_alone and ledger.gauges.freed:
        ledger.gauges.know(ledger.gauges.freed)
        resource = min(ledger.gauges.freed)
        ledger.gauges.freed.discard(resource)
        offer = _offer if spared_by(resource) is None else _offer_retries
        any_tried = offer(ledger, resource) or any_tried
    return any_tried


def free_what_time_freed(ledger: Ledger) -> None:
    gauges = ledger.gauges
    due = [name for (name,) in ledger.rows(ledger.sql.gauges_to_look_at, (ledger.steady, OFFERED_AT_ONCE))]
    gauges.know(due)
    if seqs := sorted({kept.seq for name in due if (kept := gauges[name].kept) is not None}):
        rows = job_moves.look(ledger, seqs)
        for seq in seqs:
            _ask_for(ledger, rows[seq])
    gauges.freed.update(due)


def _ask_for(ledger: Ledger, row: Row) -> None:
    """Nothing is kept for long for a job that no claim may have: its queue is paused, say. Let a claim find it, which
    keeps the slots for it again. If none has come until the next look, they are for others."""
    if row.state is State.QUEUED:
        ledger.gauges.keep_no_more(row)
    elif row.spec.holder is None:
        _unblock(ledger, [row])


def _unblock(ledger: Ledger, rows: list[Row]) -> None:
    for row in rows:
        job_moves.tell(ledger, row, "unblocked", "", state=State.QUEUED)
    job_moves.move_all(ledger, rows, State.QUEUED)


def _offer(ledger: Ledger, resource: str) -> bool:
    """The best-ranked of every lane may try, as many as there is room for: so that no paused queue and no task without
    a worker sits on what others could use."""
    gauge, waiting, now = ledger.gauges[resource], ledger.gauges.waiting, ledger.steady
    offered, more = 0, False
    if waiting(resource) and gauge.is_shut(now):
        _fail_those_in_haste(ledger, resource)
    elif waiting(resource) and gauge.starts(now) and not gauge.is_full():
        for seqs in _lanes(ledger, resource):
            tried, rest = _offer_lane(ledger, resource, gauge, seqs)
            offered, more = max(offered, tried), more or rest
    if waiting(resource):
        gauge.plan(now, offered=offered, more=more)
    else:
        gauge.look = None
    return offered > 0


def _fail_those_in_haste(ledger: Ledger, resource: str) -> None:
    first = [seq for seqs in _lanes(ledger, resource) for seq in seqs[:OFFERED_AT_ONCE]]
    if failing := hasty(ledger, first):
        rows = job_moves.look(ledger, failing)
        for seq in failing:
            fail_fast(ledger, rows[seq])


def _offer_retries(ledger: Ledger, cause: str) -> bool:
    """As `_offer`, to retries that wait because their resource fails."""
    gauges, now = ledger.gauges, ledger.steady
    gauge = gauges[spared_by(cause) or ""]
    offered, more = 0, False
    for seqs in _lanes(ledger, cause) if gauges.waiting(cause) else ():
        may_start = gauge.retries(now)
        rows = job_moves.look(ledger, seqs[:may_start]) if may_start else {}
        _unblock(ledger, [rows[seq] for seq in seqs[:may_start]])
        offered, more = max(offered, min(may_start, len(seqs))), more or len(seqs) > may_start
    if gauges.waiting(cause):
        gauges[cause].look = gauge.look_at_retries(now, offered=offered, more=more)
    else:
        gauges[cause].look = None
    return offered > 0


def _lanes(ledger: Ledger, resource: str) -> list[list[int]]:
    """Those who wait, lane by lane: the first of each, and one more if there are more."""
    lanes: dict[int, list[int]] = {}
    for lane, seq in ledger.rows(ledger.sql.waiting_in_lanes, {"cause": resource, "most": OFFERED_AT_ONCE + 1}):
        lanes.setdefault(lane, []).append(seq)
    return [lanes[lane] for lane in sorted(lanes, key=ledger.name_of)]


def _offer_lane(ledger: Ledger, resource: str, gauge: Gauge, seqs: list[int]) -> tuple[int, bool]:
    """How many were told to try, and whether others might be who were not looked at."""
    now = ledger.steady
    starts, beside = gauge.starts(now), 0
    tried: list[Row] = []
    more = len(seqs) > OFFERED_AT_ONCE
    rows = _few_by_few(ledger, seqs)
    for _ in seqs[:OFFERED_AT_ONCE]:
        if len(tried) >= starts or gauge.is_full(beside):
            more = False
            break
        row = next(rows)
        slots = need_of(row.spec, resource)
        if row.expires is not None and row.expires <= now:
            job_moves.expire(ledger, row)
        elif row.spec.holder is not None:
            _grant(ledger, row)
            starts = min(starts, len(tried) + gauge.starts(now))
        elif gauge.lacks(beside + slots, now, seq=row.seq, priority=row.priority):
            if not tried and ledger.gauges.may_keep_for(row, now, since=row.since):
                tried.append(row)  # the claim that finds it keeps slots for it: so somebody would run it
                more = False
                break
        else:
            beside += slots
            tried.append(row)
    _unblock(ledger, tried)
    return len(tried), more


def _few_by_few(ledger: Ledger, seqs: list[int]) -> Iterator[Row]:
    """Often there is room for one only, and what jobs carry may be large."""
    start, size = 0, 2
    while batch := seqs[start : start + size]:
        rows = job_moves.look(ledger, batch)
        yield from (rows[seq] for seq in batch)
        start, size = start + size, 2 * size


def _grant(ledger: Ledger, row: Row) -> None:
    """To its holder, who waits to be told."""
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
        gauges.keep_for(row, now, since=row.since)


def _lease(ledger: Ledger, row: Row) -> None:
    holder, term = row.spec.holder, span(row.spec.hold_for)
    assert holder is not None
    job_moves.leave(ledger, row)
    ledger.gauges.take(row, ledger.steady, ledger.wall)
    row.attempt, row.carry.since = row.attempt + 1, None
    row.fence = ledger.gauges.next_fence(row.needs, row.fence + 1)
    job_moves.tell(ledger, row, "started", holder, state=State.RUNNING, attempt=row.attempt, fence=row.fence)
    lease = (
        row.seq, row.lane, row.priority, row.uniq, row.attempt, row.fence, row.n, holder, ledger.steady + term, term,
        ledger.wall, None, pack_carry(row.carry), row.history, pack_needs(row.needs), False,
    )  # fmt: skip
    job_moves.enter_leases(ledger, [lease])
    if row.expires is not None:
        ledger.run(ledger.sql.forget_expiry, (Bigints([row.seq]),))

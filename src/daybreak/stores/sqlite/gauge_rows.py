"""The gauges of resources (core/resource_gauge.py), as one transaction reads and changes them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from daybreak.core.model import NO_GATE, UNLIMITED, Gate, Need, Options, ResourceSettings, State
from daybreak.core.resource_gauge import RETRY_CAUSE_PREFIX, Gauge, Reservation
from daybreak.stores.sqlite.ledger import Ledger
from daybreak.stores.sqlite.rows import Row, unpack_options
from daybreak.stores.sqlite.statements import sql

Needs = tuple[Need, ...]

_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder(tuple[Need, ...]).decode


def needs_of(row: Row) -> Needs:
    return () if row.options is None else unpack_options(row.options).resources


def pack_needs(needs: Needs) -> bytes | None:
    return _pack(needs) if needs else None


def unpack_needs(packed: bytes | None) -> Needs:
    return () if packed is None else _unpack(packed)


def gauge_of(ledger: Ledger, resource: str) -> Gauge:
    if (gauge := ledger.known.gauges.get(resource)) is None:
        gauge = ledger.known.gauges[resource] = _load(ledger, resource)
    return gauge


def _load(ledger: Ledger, resource: str) -> Gauge:
    settings = ledger.execute(sql.get_record, ("resource", resource)).fetchone()
    gate = ledger.execute(sql.get_record, ("gate", resource)).fetchone()
    gauge = Gauge(
        settings=msgspec.json.decode(settings[1], type=ResourceSettings) if settings else UNLIMITED,
        gate=msgspec.json.decode(gate[1], type=Gate) if gate else NO_GATE,
    )
    if (found := ledger.execute(sql.load_gauge, (resource,)).fetchone()) is not None:
        gauge.used, gauge.tat, gauge.shut_until, gauge.look, *kept, gauge.fence = found[:8]
        gauge.kept = None if kept[0] is None else Reservation(*kept)
        gauge.sparing_until, gauge.credit, gauge.spare_at, gauge.taken_at = found[8:]
    return gauge


def changed(ledger: Ledger, resource: str) -> Gauge:
    """The gauge of a resource, which is written before this request ends."""
    ledger.gauged.add(resource)
    return gauge_of(ledger, resource)


def write(ledger: Ledger) -> None:
    for resource in ledger.gauged:
        gauge = gauge_of(ledger, resource)
        kept = gauge.kept or (None, None, None)
        numbers = (gauge.used, gauge.tat, gauge.shut_until, gauge.look, *kept, gauge.fence)
        sparing = (gauge.sparing_until, gauge.credit, gauge.spare_at)
        ledger.execute(sql.put_gauge, (resource, *numbers, *sparing, gauge.taken_at))
    ledger.gauged.clear()


# -- take and give back ------------------------------------------------------------------------------------------------


def lacking(ledger: Ledger, needs: Needs, seq: int, priority: int, *, is_retry: bool) -> str | None:
    """The first resource that a job must wait for; None if all are free."""
    for need in needs:
        if gauge_of(ledger, need.resource).lacks(need.slots, ledger.steady, seq=seq, priority=priority):
            return need.resource
    if is_retry:
        for need in needs:
            if not gauge_of(ledger, need.resource).retries(ledger.steady):
                return RETRY_CAUSE_PREFIX + need.resource
    return None


def refusing(ledger: Ledger, options: Options) -> str | None:
    """The first resource with an open breaker, if the job asked not to wait for one."""
    if not options.fail_fast:
        return None
    names = (need.resource for need in options.resources)
    return next((name for name in names if gauge_of(ledger, name).is_shut(ledger.steady)), None)


def take(ledger: Ledger, needs: Needs, *, is_retry: bool) -> None:
    for need in needs:
        gauge = changed(ledger, need.resource)
        if gauge.take(need.slots, ledger.steady, wall=ledger.wall, is_retry=is_retry):
            ledger.freed.add(RETRY_CAUSE_PREFIX + need.resource)


def give(ledger: Ledger, needs: Sequence[Need]) -> None:
    for need in needs:
        changed(ledger, need.resource).give(need.slots)
        ledger.freed.add(need.resource)


def give_starts(ledger: Ledger, needs: Needs, started: int) -> None:
    """Return the starts of a lease that was never used. Its slots are given back separately."""
    for need in needs:
        changed(ledger, need.resource).give_start(started)


def raise_fence(ledger: Ledger, needs: Needs, fence: int) -> int:
    """The fence for the next holder of a lock: higher than that of every holder before, because the protected system
    compares fences."""
    gauges = [changed(ledger, need.resource) for need in needs]
    fence = max(fence, *(gauge.fence + 1 for gauge in gauges))
    for gauge in gauges:
        gauge.fence = fence
    return fence


def release_offers(ledger: Ledger, row: Row) -> None:
    """Offer the resources that a queued job could have taken to the next waiting jobs."""
    needs = needs_of(row)
    release_reservation(ledger, needs, row.seq)
    if row.state is State.QUEUED:
        ledger.freed.update(need.resource for need in needs)
        if row.attempt:
            ledger.freed.update(RETRY_CAUSE_PREFIX + need.resource for need in needs)


def release_reservation(ledger: Ledger, needs: Needs, seq: int) -> None:
    for need in needs:
        gauge = gauge_of(ledger, need.resource)
        if gauge.kept is not None and gauge.kept.seq == seq:
            changed(ledger, need.resource).kept = None
            ledger.freed.add(need.resource)

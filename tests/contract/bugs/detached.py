"""Bugs in what becomes of jobs whose work goes on elsewhere."""

from __future__ import annotations

from msgspec.structs import replace

from bugs.planting import bug
from daybreak.core.model import State
from daybreak.stores.kernel import amend, moves, settle
from daybreak.stores.kernel.row import Row
from daybreak.stores.kernel.settle import Settling


@bug(Row, "as_lease")
def detached_is_lost(real, self):
    return replace(real(self), detached=False)


@bug(Settling, "_settle")
def any_fence_finishes(real, self, settlement, row):
    is_detached = row is not None and row.detached
    return real(self, replace(settlement, fence=row.fence) if is_detached else settlement, row)


@bug(settle, "_detach")
def detached_frees_its_slot(real, tx, leases):
    real(tx, leases)
    for row in tx.load([lease.seq for lease in leases]).values():
        if row.needs and row.state is State.RUNNING:
            tx.gauges.give(row.needs)


@bug(settle, "_extend")
def worker_keeps_the_lease(real, tx, lease, beat):
    if lease is not None and not beat.detach:
        lease.is_detached = False
    return real(tx, lease, beat)


@bug(settle, "_detach")
def repeated_claim_finds_it(real, tx, leases):
    calls = {row.seq: row.call for row in tx.load([lease.seq for lease in leases]).values()}
    real(tx, leases)
    for row in tx.load(calls).values():
        row.call = calls[row.seq]
        tx.change(row)


@bug(settle, "_detach")
def deadline_is_forgotten(real, tx, leases):
    terms = {row.seq: (row.term, row.until) for row in tx.load([lease.seq for lease in leases]).values()}
    real(tx, leases)
    for row in tx.load(terms).values():
        if row.state is State.RUNNING:
            row.term, row.until = terms[row.seq]
            tx.change(row)


@bug(settle, "_detach")
def detached_in_silence(real, tx, leases):
    record = tx.record
    tx.record = lambda *_, **__: None
    try:
        real(tx, leases)
    finally:
        tx.record = record


@bug(settle, "_detach")
def every_detachment_is_told(real, tx, leases):
    for lease in leases:
        lease.detach = replace(lease.detach, by=lease.detach.by or lease.worker)
    real(tx, leases)


@bug(settle, "_detach")
def checkpoint_is_dropped(real, tx, leases):
    for lease in leases:
        lease.checkpoint = None
    real(tx, leases)


@bug(amend._ACTIONS, "cancel")
def cancel_only_asks(real, tx, row, request):
    was_detached, row.detached = row.detached, False
    verdict = real(tx, row, request)
    row.detached = was_detached and row.state is State.RUNNING
    return verdict


@bug(settle, "_detach")
def cancel_is_forgotten(real, tx, leases):
    for row in tx.load([lease.seq for lease in leases]).values():
        row.cancelling = None
    real(tx, leases)


@bug(moves, "end_lease")
def detached_for_good(real, tx, row):
    was_detached = row.detached
    real(tx, row)
    row.detached = was_detached


@bug(settle, "_take_over")
def taken_over_is_attached(real, tx, row, request):
    row.detached = False
    return real(tx, row, request)


@bug(settle, "_extend")
def any_fence_detaches(real, tx, lease, beat):
    if lease is not None and beat.detach:
        beat = replace(beat, fence=lease.fence)
    return real(tx, lease, beat)

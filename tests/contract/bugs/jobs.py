"""Bugs in what becomes of jobs: accepted jobs, fences, order, limits, attempts, deaths, cancelling."""

from __future__ import annotations

from msgspec.structs import replace

from bugs.planting import bug
from daybreak.core.events import record_event
from daybreak.core.model import FINAL, State
from daybreak.core.queue_marks import full_mark
from daybreak.store.protocol import Extended, Verdict
from daybreak.stores.kernel import amend, claim, moves, settle
from daybreak.stores.kernel.claim import Claiming, QueueTurn
from daybreak.stores.kernel.insert import Inserting
from daybreak.stores.kernel.settle import Settling
from daybreak.stores.kernel.transaction import Transaction
from daybreak.stores.memory.book import Key

# -- 1 accepted jobs ---------------------------------------------------------------------------------------------------


@bug(amend._ACTIONS, "resume")
def resumed_job_is_forgotten(real, tx, row, request):
    verdict = real(tx, row, request)
    tx._changed.pop(row.seq, None)
    return verdict


@bug(amend._ACTIONS, "start")
def started_job_is_still_scheduled(real, tx, row, request):
    clock, due = row.clock, row.due
    verdict = real(tx, row, request)
    if verdict == "done":
        row.state, row.clock, row.due = State.SCHEDULED, clock, due
    return verdict


@bug(Inserting, "_find_existing")
def same_id_is_a_new_job(real, self, spec):
    answer = real(self, spec)
    return None if answer is not None and answer.same == "id" else answer


@bug(Inserting, "_insert", needs_book=True)
def refused_job_keeps_its_key(real, self, spec):
    answer = real(self, spec)
    if answer.verdict is Verdict.FULL and spec.key:
        now = self._tx.steady
        self._tx.book.keys[spec.key] = Key(spec.digest, spec.id, now, until=now + 1_000_000)
        self._tx.book.keys_of_job[spec.id] = [spec.key]
    return answer


# -- 2 fences ----------------------------------------------------------------------------------------------------------


@bug(Settling, "_settle")
def no_fence_in_settle(real, self, settlement, row):
    return real(self, replace(settlement, fence=row.fence) if row else settlement, row)


@bug(settle, "_extend")
def no_fence_in_extend(real, tx, lease, beat):
    return real(tx, lease, replace(beat, fence=lease.fence) if lease else beat)


@bug(settle, "_take_over")
def reaper_keeps_the_fence(real, tx, row, request):
    row.fence -= 1
    return real(tx, row, request)


@bug(Settling, "_settle")
def repeated_settlement_is_refused(real, self, settlement, row):
    return bool(row and row.state is State.RUNNING) and real(self, settlement, row)


@bug(Settling, "_settle")
def refused_settlement_inserts(real, self, settlement, row):
    settled = real(self, settlement, row)
    if not settled:
        self.inserts += settlement.inserts
    return settled


@bug(Settling, "_settle")
def cancelled_settlement_inserts(real, self, settlement, row):
    if row is not None and row.cancelling is not None:
        self.inserts += settlement.inserts
        self.puts += settlement.puts
    return real(self, settlement, row)


@bug(amend._ACTIONS, "retry")
def retry_starts_fences_anew(real, tx, row, request):
    verdict = real(tx, row, request)
    row.fence = 0
    return verdict


# -- 3 order -----------------------------------------------------------------------------------------------------------


def misplaced(rank_of):
    """The bug that gives queued jobs the band and order of `rank_of`."""

    def write(real, tx):
        for row in tx._changed.values():
            if row.state is State.QUEUED:
                row.band, row.ord = rank_of(row)
        real(tx)

    write.__name__ = rank_of.__name__
    return bug(Transaction, "write")(write)


@misplaced
def last_in_first_out(row):
    return row.band, -row.seq


@misplaced
def priority_ignored(row):
    return 0, row.ord


@misplaced
def order_by_clock(row):
    return row.band, row.created


@misplaced
def released_job_goes_to_the_back(row):
    return row.band, row.n


@misplaced
def aging_forgotten(row):
    return row.priority, 0


@bug(QueueTurn, "key")
def queues_in_order_of_naming(real, self, steady):
    return None if real(self, steady) is None else (0, 0, self.index)


@bug(claim, "virtual_time")
def weights_ignored(real, served, weight):
    return real(served, 1)


@bug(Claiming, "__init__")
def served_ignored(real, self, tx, wanted):
    real(self, tx, replace(wanted, served=()))


@bug(Claiming, "_open_queues")
def chosen_job_ignores_limits(real, self):
    queues = real(self)
    for queue in queues:
        queue.room = 9 if self._claim.job else queue.room
    return queues


@bug(Claiming, "_read_heads")
def chosen_job_ignores_its_state(real, self, queues):
    real(self, queues)
    row = self._tx.load_id(self._claim.job) if self._claim.job else None
    for queue in queues:
        if row is not None and row.state is State.SUSPENDED and row.queue == queue.name:
            queue.read(iter((row,)))


@bug(Claiming, "__init__")
def choice_is_forgotten(real, self, tx, wanted):
    real(self, tx, replace(wanted, job=None))


# -- 4 limits ----------------------------------------------------------------------------------------------------------


def other_room(room_of):
    """The bug that gives the limited queues of a claim the room of `room_of`."""

    def open_queues(real, self):
        queues = real(self)
        for queue in queues:
            if queue.settings.max_running is not None:
                queue.room = room_of(self._tx, queue)
        return queues

    open_queues.__name__ = room_of.__name__
    return bug(Claiming, "_open_queues")(open_queues)


@other_room
def max_running_off_by_one(tx, queue):
    return queue.room + 1 if queue.room != 0 else 0


@other_room
def max_running_leaks(tx, queue):
    """A job that suspended itself is counted for ever."""
    return queue.room - tx.tallied([queue.name], (State.SUSPENDED,))[queue.name]


@other_room
def lapsed_lease_makes_room(tx, queue):
    return queue.room + len(tx.lapsed(tx.steady, 1 << 60, 100))


@bug(amend._ACTIONS, "cancel")
def capacity_leaks(real, tx, row, request):
    verdict = real(tx, row, request)
    if verdict == "done":
        tx.tallies[row.name, row.priority, State.QUEUED] += 1
    return verdict


@bug(Inserting, "_tell_full")
def full_queue_is_not_told(real, self, spec):
    pass


@bug(Inserting, "_tell_full")
def full_queue_is_told_each_time(real, self, spec):
    put = full_mark(spec.queue, spec.by)
    self._tx.publish(record_event(put, self._tx.at))
    self._tx.write_record(put, self._tx.next_revision())


@bug(Inserting, "_count_limited")
def capacity_counts_queued_only(real, self, queues):
    real(self, queues)
    self._counted = self._tx.tallied(list(self._counted), (State.QUEUED,))


# -- 5 attempts --------------------------------------------------------------------------------------------------------


@bug(Settling, "_settle")
def hand_back_is_charged(real, self, settlement, row):
    return real(self, replace(settlement, attempt=row.attempt) if row else settlement, row)


@bug(settle, "_take_over")
def reaper_charges(real, tx, row, request):
    row.attempt += row.fence >= 2
    return real(tx, row, request)


@bug(moves, "start_lease")
def attempt_counted_at_the_end(real, tx, row, **how):
    real(tx, row, **how)
    row.attempt -= 1


@bug(Settling, "_settle")
def lapsed_lease_cannot_settle(real, self, settlement, row):
    lapsed = row is not None and row.until is not None and row.until <= self._tx.steady
    return not lapsed and real(self, settlement, row)


def is_lapsed(tx, beat):
    row = tx.peek(beat.seq)
    return row is not None and row.until is not None and row.until <= tx.steady


@bug(settle, "_extend")
def lapsed_lease_cannot_extend(real, tx, lease, beat):
    return Extended(held=False) if is_lapsed(tx, beat) else real(tx, lease, beat)


# -- deaths ------------------------------------------------------------------------------------------------------------


def other_beat(beat_of):
    """The bug that takes each heartbeat for the one of `beat_of`."""

    def extend(real, tx, lease, beat):
        return real(tx, lease, beat_of(beat))

    extend.__name__ = beat_of.__name__
    return bug(settle, "_extend")(extend)


@other_beat
def alone_is_not_kept(beat):
    return replace(beat, alone=None)


@other_beat
def any_heartbeat_takes_alone_back(beat):
    return replace(beat, alone=bool(beat.alone))


@other_beat
def alone_for_good(beat):
    return replace(beat, alone=beat.alone or None)


@bug(settle, "_extend")
def revived_lease_is_not_alone(real, tx, lease, beat):
    return real(tx, lease, replace(beat, alone=bool(beat.alone)) if is_lapsed(tx, beat) else beat)


@bug(settle, "_take_over")
def take_over_forgets_alone(real, tx, row, request):
    row.alone = False
    return real(tx, row, request)


@bug(settle, "_take_over")
def second_take_over_forgets_alone(real, tx, row, request):
    row.alone = row.alone and not row.reaped
    return real(tx, row, request)


@bug(moves, "start_lease")
def next_claim_is_alone_too(real, tx, row, **how):
    real(tx, row, **how)
    row.alone = row.attempt > 1


@bug(moves, "start_lease")
def retried_job_is_alone_too(real, tx, row, **how):
    real(tx, row, **how)
    row.alone = row.fence > row.attempt


@bug(settle, "_take_over")
def charged_without_beginning(real, tx, row, request):
    """Whatever was claimed counts as begun."""
    row.ahead = False
    return real(tx, row, request)


@bug(Claiming, "__init__")
def ahead_from_the_first(real, self, tx, wanted):
    real(self, tx, wanted if wanted.begins is None else replace(wanted, begins=0))


@bug(Claiming, "__init__")
def nothing_begins_unless_said(real, self, tx, wanted):
    real(self, tx, replace(wanted, begins=wanted.begins or 0))


@other_beat
def beginning_is_not_kept(beat):
    return replace(beat, begun=None)


@other_beat
def any_heartbeat_begins(beat):
    return replace(beat, begun=beat.begun is not False)


@other_beat
def begun_for_good(beat):
    return replace(beat, begun=beat.begun or None)


@bug(moves, "start_lease")
def next_claim_is_ahead_too(real, tx, row, **how):
    ahead = how.pop("ahead", False) or (row.fence > 0 and row.note == "")
    real(tx, row, ahead=ahead, **how)


# -- 6 cancelling ------------------------------------------------------------------------------------------------------


@bug(amend._ACTIONS, "cancel")
def cancelled_job_stays_ready(real, tx, row, request):
    was_queued = row.state is State.QUEUED
    verdict = real(tx, row, request)
    if was_queued:
        row.state = State.QUEUED
    return verdict


@bug(Settling, "_settle")
def cancel_request_forgotten(real, self, settlement, row):
    if row is not None:
        row.cancelling = None
    return real(self, settlement, row)


@bug(amend._ACTIONS, "cancel")
def running_job_is_cancelled_at_once(real, tx, row, request):
    if row.state in FINAL:
        return "refused"
    moves.finish(tx, row, State.CANCELLED, by=request.by)
    return "done"


@bug(amend._ACTIONS, "cancel")
def final_jobs_can_be_cancelled(real, tx, row, request):
    if row.state is State.COMPLETED:
        row.state = State.CANCELLED
        tx.change(row)
        return "done"
    return real(tx, row, request)


# -- changes by people, time, waking -----------------------------------------------------------------------------------


@bug(moves, "is_overdue")
def expiry_ignored_by_claims(real, tx, job):
    return False


@bug(moves, "start_lease")
def retries_expire(real, tx, row, **how):
    expires = row.expires
    real(tx, row, **how)
    row.expires = expires


@bug(amend._ACTIONS, "resume")
def resumed_job_forgets_its_time(real, tx, row, request):
    row.clock = row.due = None
    return real(tx, row, request)


@bug(Settling, "_settle")
def suspend_request_forgotten(real, self, settlement, row):
    if row is not None:
        row.suspending = False
    return real(self, settlement, row)


@bug(amend._ACTIONS, "remove")
def unfinished_jobs_can_be_removed(real, tx, row, request):
    moves.drop(tx, row, keys_for=None)
    return "done"


# -- 10 identity, 12 results -------------------------------------------------------------------------------------------


@bug(Settling, "_settle")
def long_results_are_cut(real, self, settlement, row):
    result = settlement.result
    return real(self, replace(settlement, result=None if result is None else result[: 1 << 20]), row)


@bug(Settling, "_settle")
def empty_results_are_none(real, self, settlement, row):
    return real(self, replace(settlement, result=settlement.result or None), row)


# -- 11 tasks ----------------------------------------------------------------------------------------------------------


@bug(Claiming, "__init__")
def any_task_is_claimed(real, self, tx, wanted):
    real(self, tx, replace(wanted, tasks=None))


@bug(Claiming, "__init__")
def version_ignored(real, self, tx, wanted):
    tasks = wanted.tasks and frozenset((task, version) for task, _ in wanted.tasks for version in range(9))
    real(self, tx, replace(wanted, tasks=tasks))


@bug(Claiming, "_read_heads")
def unknown_head_blocks_the_queue(real, self, queues):
    wanted, self._claim = self._claim, replace(self._claim, tasks=None)
    real(self, queues)
    self._claim = wanted
    for queue in queues:
        if queue.key(self._tx.steady) is not None and wanted.tasks is not None:
            row = self._tx.peek(queue.head.seq)
            if row.name[1:] not in wanted.tasks:
                queue.head = None
                queue.read(iter(()))

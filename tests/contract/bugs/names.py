"""Bugs in idempotency keys, unique names, records, clocks and events; and in jobs that move between stores."""

from __future__ import annotations

from dataclasses import replace as replaced
from datetime import timedelta

from msgspec.structs import replace

from bugs.planting import bug
from daybreak.core.model import FINAL, State
from daybreak.core.units import span
from daybreak.store.protocol import SAGAS_TOPIC, SCHEDULES_TOPIC, Verdict, work_topic
from daybreak.stores.kernel import adopt, amend, moves, pass_time, records, settle
from daybreak.stores.kernel.insert import Inserting, insert
from daybreak.stores.kernel.port import KeyEntry, NameChange
from daybreak.stores.kernel.row import WALL
from daybreak.stores.kernel.transaction import Transaction
from daybreak.stores.memory.transaction import MemoryTransaction

DAY = span(timedelta(days=1))

# -- 7 keys ------------------------------------------------------------------------------------------------------------


@bug(Inserting, "_insert")
def key_ignored(real, self, spec):
    return real(self, replace(spec, key=None))


@bug(Inserting, "_insert")
def content_ignored(real, self, spec):
    return real(self, replace(spec, digest=""))


@bug(amend._ACTIONS, "remove")
def removed_job_keeps_its_key(real, tx, row, request):
    if row.state not in FINAL:
        return real(tx, row, request)
    tx.record(row, "removed", request.by, note=request.note)
    moves.drop(tx, row, keys_for=DAY)
    return "done"


@bug(MemoryTransaction, "free_keys")
def removed_job_frees_one_key(real, self, job):
    until = self.steady + DAY
    others = {name: replaced(self.book.keys[name], until=until) for name in self.book.keys_of_job.get(job, [])[1:]}
    real(self, job)
    self.book.keys.update(others)
    self.book.keys_of_job[job] = list(others)


@bug(moves, "drop")
def purged_key_is_forgotten(real, tx, row, *, keys_for, lives_on=False):
    real(tx, row, keys_for=None)


@bug(Inserting, "_find_by_key")
def purged_key_answers_a_ghost(real, self, spec, key):
    answer = real(self, spec, key)
    is_spent = answer is not None and answer.verdict is Verdict.SPENT
    return replace(answer, verdict=Verdict.DUPLICATE) if is_spent else answer


@bug(Inserting, "_find_by_key")
def purged_key_takes_other_content(real, self, spec, key):
    known = self._keys.get(key)
    is_purged = known is not None and known.seq is None
    return real(self, replace(spec, digest=known.digest) if is_purged else spec, key)


@bug(KeyEntry, "is_free")
def spent_key_waits_for_the_janitor(real, self, now):
    return False


@bug(moves, "drop")
def key_is_spent_from_the_purge_on(real, tx, row, *, keys_for, lives_on=False):
    real(tx, row, keys_for=keys_for, lives_on=True)


@bug(moves, "drop")
def moved_key_is_spent_from_its_submit_on(real, tx, row, *, keys_for, lives_on=False):
    real(tx, row, keys_for=keys_for)


@bug(Inserting, "_assign_key")
def attached_key_is_as_old_as_its_job(real, self, key, digest, row, at=None):
    real(self, key, digest, row)


@bug(MemoryTransaction, "write_keys")
def new_job_keeps_the_time_of_a_spent_key(real, self, keys):
    spent = {new.key: known.until for new in keys if (known := self.book.keys.get(new.key)) is not None}
    real(self, keys)
    for key, until in spent.items():
        self.book.keys[key] = replaced(self.book.keys[key], until=until)


@bug(Inserting, "_insert")
def code_is_not_answered(real, self, spec):
    return replace(real(self, spec), code="")


# -- 7 unique names ----------------------------------------------------------------------------------------------------


@bug(Inserting, "_holder")
def running_job_keeps_its_name(real, self, spec, name):
    return real(self, replace(spec, unique_while="unfinished"), name)


@bug(Inserting, "_holder")
def every_running_job_gives_up_its_name(real, self, spec, name):
    return real(self, replace(spec, unique_while="waiting"), name)


@bug(Inserting, "_holder")
def waiting_job_gives_up_its_name(real, self, spec, name):
    return None if spec.unique_while == "waiting" else real(self, spec, name)


@bug(moves, "close")
def ended_job_frees_the_name_of_another(real, tx, row, keep_for):
    real(tx, row, keep_for)
    if row.unique is not None:
        tx._names[row.unique] = NameChange(row.unique, row.seq, "free")


@bug(moves, "close")
def unique_name_is_kept_for_ever(real, tx, row, keep_for):
    real(tx, row, keep_for)
    tx._names.pop(row.unique, None)


@unique_name_is_kept_for_ever.also(Inserting, "_holder")
def _(real, self, spec, name):
    seq = self._holders.get(name)
    return None if seq is None else self._tx.load_one(seq)


# -- 8 clocks ----------------------------------------------------------------------------------------------------------


@bug(settle, "reap")
def reaper_ignores_outages(real, tx, request, asked_at):
    return real(tx, replace(request, watched_for=timedelta(days=999)), asked_at)


@bug(settle, "reap")
def reap_is_judged_when_it_arrives(real, tx, request, asked_at):
    return real(tx, request, tx.steady)


@bug(settle, "reap")
def nobody_is_reaped(real, tx, request, asked_at):
    return []


@bug(pass_time, "expire")
def clock_jump_expires(real, tx, limit):
    return at_other_time(tx, tx.wall, lambda: real(tx, limit))


@bug(pass_time, "promote")
def delays_stand_still(real, tx, limit):
    return at_other_time(tx, min(tx.wall, tx.steady), lambda: real(tx, limit))


def at_other_time(tx, steady, do):
    wall, before = tx.wall, tx.steady
    tx.set_time(wall, steady)
    try:
        return do()
    finally:
        tx.set_time(wall, before)


# -- 9 events ----------------------------------------------------------------------------------------------------------


@bug(amend._ACTIONS, "suspend")
def event_numbers_have_gaps(real, tx, row, request):
    row.n += 1
    return real(tx, row, request)


@bug(moves, "rerank")
def reprioritised_in_silence(real, tx, row, priority, *, by):
    n, history = row.n, row.history
    real(tx, row, priority, by=by)
    row.n, row.history = n, history


@bug(Transaction, "record")
def nobody_did_it(real, self, row, kind, by, **changed):
    real(self, row, kind, "" if kind == "resumed" else by, **changed)


@bug(Transaction, "record_event")
def end_is_not_in_the_feed(real, self, row, event):
    real(self, row, event)
    if event.state in FINAL:
        self.published.pop()


@bug(amend._ACTIONS, "cancel")
def end_is_told_twice(real, tx, row, request):
    verdict = real(tx, row, request)
    if verdict == "requested":
        tx.record(row, "cancelled", request.by, state=State.CANCELLED)
    return verdict


@bug(moves, "finish")
def nobody_took_its_place(real, tx, row, state, **how):
    real(tx, row, state, **{**how, "replaced_by": None})


# -- records, waking ---------------------------------------------------------------------------------------------------


@bug(records, "_put")
def no_compare_and_set(real, tx, put):
    return real(tx, replace(put, expect=None))


@bug(records, "_put")
def insert_without_its_record(real, tx, put):
    record = real(tx, put)
    if record is None:
        insert(tx, put.inserts, bounded=False)
    return record


@bug(records, "_put")
def record_without_its_inserts(real, tx, put):
    return real(tx, replace(put, inserts=()))


@bug(records, "_put")
def full_queue_refuses_what_a_record_brings(real, tx, put):
    record = real(tx, replace(put, inserts=()))
    if record is not None:
        insert(tx, put.inserts)
    return record


@bug(records, "_put", needs_book=True)
def revisions_start_anew(real, tx, put):
    tx.book.revision = tx.read_revision(put.kind, put.name)
    return real(tx, put)


@bug(records, "_apply")
def request_is_not_told(real, tx, put):
    told = set(tx.topics)
    real(tx, put)
    tx.topics = told


@bug(records, "_apply")
def schedule_is_not_told(real, tx, put):
    real(tx, put)
    tx.topics.discard(SCHEDULES_TOPIC)


@bug(records, "_apply")
def saga_is_not_told(real, tx, put):
    real(tx, put)
    tx.topics.discard(SAGAS_TOPIC)


@bug(Transaction, "_note_move")
def room_is_not_told(real, self, row, before, after):
    told = set(self.topics)
    real(self, row, before, after)
    if before is not None and before.state is State.RUNNING:
        self.topics -= {work_topic(row.queue)} - told


# -- lost answers ------------------------------------------------------------------------------------------------------


@bug(settle, "_take_over")
def reaped_lease_is_answered_again(real, tx, row, request):
    before = row.worker, row.call
    lease = real(tx, row, request)
    row.worker, row.call = before
    return lease


# -- moves -------------------------------------------------------------------------------------------------------------


@bug(adopt, "_row_of")
def adopted_job_keeps_its_fence(real, tx, job):
    row = real(tx, job)
    row.fence -= 1
    return row


@bug(adopt, "_row_of")
def adopted_job_starts_anew(real, tx, job):
    row = real(tx, job)
    row.attempt = 0
    return row


@bug(adopt, "_row_of")
def adopted_job_is_early(real, tx, job):
    row = real(tx, job)
    if row.state is State.SCHEDULED:
        row.clock, row.due = WALL, tx.wall
    return row


@bug(adopt, "_find_conflict")
def adopted_twice(real, tx, moved):
    if row := tx.load_id(moved.job.id):
        moves.drop(tx, row, keys_for=None)
    return real(tx, moved)


@bug(adopt, "_adopt")
def adopted_name_is_not_held(real, tx, moved, by):
    answer = real(tx, moved, by)
    tx._names.pop(moved.job.spec.unique, None)
    return answer


def first_key(moved):
    return replace(moved, keys=dict(list(moved.keys.items())[:1]))


@bug(adopt, "_adopt")
def one_key_goes_along(real, tx, moved, by):
    return real(tx, first_key(moved), by)


@bug(adopt, "_find_conflict")
def adopted_key_is_in_nobodys_way(real, tx, moved):
    return real(tx, first_key(moved))


@bug(adopt, "_find_conflict")
def adopted_job_takes_a_name_it_gave_up(real, tx, moved):
    return real(tx, replace(moved, holds_name=True))


@adopted_job_takes_a_name_it_gave_up.also(adopt, "_adopt")
def _(real, tx, moved, by):
    return real(tx, replace(moved, holds_name=True), by)


@bug(Transaction, "record")
def moved_job_does_not_say_when_it_is_due(real, self, row, kind, by, **changed):
    if kind == "moved":
        changed["run_at"] = None
    real(self, row, kind, by, **changed)


@bug(adopt, "pack")
def held_job_is_packed_without_its_time(real, row, *given):
    return replace(real(row, *given), job=row.as_job())


@bug(adopt, "_adopt")
def history_stays_behind(real, tx, moved, by):
    return real(tx, replace(moved, history=moved.history[:1]), by)

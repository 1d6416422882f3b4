"""Known ways to get the state machine of jobs wrong. The simulation must notice every one."""

from __future__ import annotations

from bugs import jobs, names
from bugs.names import at_other_time
from bugs.planting import Bug, bug
from harness import Parts
from msgspec.structs import replace
from planted import Planted

from daybreak.core.model import Record, State
from daybreak.stores.kernel import moves, pass_time, settle
from daybreak.stores.kernel.claim import UNLIMITED_ROOM, Claiming
from daybreak.stores.kernel.insert import Inserting
from daybreak.stores.kernel.settle import Settling
from daybreak.stores.kernel.transaction import Transaction
from daybreak.stores.memory.transaction import MemoryTransaction


def is_lost(settlement):
    return settlement.failure is not None and settlement.failure.kinds == ("Lost",)


# -- settle ------------------------------------------------------------------------------------------------------------


@bug(Settling, "_settle")
def rescue_by_id_alone(real, self, settlement, row):
    """River #1302: whoever rescues updates by id alone, also a job that has ended meanwhile."""
    if row is None or not is_lost(settlement):
        return real(self, settlement, row)
    settlement = replace(settlement, fence=row.fence)
    if row.state is State.RUNNING:
        return real(self, settlement, row)
    row.finished = None
    self._write(row, settlement)
    return True


@bug(Settling, "_settle")
def no_state_guard(real, self, settlement, row):
    """A settlement that is repeated after a lost reply is written a second time."""
    if row is not None and row.fence == settlement.fence and row.state is not State.RUNNING:
        self._write(row, settlement)
        return True
    return real(self, settlement, row)


@bug(Settling, "_settle")
def charges_twice(real, self, settlement, row):
    """A lost lease costs two attempts: one at the claim, one at the rescue."""
    return real(self, replace(settlement, attempt=settlement.attempt + is_lost(settlement)), row)


@bug(Settling, "_settle")
def charges_a_hand_back(real, self, settlement, row):
    is_handed_back = settlement.state is State.QUEUED and settlement.failure is None
    return real(self, replace(settlement, attempt=settlement.attempt + is_handed_back), row)


@bug(Settling, "_settle")
def forgets_the_crashed(real, self, settlement, row):
    """Sidekiq's brpop: what a dead worker held is nowhere."""
    if row is not None and row.fence == settlement.fence and row.reaped:
        moves.drop(self._tx, row, keys_for=None)
        return True
    return real(self, settlement, row)


# -- leases ------------------------------------------------------------------------------------------------------------


@bug(Claiming, "claim")
def leases_by_the_wall_clock(real, self):
    """Leases are judged by a clock that people set."""
    return at_other_time(self._tx, self._tx.wall, lambda: real(self))


@leases_by_the_wall_clock.also(settle, "extend")
def _(real, tx, beats):
    return at_other_time(tx, tx.wall, lambda: real(tx, beats))


@leases_by_the_wall_clock.also(settle, "reap")
def _(real, tx, request, asked_at):
    return at_other_time(tx, tx.wall, lambda: real(tx, request, tx.wall))


@bug(Claiming, "__init__")
def alive_by_name(real, self, tx, claim):
    """Oban #862: a worker counts as alive while its name is seen; with names that come back, its orphans stay."""
    tx.book.records["seen", claim.worker] = Record(kind="seen", name=claim.worker, value=b"", revision=tx.steady)
    real(self, tx, claim)


@alive_by_name.also(MemoryTransaction, "lapsed")
def _(real, self, until, longest, limit):
    return [seq for seq in real(self, until, longest, limit) if not was_seen(self, self.book.jobs[seq])]


def was_seen(tx, row):
    seen = tx.book.records.get(("seen", row.worker))
    return seen is not None and tx.steady - seen.revision < row.term


@bug(settle, "_take_over")
def forgetful_reap(real, tx, row, request):
    """A request to cancel does not survive the takeover."""
    row.cancelling = None
    return real(tx, row, request)


@bug(moves, "end_lease")
def alone_for_good(real, tx, row):
    """Whoever ran alone once is taken to do so for ever."""
    alone = row.alone
    real(tx, row)
    row.alone = alone


# -- order and limits --------------------------------------------------------------------------------------------------


@bug(Settling, "_write")
def keeps_its_old_rank(real, self, row, settlement):
    """What ran while the discipline changed comes back with the rank of the old one. (A real one, found here.)"""
    before = row.band, row.ord
    real(self, row, settlement)
    row.band, row.ord = before


@bug(Inserting, "_accept")
def never_ages(real, self, spec, settings):
    """A queue that should age is served by priority alone."""
    return real(self, spec, replace(settings, discipline="fifo"))


@bug(Claiming, "_open_queues")
def no_max_running(real, self):
    queues = real(self)
    for queue in queues:
        queue.room = 0 if queue.settings.paused else UNLIMITED_ROOM
    return queues


@bug(Claiming, "_open_queues")
def ignores_a_pause(real, self):
    queues = real(self)
    for queue in queues:
        if queue.settings.paused:
            most, running = queue.settings.max_running, self._tx.tallied([queue.name], (State.RUNNING,))[queue.name]
            queue.room = UNLIMITED_ROOM if most is None else most - running
    return queues


@bug(Inserting, "_count_limited")
def no_capacity(real, self, queues):
    real(self, queues)
    self._counted = dict.fromkeys(self._counted, 0)


@bug(moves, "finish")
def starts_the_cancelled(real, tx, row, state, **how):
    """A cancelled job stays in the list of what can be claimed."""
    was_queued = row.state is State.QUEUED
    real(tx, row, state, **how)
    if was_queued and state is State.CANCELLED:
        row.state = State.QUEUED


@bug(pass_time, "promote")
def starts_early(real, tx, limit):
    """A delayed job is taken up as soon as it is within two seconds of its time."""
    return at_other_time(tx, tx.steady + 2_000_000, lambda: real(tx, limit))


# -- accepting ---------------------------------------------------------------------------------------------------------


@bug(Inserting, "_find_by_key")
def key_without_content(real, self, spec, key):
    """Other content under a known key is taken for the same."""
    known = self._keys.get(key)
    return real(self, replace(spec, digest=known.digest) if known else spec, key)


# -- events ------------------------------------------------------------------------------------------------------------


@bug(Transaction, "record_event")
def number_gap(real, self, row, event):
    """A takeover uses up an event number too many."""
    real(self, row, replace(event, n=event.n + 1) if event.kind == "lease_expired" else event)


@bug(Transaction, "record_event")
def lost_event(real, self, row, event):
    """Now and then an event is in the job's history and not in the feed."""
    real(self, row, event)
    if event.kind == "reprioritised":
        self.published.pop()


@bug(Transaction, "record_event")
def silent_release(real, self, row, event):
    """A hand-back changes the job without an event."""
    if event.kind != "released":
        real(self, row, event)


def planted(name: str, caught_by: set[str], within: int, one: Bug, parts: Parts | None = None) -> Planted:
    return Planted(name, caught_by, within, parts=parts or Parts(), changes=tuple(one.changes))


KERNEL = [
    planted("settle without a fence", {"I4", "I6"}, 20, jobs.no_fence_in_settle),
    planted("rescue by id alone", {"I6", "I7", "I8"}, 150, rescue_by_id_alone),
    planted("settle without a state guard", {"I4", "I8"}, 60, no_state_guard),
    planted("a lost lease charged twice", {"I14"}, 10, charges_twice),
    planted("a hand-back charged", {"I14"}, 10, charges_a_hand_back),
    planted("crashed jobs forgotten", {"I1"}, 10, forgets_the_crashed),
    planted("a cancelled job completes", {"I16"}, 20, jobs.cancel_request_forgotten),
    planted("reap keeps the fence", {"I5", "I6", "I9"}, 20, jobs.reaper_keeps_the_fence),
    planted("store ignores watched_for", {"P8"}, 20, names.reaper_ignores_outages),
    planted("leases by the wall clock", {"P8", "I20", "I1"}, 30, leases_by_the_wall_clock),
    planted("heartbeat without a fence", {"I6"}, 30, jobs.no_fence_in_extend),
    planted("worker alive by a name that comes back", {"I20", "I1"}, 60, alive_by_name, Parts(reuse_names=True)),
    planted("a cancel request lost in a takeover", {"I16", "I9"}, 60, forgetful_reap),
    planted("alone for good", {"I15"}, 40, alone_for_good),
    planted("alone forgotten in a takeover", {"I15"}, 20, jobs.take_over_forgets_alone),
    planted("alone forgotten by a heartbeat", {"I15"}, 20, jobs.any_heartbeat_takes_alone_back),
    planted("charged without beginning", {"I14"}, 60, jobs.charged_without_beginning),
    planted("last in, first out", {"I10"}, 10, jobs.last_in_first_out),
    planted("priority ignored", {"I10"}, 10, jobs.priority_ignored),
    planted("old rank kept over a new discipline", {"I10"}, 150, keeps_its_old_rank),
    planted("an aging queue that starves", {"I11"}, 30, never_ages),
    planted("max_running not looked at", {"I12"}, 20, no_max_running),
    planted("pause not looked at", {"I12"}, 20, ignores_a_pause),
    planted("capacity not looked at", {"I12"}, 30, no_capacity),
    planted("a cancelled job starts", {"I7", "I8", "I16"}, 30, starts_the_cancelled),
    planted("delayed jobs start early", {"I17"}, 10, starts_early),
    planted("expired jobs start", {"I17"}, 30, jobs.expiry_ignored_by_claims),
    planted("keys forgotten with their job", {"I3"}, 30, names.purged_key_is_forgotten),
    planted("key with other content accepted", {"I3"}, 20, key_without_content),
    planted("a gap in the event numbers", {"I9"}, 10, number_gap),
    planted("an event missing from the feed", {"I9"}, 20, lost_event),
    planted("a change without an event", {"I8", "I9"}, 10, silent_release),
]

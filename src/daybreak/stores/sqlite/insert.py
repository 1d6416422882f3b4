"""Insert: jobs in bulk, each with its own verdict."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from daybreak.core import events
from daybreak.core.model import WAITING, JobSpec, QueueSettings, Reason, State
from daybreak.core.rank import rank_of
from daybreak.core.units import moment, span
from daybreak.core.wait_limit import SHORTENED_NOTE, shortened_wait
from daybreak.store.protocol import Inserted, Verdict, work_topic
from daybreak.stores.sqlite import gauge_rows, job_moves
from daybreak.stores.sqlite.full_queues import tell_full
from daybreak.stores.sqlite.ledger import Cell, Ledger
from daybreak.stores.sqlite.rows import JobState, Row, Values, first_due, pack_carry, pack_extra, pack_options
from daybreak.stores.sqlite.statements import sql

# Module constants, because every access to an enum member is a function call.
NEW, QUEUED, SCHEDULED, BLOCKED = Verdict.NEW, State.QUEUED, State.SCHEDULED, State.BLOCKED


class Inserting:
    """One insert. New jobs are collected and written together. A job that needs a look at other jobs has the collected
    ones written first."""

    def __init__(self, ledger: Ledger, *, bounded: bool = True) -> None:
        self._ledger = ledger
        self._bounded = bounded  # False for the inserts of a settlement or record: a full queue does not refuse them
        self._counted: dict[str, int] = {}  # queue -> its unfinished jobs
        self._accepted: defaultdict[Cell, int] = defaultdict(int)
        self._woken: set[str] = set()
        self._jobs: list[Values] = []
        self._ready: list[Values] = []
        self._delayed: list[Values] = []
        self._held: list[Values] = []
        self._keys: dict[str, Values] = {}

    def insert(self, specs: Sequence[JobSpec]) -> list[Inserted]:
        answers = [self._insert(spec) for spec in specs]
        self._write()
        return answers

    def _insert(self, spec: JobSpec) -> Inserted:
        ledger = self._ledger
        if (known := self._find_existing(spec)) is not None:
            return known
        holder = self._holder(spec) if spec.unique is not None else None
        if holder and spec.unique_while == "waiting" and holder.state is State.RUNNING:
            holder = None  # the running job gives up the name
        replaces = holder is not None and spec.on_conflict == "replace" and holder.state is not State.RUNNING
        if holder and not replaces:
            return self._keep_holder(holder, spec)
        settings, victim = ledger.settings(spec.queue), None
        if self._bounded and (settings.capacity is not None or spec.options.resources):
            freed = 1 if holder and holder.queue == spec.queue else 0
            is_full = settings.capacity is not None and self._unfinished(spec.queue) - freed >= settings.capacity
            crowded = self._crowded_resources(spec)
            if is_full:
                tell_full(ledger, spec)
            if is_full or crowded:
                victim = self._find_victim(spec, crowded) if settings.when_full == "shed" else None
                if victim is None:
                    return Inserted(Verdict.FULL, spec.id)
        if holder:
            self._uncount(holder)
            job_moves.finish(ledger, holder, State.CANCELLED, by=spec.by, note="replaced", replaced_by=spec.id)
        if victim and not (holder and holder.seq == victim.seq):
            self._uncount(victim)
            note = f"pushed out by {spec.id}"
            job_moves.finish(
                ledger,
                victim,
                State.FAILED,
                by=spec.by,
                reason=Reason.SHED,
                note=note,
                kind="shed",
                replaced_by=spec.id,
            )
        return self._accept(spec, settings, victim.id if victim else "")

    def _find_victim(self, spec: JobSpec, crowded: list[str]) -> Row | None:
        """The job that makes room for this one: of the queued and blocked jobs of its queue the last in rank, if it is
        less urgent. At a crowded resource only a job that waits for it makes room; at two of them no job can."""
        if len(crowded) > 1:
            return None
        self._write()
        ledger, lasts = self._ledger, []
        for lane in ledger.lanes_of(spec.queue, None):
            if crowded:
                lasts += ledger.rows(sql.last_waiting_in_lane, (crowded[0], lane))
            else:
                lasts += ledger.rows(sql.last_in_lane, (lane,))
                lasts += ledger.rows(sql.last_blocked_in_lane, (lane,))
        row = job_moves.load(ledger, max(lasts)[2]) if lasts else None
        return row if row is not None and row.priority > spec.priority else None

    def _uncount(self, row: Row) -> None:
        if row.queue in self._counted:
            self._counted[row.queue] -= 1

    def _crowded_resources(self, spec: JobSpec) -> list[str]:
        """The resources of a job for which as many jobs wait as `max_waiting` allows."""
        crowded = []
        for need in spec.options.resources:
            limit = gauge_rows.gauge_of(self._ledger, need.resource).settings.max_waiting
            if limit is not None:
                self._write()
                if self._ledger.value(sql.count_waiting, (need.resource, limit)) >= limit:
                    crowded.append(need.resource)
        return crowded

    def _unfinished(self, queue: str) -> int:
        if queue not in self._counted:
            self._write()
            self._counted[queue] = self._ledger.unfinished(queue)
        return self._counted[queue]

    def _find_existing(self, spec: JobSpec) -> Inserted | None:
        """The answer if this submission is known by its id or key. Ids rise, so most new ids need no query."""
        ledger, known = self._ledger, self._ledger.known
        if known.last_id is None:
            self._write()
            known.last_id = ledger.value(sql.last_id) or ""
        if spec.id <= known.last_id:
            self._write()
            if row := job_moves.load_id(ledger, spec.id):
                return Inserted(Verdict.DUPLICATE, spec.id, row.seq, row.state, "id")
        if spec.key is not None:
            # Only a job of this insert with the same key makes the collected jobs matter here.
            if spec.key in self._keys:
                self._write()
            if found := ledger.execute(sql.key_of, (spec.key,)).fetchone():
                return self._find_by_key(spec, *found)
        return None

    def _find_by_key(self, spec: JobSpec, digest: str, job: str, seq: int | None, until: int | None) -> Inserted | None:
        """The answer by an idempotency key; None if the key is spent and its time is over."""
        is_same = digest == spec.digest
        if seq is None:
            if until is None or until <= self._ledger.steady:
                return None
            return Inserted(Verdict.SPENT if is_same else Verdict.CONFLICT, job, same="key")
        row = job_moves.load(self._ledger, seq)
        assert row is not None
        verdict = Verdict.DUPLICATE if is_same else Verdict.CONFLICT
        return Inserted(verdict, job, row.seq, row.state, "key", code=row.spec.code)

    def _holder(self, spec: JobSpec) -> Row | None:
        self._write()
        seq = self._ledger.value(sql.holder_of, (spec.unique,))
        return None if seq is None else job_moves.load(self._ledger, seq)

    def _keep_holder(self, holder: Row, spec: JobSpec) -> Inserted:
        if spec.on_conflict == "refuse":
            return Inserted(Verdict.CONFLICT, holder.id, holder.seq, holder.state, "unique")
        if spec.on_conflict == "raise" and spec.priority < holder.priority and holder.state in WAITING:
            job_moves.rerank(self._ledger, holder, spec.priority, by=spec.by)
        if spec.key is not None:  # the key belongs to the holder from now on, even after the holder ends
            self._ledger.execute(sql.insert_key, (spec.key, spec.digest, holder.id, self._ledger.steady))
        return Inserted(Verdict.DUPLICATE, holder.id, holder.seq, holder.state, "unique")

    def _accept(self, spec: JobSpec, settings: QueueSettings, evicted: str) -> Inserted:
        ledger = self._ledger
        lane = ledger.lane(spec.queue, spec.task, spec.version)
        seq = ledger.next_seqs(1)
        band, order, _ = rank_of(settings, spec.priority, ledger.steady, seq)
        expires, note = None, ""
        if spec.options.expires_in is not None:
            limit = span(spec.options.expires_in)
            shorter = self._wait_limit(limit, spec, settings)
            expires = ledger.steady + shorter
            if shorter < limit:
                note = SHORTENED_NOTE
                ledger.count(lane, spec.priority, {"shortened": (1, 0)})
        self._jobs.append((
            seq, spec.id, lane, band, order, spec.priority, spec.priority, ledger.wall, ledger.steady, expires,
            spec.by, spec.run, spec.owner, spec.key, spec.unique, pack_options(spec.options),
            pack_extra(spec, shortened=bool(note)), spec.args,
        ))  # fmt: skip
        due = first_due(spec, ledger.wall, ledger.steady)
        if spec.holder is not None:
            # A job with a holder waits for its resource at first; the resource is offered before this request ends.
            state, cause = BLOCKED, spec.options.resources[0].resource
            carry = pack_carry(JobState(blocked_since=ledger.steady))
            self._held.append((
                seq, "blocked", cause, lane, band, order, None, None, 0, 0, 1, carry, None
            ))  # fmt: skip
            ledger.freed.add(cause)
        elif due is None:
            state = QUEUED
            self._ready.append((lane, band, order, seq, 0, 0, 1, None, None))
        else:
            state = SCHEDULED
            self._delayed.append((seq, *due, 0, 0, 1, None, None))
        if spec.key is not None:
            self._keys[spec.key] = (spec.key, spec.digest, spec.id, None)
        if spec.unique is not None:
            ledger.execute(sql.insert_unique, (spec.unique, seq))
        if (known := ledger.known).last_id is not None and spec.id > known.last_id:
            known.last_id = spec.id
        ledger.publish(events.submitted(spec, state, ledger.at, None if due is None else moment(due[1]), note))
        self._accepted[lane, spec.priority, state] += 1
        if spec.queue in self._counted:
            self._counted[spec.queue] += 1
        if spec.queue not in self._woken:
            self._woken.add(spec.queue)
            ledger.wake(work_topic(spec.queue))
        return Inserted(NEW, spec.id, seq, state, "", evicted)

    def _wait_limit(self, limit: int, spec: JobSpec, settings: QueueSettings) -> int:
        if settings.capacity is None:
            return limit
        return shortened_wait(limit, spec.priority, self._unfinished(spec.queue), settings.capacity)

    def _write(self) -> None:
        ledger = self._ledger
        for statement, rows in (
            (sql.insert_job, self._jobs),
            (sql.insert_ready, self._ready),
            (sql.insert_delayed, self._delayed),
            (sql.insert_held, self._held),
        ):
            if rows:
                ledger.executemany(statement, rows)
                rows.clear()
        if self._keys:
            ledger.executemany(sql.insert_key, list(self._keys.values()))
            self._keys.clear()
        for (lane, priority, state), n in self._accepted.items():
            ledger.tally(lane, priority, state, n)
            ledger.count(lane, priority, {"submitted": (n, 0)})
        self._accepted.clear()

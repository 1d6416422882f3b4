"""Insert on the general path: every job that must be compared with others first. plain_path.py inserts the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from daybreak.core import events
from daybreak.core.errors import BadInput
from daybreak.core.model import FINAL, UNFINISHED, WAITING, JobSpec, QueueSettings, Reason, State
from daybreak.core.rank import rank_of
from daybreak.core.units import moment, span
from daybreak.core.wait_limit import SHORTENED_FROM, SHORTENED_NOTE, shortened_wait
from daybreak.store.protocol import Inserted, Verdict
from daybreak.stores.postgres import job_moves
from daybreak.stores.postgres.arrays import Bigints, Blobs, Ints, Smallints, Texts
from daybreak.stores.postgres.event_lines import SEPARATOR
from daybreak.stores.postgres.full_queues import tell_full
from daybreak.stores.postgres.ledger import Ledger
from daybreak.stores.postgres.rows import JobState, Row, first_due, pack_extra, pack_options

KEY_LOCKS, NAME_LOCKS = 0x44424B, 0x44424E  # classes of advisory locks


@dataclass(slots=True)
class KeyEntry:
    """The job of an idempotency key. If the job was purged, the key is spent `until` then."""

    digest: str
    job: str
    seq: int | None
    until: int | None = None


@dataclass(slots=True)
class New:
    """An accepted job that is not written yet."""

    at: int  # index of its answer
    spec: JobSpec
    settings: QueueSettings
    expires_in: int | None
    is_shortened: bool
    evicted: str


def lock_names(ledger: Ledger, specs: Sequence[JobSpec]) -> None:
    """Lock the keys, then the unique names of these jobs, each in order."""
    if keys := sorted({spec.key for spec in specs if spec.key is not None}):
        ledger.rows(ledger.sql.lock_names, (KEY_LOCKS, Texts(keys)))
    if names := sorted({spec.unique for spec in specs if spec.unique is not None}):
        ledger.rows(ledger.sql.lock_names, (NAME_LOCKS, Texts(names)))


class Inserting:
    """One insert in one transaction. New jobs are collected and written together, and before any other job is read."""

    def __init__(self, ledger: Ledger, specs: Sequence[JobSpec], *, bounded: bool = True) -> None:
        self._ledger = ledger
        self._specs = specs
        self._bounded = bounded  # False for the inserts of a settlement or record: a full queue does not refuse them
        self._answers: list[Inserted | None] = []
        self._new: list[New] = []
        self._keys: dict[str, KeyEntry] = {}
        self._new_keys: list[tuple[str, str, str, int | None]] = []
        self._holders: dict[str, int | None] = {}  # None: a job that is not written yet
        self._seqs: dict[str, int | None] = {}
        self._counted: dict[str, int] = {}  # unfinished jobs of queues that have a limit
        self._last: dict[
            str, tuple[int, int] | None
        ] = {}  # by queue: seq and priority of the last in rank of the queued and blocked jobs

    def insert(self) -> list[Inserted]:
        self._prepare()
        for spec in self._specs:
            self._answers.append(self._insert(spec))
        self._write()
        return [answer for answer in self._answers if answer is not None]

    def _prepare(self) -> None:
        """Lock every key and unique name of the batch, then read what exists."""
        ledger, sql, specs = self._ledger, self._ledger.sql, self._specs
        if bad_id := next((spec.id for spec in specs if SEPARATOR in spec.id), None):
            raise BadInput(f"job {bad_id!r}: an id must not contain character 31 (unit separator)")
        keys = sorted({spec.key for spec in specs if spec.key is not None})
        names = sorted({spec.unique for spec in specs if spec.unique is not None})
        queues = sorted({spec.queue for spec in specs})
        self._load_resources()
        ledger.load_settings(queues)
        self._count_limited(queues)
        lock_names(ledger, specs)
        if keys:
            self._load_keys(keys)
        if names:
            self._holders.update(ledger.rows(sql.holders_of, (Texts(names),)))
        self._seqs.update(ledger.rows(sql.seqs_of_ids, (Texts([spec.id for spec in specs]),)))

    def _load_keys(self, keys: Sequence[str]) -> None:
        """Read the jobs of these keys. A spent key whose retention is over counts as unused."""
        ledger = self._ledger
        for key in keys:
            self._keys.pop(key, None)
        for key, digest, job, seq, until in ledger.rows(ledger.sql.keys_of, (Texts(keys),)):
            if seq is not None or (until is not None and until > ledger.steady):
                self._keys[key] = KeyEntry(digest, job, seq, until)

    def _count_limited(self, queues: Sequence[str]) -> None:
        ledger = self._ledger
        limited = [queue for queue in queues if ledger.settings(queue).capacity is not None]
        if self._bounded:
            ledger.lock_limits(limited)
        else:  # nothing is refused, but a crowded queue shortens the expiry of jobs that are not urgent
            expiring = {
                spec.queue for spec in self._specs if spec.priority >= SHORTENED_FROM and spec.options.expires_in
            }
            limited = [queue for queue in limited if queue in expiring]
        if limited:
            self._counted = ledger.tallied(limited, UNFINISHED)

    def _load_resources(self) -> None:
        """Load the resources that the jobs need. Take the resource lock if the acceptance of a job depends on who
        waits."""
        ledger, specs = self._ledger, self._specs
        resources = sorted({need.resource for spec in specs for need in spec.options.resources})
        if not resources:
            return
        if ledger.has_resource_lock:
            ledger.gauges.load(resources)
        elif any(spec.holder is not None for spec in specs) or (
            self._bounded and ledger.value(ledger.sql.has_max_waiting, (Texts(resources),))
        ):
            ledger.require_resource_lock()

    def _insert(self, spec: JobSpec) -> Inserted | None:
        """Returns None for a new job: its answer is set when it is written."""
        if (known := self._find_existing(spec)) is not None:
            return known
        holder = self._holder(spec) if spec.unique is not None else None
        if holder and spec.unique_while == "waiting" and holder.state is State.RUNNING:
            holder = None  # a running job gives up its unique name
        replaces = holder is not None and spec.on_conflict == "replace" and holder.state is not State.RUNNING
        if holder and not replaces:
            return self._keep_holder(holder, spec)
        settings = self._ledger.settings(spec.queue)
        freed = 1 if holder and holder.queue == spec.queue else 0
        victim = None
        if self._bounded:
            is_full = settings.capacity is not None and self._counted[spec.queue] - freed >= settings.capacity
            crowded = self._crowded_resources(spec) if self._ledger.has_resource_lock else []
            if is_full:
                tell_full(self._ledger, spec)
            if is_full or crowded:
                victim = self._find_victim(spec, crowded) if settings.when_full == "shed" else None
                if victim is None:
                    return Inserted(Verdict.FULL, spec.id)
        if holder:
            self._uncount(holder)
            job_moves.finish(self._ledger, holder, State.CANCELLED, by=spec.by, note="replaced", replaced_by=spec.id)
        if victim and not (holder and victim.seq == holder.seq):
            self._uncount(victim)
            note = f"pushed out by {spec.id}"
            job_moves.finish(
                self._ledger,
                victim,
                State.FAILED,
                by=spec.by,
                reason=Reason.SHED,
                note=note,
                kind="shed",
                replaced_by=spec.id,
            )
        self._accept(spec, settings, victim.id if victim else "")
        return None

    def _uncount(self, row: Row) -> None:
        if row.queue in self._counted:
            self._counted[row.queue] -= 1
        self._last.clear()

    def _find_victim(self, spec: JobSpec, crowded: list[str]) -> Row | None:
        """The job that makes room for this one: of the queued and blocked jobs of its queue the last in rank, if it is
        less urgent. At a crowded resource only a job that waits for it makes room; at two of them no job can."""
        ledger = self._ledger
        if len(crowded) > 1:
            return None
        if crowded:
            self._write()
            lanes = Ints(ledger.lanes_of(spec.queue))
            found = ledger.rows(ledger.sql.last_waiting_in_lanes, (lanes, crowded[0]))
            return job_moves.load(ledger, found[0][0]) if found and found[0][1] > spec.priority else None
        while True:
            if spec.queue not in self._last:
                self._write()
                found = ledger.rows(ledger.sql.last_in_lanes, (Ints(ledger.lanes_of(spec.queue)),))
                self._last[spec.queue] = found[0] if found else None
            last = self._last[spec.queue]
            if last is None or last[1] <= spec.priority:
                return None
            row = job_moves.load(ledger, last[0])
            if row is not None and row.state in (State.QUEUED, State.BLOCKED) and row.priority == last[1]:
                return row
            del self._last[spec.queue]  # it was claimed or changed while this transaction waited for its lock

    def _crowded_resources(self, spec: JobSpec) -> list[str]:
        """The resources of a job for which as many jobs wait as `max_waiting` allows."""
        gauges, crowded = self._ledger.gauges, []
        for need in spec.options.resources:
            if (most := gauges[need.resource].settings.max_waiting) is not None:
                if any(new.spec.holder is not None for new in self._new):
                    self._write()  # jobs with a holder wait from the start, so they count
                if gauges.waiting(need.resource) >= most:
                    crowded.append(need.resource)
        return crowded

    def _find_existing(self, spec: JobSpec) -> Inserted | None:
        """The answer if a job with this id or key exists already."""
        if spec.id in self._seqs:
            row = self._read_existing(self._seqs[spec.id], spec.id)
            return Inserted(Verdict.DUPLICATE, spec.id, row.seq, row.state, "id")
        return None if spec.key is None else self._find_by_key(spec, spec.key)

    def _find_by_key(self, spec: JobSpec, key: str) -> Inserted | None:
        while (known := self._keys.get(key)) is not None:
            is_same = known.digest == spec.digest
            if known.seq is None and known.job not in self._seqs:
                return Inserted(Verdict.SPENT if is_same else Verdict.CONFLICT, known.job, same="key")
            row = self._read_row(known.seq, known.job)
            if row is not None:
                verdict = Verdict.DUPLICATE if is_same else Verdict.CONFLICT
                return Inserted(verdict, known.job, row.seq, row.state, "key", code=row.spec.code)
            self._load_keys([key])  # its job was removed or purged since the keys were read
        return None

    def _read_existing(self, seq: int | None, job: str) -> Row:
        row = self._read_row(seq, job)
        assert row is not None
        return row

    def _read_row(self, seq: int | None, job: str) -> Row | None:
        self._write()
        seq = seq or self._seqs[job]
        assert seq is not None
        return job_moves.read_rows(self._ledger, [seq]).get(seq)

    def _holder(self, spec: JobSpec) -> Row | None:
        assert spec.unique is not None
        if spec.unique not in self._holders:
            return None
        self._write()
        seq = self._holders[spec.unique]
        assert seq is not None
        row = job_moves.load(self._ledger, seq)
        # It may have ended while this transaction waited for its lock; then the name is free.
        return None if row is None or row.state in FINAL else row

    def _keep_holder(self, holder: Row, spec: JobSpec) -> Inserted:
        if spec.on_conflict == "refuse":
            return Inserted(Verdict.CONFLICT, holder.id, holder.seq, holder.state, "unique")
        if spec.on_conflict == "raise" and spec.priority < holder.priority and holder.state in WAITING:
            job_moves.rerank(self._ledger, holder, spec.priority, by=spec.by)
            self._last.clear()
        if spec.key is not None:  # from now on this key belongs to the holder, even after it has ended
            self._assign_key(spec.key, spec.digest, holder.id, holder.seq, self._ledger.steady)
        return Inserted(Verdict.DUPLICATE, holder.id, holder.seq, holder.state, "unique")

    def _assign_key(self, key: str, digest: str, job: str, seq: int | None, at: int | None = None) -> None:
        self._keys[key] = KeyEntry(digest, job, seq)
        self._new_keys.append((key, digest, job, at))

    def _accept(self, spec: JobSpec, settings: QueueSettings, evicted: str) -> None:
        limit = shorter = None if spec.options.expires_in is None else span(spec.options.expires_in)
        if limit is not None and spec.queue in self._counted:
            shorter = shortened_wait(limit, spec.priority, self._counted[spec.queue], settings.capacity)
        self._new.append(New(len(self._answers), spec, settings, shorter, shorter != limit, evicted))
        self._last.pop(spec.queue, None)
        self._seqs[spec.id] = None
        if spec.key is not None:
            self._assign_key(spec.key, spec.digest, spec.id, None)
        if spec.unique is not None:
            self._holders[spec.unique] = None
        if spec.queue in self._counted:
            self._counted[spec.queue] += 1

    def _write(self) -> None:
        ledger, sql = self._ledger, self._ledger.sql
        if self._new:
            seqs = ledger.next_seqs(len(self._new))
            rows = [self._row(seq, new) for seq, new in zip(seqs, self._new, strict=True)]
            write_jobs(ledger, rows)
            job_moves.enter_all(ledger, rows)
            for row, new in zip(rows, self._new, strict=True):
                answer = Inserted(Verdict.NEW, row.id, row.seq, row.state, "", new.evicted)
                if new.at == len(self._answers):  # written before its own answer was appended
                    self._answers.append(answer)
                else:
                    self._answers[new.at] = answer
                self._seqs[row.id] = row.seq
                if row.uniq is not None:
                    self._holders[row.uniq] = row.seq
            named = [row for row in rows if row.uniq is not None]
            if named:
                ledger.run(sql.insert_uniques, (Texts([r.uniq for r in named]), Bigints([r.seq for r in named])))
            self._new.clear()
        if self._new_keys:
            keys, digests, jobs, times = zip(*self._new_keys, strict=True)
            ledger.run(sql.insert_keys, (Texts(keys), Texts(digests), Texts(jobs), Bigints(times)))
            self._new_keys.clear()

    def _row(self, seq: int, new: New) -> Row:
        ledger, spec = self._ledger, new.spec
        band, order, _ = rank_of(new.settings, spec.priority, ledger.steady, seq)
        due = first_due(spec, ledger.wall, ledger.steady)
        row = Row(
            seq=seq, id=spec.id, lane=ledger.lane(spec.queue, spec.task, spec.version),
            name=(spec.queue, spec.task, spec.version), band=band, ord=order, priority=spec.priority,
            asked=spec.priority, created=ledger.wall, arrived=ledger.steady,
            expires=None if new.expires_in is None else ledger.steady + new.expires_in, by=spec.by, run=spec.run,
            owner=spec.owner, key=spec.key, uniq=spec.unique, options=pack_options(spec.options),
            extra=pack_extra(spec), args=spec.args, state=State.SCHEDULED, attempt=0, fence=0, n=1,
            started=None, progress=None, carry=JobState(), note=None, message=None, history=None, clock=due and due[0],
            due=due and due[1], worker=None, until=None, term=None, call=None, reaped=None, alone=None,
            suspending=None, cancelling=None, reason=None, finished=None, purge_at=None, result=None,
        )  # fmt: skip
        if due is None:
            job_moves.make_ready(ledger, row)
        run_at = None if due is None else moment(due[1])
        ledger.totals.count(row.lane, row.priority, "submitted")
        if new.is_shortened:
            ledger.totals.count(row.lane, row.priority, "shortened")
            row.history = ledger.publish(events.submitted(spec, row.state, ledger.at, run_at, SHORTENED_NOTE))
        else:
            ledger.publish(events.submitted(spec, row.state, ledger.at, run_at))
        return row


def write_jobs(ledger: Ledger, rows: Sequence[Row]) -> None:
    """Write the immutable part of the jobs."""
    ledger.run(
        ledger.sql.insert_job,
        (
            Bigints([r.seq for r in rows]), Texts([r.id for r in rows]), Ints([r.lane for r in rows]),
            Smallints([r.band for r in rows]), Bigints([r.ord for r in rows]),
            Smallints([r.priority for r in rows]), Smallints([r.asked for r in rows]),
            Bigints([r.created for r in rows]), Bigints([r.arrived for r in rows]),
            Bigints([r.expires for r in rows]), Texts([r.by for r in rows]), Texts([r.run for r in rows]),
            Texts([r.owner for r in rows]), Texts([r.key for r in rows]), Texts([r.uniq for r in rows]),
            Blobs([r.options for r in rows]), Blobs([r.extra for r in rows]), Blobs([r.args for r in rows]),
        ),
    )  # fmt: skip

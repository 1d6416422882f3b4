"""Insert: jobs in bulk, each with its own verdict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from daybreak.core import events
from daybreak.core.flights import flight_of
from daybreak.core.model import FINAL, UNFINISHED, WAITING, JobSpec, QueueSettings, Reason, State
from daybreak.core.queue_marks import full_mark
from daybreak.core.rank import rank_of
from daybreak.core.units import span
from daybreak.core.wait_limit import SHORTENED_FROM, SHORTENED_NOTE, shortened_wait
from daybreak.store.protocol import Inserted, Verdict
from daybreak.stores.kernel import landings, moves
from daybreak.stores.kernel.port import KeyEntry
from daybreak.stores.kernel.row import Row, first_due
from daybreak.stores.kernel.transaction import Transaction


def insert(tx: Transaction, specs: Sequence[JobSpec], *, bounded: bool = True) -> list[Inserted]:
    """Insert jobs. They are `bounded` by the capacity of their queues and resources, except those of a settlement or a
    record: what they belong to is accepted already."""
    if (inserted := tx.insert_plain(specs, bounded=bounded)) is not None:
        return inserted
    return Inserting(tx, specs, bounded=bounded).insert()


def lock_keys_and_names(tx: Transaction, specs: Sequence[JobSpec]) -> None:
    """Lock the keys, then the unique names of these jobs, each in order."""
    if keys := sorted({spec.key for spec in specs if spec.key is not None}):
        tx.lock_names("key", keys)
    if names := sorted({spec.unique for spec in specs if spec.unique is not None}):
        tx.lock_names("unique", names)


class Inserting:
    """One insert. What exists already is read for all jobs together."""

    def __init__(self, tx: Transaction, specs: Sequence[JobSpec], *, bounded: bool) -> None:
        self._tx = tx
        self._specs = specs
        self._bounded = bounded
        self._seqs: dict[str, int] = {}
        self._keys: dict[str, KeyEntry] = {}
        self._holders: dict[str, int] = {}
        self._counted: dict[str, int] = {}  # unfinished jobs of queues whose capacity matters
        self._last: dict[str, int | None] = {}  # by queue: the last in rank of its queued and blocked jobs

    def insert(self) -> list[Inserted]:
        """Insert all jobs, in order."""
        self._prepare()
        return [self._insert(spec) for spec in self._specs]

    def _prepare(self) -> None:
        """Lock every key and unique name, then read what exists."""
        tx, specs = self._tx, self._specs
        keys = sorted({spec.key for spec in specs if spec.key is not None})
        names = sorted({spec.unique for spec in specs if spec.unique is not None})
        queues = sorted({spec.queue for spec in specs})
        self._prepare_resources()
        tx.load_settings(queues)
        self._count_limited(queues)
        tx.write()
        lock_keys_and_names(tx, specs)
        if keys:
            self._keys = tx.keys_of(keys)
        if names:
            self._holders = tx.holders_of(names)
        if flights := [spec.flight for spec in specs if flight_of(spec) is not None]:
            if self._holders:
                tx.load(self._holders.values())  # jobs are locked before flights
            tx.flights.load(flights)
        self._seqs = tx.seqs_of([spec.id for spec in specs])
        tx.expect_new(self._count_certain)

    def _count_certain(self) -> int:
        """How many of the jobs are accepted for certain: nothing has their names, and their queues have room. What
        becomes of the others is decided one by one."""
        tx, counts = self._tx, Counter(spec.queue for spec in self._specs)
        ids, keys, names = set(self._seqs), set(self._keys), set(self._holders)
        certain = 0
        for spec in self._specs:
            is_known = spec.id in ids or spec.key in keys or spec.unique in names
            ids.add(spec.id)
            if spec.key is not None:
                keys.add(spec.key)
            if spec.unique is not None:
                names.add(spec.unique)
            capacity = tx.settings(spec.queue).capacity if self._bounded else None
            is_full = capacity is not None and self._counted[spec.queue] + counts[spec.queue] > capacity
            may_crowd = self._bounded and any(
                tx.max_waiting(need.resource) is not None for need in spec.options.resources
            )
            certain += not (is_known or is_full or may_crowd)
        return certain

    def _prepare_resources(self) -> None:
        resources = sorted({need.resource for spec in self._specs for need in spec.options.resources})
        if resources:
            has_holders = any(spec.holder is not None for spec in self._specs)
            self._tx.prepare_resources(resources, is_bounded=self._bounded, has_holders=has_holders)

    def _count_limited(self, queues: Sequence[str]) -> None:
        tx = self._tx
        limited = [queue for queue in queues if tx.settings(queue).capacity is not None]
        if self._bounded:
            tx.lock_queues(limited)
        else:  # nothing is refused, but a crowded queue shortens the expiry of jobs that are not urgent
            expiring = {
                spec.queue for spec in self._specs if spec.priority >= SHORTENED_FROM and spec.options.expires_in
            }
            limited = [queue for queue in limited if queue in expiring]
        if limited:
            self._counted = tx.tallied(limited, UNFINISHED)

    def _insert(self, spec: JobSpec) -> Inserted:
        tx = self._tx
        if (known := self._find_existing(spec)) is not None:
            return known
        holder = None if spec.unique is None else self._holder(spec, spec.unique)
        replaces = holder is not None and spec.on_conflict == "replace" and holder.state is not State.RUNNING
        if holder and not replaces:
            return self._keep_holder(holder, spec)
        settings, victim = tx.settings(spec.queue), None
        if self._bounded and not self._is_known(spec) and (settings.capacity is not None or spec.options.resources):
            freed = 1 if holder and holder.queue == spec.queue else 0
            is_full = settings.capacity is not None and self._counted[spec.queue] - freed >= settings.capacity
            crowded = self._crowded_resources(spec)
            if is_full:
                self._tell_full(spec)
            if is_full or crowded:
                victim = self._find_victim(spec, crowded) if settings.when_full == "shed" else None
                if victim is None:
                    return Inserted(Verdict.FULL, spec.id)
        if holder:
            self._uncount(holder)
            moves.finish(tx, holder, State.CANCELLED, by=spec.by, note="replaced", replaced_by=spec.id)
        if victim and victim is not holder:
            self._uncount(victim)
            self._shed(victim, spec)
        row, verdict = self._accept(spec, settings)
        return Inserted(verdict, spec.id, row.seq, row.state, "", victim.id if victim else "")

    def _is_known(self, spec: JobSpec) -> bool:
        """Whether the job is completed at once: then it takes no room."""
        tx, flight = self._tx, flight_of(spec)
        return flight is not None and first_due(spec, tx.wall, tx.steady) is None and landings.is_known(tx, flight)

    # -- what exists already -------------------------------------------------------------------------------------------

    def _find_existing(self, spec: JobSpec) -> Inserted | None:
        """The answer if a job with this id or key exists already."""
        if (seq := self._seqs.get(spec.id)) is not None and (row := self._tx.peek(seq)) is not None:
            return Inserted(Verdict.DUPLICATE, spec.id, row.seq, row.state, "id")
        return None if spec.key is None else self._find_by_key(spec, spec.key)

    def _find_by_key(self, spec: JobSpec, key: str) -> Inserted | None:
        while (known := self._keys.get(key)) is not None:
            is_same = known.digest == spec.digest
            if known.seq is None:
                return Inserted(Verdict.SPENT if is_same else Verdict.CONFLICT, known.job, same="key")
            if (row := self._tx.peek(known.seq)) is not None:
                verdict = Verdict.DUPLICATE if is_same else Verdict.CONFLICT
                return Inserted(verdict, known.job, row.seq, row.state, "key", code=row.spec.code)
            del self._keys[key]  # its job was deleted since the keys were read
            self._keys.update(self._tx.keys_of([key]))
        return None

    def _holder(self, spec: JobSpec, name: str) -> Row | None:
        """The job that has the unique name and is in conflict with the spec."""
        seq = self._holders.get(name)
        row = None if seq is None else self._tx.load_one(seq)
        if row is None or row.state in FINAL:  # it ended while this transaction waited for its lock
            return None
        gives_up = spec.unique_while == "waiting" and row.state is State.RUNNING
        return None if gives_up else row

    def _keep_holder(self, holder: Row, spec: JobSpec) -> Inserted:
        if spec.on_conflict == "refuse":
            return Inserted(Verdict.CONFLICT, holder.id, holder.seq, holder.state, "unique")
        if spec.on_conflict == "raise" and spec.priority < holder.priority and holder.state in WAITING:
            moves.rerank(self._tx, holder, spec.priority, by=spec.by)
            self._last.clear()
        if spec.key is not None:  # the key belongs to the holder from now on, even after the holder ends
            self._assign_key(spec.key, spec.digest, holder, self._tx.steady)
        return Inserted(Verdict.DUPLICATE, holder.id, holder.seq, holder.state, "unique")

    def _assign_key(self, key: str, digest: str, row: Row, at: int | None = None) -> None:
        self._keys[key] = KeyEntry(digest, row.id, row.seq)
        self._tx.assign_key(key, digest, row.id, at)

    # -- room ----------------------------------------------------------------------------------------------------------

    def _crowded_resources(self, spec: JobSpec) -> list[str]:
        """The resources of a job for which as many jobs wait as `max_waiting` allows."""
        tx, crowded = self._tx, []
        for need in spec.options.resources:
            if (most := tx.max_waiting(need.resource)) is not None:
                tx.write()
                if tx.waiting(need.resource, most) >= most:
                    crowded.append(need.resource)
        return crowded

    def _tell_full(self, spec: JobSpec) -> None:
        """Tell that the queue is full, unless that was told since it last had room. Every bounded insert locks the
        queue, so no two transactions do so at once."""
        tx, put = self._tx, full_mark(spec.queue, spec.by)
        if not tx.read_revision(put.kind, put.name):
            tx.publish(events.record_event(put, tx.at))
            tx.write_record(put, tx.next_revision())

    def _find_victim(self, spec: JobSpec, crowded: list[str]) -> Row | None:
        """The job that makes room for this one: of the queued and blocked jobs of its queue the last in rank, if it is
        less urgent. At a crowded resource only a job that waits for it makes room; at two of them no job can."""
        if len(crowded) > 1:
            return None
        cause = crowded[0] if crowded else None
        while True:
            seq = self._last_in_rank(spec.queue, cause)
            row = None if seq is None else self._tx.load_one(seq)
            if row is None:
                return None
            if row.state in (State.QUEUED, State.BLOCKED):
                return row if row.priority > spec.priority else None
            self._last.clear()  # it was claimed or changed while this transaction waited for its lock

    def _shed(self, victim: Row, spec: JobSpec) -> None:
        shed, note = Reason.SHED, f"pushed out by {spec.id}"
        moves.finish(
            self._tx, victim, State.FAILED, by=spec.by, reason=shed, note=note, kind="shed", replaced_by=spec.id
        )

    def _last_in_rank(self, queue: str, cause: str | None) -> int | None:
        if cause is not None:
            self._tx.write()
            return self._tx.last_in_rank(queue, cause)
        if queue not in self._last:
            self._tx.write()
            self._last[queue] = self._tx.last_in_rank(queue, None)
        return self._last[queue]

    def _uncount(self, row: Row) -> None:
        if row.queue in self._counted:
            self._counted[row.queue] -= 1
        self._last.clear()

    # -- new jobs ------------------------------------------------------------------------------------------------------

    def _accept(self, spec: JobSpec, settings: QueueSettings) -> tuple[Row, Verdict]:
        tx, seq = self._tx, self._tx.next_seq()
        band, order, _ = rank_of(settings, spec.priority, tx.steady, seq)
        row = tx.row_type(
            seq=seq,
            id=spec.id,
            name=(spec.queue, spec.task, spec.version),
            options=spec.options,
            unique=spec.unique,
            priority=spec.priority,
            created=tx.wall,
            arrived=tx.steady,
            batch=spec.batch,
            known_spec=spec,
            band=band,
            ord=order,
            flight=flight_of(spec),
        )
        self._limit_wait(row, spec, settings)
        row.clock, row.due = first_due(spec, tx.wall, tx.steady) or (None, None)
        tx.add(row)
        moves.settle_in(tx, row)
        self._seqs[spec.id] = seq
        if spec.key is not None:
            self._assign_key(spec.key, spec.digest, row)
        if spec.unique is not None:
            self._holders[spec.unique] = seq
            tx.take_name(spec.unique, seq)
        tx.count(row, "submitted")
        note = SHORTENED_NOTE if row.shortened else ""
        tx.publish(events.submitted(spec, row.state, tx.at, row.due_at, note))
        verdict = landings.join(tx, row)
        if spec.queue in self._counted and verdict is not Verdict.CACHED:
            self._counted[spec.queue] += 1
        self._last.pop(spec.queue, None)
        return row, verdict

    def _limit_wait(self, row: Row, spec: JobSpec, settings: QueueSettings) -> None:
        """Set when a new job expires. A crowded queue shortens the wait of jobs that are not urgent."""
        if spec.options.expires_in is None:
            return
        limit = shorter = span(spec.options.expires_in)
        if spec.queue in self._counted:
            shorter = shortened_wait(limit, spec.priority, self._counted[spec.queue], settings.capacity)
        row.expires = self._tx.steady + shorter
        if shorter < limit:
            row.shortened = True
            self._tx.count(row, "shortened")

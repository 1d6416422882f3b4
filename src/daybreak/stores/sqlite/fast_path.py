"""The fast path: plain jobs are inserted, leased and completed without a row of the kernel for each of them.

One rule: it may refuse, it may never differ. What it writes is what the kernel would write; a job for which that takes
more than a few values is refused, and the kernel does it. `SqliteStore(fast_path=False)` refuses everything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from daybreak.core import events
from daybreak.core.events import Event
from daybreak.core.model import JobSpec, Lease, Need, Settlement, State, has_links
from daybreak.core.rank import Rank, rank_of
from daybreak.core.units import moment, span
from daybreak.store.protocol import Claim, Inserted, Verdict, job_topic, work_topic
from daybreak.stores.kernel.history import may_shorten
from daybreak.stores.kernel.packing import batch_of, pack_extra, pack_options, spec_of, unpack_options
from daybreak.stores.kernel.row import LaneName, first_due
from daybreak.stores.sqlite import rows
from daybreak.stores.sqlite.rows import Values
from daybreak.stores.sqlite.statements import sql

if TYPE_CHECKING:
    from daybreak.stores.sqlite.transaction import SqliteTransaction

# Module constants, because every access to an enum member is a function call.
NEW: Final = Verdict.NEW
_HOLDER: Final = b"holder"  # in the packed extras of a job that has one
QUEUED, SCHEDULED, RUNNING, COMPLETED = State.QUEUED, State.SCHEDULED, State.RUNNING, State.COMPLETED


# -- insert ------------------------------------------------------------------------------------------------------------


def insert(tx: SqliteTransaction, specs: Sequence[JobSpec], *, bounded: bool) -> list[Inserted] | None:
    """Insert new jobs, if none is known by its id, key or unique name, and no limit matters to any."""
    if not specs or not _are_plain(tx, specs, bounded=bounded):
        return None
    jobs: list[Values] = []
    ready: list[Values] = []
    delayed: list[Values] = []
    accepted: Counter[tuple[LaneName, int, State]] = Counter()
    answers: list[Inserted] = []
    wall, steady, at, encode, published = tx.wall, tx.steady, tx.at, events.encode, tx.published
    for spec in specs:
        name, seq, priority, options = (spec.queue, spec.task, spec.version), tx.next_seq(), spec.priority, spec.options
        lane = tx.lane(name)
        band, order, _ = rank_of(tx.settings(spec.queue), priority, steady, seq)
        expires = None if options.expires_in is None else steady + span(options.expires_in)
        jobs.append((
            seq, spec.id, lane, band, order, priority, priority, wall, steady, expires, spec.by, spec.run, spec.owner,
            spec.key, spec.unique, pack_options(options), pack_extra(spec), spec.args,
        ))  # fmt: skip
        state, run_at = QUEUED, None
        if (due := first_due(spec, wall, steady)) is None:
            ready.append((lane, band, order, seq, 0, 0, 1, None, None, None))
        else:
            state, run_at = SCHEDULED, moment(due[1])
            delayed.append((seq, *due, 0, 0, 1, None, None))
        if spec.key is not None:
            tx.assign_key(spec.key, spec.digest, spec.id)
        if spec.unique is not None:
            tx.take_name(spec.unique, seq)
        event = events.submitted(spec, state, at, run_at)
        published.append((event, encode(event)))
        accepted[name, priority, state] += 1
        answers.append(Inserted(NEW, spec.id, seq, state))
    tx.write_new(jobs, ready, delayed)
    for (name, priority, state), n in accepted.items():
        tx.tallies[name, priority, state] += n
        tx.totals.count(name, priority, "submitted", n)
        tx.topics.add(work_topic(name[0]))
    return answers


def _are_plain(tx: SqliteTransaction, specs: Sequence[JobSpec], *, bounded: bool) -> bool:
    ids: set[str] = set()
    keys: list[str] = []
    names: list[str] = []
    queues: set[str] = set()
    resources: set[str] = set()
    for spec in specs:
        if spec.holder is not None or has_links(spec):
            return False
        ids.add(spec.id)
        queues.add(spec.queue)
        if spec.key is not None:
            keys.append(spec.key)
        if spec.unique is not None:
            names.append(spec.unique)
        if bounded and spec.options.resources:
            resources.update(need.resource for need in spec.options.resources)
    tx.write()  # ids that this transaction has added are not known to the file before
    if len(ids) < len(specs) or tx.seqs_of(list(ids)) or any(tx.settings(name).capacity is not None for name in queues):
        return False
    if any(tx.max_waiting(resource) is not None for resource in resources):
        return False
    if keys and (len(set(keys)) < len(keys) or tx.keys_of(keys)):
        return False
    return not names or (len(set(names)) == len(names) and not tx.holders_of(names))


# -- claim -------------------------------------------------------------------------------------------------------------


class QueuedHead:
    """A queued job as `claim_lane` reads it. Only a claim that the fast path refuses makes a row of it."""

    __slots__ = ("found", "name", "seq")

    def __init__(self, found: Values, name: LaneName) -> None:
        self.found = found
        self.name = name
        self.seq: int = found[2]

    @property
    def priority(self) -> int:
        return self.found[10]  # type: ignore[no-any-return]

    @property
    def rank(self) -> Rank:
        return Rank(*self.found[:3])

    @property
    def expires(self) -> int | None:
        return self.found[13]  # type: ignore[no-any-return]

    @property
    def attempt(self) -> int:
        return self.found[3]  # type: ignore[no-any-return]

    @property
    def fence(self) -> int:
        return self.found[4]  # type: ignore[no-any-return]

    @property
    def needs(self) -> tuple[Need, ...]:
        return unpack_options(self.found[15]).resources

    @property
    def blocked_since(self) -> int | None:
        packed = self.found[6]
        return None if packed is None else rows.unpack_state(packed).blocked_since

    @property
    def batch(self) -> str | None:
        return batch_of(self.found[21])

    @property
    def is_suspect(self) -> bool:
        return self.found[6] is not None and rows.is_suspect(self.found[6])

    @property
    def is_plain(self) -> bool:
        """Whether its lease needs only a few values: its history is not shortened, and no holder waits for it."""
        n, extra = self.found[5], self.found[21]
        return not may_shorten(n + 1) and (extra is None or _HOLDER not in extra)


def lease(tx: SqliteTransaction, heads: Sequence[QueuedHead], claim: Claim, begin: int | None) -> list[Lease]:
    """Lease plain jobs, whose resources are taken already."""
    term, at, wall, worker, call = span(claim.lease_for), tx.at, tx.wall, claim.worker, claim.call
    ends = tx.steady + term
    until, encode, published = moment(ends), events.encode, tx.published
    leases: list[Lease] = []
    written: list[Values] = []
    started: list[Values] = []
    tallies: Counter[tuple[LaneName, int]] = Counter()
    for index, head in enumerate(heads):
        (band, order, seq, attempt, fence, n, packed, history, id_, lane, priority, created, _, expires, unique,
         options, *columns) = head.found  # fmt: skip
        attempt, fence, n = attempt + 1, fence + 1, n + 1
        event = Event(
            n=n, kind="started", job=id_, at=at, by=worker, state=RUNNING, attempt=attempt, fence=fence
        )  # fmt: skip
        line = encode(event)
        published.append((event, line))
        lost, timeouts, checkpoint, packed = (0, 0, None, None) if packed is None else rows.at_start(packed)
        ahead = begin is not None and index >= begin
        chosen = unpack_options(options)
        if expires is not None:
            started.append((band, order, priority, None, seq))
        written.append((
            seq, lane, priority, unique, attempt, fence, n, worker, ends, term, wall, call, False, False, None, packed,
            line if history is None else history + b"\n" + line, False, rows.pack_needs(chosen.resources), ahead,
            None, 0,
        ))  # fmt: skip
        tallies[head.name, priority] += 1
        leases.append(
            Lease(
                seq=seq, spec=spec_of(head.name, id_, unique, chosen, columns), fence=fence, attempt=attempt,
                priority=priority, worker=worker, until=until, lease_for=claim.lease_for, started_at=at,
                created_at=moment(created), lost=lost, timeouts=timeouts, checkpoint=checkpoint, call=call,
                begun=not ahead,
            )
        )  # fmt: skip
    tx.write_leased([(head.found[9], *head.found[:3]) for head in heads], started, written)
    for (name, priority), count in tallies.items():
        tx.tallies[name, priority, QUEUED] -= count
        tx.tallies[name, priority, RUNNING] += count
    return leases


class CompanyHead(NamedTuple):
    """A job that a batch call may take along, as `company_queued` and `company_blocked` read it."""

    band: int
    order: int
    seq: int
    priority: int
    expires: int | None
    options: bytes | None
    packed: bytes | None

    @property
    def needs(self) -> tuple[Need, ...]:
        return unpack_options(self.options).resources

    @property
    def is_suspect(self) -> bool:
        return self.packed is not None and rows.is_suspect(self.packed)


# -- settle ------------------------------------------------------------------------------------------------------------


class PlainLease(NamedTuple):
    """A lease as `plain_leases` reads it, of a job that ends with nothing but a result."""

    seq: int
    lane: int
    priority: int
    unique: str | None
    fence: int
    n: int
    started: int
    cancelling: str | None
    packed: bytes | None
    history: bytes
    needs: bytes | None


def find(tx: SqliteTransaction, settlements: Sequence[Settlement]) -> dict[int, PlainLease]:
    """The leases of settlements that only complete a job; none of a batch that settles a job twice."""
    completed = {
        settlement.seq: settlement.fence
        for settlement in settlements
        if settlement.state is COMPLETED
        and settlement.reason is None
        and not (settlement.unused or settlement.lost or settlement.timeouts or settlement.note)
    }
    if not completed or len({settlement.seq for settlement in settlements}) < len(settlements):
        return {}
    found: Any = tx.execute(sql.plain_leases, (rows.seqs_parameter(completed),))
    leases = map(PlainLease._make, found)
    return {
        lease.seq: lease
        for lease in leases
        if lease.fence == completed[lease.seq]
        and lease.cancelling is None
        and lease.packed is None
        and not may_shorten(lease.n + 1)
    }


def complete(tx: SqliteTransaction, lease: PlainLease, settlement: Settlement) -> Values:
    """Complete a job. Returns its row of `done`, for the transaction to write and count."""
    n, keep_for = lease.n + 1, settlement.keep_for
    tx.totals.settle(tx.cache.names[lease.lane], lease.priority, settlement, tx.wall)
    if lease.needs is not None:
        tx.gauges.give(rows.unpack_needs(lease.needs))
    if lease.unique is not None:
        tx.release_name_of(lease.seq, lease.unique)
    event = events.settled(settlement, n, tx.at, None)
    line = events.encode(event)
    tx.published.append((event, line))
    tx.topics.add(job_topic(settlement.job))
    return (
        lease.seq, "completed", None, settlement.attempt, lease.fence, n, lease.started, tx.wall,
        None if keep_for is None else tx.steady + span(keep_for), settlement.result, None,
        lease.history + b"\n" + line, None,
    )  # fmt: skip


def count_completed(tx: SqliteTransaction, leases: Iterable[PlainLease]) -> None:
    """Count completed jobs."""
    for (lane, priority), n in Counter((lease.lane, lease.priority) for lease in leases).items():
        name = tx.cache.names[lane]
        tx.tallies[name, priority, RUNNING] -= n
        tx.tallies[name, priority, COMPLETED] += n
        if tx.settings(name[0]).max_running is not None:
            tx.topics.add(work_topic(name[0]))

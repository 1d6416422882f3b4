"""The fast path: one round trip, one statement and one commit for an insert or an exchange.

It handles plain requests: new jobs without names or delays, completed jobs, claims without limits. It changes nothing
if a request is not plain and says so; then the general path (the kernel on transaction.py) handles it. It may refuse,
it may never differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from struct import Struct
from typing import Any

from daybreak.core import events
from daybreak.core.events import Event
from daybreak.core.model import JobSpec, Lease, Put, Settlement, State, has_links
from daybreak.core.units import EPOCH, moment, span
from daybreak.store.protocol import (
    EVENTS_TOPIC,
    REQUEST_KIND,
    SAGA_MARK_KIND,
    SCHEDULE_KIND,
    Claim,
    Exchange,
    Exchanged,
    Inserted,
    Verdict,
    job_topic,
    work_topic,
)
from daybreak.stores.kernel.packing import pack_extra, pack_options, spec_of, unpack_options
from daybreak.stores.kernel.records import SETTINGS_KINDS
from daybreak.stores.postgres import event_lines
from daybreak.stores.postgres.arrays import Bigints, Blobs, Ints, Smallints, Texts
from daybreak.stores.postgres.lanes import Lanes
from daybreak.stores.postgres.name_tables import LOCK_CLASSES
from daybreak.stores.postgres.rows import (
    JobState,
    pack_carry,
    pack_needs,
    text_bytes,
    unpack_carry,
)

# Looked up once: access to an enum member runs Python code each time.
NEW, QUEUED, COMPLETED = Verdict.NEW, State.QUEUED, State.COMPLETED
MAX_INSERTED_JOBS = 10_000  # per call, so that no statement grows without bound
MAX_EXCHANGED_JOBS = 500


# -- insert ------------------------------------------------------------------------------------------------------------


def are_plain(specs: Sequence[JobSpec]) -> bool:
    for spec in specs:
        if spec.key is not None or spec.unique is not None or spec.delay is not None or spec.run_at is not None:
            return False
        if spec.holder is not None or has_links(spec):
            return False
    names = {spec.id for spec in specs}
    return len(specs) <= MAX_INSERTED_JOBS and len(names) == len(specs) and event_lines.SEPARATOR not in "".join(names)


ClockParams = tuple[int, int | None]  # the offset of steady time, and the steady time expected now


def insert_params(
    specs: Sequence[JobSpec], lanes: Sequence[int], now: int | None, clock_params: ClockParams
) -> tuple[Any, ...]:
    expiries = [spec.options.expires_in for spec in specs]
    # Jobs whose `submitted` event is equal but for the id.
    groups: dict[tuple[object, ...], list[JobSpec]] = {}
    for s in specs:
        groups.setdefault((s.by, s.task, s.queue, s.priority, s.run, s.owner), []).append(s)
    return (
        now, Texts(list({spec.queue for spec in specs})), Texts([s.id for s in specs]), Ints(lanes),
        Smallints([s.priority for s in specs]),
        Bigints([None if e is None else span(e) for e in expiries]),
        Texts([s.by for s in specs]), Texts([s.run for s in specs]), Texts([s.owner for s in specs]),
        Blobs([pack_options(s.options) for s in specs]), Blobs([pack_extra(s) for s in specs]),
        Blobs([s.args for s in specs]), *_needs(specs), Texts([s.id for group in groups.values() for s in group]),
        Ints([len(group) for group in groups.values()]),
        Texts([_submitted_tail(group[0]) for group in groups.values()]),
        *clock_params,
    )  # fmt: skip


def _needs(specs: Sequence[JobSpec]) -> tuple[Any, Any]:
    """The packed needs of each job and the names of all resources in them; None if no job needs a resource."""
    resources = {need.resource for spec in specs for need in spec.options.resources}
    if not resources:
        return None, None
    return Texts([pack_needs(spec.options.resources) for spec in specs]), Texts(sorted(resources))


def _submitted_tail(spec: JobSpec) -> str:
    return event_lines.tail(events.submitted(spec, QUEUED, EPOCH, None))


def to_inserted(specs: Sequence[JobSpec], seqs: Sequence[int]) -> list[Inserted]:
    return [Inserted(NEW, spec.id, seq, QUEUED) for spec, seq in zip(specs, seqs, strict=True)]


_SMALLINT, _INTEGER, _BIGINT = Struct(">h").pack, Struct(">i").pack, Struct(">q").pack


def insert_one_params(
    spec: JobSpec,
    lane: int,
    now: int | None,
    notice: tuple[str, str] | None,
    topics: set[str],
    clock_params: ClockParams,
) -> list[bytes | None]:
    """The packed parameters of the SQL function insert_one."""
    expires, needs = spec.options.expires_in, spec.options.resources
    channel, sender = (None, None) if notice is None else notice
    return [
        None if now is None else _BIGINT(now), spec.queue.encode(), spec.id.encode(), _INTEGER(lane),
        _SMALLINT(spec.priority), None if expires is None else _BIGINT(span(expires)),
        spec.by.encode(), _encode(spec.run), _encode(spec.owner), pack_options(spec.options), pack_extra(spec),
        spec.args, _encode(pack_needs(needs)) if needs else None,
        Texts(sorted({need.resource for need in needs})) if needs else None, _submitted_tail(spec).encode(),
        _encode(channel), None if notice is None else Texts(sorted(topics)), _encode(sender), _BIGINT(clock_params[0]),
        None if clock_params[1] is None else _BIGINT(clock_params[1]),
    ]  # fmt: skip


def _encode(value: str | None) -> bytes | None:
    return None if value is None else value.encode()


# -- exchange ----------------------------------------------------------------------------------------------------------


def is_plain(exchange: Exchange) -> bool:
    if exchange.insert or exchange.put:
        return False
    claim, settle = exchange.claim, exchange.settle
    if claim is not None and (claim.repeats or claim.job is not None or not 1 <= claim.limit <= MAX_EXCHANGED_JOBS):
        return False
    for settlement in settle:
        if settlement.state is not COMPLETED or settlement.inserts or settlement.puts:
            return False
    return len(settle) <= MAX_EXCHANGED_JOBS and len({settlement.seq for settlement in settle}) == len(settle)


# The status in the first row of the SQL function `exchange`. NEEDS_RESOURCES: repeat with the resource lock.
NOT_PLAIN, DONE, NEEDS_RESOURCES = range(3)


class ResourceHints:
    """Remembers which queues last contained jobs that need resources: exchanges on them take the resource lock at once
    instead of after a first refusal."""

    def __init__(self) -> None:
        self._queues_with_resources: set[tuple[str, ...]] = set()

    def use_resources(self, exchange: Exchange) -> bool:
        return bool(self._queues_with_resources) and _queues(exchange) in self._queues_with_resources

    def note(self, exchange: Exchange, *, use_resources: bool) -> None:
        if use_resources:
            self._queues_with_resources.add(_queues(exchange))
        else:
            self._queues_with_resources.discard(_queues(exchange))


def _queues(exchange: Exchange) -> tuple[str, ...]:
    return () if exchange.claim is None else tuple(exchange.claim.queues)


_NO_SETTLEMENTS = (None,) * 12
_NO_CLAIM = (None,) * 10


def exchange_params(
    exchange: Exchange, now: int | None, clock_params: ClockParams = (0, None), *, lock_resources: bool = False
) -> tuple[Any, ...]:
    settle, claim = exchange.settle, exchange.claim
    return (
        now,
        lock_resources,
        *clock_params,
        *(_settle_params(settle) if settle else _NO_SETTLEMENTS),
        *(_claim_params(claim) if claim is not None else _NO_CLAIM),
    )


_BOOLEAN = Struct(">?").pack
_LIMIT_AT, _BEGINS_AT = 22, 25  # positions of the parameters of type integer (4 bytes)


def pack_params(params: Sequence[Any]) -> list[bytes | None]:
    """The parameters in PostgreSQL's binary format."""
    return [_pack_param(value, at) for at, value in enumerate(params)]


def _pack_param(value: Any, at: int) -> bytes | None:
    if value is None or isinstance(value, bytes):  # arrays are packed already
        return value
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bool):
        return _BOOLEAN(value)
    return _INTEGER(value) if at in (_LIMIT_AT, _BEGINS_AT) else _BIGINT(value)


def _settle_params(settle: Sequence[Settlement]) -> tuple[Any, ...]:
    ordered = sorted(settle, key=lambda one: one.seq)  # all transactions lock leases in this order
    tails: dict[tuple[str, str, int], str] = {}  # the event is the same for most jobs of a batch
    lines = []
    for s in ordered:
        key = (s.by, s.note, s.attempt)
        if s.failure is not None:
            lines.append(_settled_tail(s))
            continue
        tail = tails.get(key)
        if tail is None:
            tail = tails[key] = _settled_tail(s)
        lines.append(tail)
    return (
        Bigints([s.seq for s in ordered]), Ints([s.fence for s in ordered]), Ints([s.attempt for s in ordered]),
        Bigints([None if s.keep_for is None else span(s.keep_for) for s in ordered]),
        Blobs([s.result for s in ordered]),
        Blobs([_carry(s) for s in ordered]), Blobs([text_bytes(s.note) for s in ordered]),
        Texts([s.job for s in ordered]),
        Texts(lines), _counts(ordered), Bigints([s.ran for s in ordered]),
        Bigints([s.waited for s in ordered]),
    )  # fmt: skip


def _counts(settlements: Sequence[Settlement]) -> Texts | None:
    counts = [s.counts_as or None for s in settlements]
    return None if counts.count("completed") == len(counts) else Texts(counts)


def _settled_tail(settlement: Settlement) -> str:
    return event_lines.tail(events.settled(settlement, 1, EPOCH, None))


def _carry(settlement: Settlement) -> bytes | None:
    return (
        pack_carry(JobState(settlement.lost, settlement.timeouts)) if settlement.lost or settlement.timeouts else None
    )


def _claim_params(claim: Claim) -> tuple[Any, ...]:
    queues = list(dict.fromkeys(claim.queues))
    served = dict(zip(claim.queues, claim.served or (0,) * len(claim.queues), strict=True))
    tasks = None if claim.tasks is None else sorted(claim.tasks)
    started = Event(n=1, kind="started", job="", at=EPOCH, by=claim.worker, state=State.RUNNING)
    return (
        claim.worker, claim.call, Texts(queues), Bigints([served[queue] for queue in queues]),
        None if tasks is None else Texts([task for task, _ in tasks]),
        None if tasks is None else Ints([version for _, version in tasks]),
        claim.limit, span(claim.lease_for), event_lines.tail(started)[:-1], claim.begins,
    )  # fmt: skip


def to_exchanged(exchange: Exchange, rows: Sequence[Any], lanes: Lanes, offset: int) -> Exchanged:
    """The answer, from rows whose status is DONE and whose lanes are all known."""
    claim, at, due = exchange.claim, rows[0][1], rows[0][2]
    settled = [True] * len(exchange.settle)
    if claim is None:
        return Exchanged(settled=settled)
    leases = _leases(claim, rows, lanes, at, offset)
    return Exchanged(
        settled=settled,
        leases=leases,
        next_in=None if due is None else timedelta(microseconds=max(0, due - at)),
        again=len(leases) == claim.limit,
    )


def _leases(claim: Claim, rows: Sequence[Any], lanes: Lanes, at: int, offset: int) -> list[Lease]:
    until, now, names = moment(at + span(claim.lease_for)), moment(at + offset), lanes.names
    worker, lease_for, call, begins = claim.worker, claim.lease_for, claim.call, claim.begins
    leases: list[Lease] = []
    for (
        seq, created, _, id_, lane, priority, asked, attempt, fence, by, run, owner, key, uniq, carry, options, extra,
        args,
    ) in rows[1:]:  # fmt: skip
        lost = timeouts = 0
        checkpoint = None
        if carry is not None:
            carried = unpack_carry(carry)
            lost, timeouts, checkpoint = carried.lost, carried.timeouts, carried.checkpoint
        leases.append(
            Lease(
                seq=seq, spec=spec_of(
                    names[lane], id_, uniq, unpack_options(options), (asked, by, run, owner, key, extra, args)
                ),
                fence=fence, attempt=attempt, priority=priority, worker=worker, until=until, lease_for=lease_for,
                started_at=now, created_at=moment(created), lost=lost, timeouts=timeouts, checkpoint=checkpoint,
                call=call, begun=begins is None or len(leases) < begins,
            )
        )  # fmt: skip
    return leases


def changed_topics(exchange: Exchange, rows: Sequence[Any]) -> set[str]:
    """The topics that this exchange changed; empty if nothing was written."""
    topics = {job_topic(settlement.job) for settlement in exchange.settle}
    queues_with_room = rows[0][3]
    if queues_with_room is not None:
        topics.update(work_topic(queue) for queue in queues_with_room.split("\x1f"))
    if topics or len(rows) > 1:
        topics.add(EVENTS_TOPIC)
    return topics


def knows_lanes(rows: Sequence[Any], lanes: Lanes) -> bool:
    return all(row[4] in lanes.names for row in rows[1:])


# -- put ---------------------------------------------------------------------------------------------------------------


def is_plain_put(put: Put) -> bool:
    """Whether one statement is enough: no expected revision, no settings, no event, no jobs, nobody to wake."""
    has_effect = put.kind in SETTINGS_KINDS or put.kind in (REQUEST_KIND, SCHEDULE_KIND, SAGA_MARK_KIND)
    return not has_effect and put.expect is None and put.value is not None and not put.tells and not put.inserts


def put_params(put: Put) -> tuple[Any, ...]:
    return LOCK_CLASSES["record"], f"{put.kind}:{put.name}", put.kind, put.name, put.value

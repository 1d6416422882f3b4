"""The calls by which busy programs live: one round trip, one statement, one commit each.

They do what is plain: new jobs without names or delays, jobs that completed, claims without limits. Whatever is not
plain they leave untouched and say so; then the same is done by the ledger, which knows everything."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from struct import Struct
from typing import Any

from daybreak.core import events
from daybreak.core.events import Event
from daybreak.core.model import JobSpec, Lease, Settlement, State
from daybreak.core.units import EPOCH, moment, span
from daybreak.store.protocol import EVENTS_TOPIC, Claim, Exchange, Exchanged, Inserted, Verdict, job_topic, work_topic
from daybreak.stores.postgres import event_lines
from daybreak.stores.postgres.arrays import Bigints, Blobs, Ints, Smallints, Texts
from daybreak.stores.postgres.ledger import Lanes
from daybreak.stores.postgres.rows import (
    JobState,
    pack_carry,
    pack_extra,
    pack_needs,
    pack_options,
    spec_of,
    text_bytes,
    unpack_carry,
)

# Looked up once: a member of an enum is found by calling code, at every access.
NEW, QUEUED, COMPLETED = Verdict.NEW, State.QUEUED, State.COMPLETED
JOBS_PER_CALL = 10_000  # jobs in one call, so that no statement grows without bound
MOST_EXCHANGED = 500


# -- insert ------------------------------------------------------------------------------------------------------------


def are_plain(specs: Sequence[JobSpec]) -> bool:
    for spec in specs:
        if spec.key is not None or spec.unique is not None or spec.delay is not None or spec.run_at is not None:
            return False
        if spec.holder is not None:
            return False
    names = {spec.id for spec in specs}
    return len(specs) <= JOBS_PER_CALL and len(names) == len(specs) and event_lines.SEPARATOR not in "".join(names)


Hands = tuple[int, int | None]  # the offset of steady time, and what it should be now


def insert_params(specs: Sequence[JobSpec], lanes: Sequence[int], now: int | None, hands: Hands) -> tuple[Any, ...]:
    expiries = [spec.options.expires_in for spec in specs]
    told: dict[tuple[str, str, str, int, int], list[JobSpec]] = {}  # jobs of which the same is told
    for s in specs:
        told.setdefault((s.by, s.task, s.queue, s.priority, s.fence), []).append(s)
    return (
        now, Texts(list({spec.queue for spec in specs})), Texts([s.id for s in specs]), Ints(lanes),
        Smallints([s.priority for s in specs]), Ints([s.fence for s in specs]),
        Bigints([None if e is None else span(e) for e in expiries]),
        Texts([s.by for s in specs]), Texts([s.run for s in specs]), Texts([s.owner for s in specs]),
        Blobs([pack_options(s.options) for s in specs]), Blobs([pack_extra(s) for s in specs]),
        Blobs([s.args for s in specs]), *_needs(specs), Texts([s.id for of in told.values() for s in of]),
        Ints([len(of) for of in told.values()]), Texts([_submitted(of[0]) for of in told.values()]),
        *hands,
    )  # fmt: skip


def _needs(specs: Sequence[JobSpec]) -> tuple[Any, Any]:
    """What each shares with others, and the names of all that; nothing for most."""
    shared = {need.resource for spec in specs for need in spec.options.resources}
    if not shared:
        return None, None
    return Texts([pack_needs(spec.options.resources) for spec in specs]), Texts(sorted(shared))


def _submitted(spec: JobSpec) -> str:
    return event_lines.tail(events.submitted(spec, QUEUED, EPOCH, None))


def inserted(specs: Sequence[JobSpec], seqs: Sequence[int]) -> list[Inserted]:
    return [Inserted(NEW, spec.id, seq, QUEUED) for spec, seq in zip(specs, seqs, strict=True)]


_SMALLINT, _INTEGER, _BIGINT = Struct(">h").pack, Struct(">i").pack, Struct(">q").pack


def one_params(
    spec: JobSpec, lane: int, now: int | None, telling: tuple[str, str] | None, topics: set[str], hands: Hands
) -> list[bytes | None]:
    """Of insert_one_1, packed."""
    expires, needs = spec.options.expires_in, spec.options.resources
    channel, who = (None, None) if telling is None else telling
    return [
        None if now is None else _BIGINT(now), spec.queue.encode(), spec.id.encode(), _INTEGER(lane),
        _SMALLINT(spec.priority), _INTEGER(spec.fence), None if expires is None else _BIGINT(span(expires)),
        spec.by.encode(), _text(spec.run), _text(spec.owner), pack_options(spec.options), pack_extra(spec), spec.args,
        _text(pack_needs(needs)) if needs else None,
        Texts(sorted({need.resource for need in needs})) if needs else None, _submitted(spec).encode(),
        _text(channel), None if telling is None else Texts(sorted(topics)), _text(who), _BIGINT(hands[0]),
        None if hands[1] is None else _BIGINT(hands[1]),
    ]  # fmt: skip


def _text(value: str | None) -> bytes | None:
    return None if value is None else value.encode()


# -- exchange ----------------------------------------------------------------------------------------------------------


def is_plain(exchange: Exchange) -> bool:
    if exchange.insert or exchange.put:
        return False
    claim, settle = exchange.claim, exchange.settle
    if claim is not None and (claim.repeats or claim.limit < 1 or claim.limit > MOST_EXCHANGED):
        return False
    for said in settle:
        if said.state is not COMPLETED or said.inserts or said.puts:
            return False
    return len(settle) <= MOST_EXCHANGED and len({said.seq for said in settle}) == len(settle)


NOT_PLAIN, DONE, SHARED = range(3)  # what exchange_2 says first


class ResourceHints:
    """For which queues jobs that need resources were met last: whoever asks for them again is alone from the first."""

    def __init__(self) -> None:
        self._shared: set[tuple[str, ...]] = set()

    def are_shared(self, exchange: Exchange) -> bool:
        return bool(self._shared) and _queues(exchange) in self._shared

    def note(self, exchange: Exchange, *, are_shared: bool) -> None:
        if are_shared:
            self._shared.add(_queues(exchange))
        else:
            self._shared.discard(_queues(exchange))


def _queues(exchange: Exchange) -> tuple[str, ...]:
    return () if exchange.claim is None else tuple(exchange.claim.queues)


_NOTHING = (None,) * 12
_NO_CLAIM = (None,) * 10


def exchange_params(
    exchange: Exchange, now: int | None, hands: Hands = (0, None), *, alone: bool = False
) -> tuple[Any, ...]:
    settle, claim = exchange.settle, exchange.claim
    return (
        now,
        alone,
        *hands,
        *(_settle_params(settle) if settle else _NOTHING),
        *(_claim_params(claim) if claim is not None else _NO_CLAIM),
    )


_BOOLEAN = Struct(">?").pack
_LIMIT, _BEGINS = 22, 25  # where the integers of four bytes stand


def packed(params: Sequence[Any]) -> list[bytes | None]:
    """The same parameters as the server reads them."""
    return [_packed(value, at) for at, value in enumerate(params)]


def _packed(value: Any, at: int) -> bytes | None:
    if value is None or isinstance(value, bytes):  # arrays are
        return value
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bool):
        return _BOOLEAN(value)
    return _INTEGER(value) if at in (_LIMIT, _BEGINS) else _BIGINT(value)


def _settle_params(settle: Sequence[Settlement]) -> tuple[Any, ...]:
    said = sorted(settle, key=lambda one: one.seq)  # the order in which everyone locks leases
    tails: dict[tuple[str, str, int], str] = {}  # of most jobs in a batch they are the same
    told = []
    for s in said:
        key = (s.by, s.note, s.attempt)
        if s.failure is not None:
            told.append(_settled(s))
            continue
        if (tail := tails.get(key)) is None:
            tail = tails[key] = _settled(s)
        told.append(tail)
    return (
        Bigints([s.seq for s in said]), Ints([s.fence for s in said]), Ints([s.attempt for s in said]),
        Bigints([None if s.keep_for is None else span(s.keep_for) for s in said]), Blobs([s.result for s in said]),
        Blobs([_carry(s) for s in said]), Blobs([text_bytes(s.note) for s in said]), Texts([s.job for s in said]),
        Texts(told), _counts(said), Bigints([s.ran for s in said]),
        Bigints([s.waited for s in said]),
    )  # fmt: skip


def _counts(said: Sequence[Settlement]) -> Texts | None:
    counts = [s.counts_as or None for s in said]
    return None if counts.count("completed") == len(counts) else Texts(counts)


def _settled(said: Settlement) -> str:
    return event_lines.tail(events.settled(said, 1, EPOCH, None))


def _carry(said: Settlement) -> bytes | None:
    return pack_carry(JobState(said.lost, said.timeouts)) if said.lost or said.timeouts else None


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


def exchanged(exchange: Exchange, rows: Sequence[Any], lanes: Lanes, offset: int) -> Exchanged:
    """The answer, once the first row has said that all of it was plain and every lane in it is known."""
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
            brought = unpack_carry(carry)
            lost, timeouts, checkpoint = brought.lost, brought.timeouts, brought.checkpoint
        leases.append(
            Lease(
                seq=seq, spec=spec_of(names[lane], id_, asked, by, run, owner, key, uniq, options, extra, args),
                fence=fence, attempt=attempt, priority=priority, worker=worker, until=until, lease_for=lease_for,
                started_at=now, created_at=moment(created), lost=lost, timeouts=timeouts, checkpoint=checkpoint,
                call=call, begun=begins is None or len(leases) < begins,
            )
        )  # fmt: skip
    return leases


def topics_of(exchange: Exchange, rows: Sequence[Any]) -> set[str]:
    """What changed, by the same answer; nothing if nothing was written."""
    topics = {job_topic(said.job) for said in exchange.settle}
    if (roomy := rows[0][3]) is not None:
        topics.update(work_topic(queue) for queue in roomy.split("\x1f"))
    if topics or len(rows) > 1:
        topics.add(EVENTS_TOPIC)
    return topics


def knows_lanes(rows: Sequence[Any], lanes: Lanes) -> bool:
    return all(row[4] in lanes.names for row in rows[1:])

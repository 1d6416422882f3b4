"""Takes one commit into the book: its answers against what stood before, then its events one by one."""

from __future__ import annotations

from typing import Any

import msgspec

from daybreak.core.errors import DaybreakError
from daybreak.core.events import QUEUE_KINDS, Event, fold
from daybreak.core.model import QueueSettings, Settlement, State
from daybreak.core.rank import rank_of
from daybreak.core.units import micros, span
from daybreak.store.protocol import Amended, Purged
from harness import rules_batches, rules_flights, rules_lease, rules_order, rules_submit, rules_worker
from harness.book import Book
from harness.history import Commit
from harness.legal import KNOWN_RESULT, TABLE, WRITERS
from harness.tracked import Tracked


def replay(book: Book, commit: Commit) -> None:
    if isinstance(commit.answer, DaybreakError):
        if commit.events:
            book.blame("I9", "", "a call that failed wrote events", commit)
        return
    request, op = commit.call.request, commit.call.op
    settlements: dict[str, Settlement] = {}
    match op:
        case "exchange":
            settlements = rules_lease.check_settlements(book, commit, request)
        case "extend":
            rules_lease.check_beats(book, commit, request)
        case "put":
            _take_settings(book, request, commit.answer)
    claims = op == "exchange" and request.claim is not None
    for event in commit.events:
        if event.kind == "progress":
            _check_progress(book, commit, event)
        else:
            _take(book, commit, event, settlements)
    match op:
        case "insert":
            rules_submit.check_answers(book, commit, request)
        case "amend":
            _take_amendments(book, commit)
        case "purge":
            _take_purge(book, commit)
        case "audit":
            _check_audit(book, commit)
    if claims:
        rules_order.check_claim(book, commit, request.claim)
        rules_worker.check_room(book, commit)
        rules_batches.check_calls(book, commit)
    rules_batches.check_slots(book, commit)
    rules_flights.check(book, commit)


def _take(book: Book, commit: Commit, event: Event, settlements: dict[str, Settlement]) -> None:
    if event.kind in QUEUE_KINDS:  # of a queue, not of a job
        return
    if event.kind == "submitted":
        job = rules_submit.accept(book, commit, event)
    elif (known := book.jobs.get(event.job)) is None:
        book.blame("I2", event.job, f"event {event.kind} tells of a job that is not there", commit)
        return
    else:
        job = known
    if job is None:
        return
    _check_legal(book, commit, event, job)
    before = job.folded
    job.events.append(event)
    try:
        job.folded = fold([event], before)
    except ValueError as gap:
        book.blame("I9", job, str(gap), commit)
        job.folded = fold([event], msgspec.structs.replace(before, n=event.n - 1))
    was = before.state
    _apply(book, commit, event, job, settlements)
    rules_flights.take(book, commit, event, job, was)


def _check_legal(book: Book, commit: Commit, event: Event, job: Tracked) -> None:
    kind = KNOWN_RESULT if rules_flights.is_from_another(event) else event.kind
    before, named = TABLE[kind]
    taken_along = event.kind == "started" and job.state is State.BLOCKED and job.spec.batch is not None
    if job.state not in before and not taken_along:
        final = job.is_final
        book.blame("I7" if final else "I8", job, f"{event.kind} in state {job.state}", commit)
    if event.state not in named:
        book.blame("I8", job, f"{event.kind} leads from {job.state} to {event.state}", commit)
    if commit.call.op not in WRITERS[kind]:
        book.blame("I8", job, f"{event.kind} written by {commit.call.op}", commit)
    if micros(event.at) != commit.wall:
        book.blame("I9", job, f"{event.kind} is dated {event.at}, not by the store's clock", commit)


def _apply(book: Book, commit: Commit, event: Event, job: Tracked, settlements: dict[str, Settlement]) -> None:
    match event.kind:
        case "submitted" | "unblocked" | "batch_started" | "batch_completed":
            pass
        case "blocked":
            job.blocked_on = event.note
        case "due":
            rules_order.check_due(book, commit, job)
            job.due = None
        case "started":
            rules_order.check_start(book, commit, job)
            rules_lease.start(book, commit, event, job)
        case "lease_expired":
            rules_lease.expire(book, commit, event, job)
        case "cancel_requested":
            job.cancel_asked = True
        case "suspend_requested":
            job.suspend_asked = True
        case "resumed":
            job.suspend_asked = False
            if event.state is State.QUEUED:
                rules_order.check_due(book, commit, job)
                job.due = None
        case "reprioritised":
            _rerank(book, job)
        case "expired":
            if not job.may_be_overdue(commit.at):
                book.blame("I17", job, "expired before its time, or after it had started", commit)
            _end(job, commit, span_or_none(job.spec.options.keep_failed))
        case "retried":
            _retried(book, job)
        case "removed":
            book.drop(job)
            book.free_keys(job)
        case _:
            _settled(book, commit, event, job, settlements.get(job.id))


def _settled(book: Book, commit: Commit, event: Event, job: Tracked, settlement: Settlement | None) -> None:
    """completed, failed, cancelled, suspended, retrying, released: by a settlement, or by a person while it waits."""
    ran = job.holder is not None
    if ran:
        rules_lease.settle(book, commit, event, job, settlement)
        rules_batches.check_outcome(book, commit, job, settlement)
    job.holder = None
    asked, job.cancel_asked, job.suspend_asked = job.cancel_asked, False, False
    if event.state is State.COMPLETED and settlement is not None:
        job.result = settlement.result
    if asked and event.kind != "cancelled":
        book.blame("I16", job, f"{event.kind} after it was asked to be cancelled", commit)
    if job.is_final:
        kept = job.spec.options.keep_failed if event.state is State.FAILED else job.spec.options.keep_completed
        _end(job, commit, span_or_none(kept))
    elif ran:
        # Where the queue's discipline of today puts it: it may have changed while the job ran.
        _rerank(book, job, by_person=False)
        due = settlement.delay if settlement is not None and event.state is State.SCHEDULED else None
        job.due = None if due is None else ("steady", commit.at + span(due))


def _retried(book: Book, job: Tracked) -> None:
    job.charged = job.deaths = 0
    job.purge_at = job.result = job.cached_from = None
    _rerank(book, job, by_person=False)
    rules_submit.check_unique(book, job)


def _end(job: Tracked, commit: Commit, kept: int | None) -> None:
    job.due = job.expires = None
    job.purge_at = None if kept is None else commit.at + kept


def span_or_none(value: Any) -> int | None:
    return None if value is None else span(value)


def _rerank(book: Book, job: Tracked, *, by_person: bool = True) -> None:
    job.rank = rank_of(book.queue(job.queue), job.folded.priority, job.arrived, job.seq)
    job.reranked = job.reranked or by_person


def _check_progress(book: Book, commit: Commit, event: Event) -> None:
    job = book.jobs.get(event.job)
    if job is None or job.state is not State.RUNNING or event.n != job.folded.n:
        book.blame("I6", job or event.job, "progress of a job that is not running", commit)
    elif commit.call.op != "extend":
        book.blame("I8", job, f"progress written by {commit.call.op}", commit)


def _take_settings(book: Book, puts: Any, answers: Any) -> None:
    for put, record in zip(puts, answers, strict=True):
        if record is not None and put.kind == "queue":
            before, after = book.queue(put.name), msgspec.json.decode(put.value, type=QueueSettings)
            book.settings[put.name] = after
            tuned = (before.discipline, before.patience) != (after.discipline, after.patience)
            if tuned and any(job.queue == put.name for job in book.jobs.values()):
                book.retuned.add(put.name)


def _take_amendments(book: Book, commit: Commit) -> None:
    amend, answer = commit.call.request, commit.answer
    assert isinstance(answer, Amended)
    told = {event.job for event in commit.events}
    for amendment in answer.amendments:
        job = book.jobs.get(amendment.job)
        if amendment.verdict == "done" and amend.action == "rerank" and job is not None:
            _rerank(book, job)
        elif amendment.verdict == "done" and amendment.job not in told:
            book.blame("I9", job or amendment.job, f"{amend.action} was done without an event", commit)
        elif amendment.verdict in {"refused", "missing"} and amendment.job in told:
            book.blame(
                "I9", job or amendment.job, f"{amend.action} was {amendment.verdict}, yet wrote an event", commit
            )


def _take_purge(book: Book, commit: Commit) -> None:
    assert isinstance(commit.answer, Purged)
    old = [j for j in book.jobs.values() if j.is_final and j.purge_at is not None and j.purge_at <= commit.at]
    if len(old) != commit.answer.jobs:
        book.blame("I1", "", f"purged {commit.answer.jobs} jobs where {len(old)} were old enough", commit)
    for job in old:
        book.drop(job)


def _check_audit(book: Book, commit: Commit) -> None:
    tallies, jobs = commit.answer
    counted: dict[tuple[Any, ...], int] = {}
    for job in jobs:
        cell = (job.spec.queue, job.spec.task, job.spec.version, job.priority, job.state)
        counted[cell] = counted.get(cell, 0) + 1
        known = book.jobs.get(job.id)
        if known is None:
            book.blame("I2", job.id, "stored, but no event tells of it", commit)
        else:
            compare(book, known, job)
    if {(t.queue, t.task, t.version, t.priority, t.state): t.n for t in tallies if t.n} != counted:
        book.blame("I24", "", f"tallies {tallies} where a recount gives {sorted(counted.items())}", commit)
    if missing := sorted(set(book.jobs) - {job.id for job in jobs}):
        book.blame("I1", book.jobs[missing[0]], f"{len(missing)} jobs are gone", commit)


def compare(book: Book, known: Tracked, job: Any) -> None:
    """The stored row against the fold of its events."""
    told = known.folded
    held_last = next((event.by for event in reversed(known.events) if event.kind == "started"), None)
    for what, stored, folded in (
        ("state", job.state, told.state),
        ("reason", job.reason, told.reason),
        ("priority", job.priority, told.priority),
        ("attempt", job.attempt, told.attempt),
        ("fence", job.fence, told.fence),
        ("revision", job.revision, told.n),
        ("seq", job.seq, known.seq),
        ("worker", job.worker, held_last if job.is_final else known.holder),
        ("result", job.result, known.result),
        ("cached_from", job.cached_from, known.cached_from),
        ("cancelling", job.cancelling, known.cancel_asked),
        ("suspending", job.suspending, known.suspend_asked),
    ):
        if stored != folded:
            book.blame("I9", known, f"stored {what} is {stored!r}, its events say {folded!r}")

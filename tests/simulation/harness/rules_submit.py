"""I1 to I3: what was submitted is there, once, and nothing else is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from daybreak.core.events import Event
from daybreak.core.model import JobSpec, State
from daybreak.core.rank import rank_of
from daybreak.core.units import micros, span
from daybreak.store.protocol import Exchange, Inserted, Verdict
from harness.book import Book
from harness.history import Call, Commit
from harness.tracked import Tracked

ACCEPTED: Final = frozenset({Verdict.NEW, Verdict.FOLLOWS, Verdict.CACHED})


def accept(book: Book, commit: Commit, event: Event) -> Tracked | None:
    """A job enters the book."""
    found = next(((s, a) for s, a in _inserted(commit) if s.id == event.job and a.verdict in ACCEPTED), None)
    if found is None:
        book.blame("I2", event.job, "submitted without a request that was accepted", commit)
        return None
    spec, answer = found
    if spec.id in book.jobs:
        book.blame("I3", book.jobs[spec.id], "submitted a second time under one id", commit)
    if spec.id in book.gone and not _was_under_way(book, spec.id):
        book.blame("I3", spec.id, "a removed job came back", commit)
    if spec.key is not None:
        if spec.key in book.keys:
            book.blame(
                "I3", spec.id, f"key {spec.key!r} made a second job; the first is {book.keys[spec.key].id}", commit
            )
        book.keys[spec.key] = spec
    settings = book.queue(spec.queue)
    job = Tracked(
        spec=spec, seq=answer.seq, arrived=commit.at,
        rank=rank_of(settings, spec.priority, commit.at, answer.seq),
    )  # fmt: skip
    if spec.run_at is not None:
        job.due = ("wall", micros(spec.run_at))
    elif spec.delay is not None:
        job.due = ("steady", commit.at + span(spec.delay))
    early = job.due is not None and job.due[1] > (commit.wall if job.due[0] == "wall" else commit.at)
    if early != (event.state is State.SCHEDULED):
        book.blame("I17", job, f"due {job.due}, accepted as {event.state}", commit)
    job.due = job.due if early else None
    if spec.options.expires_in is not None:
        job.expires = commit.at + span(spec.options.expires_in)
        if event.note:  # its wait limit was cut, to no less than a quarter
            job.may_expire = commit.at + span(spec.options.expires_in) // 4
    book.jobs[job.id] = book.by_seq[job.seq] = job
    check_unique(book, job)
    return job


def check_unique(book: Book, job: Tracked) -> None:
    if job.spec.unique is None:
        return
    for other in book.jobs.values():
        if other is not job and other.spec.unique == job.spec.unique and not other.is_final:
            book.blame("I3", job, f"unique name {job.spec.unique!r} is held by {other.id} as well")


def check_answers(book: Book, commit: Commit, specs: list[JobSpec]) -> None:
    """Each answer, seen from the book as it stands after the commit."""
    told = {event.job for event in commit.events if event.kind == "submitted"}
    for spec, answer in zip(specs, commit.answer, strict=True):
        match answer.verdict:
            case Verdict.NEW | Verdict.FOLLOWS | Verdict.CACHED if spec.id not in told:
                book.blame("I1", spec.id, f"answered {answer.verdict} without an event", commit)
            case Verdict.NEW | Verdict.FOLLOWS:
                _check_capacity(book, commit, spec)
            case Verdict.DUPLICATE if not _stands_for(book, answer.job, spec):
                book.blame("I3", answer.job, f"stands for submission {spec.id}, but is another job", commit)
            case Verdict.CONFLICT if not _is_in_the_way(book, answer.job, spec):
                book.blame("I3", answer.job, f"refused submission {spec.id} without being in its way", commit)
            case Verdict.SPENT if spec.key not in book.keys or book.keys[spec.key].id in book.jobs:
                book.blame("I3", answer.job, f"submission {spec.id} was answered by a spent key that is none", commit)
            case Verdict.FULL if not _is_full(book, spec.queue):
                book.blame("I12", spec.id, f"queue {spec.queue} is not full", commit)


def check(book: Book) -> None:
    """The submissions as the callers saw them."""
    submits = [call for call in book.history.calls if call.op == "submit"]
    there = set(book.jobs) | set(book.gone)
    heard = {call.request.id for call in submits}
    for job in sorted(there - heard):
        book.blame("I2", job, "nobody submitted it")
    by_key: dict[str, set[str]] = {}
    for call in submits:
        if call.phase == "ok":
            if call.answer not in there:
                book.blame("I1", call.answer, f"accepted by submit #{call.n}, and no event tells of it")
            if call.request.key is not None:
                by_key.setdefault(call.request.key, set()).add(call.answer)
                if _has_other_content(book, call.answer, call.request):
                    book.blame("I3", call.answer, f"key {call.request.key!r} accepted other content by #{call.n}")
    for key, answered in sorted(by_key.items()):
        ids = answered - book.gone.keys()  # a removed job frees its key
        if len(ids) > 1:
            book.blame("I3", min(ids), f"key {key!r} was answered with {sorted(ids)}")
    _check_failed(book, submits, there)


def _has_other_content(book: Book, job: str, asked: JobSpec) -> bool:
    known = book.jobs.get(job) or next(iter(book.gone.get(job, ())), None)
    return known is not None and known.spec.key == asked.key and known.spec.digest != asked.digest


def _check_failed(book: Book, submits: list[Call], there: set[str]) -> None:
    may_be = {call.request.id for call in submits if call.phase != "fail"}
    for job in sorted({call.request.id for call in submits} - may_be):
        if job in there:
            book.blame("I2", job, "every submission of it was refused, yet it is there")


def _inserted(commit: Commit) -> Iterator[tuple[JobSpec, Inserted]]:
    request = commit.call.request
    if isinstance(request, Exchange):
        yield from zip(request.insert, commit.answer.inserted, strict=True)
    elif commit.call.op == "insert":
        yield from zip(request, commit.answer, strict=True)


def _was_under_way(book: Book, job: str) -> bool:
    """A submission may cross with the removal of its own job: then it makes the job anew."""
    return any(
        call.op == "submit" and call.request.id == job and (call.before is None or call.before >= book.at)
        for call in book.history.calls
    )


def _stands_for(book: Book, job: str, spec: JobSpec) -> bool:
    if job == spec.id or (spec.key is not None and spec.key in book.keys and book.keys[spec.key].id == job):
        return True
    known = book.jobs.get(job)
    return known is not None and spec.unique is not None and known.spec.unique == spec.unique and not known.is_final


def _is_in_the_way(book: Book, job: str, spec: JobSpec) -> bool:
    if spec.key is not None and spec.key in book.keys:
        return book.keys[spec.key].digest != spec.digest
    known = book.jobs.get(job)
    return known is not None and spec.unique is not None and known.spec.unique == spec.unique and not known.is_final


def _check_capacity(book: Book, commit: Commit, spec: JobSpec) -> None:
    capacity = book.queue(spec.queue).capacity
    if capacity is not None and _unfinished(book, spec.queue) > capacity:
        book.blame("I12", spec.id, f"queue {spec.queue} holds more than its capacity of {capacity}", commit)


def _is_full(book: Book, queue: str) -> bool:
    capacity = book.queue(queue).capacity
    return capacity is not None and _unfinished(book, queue) >= capacity


def _unfinished(book: Book, queue: str) -> int:
    return sum(1 for job in book.jobs.values() if job.queue == queue and not job.is_final)

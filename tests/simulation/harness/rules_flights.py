"""I28 to I30: one job of a flight runs, the others follow it, and all have its result."""

from __future__ import annotations

from daybreak.core.events import Event
from daybreak.core.flights import flight_cause, flight_of, result_note
from daybreak.core.model import State
from daybreak.core.units import span
from harness.book import Book, Flight, Known
from harness.history import Commit
from harness.tracked import Tracked

_LEAVES = frozenset({"failed", "cancelled", "suspended", "expired"})
_COMES = frozenset({"submitted", "due", "resumed", "retried"})


def is_from_another(event: Event) -> bool:
    """Whether a job is completed with the result of another one."""
    return event.kind == "completed" and event.note.startswith(result_note(""))


def take(book: Book, commit: Commit, event: Event, job: Tracked, was: State | None) -> None:
    """Take the event of a job with a flight into the book. `was` is the state before it."""
    name = flight_of(job.spec)
    if name is None:
        if is_from_another(event):
            book.blame("I30", job, "completed with the result of another, and it is in no flight", commit)
        return
    flight = book.flights.setdefault(name, Flight())
    if (awaited := flight.awaited.pop(job.id, None)) is not None:
        _check_awaited(book, commit, event, job, awaited)
    if is_from_another(event):
        _take_result(book, commit, event, job, flight)
    elif event.kind == "completed":
        _deliver(commit, job, flight)
    elif event.kind == "started":
        _check_alone(book, commit, job, flight)
    elif event.kind == "unblocked":
        _lead(book, commit, job, flight)
    elif event.kind == "blocked" and awaited != "blocked":
        book.blame("I28", job, "follows, and nobody leads", commit)
    elif event.kind in _LEAVES and flight.leader == job.id:
        flight.leader = None
    if event.kind == "retried":
        if flight.known is not None and was is State.COMPLETED and flight.known.result == job.shared:
            flight.known = None  # whoever lets a completed job run again does not want its result
        job.shared = None
    if event.kind in _COMES and event.state is State.QUEUED:
        _join(book, commit, job, flight)


def _join(book: Book, commit: Commit, job: Tracked, flight: Flight) -> None:
    """Where a job belongs whose time has come."""
    leader = None if flight.leader is None else book.jobs.get(flight.leader)
    if flight.known is not None and (flight.known.until is None or commit.at < flight.known.until):
        flight.awaited[job.id] = "completed"
    elif leader is None or leader is job:
        flight.known, flight.leader = None, job.id
    elif leader.queue == job.queue:
        flight.awaited[job.id] = "blocked"


def _check_awaited(book: Book, commit: Commit, event: Event, job: Tracked, awaited: str) -> None:
    kind = "known" if is_from_another(event) else event.kind
    if kind != {"completed": "known", "blocked": "blocked"}[awaited]:
        what = "a result is known" if awaited == "completed" else "another job leads"
        book.blame("I29", job, f"{event.kind} where {what}", commit)


def _take_result(book: Book, commit: Commit, event: Event, job: Tracked, flight: Flight) -> None:
    if flight.known is None or event.note != result_note(flight.known.job):
        known = "none is known" if flight.known is None else f"that of {flight.known.job} is known"
        book.blame("I30", job, f"completed with the {event.note}, where {known}", commit)
        return
    job.result = job.shared = flight.known.result
    job.cached_from = flight.known.job
    if flight.leader == job.id:
        flight.leader = None


def _deliver(commit: Commit, job: Tracked, flight: Flight) -> None:
    """A job that ran has completed: the flight has its result now, unless it has one that may be used."""
    known = flight.known
    if known is None or (known.until is not None and commit.at >= known.until):
        ttl = job.spec.options.cache.ttl if job.spec.options.cache is not None else None
        flight.known = Known(job.id, job.result, None if ttl is None else commit.at + span(ttl))
        job.shared = job.result
        flight.leader = None


def _lead(book: Book, commit: Commit, job: Tracked, flight: Flight) -> None:
    if job.blocked_on != flight_cause(job.spec.flight or ""):
        return
    if flight.leader is not None:
        book.blame("I29", job, f"leads beside {flight.leader}", commit)
    flight.leader = job.id


def _check_alone(book: Book, commit: Commit, job: Tracked, flight: Flight) -> None:
    """Of the jobs of a flight in one queue, at most one runs."""
    leader = None if flight.leader is None else book.jobs.get(flight.leader)
    if leader is not None and leader is not job and leader.queue == job.queue and leader.state is State.RUNNING:
        book.blame("I29", job, f"runs beside {leader.id}, which leads its flight", commit)


def check(book: Book, commit: Commit) -> None:
    """I28: after every commit, a follower has a leader in its queue that will run or runs."""
    for name in {flight_of(book.jobs[e.job].spec) for e in commit.events if e.job in book.jobs} - {None}:
        assert name is not None
        flight = book.flights[name]
        for job, awaited in flight.awaited.items():
            book.blame("I28", book.jobs.get(job) or job, f"queued, and should be {awaited}", commit)
        flight.awaited.clear()
        leader = None if flight.leader is None else book.jobs.get(flight.leader)
        for job in _followers(book, name):
            if leader is None or leader.is_final or leader.state is State.SUSPENDED or leader.queue != job.queue:
                what = "nobody" if leader is None else f"{leader.id}, which is {leader.state} in {leader.queue}"
                book.blame("I28", job, f"follows {what}", commit)


def _followers(book: Book, flight: str) -> list[Tracked]:
    cause = flight_cause(flight)
    return [job for job in book.jobs.values() if job.state is State.BLOCKED and job.blocked_on == cause]

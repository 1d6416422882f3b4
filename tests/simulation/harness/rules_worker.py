"""I5, I14, I15, I21 to I23 and I25: what supervisors did and said, beside what really happened in their children."""

from __future__ import annotations

from typing import Final

from daybreak.core.model import Lease, State
from daybreak.core.units import span
from daybreak.store.protocol import Exchanged
from harness.book import Book
from harness.history import Commit, Held, JobRun
from harness.network import LONGEST_DELAY
from harness.plan import LEASE
from harness.tracked import Tracked

SUSPECT_AFTER: Final = 2  # deaths after which a job runs in a child of its own
MOST_AHEAD: Final = 4  # jobs of 30 ms that a child may hold beyond its slots
PROBATION_AFTER: Final = 3  # deaths after which its lease says so before it starts
# Which ends of a run a supervisor may report by which outcome; what a person asked for may be the outcome of any.
TRUE_ENDS: Final[dict[str, frozenset[str | None]]] = {
    "Done": frozenset({"done"}),
    "Failed": frozenset({"failed"}),
    "Lost": frozenset({"crashed", "unreported"}),
    "HandedBack": frozenset({"handed back", "killed"}),
    "TimedOut": frozenset({"timed out", "failed", "killed", "cancelled", "crashed", "unreported", "handed back"}),
}
# A holder reports every third of a lease, and again soon if that fails: only a whole lease of silence loses one.
SILENCE: Final = span(LEASE) + round(4e6 * LONGEST_DELAY)


def granted(book: Book) -> dict[Held, tuple[int, Lease]]:
    """Every lease that a claim gave, and by which commit."""
    found: dict[Held, tuple[int, Lease]] = {}
    for index, commit in enumerate(book.history.commits):
        if isinstance(commit.answer, Exchanged):
            for lease in commit.answer.leases:
                found.setdefault((lease.seq, lease.fence), (index, lease))
    return found


def check(book: Book) -> None:
    leases = granted(book)
    marked = _marks(book)
    ran: set[Held] = set()
    for run in book.history.runs:
        index, lease = leases.get(run.held, (run.after + 1, None))
        if lease is None or index >= run.after or lease.worker != run.worker:
            by = "nobody" if lease is None else lease.worker
            book.blame("I5", run.work.job, f"{run.worker} ran it under fence {run.work.fence}, leased to {by}")
        if run.held in ran:
            book.blame("I4", run.work.job, f"ran twice under fence {run.work.fence}")
        ran.add(run.held)
        if lease is not None:
            _check_begun(book, run, lease, marked["begun"])
            _check_suspect(book, run, lease, marked["alone"], leases)


def _marks(book: Book) -> dict[str, dict[Held, int]]:
    """When the store first knew that a lease has begun, and that its job runs alone."""
    begun: dict[Held, int] = {}
    alone: dict[Held, int] = {}
    for index, commit in enumerate(book.history.commits):
        if commit.call.op == "extend" and isinstance(commit.answer, list):
            for beat, answer in zip(commit.call.request, commit.answer, strict=True):
                if beat.begun and answer.held:
                    begun.setdefault((beat.seq, beat.fence), index)
                if beat.alone and answer.held:
                    alone.setdefault((beat.seq, beat.fence), index)
    return {"begun": begun, "alone": alone}


def _check_begun(book: Book, run: JobRun, lease: Lease, begun: dict[Held, int]) -> None:
    """What ran had begun, and the store knew it before; only a job that never came back may be ahead of its mark."""
    known = lease.begun or lease.fence == lease.attempt or begun.get(run.held, run.after) < run.after
    if not known:
        what = f"{run.worker} ran it under fence {lease.fence} before the store knew that it began"
        book.blame("I14", lease.job, what)


def _check_suspect(
    book: Book, run: JobRun, lease: Lease, alone: dict[Held, int], leases: dict[Held, tuple[int, Lease]]
) -> None:
    """What was at two deaths runs in a child of its own; what was at three, only once the store knows that."""
    others = [leases[other][1] for other in run.beside if other in leases]
    if others and any(one.lost >= SUSPECT_AFTER for one in (lease, *others)):
        book.blame("I15", lease.job, f"it and {[one.job for one in others]} run in one child, and one is a suspect")
    allowed = min(max(lease.spec.options.deaths, 1), PROBATION_AFTER)
    if lease.lost >= allowed and alone.get(run.held, run.after) >= run.after:
        what = f"{run.worker} ran it under fence {lease.fence} without having said that it runs alone"
        book.blame("I15", lease.job, what)


# -- what supervisors say ----------------------------------------------------------------------------------------------


def last_run(book: Book, held: Held) -> JobRun | None:
    if book.runs_by_lease is None:
        book.runs_by_lease = {run.held: run for run in book.history.runs}
    return book.runs_by_lease.get(held)


def check_outcome(book: Book, commit: Commit, job: Tracked, fence: int, outcome: str) -> None:
    """I25: an outcome is what happened. One that no child ever ran is neither completed nor charged."""
    run = last_run(book, (job.seq, fence))
    if run is None:
        if outcome not in {"HandedBack", "Cancelled", "Suspended"}:
            book.blame("I25", job, f"{outcome} under fence {fence}, under which no child ran it", commit)
    elif outcome in TRUE_ENDS and run.ended not in TRUE_ENDS[outcome]:
        book.blame("I25", job, f"{outcome} under fence {fence}, where its run ended as {run.ended}", commit)


def died_alone(book: Book, job: Tracked, fence: int) -> bool:
    run = last_run(book, (job.seq, fence))
    return run is not None and run.ended in {"crashed", "unreported"} and run.was_alone


def check_expired(book: Book, commit: Commit, job: Tracked) -> None:
    """I21: whoever lives, runs and reaches the store keeps its leases."""
    history, holder = book.history, job.holder
    ended = [index for _, index, process in (*history.crashes, *history.stops) if process == holder]
    if holder is None or job.reaped or any(index <= book.at for index in ended):
        return
    since = commit.at - SILENCE
    stood = any(start < commit.at and end > since for start, end in history.freezes.get(holder, ()))
    cut_off = any(window.start < commit.at and window.end > since for window in history.windows)
    if not stood and not cut_off:
        book.blame("I21", job, f"its lease ran out although {holder} was alive and could reach the store", commit)


def check_room(book: Book, commit: Commit) -> None:
    """I22: nobody begins more jobs than it has slots, but for a little work ahead."""
    claim = commit.call.request.claim
    begun = set()
    for job in book.jobs.values():
        if job.state is State.RUNNING and job.holder == claim.worker and job.begun and not job.reaped:
            run = last_run(book, (job.seq, job.folded.fence))
            is_over = run is not None and run.ended_after is not None and run.ended_after <= book.at
            if (job.spec.task, job.spec.version) in claim.tasks and not is_over:
                begun.add((job.group is None, job.group or job.seq))
    if len(begun) > (most := book.slots * (1 + MOST_AHEAD)):
        what = f"{claim.worker} has begun {len(begun)} jobs in {book.slots} slots, more than {most}"
        book.blame("I22", "", what, commit)


def check_stopped(book: Book) -> None:
    """I23: in quiet times, a worker that has stopped leaves no lease behind. Called before each commit."""
    history = book.history
    for at, index, worker in history.stops:
        if index != book.at or history.quiet_from is None or at < history.quiet_from + span(LEASE):
            continue
        for job in book.jobs.values():
            if job.state is State.RUNNING and job.holder == worker and not job.reaped:
                book.blame("I23", job, f"{worker} has stopped, and still holds it under fence {job.folded.fence}")

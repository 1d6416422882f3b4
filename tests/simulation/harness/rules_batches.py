"""I25 to I27: which jobs a call takes, that each has its own outcome, and that a call holds the slots of one job."""

from __future__ import annotations

from itertools import groupby
from typing import Final

from daybreak.core.model import Lease, Settlement, State
from harness.book import Book
from harness.history import Commit, Held
from harness.rules_worker import granted
from harness.tracked import Tracked

SIZE: Final = 4  # of the calls of every batch task here


def check_calls(book: Book, commit: Commit) -> None:
    """I26: the jobs of a call are neighbours, of one kind and one key, and not known to crash or stall."""
    seen: set[int] = set()
    for group, members in groupby(commit.answer.leases, key=lambda lease: lease.group):
        if group is not None:
            _check_call(book, commit, group, list(members))
            if group in seen:
                book.blame("I26", book.by_seq[group], "the leases of its call are torn apart", commit)
            seen.add(group)


def _check_call(book: Book, commit: Commit, group: int, call: list[Lease]) -> None:
    head = call[0]
    if head.seq != group:
        book.blame("I26", head.job, f"is first in the call of {group}", commit)
    if len(call) > SIZE:
        book.blame("I26", head.job, f"a call of {len(call)} jobs", commit)
    for lease in call:
        if _kind(lease) != _kind(head):
            book.blame("I26", lease.job, f"{_kind(lease)} in the call of {head.job}, which is {_kind(head)}", commit)
        if len(call) > 1 and (lease.lost or lease.timeouts):
            book.blame("I26", lease.job, "crashed or stalled before, and is in a call with others", commit)


def _kind(lease: Lease) -> tuple[object, ...]:
    spec = lease.spec
    return spec.queue, spec.task, spec.version, spec.batch, spec.options.resources


def check_slots(book: Book, commit: Commit) -> None:
    """I27: after every commit, a call holds the slots of one job, until the last of its leases has ended."""
    if commit.used is None:
        return
    for resource, limit in book.limits.items():
        calls = {
            (job.group is None, job.group or job.seq)
            for job in book.jobs.values()
            if job.state is State.RUNNING and any(need.resource == resource for need in job.spec.options.resources)
        }
        used = commit.used.get(resource, 0)
        if used != len(calls):
            book.blame("I27", "", f"{used} slots of {resource} are in use by {len(calls)} calls", commit)
        if used > limit:
            book.blame("I27", "", f"{used} slots of {resource} are in use, of {limit}", commit)


def check_outcome(book: Book, commit: Commit, job: Tracked, settlement: Settlement | None) -> None:
    """I25: what a job is settled with is its own."""
    if settlement is None:
        return
    own = f"{job.id}/{settlement.fence}".encode()
    if settlement.result not in {None, own}:
        book.blame("I25", job, f"completed with {settlement.result!r}", commit)
    failure, is_poison = settlement.failure, "poison" in job.spec.tags
    if failure is not None and failure.message.startswith("poison") and failure.message != f"poison {job.id}":
        book.blame("I25", job, f"failed with the error of another: {failure}", commit)
    if settlement.result is not None and is_poison:
        book.blame("I25", job, "completed, and it cannot", commit)


def check(book: Book) -> None:
    """I26: a child calls its function with jobs that were leased for one call."""
    leases = granted(book)
    for call in book.history.batches:
        groups = {(leases[held][0], leases[held][1].group) if held in leases else held for held in call}
        if len(groups) != 1:
            book.blame("I26", _job_of(leases, call), f"a child called {call} together, leased as {sorted(groups)}")


def _job_of(leases: dict[Held, tuple[int, Lease]], call: list[Held]) -> str:
    return next((leases[held][1].job for held in call if held in leases), "")

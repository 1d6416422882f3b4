"""I4 to I6, I14, I15, I20 and P8: who holds a job, what it may still write, and what it is charged."""

from __future__ import annotations

from typing import Final

from daybreak.core.events import Event
from daybreak.core.model import Reason, Settlement, State
from daybreak.core.units import span
from daybreak.store.protocol import Beat, Exchange
from harness import rules_worker
from harness.book import Book
from harness.history import Commit, History
from harness.network import LONGEST_DELAY
from harness.plan import LEASE, REAP_EVERY
from harness.tracked import Tracked

UNCHARGED: Final = frozenset({"HandedBack", "Suspended"})
# A holder reports every third of a lease, so a silence shorter than this leaves it time to do so once more; a longer
# one must be noticed by the reaper, however it measures.
NOTICED: Final = span(LEASE * 0.6)
SLACK: Final = round(LONGEST_DELAY * 2e6)
RECOVERED: Final = span(2 * LEASE + REAP_EVERY) + SLACK


# -- the life of a lease -----------------------------------------------------------------------------------------------


def start(book: Book, commit: Commit, event: Event, job: Tracked) -> None:
    claim = commit.call.request.claim
    job.charged += 1
    _check_fence(book, commit, job)
    if event.attempt != job.charged:
        book.blame("I14", job, f"started as attempt {event.attempt}, is number {job.charged}", commit)
    if event.by != claim.worker:
        book.blame("I9", job, f"started by {event.by}, claimed by {claim.worker}", commit)
    job.holder = job.claimed_by = claim.worker
    job.call, job.claimed_at = (claim.worker, claim.call), book.at
    job.term = span(claim.lease_for)
    job.extended, job.until = commit.at, commit.at + job.term
    job.expires = job.due = None
    job.alone = job.reaped = False
    _check_beginning(book, commit, job)


def expire(book: Book, commit: Commit, event: Event, job: Tracked) -> None:
    reap = commit.call.request
    _check_fence(book, commit, job)
    if job.until > commit.at:
        book.blame("P8", job, f"taken over {(job.until - commit.at) / 1e6:.6f} s before its lease ran out", commit)
    if job.term > span(reap.watched_for):
        book.blame("P8", job, f"a lease of {job.term / 1e6} s, taken over after a watch of {reap.watched_for}", commit)
    for window in book.history.windows:
        # Whoever held the job could not report in that time, and has one lease afterwards to do so.
        noticed = min(window.end, commit.at) - window.start > NOTICED
        if noticed and job.extended < window.end and commit.at < window.end + job.term - SLACK:
            late = (commit.at - window.end) / 1e6
            book.blame("P8", job, f"taken over {late:.6f} s after the {window.what} ended, within one lease", commit)
    rules_worker.check_expired(book, commit, job)
    taken = {(lease.job, lease.fence): lease for lease in commit.answer}.get((job.id, job.folded.fence))
    if taken is None:
        book.blame("I5", job, "taken over by nobody", commit)
    elif taken.alone != job.alone:
        book.blame("I15", job, f"taken over with alone={taken.alone}, its holder had said {job.alone}", commit)
    elif taken.begun != job.begun:
        book.blame("I14", job, f"taken over with begun={taken.begun}, where {job.begun} was true", commit)
    job.holder, job.reaped = reap.worker, True
    job.term = span(reap.lease_for)
    job.extended, job.until = commit.at, commit.at + job.term


def settle(book: Book, commit: Commit, event: Event, job: Tracked, settlement: Settlement | None) -> None:
    """The event that ends a lease."""
    if settlement is None:
        book.blame("I4", job, f"{event.kind} of a running job without a settlement", commit)
        return
    if settlement.fence != job.folded.fence:
        book.blame("I6", job, f"{event.kind} under fence {settlement.fence} while {job.folded.fence} holds", commit)
    if job.folded.fence in job.settled:
        book.blame("I4", job, f"fence {job.folded.fence} has a second outcome", commit)
    job.settled.add(job.folded.fence)
    outcome = book.history.outcomes.get((job.seq, settlement.fence), "Lost")
    began = job.begun or (not job.reaped and rules_worker.last_run(book, (job.seq, settlement.fence)) is not None)
    if outcome in UNCHARGED or (outcome == "Lost" and not began):
        job.charged -= 1
    elif outcome == "Lost":
        job.deaths += 1
    if job.folded.attempt != job.charged:
        book.blame("I14", job, f"{outcome} leaves attempt {job.folded.attempt}, exact is {job.charged}", commit)
    if job.charged > (allowed := job.spec.options.retry.attempts + job.deaths):
        book.blame("I14", job, f"{job.charged} attempts, {allowed} allowed", commit)
    if not job.reaped:
        rules_worker.check_outcome(book, commit, job, settlement.fence, outcome)
    alone = job.alone or rules_worker.died_alone(book, job, settlement.fence)
    if job.folded.reason is Reason.LOST and not (outcome == "Lost" and alone):
        book.blame("I15", job, f"ended as lost by {outcome} with alone={job.alone}", commit)
    job.alone = False


def _check_fence(book: Book, commit: Commit, job: Tracked) -> None:
    fences = [event.fence for event in job.events if event.fence is not None]
    if len(fences) > 1 and fences[-1] <= fences[-2]:
        book.blame("I5", job, f"fence {fences[-1]} after {fences[-2]}", commit)
    if not job.events or job.events[-1].fence is None:
        book.blame("I5", job, f"{job.events[-1].kind} without a new fence", commit)


# -- answers to holders ------------------------------------------------------------------------------------------------


def check_settlements(book: Book, commit: Commit, exchange: Exchange) -> dict[str, Settlement]:
    """Compares each answer with what stood before, and tells which settlements write."""
    writing: dict[str, Settlement] = {}
    for settlement, kept in zip(exchange.settle, commit.answer.settled, strict=True):
        job = book.by_seq.get(settlement.seq)
        current = job is not None and job.folded.fence == settlement.fence
        if kept != current:
            held = None if job is None else job.folded.fence
            what = f"settlement under fence {settlement.fence} answered {kept} while fence {held} stands"
            book.blame("I6", job or settlement.job, what, commit)
        if job is not None and job.state is State.RUNNING and kept:
            writing[job.id] = settlement
    told = {event.job for event in commit.events}
    for name in writing:
        if name not in told:
            book.blame("I9", book.jobs[name], "a settlement was accepted without an event", commit)
    return writing


def check_beats(book: Book, commit: Commit, beats: list[Beat]) -> None:
    for beat, answer in zip(beats, commit.answer, strict=True):
        job = book.by_seq.get(beat.seq)
        holds = job is not None and job.state is State.RUNNING and job.folded.fence == beat.fence
        if answer.held != holds:
            what = f"heartbeat under fence {beat.fence} answered held={answer.held}"
            book.blame("I6", job or str(beat.seq), what, commit)
        if job is None or not answer.held:
            continue
        if (answer.cancel, answer.suspend) != (job.cancel_asked, job.suspend_asked):
            book.blame("I16", job, "a heartbeat did not carry what was asked of the holder", commit)
        job.term = span(beat.lease_for)
        job.extended, job.until = commit.at, commit.at + job.term
        if beat.begun is not None:
            job.begun = beat.begun
        if beat.alone is not None:
            job.alone = beat.alone
            _check_company(book, commit, job)


def _check_beginning(book: Book, commit: Commit, job: Tracked) -> None:
    """As many leases of a claim have begun as it says, the first of its answer."""
    begins = commit.call.request.claim.begins
    calls: dict[tuple[bool, int], None] = {}
    for lease in commit.answer.leases:
        calls.setdefault((lease.group is None, lease.group or lease.seq))
        place = len(calls) - 1
        if lease.job == job.id:
            job.group = lease.group
            job.begun = begins is None or place < begins
            if lease.begun != job.begun:
                book.blame("I14", job, f"lease {place + 1} of a claim of which {begins} begin: {lease.begun}", commit)


def _check_company(book: Book, commit: Commit, job: Tracked) -> None:
    running = (other for other in book.jobs.values() if other.holder == job.holder and not other.reaped)
    if len(beside := [other.id for other in running if other.alone]) > 1:
        book.blame("I15", job, f"{job.holder} runs {beside}, and each of them alone", commit)


# -- recovery ----------------------------------------------------------------------------------------------------------


class Recoveries:
    """I20: in quiet times, what a dead worker held is free again within two leases and a tick."""

    def __init__(self, history: History) -> None:
        self._quiet_from = history.quiet_from
        self._crashes = [crash for crash in history.crashes if self._is_quiet(crash[0])]
        self._owed: dict[str, tuple[int, int, str]] = {}

    def _is_quiet(self, at: int) -> bool:
        return self._quiet_from is not None and at > self._quiet_from

    def before(self, index: int, book: Book) -> None:
        while self._crashes and self._crashes[0][1] <= index:
            at, _, worker = self._crashes.pop(0)
            for job in book.jobs.values():
                if job.state is State.RUNNING and job.holder == worker:
                    self._owed[job.id] = (at + RECOVERED, job.folded.fence, worker)

    def after(self, commit: Commit, book: Book) -> None:
        for name, (by, fence, worker) in list(self._owed.items()):
            job = book.jobs.get(name)
            if job is None or job.state is not State.RUNNING or job.claimed_by != worker:
                del self._owed[name]
            elif commit.at > by:
                book.blame("I20", job, f"held by dead {worker} under fence {fence} for more than two leases", commit)
                del self._owed[name]
        if self._quiet_from is not None and commit.call.op == "audit":
            self._check_overdue(commit, book, self._quiet_from)

    def _check_overdue(self, commit: Commit, book: Book, quiet: int) -> None:
        """No lease of a silent holder lies around either, whoever it was."""
        for job in book.jobs.values():
            if job.state is State.RUNNING and commit.at > max(job.until, quiet) + RECOVERED:
                book.blame("I20", job, f"its lease ran out at {job.until / 1e6:.6f} and nobody took it over", commit)

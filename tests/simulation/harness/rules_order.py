"""I10 to I12, I16, I17: who may start, and in which order."""

from __future__ import annotations

from daybreak.core.model import Lease, State
from daybreak.core.rank import passed_over_for, urgency
from daybreak.core.units import span
from daybreak.store.protocol import Claim
from harness.book import Book
from harness.history import Commit
from harness.tracked import Tracked


def check_due(book: Book, commit: Commit, job: Tracked) -> None:
    if job.due is None:
        return
    hand, at = job.due
    now = commit.wall if hand == "wall" else commit.at
    if at > now:
        book.blame("I17", job, f"queued {(at - now) / 1e6:.6f} s before its {hand} time", commit)


def check_start(book: Book, commit: Commit, job: Tracked) -> None:
    """Called when the event is folded and the lease not yet taken into the book."""
    claim: Claim | None = commit.call.request.claim if commit.call.op == "exchange" else None
    if claim is None:
        book.blame("I8", job, "started without a claim", commit)
        return
    if job.queue not in claim.queues or (
        claim.tasks is not None and (job.spec.task, job.spec.version) not in claim.tasks
    ):
        book.blame("I10", job, f"{job.spec.task} of {job.queue} was given to a worker that did not ask for it", commit)
    if job.due is not None:
        book.blame("I17", job, "started before it was due", commit)
    if job.is_overdue(commit.at):
        book.blame("I17", job, "started after it had expired", commit)
    _check_limits(book, commit, job)
    if not _is_in_order(job):
        return
    _check_rank(book, commit, job, claim)
    _check_queues(book, commit, job, claim)


def _check_limits(book: Book, commit: Commit, job: Tracked) -> None:
    settings = book.queue(job.queue)
    if settings.paused:
        book.blame("I12", job, f"started while queue {job.queue} was paused", commit)
    running = len(book.in_state(job.queue, State.RUNNING))
    if settings.max_running is not None and running > settings.max_running:
        book.blame("I12", job, f"{running} run in {job.queue}, whose max_running is {settings.max_running}", commit)


def _check_rank(book: Book, commit: Commit, job: Tracked, claim: Claim) -> None:
    settings = book.queue(job.queue)
    aging = settings.discipline == "aging" and job.queue not in book.retuned and not job.reranked
    for other in _claimable(book, commit, job.queue, claim):
        if other.rank < job.rank:
            book.blame("I10", other, f"{other.rank} was passed over by {job.id} with {job.rank}", commit)
        bound = span(passed_over_for(settings.patience, other.folded.priority, job.folded.priority))
        if aging and not other.reranked and job.arrived - other.arrived > bound:
            book.blame(
                "I11", other, f"passed over by {job.id}, which came {bound / 1e6:.1f} s too late for that", commit
            )


def _check_queues(book: Book, commit: Commit, job: Tracked, claim: Claim) -> None:
    """Over several queues the most urgent head goes first."""
    if not all(book.queue(queue).ranked for queue in claim.queues):
        return  # a queue in which two disciplines are mixed says nothing of urgency
    mine = urgency(book.queue(job.queue), job.folded.priority, job.rank.order, commit.at)
    for queue in claim.queues:
        settings = book.queue(queue)
        heads = _claimable(book, commit, queue, claim)
        if queue == job.queue or settings.paused or not heads:
            continue
        if settings.max_running is not None and len(book.in_state(queue, State.RUNNING)) >= settings.max_running:
            continue
        head = min(heads, key=lambda other: other.rank)
        if urgency(settings, head.folded.priority, head.rank.order, commit.at) < mine:
            book.blame("I10", head, f"head of {queue}, passed over by less urgent {job.id} of {job.queue}", commit)


def _is_in_order(job: Tracked) -> bool:
    """Whether rank alone says when a job starts: not if a batch call takes it along, or it waits for a resource."""
    return job.spec.batch is None and not job.spec.options.resources


def _claimable(book: Book, commit: Commit, queue: str, claim: Claim) -> list[Tracked]:
    return [
        job
        for job in book.in_state(queue, State.QUEUED)
        if (claim.tasks is None or (job.spec.task, job.spec.version) in claim.tasks)
        and not job.may_be_overdue(commit.at)
        and _is_in_order(job)
    ]


def _is_given_again(book: Book, claim: Claim, lease: Lease) -> bool:
    """A claim that is repeated is answered with what the first one took."""
    job = book.jobs.get(lease.job)
    return claim.repeats and job is not None and job.call == (claim.worker, claim.call) and job.claimed_at < book.at


def check_claim(book: Book, commit: Commit, claim: Claim) -> None:
    """After a claim that came back short, nothing is left lying."""
    answer = commit.answer
    started = {(event.job, event.fence) for event in commit.events if event.kind == "started"}
    given = {(lease.job, lease.fence) for lease in answer.leases}
    again = {(lease.job, lease.fence) for lease in answer.leases if _is_given_again(book, claim, lease)}
    limit = max(claim.limit, len(again))
    taken = len({(lease.group is None, lease.group or lease.seq) for lease in answer.leases})  # a call counts as one
    if started != given - again or len(given) != len(answer.leases) or taken > limit:
        book.blame("I4", "", f"leases {sorted(given)} where {sorted(started)} were started", commit)
    for lease in answer.leases:
        job = book.jobs.get(lease.job)
        if job is not None and (lease.attempt, lease.worker) != (job.folded.attempt, claim.worker):
            book.blame("I14", job, f"lease says attempt {lease.attempt} of {lease.worker}", commit)
        is_new = (lease.job, lease.fence) not in again
        if job is not None and (lease.lost, lease.alone) != (job.deaths, False if is_new else job.alone):
            what = f"lease says {lease.lost} deaths and alone={lease.alone}, where {job.deaths} were and nobody said so"
            book.blame("I15", job, what, commit)
    if answer.again or taken >= claim.limit:
        return
    for queue in claim.queues:
        settings = book.queue(queue)
        running = len(book.in_state(queue, State.RUNNING))
        if settings.paused or (settings.max_running is not None and running >= settings.max_running):
            continue
        for job in _claimable(book, commit, queue, claim):
            book.blame("I10", job, f"left lying by a claim of {claim.limit} that took {len(answer.leases)}", commit)

"""The wait-for graph of locks: finds deadlocks, and the waiters that should inherit a higher priority."""

from __future__ import annotations

from collections.abc import Sequence

from daybreak.api.locks.lock_job import HOLDS, names_of
from daybreak.core.model import Job


class WaitGraph:
    """`waiting` are the jobs of waiters that hold other locks meanwhile; `held` are the jobs of locks that are held."""

    def __init__(self, waiting: Sequence[Job], held: Sequence[Job]) -> None:
        self._holder_of = {need.resource: job for job in held for need in job.spec.options.resources}
        self._waits_with = {
            lock: job for job in waiting for lock in job.spec.meta.get(HOLDS, "").split() if job.blocked_on is not None
        }

    def holder(self, job: Job) -> Job | None:
        """The job that holds the lock that this job waits for."""
        return self._holder_of.get(job.blocked_on or "")

    def next_after(self, job: Job) -> Job | None:
        """The next edge of the graph: the job with which the holder of the awaited lock waits itself, if it does."""
        holder = self.holder(job)
        return None if holder is None else self._waits_with.get(holder.id)

    def cycle_of(self, job: Job) -> list[Job]:
        """The jobs of the deadlock that this job is part of; an empty list if there is none."""
        path, at = [job], self.next_after(job)
        while at is not None and at.id != job.id and all(at.id != one.id for one in path):
            path.append(at)
            at = self.next_after(at)
        return path if at is not None and at.id == job.id else []

    def describe(self, cycle: Sequence[Job]) -> str:
        """The deadlock as text: who waits for which lock, and who holds it."""
        parts = []
        for job in cycle:
            holder = self.holder(job)
            held = ", ".join(names_of(holder)) if holder is not None else "?"
            parts.append(f"{job.spec.owner} waits for {held}, held by {holder.spec.owner if holder else '?'}")
        return "; ".join(parts)

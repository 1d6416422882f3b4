"""Who waits for whom: finds those who would wait for ever, and whose turn should come sooner for another's sake."""

from __future__ import annotations

from collections.abc import Sequence

from daybreak.api.locks.lock_job import HOLDS, names_of
from daybreak.core.model import Job


class Knot:
    """`waiting` are jobs of callers that hold other locks meanwhile, `held` are the locks that are held."""

    def __init__(self, waiting: Sequence[Job], held: Sequence[Job]) -> None:
        self._holder_of = {need.resource: job for job in held for need in job.spec.options.resources}
        self._waits_with = {
            lock: job for job in waiting for lock in job.spec.meta.get(HOLDS, "").split() if job.blocked_on is not None
        }

    def holder(self, job: Job) -> Job | None:
        """Who has what it waits for."""
        return self._holder_of.get(job.blocked_on or "")

    def next_after(self, job: Job) -> Job | None:
        """Who must get its lock before this one can: the job by which that lock's holder waits, if it waits."""
        holder = self.holder(job)
        return None if holder is None else self._waits_with.get(holder.id)

    def cycle_of(self, job: Job) -> list[Job]:
        """Those who wait for one another with this one among them; none if it waits for someone who will come."""
        path, at = [job], self.next_after(job)
        while at is not None and at.id != job.id and all(at.id != one.id for one in path):
            path.append(at)
            at = self.next_after(at)
        return path if at is not None and at.id == job.id else []

    def told(self, cycle: Sequence[Job]) -> str:
        parts = []
        for job in cycle:
            holder = self.holder(job)
            held = ", ".join(names_of(holder)) if holder is not None else "?"
            parts.append(f"{job.spec.owner} waits for {held}, held by {holder.spec.owner if holder else '?'}")
        return "; ".join(parts)

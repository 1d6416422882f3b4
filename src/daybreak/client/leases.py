"""The lease of a running job, made again from what the store says of the job."""

from __future__ import annotations

from daybreak.core.model import Job, Lease


def lease_of(job: Job) -> Lease:
    """The lease of a running job, as far as a settlement needs it."""
    assert job.worker is not None
    assert job.leased_until is not None
    assert job.started_at is not None
    return Lease(
        seq=job.seq,
        spec=job.spec,
        fence=job.fence,
        attempt=job.attempt,
        priority=job.priority,
        worker=job.worker,
        until=job.leased_until,
        lease_for=job.spec.hold_for,
        started_at=job.started_at,
        created_at=job.created_at,
        lost=job.lost,
        timeouts=job.timeouts,
    )

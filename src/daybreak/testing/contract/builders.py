"""Builders and shortcuts for the contract tests. Fields that a test does not give have the defaults of the model."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from daybreak.core.events import Event, Folded, fold
from daybreak.core.flights import is_flight_cause
from daybreak.core.model import (
    Done,
    Failed,
    Failure,
    Gate,
    Job,
    JobSpec,
    Lease,
    Need,
    Options,
    Outcome,
    Put,
    QueueSettings,
    ResourceSettings,
    Retry,
    State,
)
from daybreak.policy.admit import digest
from daybreak.policy.settle import settle as settlement_of
from daybreak.store.protocol import (
    MAXIMA,
    Action,
    Amend,
    Beat,
    Claim,
    Exchange,
    Exchanged,
    Extended,
    Filter,
    Query,
    Reap,
    Store,
    Usage,
    Verdict,
)
from daybreak.testing.clock import NOON as NOON  # noqa: PLC0414 - re-exported with the other times

SECOND: Final = timedelta(seconds=1)
MINUTE: Final = timedelta(minutes=1)
HOUR: Final = timedelta(hours=1)
DAY: Final = timedelta(days=1)
LEASE: Final = 10 * SECOND

ONCE: Final = Retry(attempts=1)
TWICE: Final = Retry(strategy="fixed", attempts=2, delay=SECOND)
OOPS: Final = Failed(Failure(message="oops", kinds=("OSError",)))
FATAL: Final = Failed(Failure(message="no", kinds=("ValueError",)))

ENDLESS: Final = 5000  # more pages than any test here has jobs
_OPTIONS: Final = frozenset(Options.__struct_fields__)
_ids = itertools.count(1)


def spec(task: str = "work", **fields: Any) -> JobSpec:
    """A job to submit, with a unique id. `fields` are fields of JobSpec and of Options."""
    options = {name: fields.pop(name) for name in _OPTIONS & fields.keys()}
    fields.setdefault("id", f"job-{next(_ids):06d}")
    made = JobSpec(task=task, options=Options(**options), **fields) if options else JobSpec(task=task, **fields)
    return made if made.key is None or made.digest else msgspec.structs.replace(made, digest=digest(made))


# -- submit and read ---------------------------------------------------------------------------------------------------


async def accept(store: Store, task: str = "work", *, now: datetime = NOON, **fields: Any) -> str:
    """Submit one job, which must be new, and return its id."""
    job = spec(task, **fields)
    [answer] = await store.insert([job], now=now)
    assert (answer.verdict, answer.job) == (Verdict.NEW, job.id)
    return job.id


async def accept_all(store: Store, count: int, *, now: datetime = NOON, **fields: Any) -> list[str]:
    """Submit `count` new jobs of one kind in one call, and return their ids."""
    jobs = [spec(**fields) for _ in range(count)]
    assert [answer.verdict for answer in await store.insert(jobs, now=now)] == [Verdict.NEW] * count
    return [job.id for job in jobs]


async def verdicts(store: Store, *jobs: JobSpec, now: datetime = NOON) -> list[str]:
    return [answer.verdict.value for answer in await store.insert(jobs, now=now)]


async def get_job(store: Store, job: str) -> Job:
    """Read a job that must exist."""
    [found] = await store.get([job])
    assert found is not None, f"{job} is gone"
    return found


async def state_of(store: Store, job: str) -> State:
    return (await get_job(store, job)).state


async def find_all(store: Store, limit: int = 100, **where: Any) -> list[str]:
    """The ids of all jobs that match, in order, page by page."""
    return [job.id for job in await jobs_of(store, limit, **where)]


async def jobs_of(store: Store, limit: int = 100, **where: Any) -> list[Job]:
    jobs: list[Job] = []
    cursor = None
    for _ in range(ENDLESS):
        page = await store.find(Query(filter=Filter(**where), limit=limit, cursor=cursor))
        assert len(page.jobs) <= limit
        jobs += page.jobs
        if (cursor := page.cursor) is None:
            return jobs
    raise AssertionError("the pages do not end")


# -- work --------------------------------------------------------------------------------------------------------------


async def exchange(store: Store, *, now: datetime = NOON, **parts: Any) -> Exchanged:
    return await store.exchange(Exchange(**parts), now=now)


async def claim_jobs(
    store: Store, limit: int = 1, *, now: datetime = NOON, worker: str = "w1", **fields: Any
) -> list[Lease]:
    """Claim up to `limit` jobs. `fields` are fields of Claim."""
    fields.setdefault("lease_for", LEASE)
    return (await exchange(store, claim=Claim(worker=worker, limit=limit, **fields), now=now)).leases


async def claim_ids(store: Store, limit: int = 1, *, now: datetime = NOON, **fields: Any) -> list[str]:
    return [lease.job for lease in await claim_jobs(store, limit, now=now, **fields)]


async def claim_one(store: Store, *, now: datetime = NOON, **fields: Any) -> Lease:
    [lease] = await claim_jobs(store, now=now, **fields)
    return lease


async def settle(
    store: Store, lease: Lease, outcome: Outcome | None = None, *, now: datetime = NOON, **fields: Any
) -> bool:
    """Settle a lease with the settlement that policy decides on; the default outcome is done. `fields` replace fields
    of the settlement. Returns whether the store accepted it."""
    settlement = settlement_of(lease, Done() if outcome is None else outcome, chance=0.5, by=lease.worker)
    [settled] = (await exchange(store, settle=[msgspec.structs.replace(settlement, **fields)], now=now)).settled
    return settled


async def beat(store: Store, lease: Lease, *, now: datetime = NOON, **fields: Any) -> Extended:
    fields.setdefault("lease_for", lease.lease_for)
    [answer] = await store.extend([Beat(seq=lease.seq, fence=lease.fence, **fields)], now=now)
    return answer


async def reap(
    store: Store, *, now: datetime, watched_for: timedelta = HOUR, worker: str = "reaper", **fields: Any
) -> list[Lease]:
    return await store.reap(Reap(worker=worker, watched_for=watched_for, **fields), now=now)


async def run_one(store: Store, outcome: Outcome | None = None, *, now: datetime = NOON, **fields: Any) -> str:
    """Claim the next job, settle it, and return its id."""
    lease = await claim_one(store, now=now, **fields)
    assert await settle(store, lease, outcome, now=now)
    return lease.job


# -- people ------------------------------------------------------------------------------------------------------------


async def amend(
    store: Store, action: Action, *jobs: str, now: datetime = NOON, by: str = "ann", **fields: Any
) -> list[str]:
    """Change these jobs as a person does, and return the verdicts in the order of the jobs."""
    amended = await store.amend(Amend(action=action, by=by, jobs=jobs, **fields), now=now)
    assert [amendment.job for amendment in amended.amendments] == list(jobs)
    return [amendment.verdict for amendment in amended.amendments]


async def configure(store: Store, queue: str = "default", **settings: Any) -> None:
    """Set a queue to these settings, the rest to their defaults."""
    value = msgspec.json.encode(QueueSettings(**settings))
    assert await store.put([Put(kind="queue", name=queue, value=value)]) != [None]


async def provide(store: Store, resource: str, *, now: datetime = NOON, **settings: Any) -> None:
    """Set a resource to these settings, the rest to their defaults."""
    value = msgspec.json.encode(ResourceSettings(**settings))
    assert await store.put([Put(kind="resource", name=resource, value=value)], now=now) != [None]


async def set_gate(store: Store, resource: str, *, now: datetime = NOON, **gate: Any) -> None:
    value = msgspec.json.encode(Gate(**gate)) if gate else None
    assert await store.put([Put(kind="gate", name=resource, value=value)], now=now) != [None]


def needs(*resources: str, **slots: int) -> tuple[Need, ...]:
    """Needs of one slot of each resource, or of a given number: `needs("a", b=2)`."""
    return tuple(Need(name, slots.get(name, 1)) for name in sorted({*resources, *slots}))


async def used(store: Store, resource: str) -> int:
    [usage] = await store.usage(resource) or [Usage(name=resource)]
    return usage.used


async def waiting(store: Store, resource: str) -> int:
    [usage] = await store.usage(resource) or [Usage(name=resource)]
    return usage.waiting


async def counted(store: Store, *, queue: str | None = None, task: str | None = None) -> dict[str, tuple[int, int]]:
    """The totals of a queue and task, over all versions and priorities: how often, and how long together."""
    found: dict[str, tuple[int, int]] = {}
    for total in await store.totals(queue):
        if task in (None, total.task):
            n, took = found.get(total.what, (0, 0))
            more = (total.n, total.took)
            found[total.what] = max((n, took), more) if total.what in MAXIMA else (n + more[0], took + more[1])
    return found


# -- what must hold at any time ----------------------------------------------------------------------------------------


async def follow(store: Store, after: str | None = None, limit: int = 1000) -> tuple[list[Event], str]:
    """All events after a cursor, and the cursor behind them."""
    events: list[Event] = []
    for _ in range(ENDLESS):
        feed = await store.events(after, limit)
        if not feed.events:
            return events, feed.cursor
        events += feed.events
        after = feed.cursor
    raise AssertionError("the events do not end")


async def kinds_of(store: Store, job: str) -> list[str]:
    return [event.kind for event in await store.history(job)]


async def assert_sound(store: Store, jobs: Sequence[str] = ()) -> None:
    """Every job is in one state, its events fold to it, and the tallies equal a recount."""
    found = await jobs_of(store)
    assert not set(jobs) - {job.id for job in found}
    recount: dict[tuple[str, str, int, int, State], int] = {}
    for job in found:
        spec = job.spec
        cell = (spec.queue, spec.task, spec.version, job.priority, job.state)
        recount[cell] = recount.get(cell, 0) + 1
        assert fold(await store.history(job.id)) == folded(job)
    tallies = {(t.queue, t.task, t.version, t.priority, t.state): t.n for t in await store.count()}
    assert tallies == recount
    await _assert_usage(store, found)


async def _assert_usage(store: Store, found: Sequence[Job]) -> None:
    held: dict[str, int] = {}
    blocked: dict[str, int] = {}
    calls: set[int] = set()
    for job in found:
        if job.state is State.RUNNING and job.group not in calls:  # the jobs of a batch call hold what one holds
            if job.group is not None:
                calls.add(job.group)
            for need in job.spec.options.resources:
                held[need.resource] = held.get(need.resource, 0) + need.slots
        if job.state is State.BLOCKED:
            assert job.blocked_on is not None
            if is_flight_cause(job.blocked_on):
                continue
            blocked[job.blocked_on] = blocked.get(job.blocked_on, 0) + 1
    usage = await store.usage()
    assert {one.name: one.used for one in usage if one.used} == held
    assert {one.name: one.waiting for one in usage if one.waiting} == blocked


def folded(job: Job) -> Folded:
    """What the events of this job must fold to."""
    return Folded(
        state=job.state, reason=job.reason, priority=job.priority, attempt=job.attempt, fence=job.fence, n=job.revision
    )

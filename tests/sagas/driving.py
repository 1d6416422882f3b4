"""Sagas on a store, a worker that is part of the test, and drivers that are killed at a store operation."""

from __future__ import annotations

import contextlib
from datetime import timedelta

import msgspec
from ticking import Killed

from daybreak.client.client import Client
from daybreak.client.saga_changes import start_saga
from daybreak.client.saga_record import Saga, StepDefinition, definition_digest, job_of, read_saga
from daybreak.core.metadata import decode_meta
from daybreak.core.model import Done, Failed, Failure, JobSpec, Options, Retry, State
from daybreak.policy.sagas import begin
from daybreak.policy.settle import settle
from daybreak.services.saga_driver import SagaDriver
from daybreak.store.protocol import Amend, Claim, Exchange, Filter, Query
from daybreak.system.ports import RealWorld

ONCE = Options(retry=Retry(attempts=1))
WORLD = RealWorld()


class CutAtCall:
    """A store whose caller is killed once, at its n-th call in all: before the call is made, or after its commit and
    before its answer."""

    def __init__(self, store, cut_at: int | None = None) -> None:
        self._store, self._cut_at = store, cut_at
        self.calls = 0

    def __getattr__(self, name):
        found = getattr(self._store, name)
        if name in ("traits", "watch", "close"):
            return found

        async def call(*args, **kwargs):
            self._count()
            answer = await found(*args, **kwargs)
            self._count()
            return answer

        return call

    def _count(self) -> None:
        self.calls += 1
        if self.calls == self._cut_at:
            raise Killed


async def start(
    store,
    run_id: str,
    steps: int = 5,
    *,
    queue: str = "default",
    undo_tries: int = 3,
    options=ONCE,
    last_options=None,
    undo_options=ONCE,
) -> None:
    client = Client(store, by="tester")
    definition = tuple(
        StepDefinition(
            spec=JobSpec(
                id="", task=f"do{n}", queue=queue, options=(last_options or options) if n == steps - 1 else options
            ), takes="context",
            undo=JobSpec(id="", task=f"undo{n}", queue=queue, options=undo_options), undo_takes="context",
        )
        for n in range(steps)
    )  # fmt: skip
    from daybreak.core.units import moment

    now, new_id = moment(client.wall()), client.new_id()
    decision = begin([(f"step{n}", True) for n in range(steps)], new_id, now)
    saga = Saga(
        name="s", definition=definition, context=msgspec.Raw(b'{"x":1}'), progress=decision.progress,
        started_with=definition_digest("s", definition, b'{"x":1}'), created_at=now, changed_at=now,
        undo_tries=undo_tries,
    )  # fmt: skip
    await start_saga(client, run_id, saga, job_of(run_id, saga, decision.job, new_id))


async def progress_of(store, run_id: str):
    return (await read_saga(store, run_id)).saga.progress


async def work(store, fails=lambda task: False, queue: str = "default") -> list[str]:
    """Run what is waiting, and return the tasks that completed. The test is the worker."""
    done = []
    where = Filter(queue=queue, states=frozenset({State.SCHEDULED}))
    for job in (await store.find(Query(filter=where))).jobs:
        await store.amend(Amend(action="start", by="tester", jobs=(job.id,)))
    claim = Claim(worker="w", queues=(queue,), limit=10, lease_for=timedelta(minutes=5))
    for lease in (await store.exchange(Exchange(claim=claim))).leases:
        broken = Failed(Failure(message="broken", verdict="permanent"))
        step = msgspec.json.encode({lease.spec.task: True})
        outcome = broken if fails(lease.spec.task) else Done(step)
        settlement = settle(lease, outcome, chance=0.5, by="w")
        assert (await store.exchange(Exchange(settle=[settlement]))).settled == [True]
        if not isinstance(outcome, Failed):
            done.append(lease.spec.task)
    return done


async def drive(store, *, kills: bool = True) -> None:
    """One sweep of a driver that has just started. It may be killed."""
    driver = SagaDriver(store, WORLD, name="driver")
    with contextlib.suppress(Killed) if kills else contextlib.nullcontext():
        await driver.sweep()


async def jobs_of(store, run_id: str) -> list:
    page = await store.find(Query(filter=Filter(run=f"saga:{run_id}"), limit=500))
    assert page.cursor is None
    for job in page.jobs:
        assert decode_meta(job.spec.meta)["saga"] == run_id
    return page.jobs

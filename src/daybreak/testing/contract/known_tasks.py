"""Promise 11: a worker claims only the tasks that it has registered."""

from __future__ import annotations

from daybreak.core.model import State
from daybreak.store.protocol import Store
from daybreak.testing.contract.builders import accept, accept_all, claim_ids, claim_jobs, configure, get_job

KNOWN = frozenset({("known", 1)})


class KnownTasks:
    async def test_unknown_tasks_wait_uncharged_and_do_not_stand_in_the_way(self, store: Store) -> None:
        strange = await accept_all(store, 50, task="strange", priority=0)
        known = await accept(store, "known", priority=10)
        assert await claim_ids(store, 9, tasks=KNOWN) == [known]
        job = await get_job(store, strange[0])
        assert (job.state, job.attempt, job.fence, job.revision) == (State.QUEUED, 0, 0, 1)
        assert await claim_ids(store, 50, tasks=frozenset({("strange", 1)})) == strange

    async def test_a_claim_takes_only_the_versions_it_knows(self, store: Store) -> None:
        new, old = await accept(store, "known", version=2), await accept(store, "known", version=1)
        assert await claim_ids(store, 9, tasks=KNOWN) == [old]
        assert await claim_ids(store, 9, tasks=frozenset({("known", 2)})) == [new]

    async def test_a_worker_without_tasks_claims_nothing(self, store: Store) -> None:
        await accept(store)
        assert await claim_jobs(store, 9, tasks=frozenset()) == []

    async def test_an_unknown_task_does_not_make_its_queue_look_more_urgent(self, store: Store) -> None:
        await accept(store, "strange", queue="a", priority=0)
        a = await accept(store, "known", queue="a", priority=7)
        b = await accept(store, "known", queue="b", priority=5)
        assert await claim_ids(store, 9, queues=("a", "b"), tasks=KNOWN) == [b, a]

    async def test_an_unknown_task_uses_up_no_max_running(self, store: Store) -> None:
        await configure(store, max_running=1)
        await accept(store, "strange", priority=0)
        known = await accept(store, "known")
        assert await claim_ids(store, 9, tasks=KNOWN) == [known]

    async def test_a_claim_of_any_task_takes_them_all(self, store: Store) -> None:
        jobs = [await accept(store, task) for task in ("a", "b", "c")]
        assert await claim_ids(store, 9, tasks=None) == jobs

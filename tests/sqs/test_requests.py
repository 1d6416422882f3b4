"""What the extra hop costs: requests to SQS per job, counted. `pytest -s` prints them."""

from __future__ import annotations

from collections import Counter

import pytest
from sqs_stage import until
from sqs_tasks import app, echo

from daybreak import State


@pytest.mark.parametrize(("jobs", "slots", "most"), [(1, 1, 2000), (100, 1, 50), (100, 10, 50)])
async def test_a_job_costs_few_requests(stage, jobs, slots, most):
    """The bounds are wide: what is received together depends on the moment, and polls go on while a job is slow."""
    dispatcher, _ = await stage.dispatcher(wait=5)
    worker, _ = await stage.worker(processes=slots)
    queues = {"ledger": dispatcher._queues, "worker": worker._source._queues}
    await until(lambda: has_polled(queues["worker"]), "the worker polls")
    before = {name: Counter(one.requests) for name, one in queues.items()}
    await echo.asubmit_many([{"text": str(n)} for n in range(jobs)])

    async def all_done() -> bool:
        return await app.acount(state=State.COMPLETED) == jobs

    await until(all_done, "all jobs are done")
    used = {name: one.requests - before[name] for name, one in queues.items()}
    total = sum(sum(count.values()) for count in used.values())
    print(f"\n{jobs} jobs, {slots} slots: {total / jobs:.1f} requests per job")
    for name, count in used.items():
        print(f"  {name}: " + ", ".join(f"{operation} {n / jobs:.2f}" for operation, n in count.most_common()))
    assert total >= 4
    assert total / jobs <= most


async def has_polled(queues) -> bool:
    return queues.requests["receive_message"] > 6

"""What a worker hears of resources and tells to others: each outcome once, in few questions."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import msgspec
import pytest

from daybreak.core.model import Done, Failed, Failure, Health, JobSpec, Lease, Need, Options, Put, Retry
from daybreak.policy.retry import TYPICAL_SUCCESS
from daybreak.stores.memory import MemoryStore
from daybreak.testing.clock import NOON
from daybreak.worker.supervisor.health_reports import HealthReports
from daybreak.worker.supervisor.outcome_signals import OutcomeSignals

OOPS = Failed(Failure(message="down", kinds=("ConnectionError",)))


def lease(seq: int, *resources: str, strategy: str = "jittered", fence: int = 1) -> Lease:
    needs = tuple(Need(name) for name in sorted(resources))
    options = Options(resources=needs, retry=Retry(strategy=strategy))
    return Lease(
        seq=seq, spec=JobSpec(id=f"j{seq}", task="t", options=options), fence=fence, attempt=1, priority=5, worker="w",
        until=NOON, lease_for=timedelta(seconds=1), started_at=NOON, created_at=NOON,
    )  # fmt: skip


class Reports(HealthReports):
    """The health reports of a worker, which get the signals of each outcome once."""

    def __init__(self, store, world) -> None:
        super().__init__(store, world)
        self._signals = OutcomeSignals()

    async def hear(self, ended) -> None:
        await self.report(self._signals.collect(ended))


@pytest.fixture
def healths(store, world):
    return Reports(store, world)


async def told(store, name: str = "srv", kind: str = "health") -> Health | None:
    records = await store.records(kind, name)
    return msgspec.json.decode(records[0].value, type=Health) if records else None


async def test_successes_alone_are_not_told(healths, store):
    await healths.hear([(lease(n, "srv"), Done()) for n in range(50)])
    assert await told(store) is None


async def test_failures_are_told_at_once_when_they_change_how_it_stands(healths, store, world):
    await healths.hear([(lease(1, "srv"), OOPS)])
    assert (await told(store)).spare_for == timedelta()
    await healths.hear([(lease(n, "srv"), OOPS) for n in range(2, 30)])
    assert (await told(store)).spare_for


async def test_who_reports_again_is_not_counted_again(healths, store, world):
    for _ in range(14):
        await healths.hear([(lease(1, "srv"), OOPS)])
        world.pass_time(timedelta(seconds=2))
    assert (await told(store)).bad == 1.0
    await healths.hear([(lease(1, "srv", fence=2), OOPS)])
    assert (await told(store)).bad > 1.0


async def test_it_is_forgotten_when_it_is_well_again(healths, store, world):
    await healths.hear([(lease(n, "srv"), OOPS) for n in range(20)])
    world.pass_time(timedelta(minutes=5))
    await healths.hear([(lease(99, "srv"), Done())])
    assert await told(store) is None


async def test_many_tell_together_and_nothing_is_lost(store, world):
    tellers = [Reports(store, world) for _ in range(20)]
    await asyncio.gather(*(one.hear([(lease(n, "srv"), OOPS)]) for n, one in enumerate(tellers)))
    assert (await told(store)).bad == pytest.approx(20, abs=0.1)


async def test_many_resources_are_told_in_few_questions(world):
    asked = []

    class Counting(MemoryStore):
        async def put(self, puts, **how):
            asked.append(len(puts))
            return await super().put(puts, **how)

    async with Counting(world) as store:
        await Reports(store, world).hear([(lease(n, f"r{n}"), OOPS) for n in range(200)])
        assert asked == [200]
        assert len(await store.records("health")) == 200


async def test_an_adaptive_task_without_resources_learns_from_itself(healths, store):
    calm, shaky = lease(1), lease(2, strategy="adaptive")
    assert healths.success(calm) == healths.success(shaky) == TYPICAL_SUCCESS
    await healths.hear([(shaky, OOPS), (calm, OOPS)])
    assert healths.success(shaky) < TYPICAL_SUCCESS
    assert await told(store, "t", "task health") is not None
    assert await store.records("health") == []


async def test_a_record_that_cannot_be_read_is_told_anew(healths, store):
    await store.put([Put(kind="task health", name="t", value=b"nonsense")])
    await healths.hear([(lease(1, strategy="adaptive"), OOPS)])
    assert (await told(store, "t", "task health")).bad == 1.0

"""Whatever happens to jobs that share slots: if enough slots are free for the first waiting job in rank, the next claim
leases it. The differential tests hold the other stores to the answers of the memory store."""

from __future__ import annotations

import asyncio
import itertools
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from daybreak.core.model import HandedBack, Job, Lease, State
from daybreak.store.protocol import Claim, Filter, Query, Store
from daybreak.stores.memory import MemoryStore
from daybreak.stores.sqlite import SqliteStore
from daybreak.testing.clock import NOON
from daybreak.testing.contract.builders import accept, amend, configure, exchange, needs, provide, settle, used

QUEUES = ("a", "b")
TASKS = ("one", "other")
LIMIT = 4

submit = st.tuples(
    st.just("submit"), st.sampled_from(QUEUES), st.sampled_from(TASKS), st.integers(1, 4), st.integers(4, 6)
)
claim = st.tuples(st.just("claim"), st.sampled_from([None, *TASKS]), st.integers(1, 3))
finish = st.tuples(st.sampled_from(["finish", "finish", "hand back"]), st.integers(0, 9))
change = st.tuples(st.sampled_from(["cancel", "rerank"]), st.integers(0, 9), st.integers(4, 6))
configured = st.tuples(st.just("pause"), st.sampled_from(QUEUES), st.booleans())
wait = st.tuples(st.just("wait"), st.sampled_from([0.1, 5.0, 12.0, 35.0]))
steps = st.lists(st.one_of(submit, submit, claim, finish, finish, change, configured, wait), min_size=4, max_size=40)


class Scene:
    def __init__(self, store: Store) -> None:
        self.store = store
        self.now = NOON
        self.leases: list[Lease] = []
        self.paused: set[str] = set()

    async def play(self, step: tuple[Any, ...]) -> None:
        match step:
            case "submit", queue, task, slots, priority:
                resources = needs(plecs=slots)
                await accept(self.store, task, queue=queue, resources=resources, priority=priority, now=self.now)
            case "claim", task, limit:
                await self.claim(limit, None if task is None else frozenset({(task, 1)}))
            case "finish" | "hand back" as word, which:
                if self.leases:
                    lease = self.leases.pop(which % len(self.leases))
                    await settle(self.store, lease, HandedBack() if word == "hand back" else None, now=self.now)
            case "cancel" | "rerank" as word, which, priority:
                if jobs := await self.waiting():
                    options = {"priority": priority} if word == "rerank" else {}
                    await amend(self.store, word, jobs[which % len(jobs)].id, now=self.now, **options)
            case "pause", queue, paused:
                await configure(self.store, queue, paused=paused)
                (self.paused.add if paused else self.paused.discard)(queue)
            case "wait", seconds:
                self.now += timedelta(seconds=seconds)

    async def claim(self, limit: int, tasks: frozenset[tuple[str, int]] | None = None) -> list[str]:
        asked = Claim(worker="w1", queues=QUEUES, limit=limit, tasks=tasks, lease_for=timedelta(hours=1))
        answer = await exchange(self.store, claim=asked, now=self.now)
        self.leases += answer.leases
        return [lease.job for lease in answer.leases]

    async def waiting(self) -> list[Job]:
        wanted = Filter(states=frozenset({State.QUEUED, State.BLOCKED}))
        jobs = (await self.store.find(Query(filter=wanted, limit=100))).jobs
        return sorted(jobs, key=lambda job: (job.priority, job.seq))

    async def check(self) -> None:
        """Check the next claim of a worker that knows all tasks."""
        claimable = [job for job in await self.waiting() if job.spec.queue not in self.paused]
        free = LIMIT - await used(self.store, "plecs")
        leased = await self.claim(1)
        first = claimable[0] if claimable else None
        if first is not None and first.spec.options.resources[0].slots <= free:
            # Queues whose first jobs are equally urgent take turns: the first job of any of them may be leased.
            firsts = [job.id for job in claimable if job.priority == first.priority]
            assert leased, f"{first.id} waits while {free} slots are free"
            assert leased[0] in firsts
            if all(job.spec.queue == first.spec.queue for job in claimable if job.priority == first.priority):
                assert leased == [first.id]


async def play(story: list[tuple[Any, ...]], store: Store) -> None:
    async with store:
        await provide(store, "plecs", slots=LIMIT)
        scene = Scene(store)
        for step in story:
            await scene.play(step)
        await scene.check()


@pytest.mark.parametrize(("kind", "examples"), [("memory", 120), ("sqlite", 20)])
def test_the_first_in_rank_is_leased_while_enough_is_free_for_it(kind, examples, tmp_path):
    files = itertools.count()

    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))
    @given(steps)
    def holds(story):
        store = MemoryStore() if kind == "memory" else SqliteStore(tmp_path / f"{next(files)}.db")
        asyncio.run(play(story, store))

    holds()

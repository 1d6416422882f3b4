"""Whatever happens to jobs of a batch task: rules that every call keeps, worked out here from what the store shows.

One call never mixes keys, needs or distant priorities; it takes the best-ranked jobs that fit, and is full if it can
be; slots in use are calls; what a call passes over is as it was; and in the end every job has run."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import pytest
from bugs import batches as batch_bugs
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from daybreak.core.model import Batching, Done, HandedBack, Job, Lease, Lost, Outcome, State
from daybreak.core.units import bucket
from daybreak.policy.settle import settle as settlement_of
from daybreak.store.protocol import Claim, Store
from daybreak.stores.memory import MemoryStore
from daybreak.stores.sqlite import SqliteStore
from daybreak.testing.clock import NOON
from daybreak.testing.contract.builders import amend, exchange, jobs_of, needs, provide, reap, spec, used

PLECS, LINGER, LEASE = needs("plecs"), timedelta(seconds=10), timedelta(seconds=60)
OUTCOMES: tuple[Outcome, ...] = (Done(), Done(), HandedBack(), HandedBack(unused=True), Lost())
LEVELS = sorted({bucket(level).value for level in range(11)})

submit = st.tuples(
    st.just("submit"),
    st.lists(
        st.tuples(st.sampled_from(["a", "a", "b", None]), st.sampled_from([5, 5, 3, 8]), st.booleans()), max_size=6
    ),
)
claim = st.tuples(st.just("claim"), st.integers(1, 3), st.integers(1, 5), st.booleans())
end = st.tuples(st.just("end"), st.lists(st.integers(0, 30), max_size=6), st.sampled_from(OUTCOMES))
step = st.one_of(
    submit, submit, claim, claim, claim, end, end,
    st.tuples(st.just("cancel"), st.integers(0, 30)),
    st.tuples(st.just("rerank"), st.integers(0, 30), st.sampled_from([3, 5, 8])),
    st.tuples(st.just("wait"), st.sampled_from([1.0, 12.0, 70.0])),
)  # fmt: skip
stories = st.tuples(st.integers(1, 2), st.lists(step, min_size=4, max_size=30))


@dataclass
class Scene:
    store: Store
    slots: int
    now: datetime = NOON
    leases: list[Lease] = field(default_factory=list)

    async def play(self, step: tuple[Any, ...]) -> None:
        match step:
            case "submit", sketches:
                jobs = [
                    spec("work", batch=batch, priority=priority, resources=PLECS if shares else ())
                    for batch, priority, shares in sketches
                ]
                await self.store.insert(jobs, now=self.now)
            case "claim", limit, size, lingers:
                await self.claim(limit, Batching(size=size, linger=LINGER if lingers else None))
            case "end", which, outcome:
                chosen = {number % len(self.leases) for number in which} if self.leases else set()
                await self.end([self.leases[number] for number in sorted(chosen)], outcome)
            case "cancel", which:
                if waiting := await self.waiting():
                    await amend(self.store, "cancel", waiting[which % len(waiting)].id, now=self.now)
            case "rerank", which, priority:
                if waiting := await self.waiting():
                    await amend(self.store, "rerank", waiting[which % len(waiting)].id, now=self.now, priority=priority)
            case "wait", seconds:
                self.now += timedelta(seconds=seconds)
                taken = await reap(self.store, now=self.now)
                dead = {lease.seq for lease in taken}
                self.leases = [lease for lease in self.leases if lease.seq not in dead] + taken
        await self.check_slots()

    async def waiting(self) -> list[Job]:
        return await jobs_of(self.store, states=frozenset({State.QUEUED, State.BLOCKED}))

    async def end(self, leases: list[Lease], outcome: Outcome | None = None) -> None:
        made = [settlement_of(lease, outcome or Done(), chance=0.5, by=lease.worker) for lease in leases]
        assert all((await exchange(self.store, settle=made, now=self.now)).settled)
        ended = {lease.seq for lease in leases}
        self.leases = [lease for lease in self.leases if lease.seq not in ended]

    async def check_slots(self) -> None:
        holders = [lease for lease in self.leases if lease.spec.options.resources]
        calls = {lease.seq if lease.group is None else lease.group for lease in holders}
        assert await used(self.store, "plecs") == len(calls) <= self.slots

    async def claim(self, limit: int, batching: Batching) -> list[Lease]:
        before = {job.id: job for job in await jobs_of(self.store)}
        asked = Claim(worker="w", limit=limit, lease_for=LEASE, batches={("work", 1): batching})
        answer = await exchange(self.store, claim=asked, now=self.now)
        after = {job.id: job for job in await jobs_of(self.store)}
        assert before.keys() == after.keys(), "a job is gone"
        self.leases += answer.leases
        leased = {lease.job for lease in answer.leases}
        for name, job in after.items():
            if name in leased:
                assert (job.state, job.attempt) == (State.RUNNING, before[name].attempt + 1)
            elif job.revision == before[name].revision:
                assert job == before[name]
            else:  # it waits for a slot, or may try for one
                assert {job.state, before[name].state} <= {State.QUEUED, State.BLOCKED}
                assert (job.attempt, job.fence) == (before[name].attempt, before[name].fence)
        calls = [list(call) for _, call in itertools.groupby(answer.leases, lambda one: one.group or one.seq)]
        assert len(calls) <= limit
        left = [job for job in after.values() if job.state in (State.QUEUED, State.BLOCKED)]
        for call in calls:
            check_call([before[lease.job] for lease in call], left, batching)
        for job in left:
            if job.state is State.QUEUED and not self.may_linger(job, left, batching) and len(calls) < limit:
                assert answer.again, f"{job.id} was left lying"
        return answer.leases

    def may_linger(self, job: Job, left: list[Job], batching: Batching) -> bool:
        """Whether it, or another one of its key, is young, so that its call may wait for more."""
        if batching.linger is None or job.spec.batch is None:
            return False
        return any(one.spec.batch == job.spec.batch and self.now - one.created_at < LINGER for one in left)


def check_call(call: list[Job], left: list[Job], batching: Batching) -> None:
    head, *mates = call
    assert len(call) <= batching.size
    for mate in mates:
        assert head.spec.batch is not None
        assert fits(mate, head), f"{mate.id} does not fit the call of {head.id}"
    assert [rank(mate) for mate in mates] == sorted(rank(mate) for mate in mates)
    if head.spec.batch is None or is_suspect(head):
        assert not mates
        return
    others = [job for job in left if fits(job, head) and is_free(job)]
    assert not others or len(call) == batching.size, f"the call of {head.id} is not full"
    assert all(rank(mate) < rank(other) for mate in mates for other in others), "a call passed over a better-ranked job"


def fits(job: Job, head: Job) -> bool:
    distance = abs(LEVELS.index(bucket(job.priority).value) - LEVELS.index(bucket(head.priority).value))
    alike = (job.spec.batch, job.spec.options.resources) == (head.spec.batch, head.spec.options.resources)
    return alike and distance <= 1 and not is_suspect(job)


def is_suspect(job: Job) -> bool:
    return job.lost > 0 or job.timeouts > 0


def is_free(job: Job) -> bool:
    return job.state is State.QUEUED or job.blocked_on == "plecs"


def rank(job: Job) -> tuple[int, int]:
    return job.priority, job.seq


async def play(story: tuple[int, list[tuple[Any, ...]]], store: Store) -> None:
    slots, steps = story
    async with store:
        await provide(store, "plecs", slots=slots)
        scene = Scene(store, slots)
        for step in steps:
            await scene.play(step)
        for _ in range(200):  # in the end every job has run
            await scene.end(scene.leases)
            scene.now += timedelta(seconds=12)
            await scene.claim(3, Batching(size=4, linger=LINGER))
            await scene.check_slots()
            if not scene.leases and not await scene.waiting():
                break
        else:
            raise AssertionError("jobs wait for ever")
        assert {job.state for job in await jobs_of(store)} <= {State.COMPLETED, State.CANCELLED}
        assert await used(store, "plecs") == 0


def play_stories(open_store, examples: int, *, derandomize: bool = False) -> None:
    @settings(
        max_examples=examples,
        derandomize=derandomize,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate,) if derandomize else tuple(Phase),
    )
    @given(stories)
    def holds(story):
        asyncio.run(play(story, open_store()))

    holds()


@pytest.mark.parametrize(("kind", "examples"), [("memory", 100), ("sqlite", 15)])
def test_every_call_keeps_the_rules(kind, examples, tmp_path):
    files = itertools.count()
    play_stories(lambda: MemoryStore() if kind == "memory" else SqliteStore(tmp_path / f"{next(files)}.db"), examples)


@pytest.mark.parametrize(
    "bug",
    [
        batch_bugs.SkippedJobIsGone, batch_bugs.BatchMixesKeys, batch_bugs.CallTakesSlotPerElement,
        batch_bugs.SlotLeaksWithHead, batch_bugs.slot_is_free_with_the_head, batch_bugs.those_who_wait_are_left_behind,
        batch_bugs.any_priority_fits, batch_bugs.waiting_key_blocks_its_queue,
    ],
    ids=lambda bug: bug.__name__,
)  # fmt: skip
def test_the_rules_notice_a_planted_bug(bug):
    with bug.planted(), pytest.raises(Exception):  # noqa: B017 - hypothesis may wrap several failures
        play_stories(MemoryStore, 1000, derandomize=True)

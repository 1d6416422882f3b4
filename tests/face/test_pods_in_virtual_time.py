"""200 jobs that go on elsewhere for days of virtual time: pods die, their outcomes are lost, doubled and late, workers
die between any two steps, and the cap changes. No job is lost, no slot leaks, no outcome of another attempt counts."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from daybreak.client.client import Client
from daybreak.core.errors import AttemptOver
from daybreak.core.model import Done, Failed, Failure, JobSpec, Lost, Need, Options, Put, ResourceSettings, Retry, State
from daybreak.core.units import MAX_DURATION
from daybreak.policy.settle import settle
from daybreak.store.protocol import Beat, Claim, Exchange, Reap
from daybreak.stores.memory import MemoryStore
from daybreak.stores.sqlite import SqliteStore
from daybreak.testing import HandClock
from daybreak.testing.contract.builders import assert_sound, follow, used

JOBS = 200
DEADLINE = timedelta(hours=24)
CAPS = (10, 3, 20)
OPTIONS = Options(
    retry=Retry(strategy="fixed", attempts=60, delay=timedelta(minutes=1)), resources=(Need("pods"),), deaths=60
)


class Cluster:
    """Workers, pods, a reaper and an administrator, played by one seed on one store."""

    def __init__(self, store, clock: HandClock, seed: int) -> None:
        self.store = store
        self.clock = clock
        self.die = random.Random(seed)
        self.client = Client(store, by="cluster", world=clock)
        self.outcomes: list[tuple[datetime, str, int, bool]] = []  # when, which job, its fence, whether it is an error
        self.accepted: dict[str, int] = {}  # the fence of the result that was accepted
        self.seen: Counter[str] = Counter()
        self.cap = 0
        self.caps: list[tuple[datetime, int]] = []

    async def run(self) -> None:
        await self.store.insert([JobSpec(id=f"job-{n:03d}", task="pod", options=OPTIONS) for n in range(JOBS)])
        await self.set_cap(CAPS[0])
        for _ in range(20_000):
            ended = sum(tally.n for tally in await self.store.count() if tally.state is State.COMPLETED)
            if ended == JOBS:
                break
            wanted = CAPS[min(ended * len(CAPS) // JOBS, len(CAPS) - 1)]
            if wanted != self.cap:
                await self.set_cap(wanted)
            await self.store.advance()
            await self.reap()
            await self.work()
            await self.hear_outcomes()
            self.clock.advance(timedelta(minutes=self.die.choice((1, 5, 20, 90))))
        await self.hear_outcomes(late=True)

    async def set_cap(self, cap: int) -> None:
        self.cap = cap
        self.caps.append((self.clock.now, cap))
        value = msgspec.json.encode(ResourceSettings(slots=cap))
        await self.store.put([Put(kind="resource", name="pods", value=value)])

    async def work(self) -> None:
        """A worker claims some jobs and starts a pod for each. It may die before or after it did, and a pod may be
        faster than the worker."""
        before = await used(self.store, "pods")
        claim = Claim(worker="w", limit=self.die.randint(0, 6), lease_for=timedelta(seconds=10))
        leases = (await self.store.exchange(Exchange(claim=claim))).leases
        assert not leases or before + len(leases) <= self.cap
        for lease in leases:
            if self.die.random() < 0.05:
                self.seen["worker died before the pod"] += 1
                continue
            self.start_pod(lease.job, lease.fence)
            if self.die.random() < 0.05:
                self.seen["worker died before it detached"] += 1
                continue
            if self.die.random() < 0.1:
                await self.hear_outcomes(of=lease.job)  # a fast pod
            beat = Beat(seq=lease.seq, fence=lease.fence, lease_for=DEADLINE, detach=True, job=lease.job)
            [reply] = await self.store.extend([beat])
            self.seen["detached" if reply.held else "was finished before"] += 1

    def start_pod(self, job: str, fence: int) -> None:
        now, roll = self.clock.now, self.die.random()
        soon = now + timedelta(minutes=self.die.randint(0, 300))
        if roll < 0.12:
            self.seen["pod killed, or its outcome lost"] += 1
        elif roll < 0.24:
            self.seen["outcome late"] += 1
            self.outcomes.append((now + DEADLINE + timedelta(hours=self.die.randint(1, 60)), job, fence, False))
        elif roll < 0.36:
            self.outcomes.append((soon, job, fence, True))
        else:
            times = 1 + (roll < 0.6)
            self.seen["outcome doubled"] += times - 1
            self.outcomes += [
                (soon + n * timedelta(hours=self.die.randint(0, 40)), job, fence, False) for n in range(times)
            ]

    async def hear_outcomes(self, *, late: bool = False, of: str | None = None) -> None:
        now = self.clock.now
        due = [one for one in self.outcomes if late or one[1] == of or one[0] <= now]
        self.outcomes = [one for one in self.outcomes if one not in due]
        self.die.shuffle(due)
        for _, job, fence, is_error in due:
            outcome = Failed(Failure(message="evicted")) if is_error else Done(f'"{job}/{fence}"'.encode())
            current = await self.client.get(job)
            try:
                finished = await self.client.finish(job, outcome, fence=fence)
            except AttemptOver:
                self.seen["refused"] += 1
                assert current.fence != fence or current.state is not State.RUNNING
                continue
            self.seen["repeated" if finished.repeated else "accepted"] += 1
            if not finished.repeated:
                assert (current.state, current.fence) == (State.RUNNING, fence)
                if not is_error:
                    assert job not in self.accepted
                    self.accepted[job] = fence

    async def reap(self) -> None:
        leases = await self.store.reap(Reap(worker="reaper", watched_for=MAX_DURATION))
        for lease in leases:
            self.seen["timed out" if lease.detached else "lost"] += 1
        ended = [settle(lease, Lost(), chance=0.5, by="reaper") for lease in leases]
        assert all((await self.store.exchange(Exchange(settle=ended))).settled)

    async def check(self) -> None:
        assert await used(self.store, "pods") == 0
        await assert_sound(self.store)
        await self.check_caps()
        jobs = [job async for job in self.client.find_all()]
        assert {job.state for job in jobs} == {State.COMPLETED}
        assert {job.id: job.result for job in jobs} == {
            job: f'"{job}/{fence}"'.encode() for job, fence in self.accepted.items()
        }
        for job in jobs:
            events = await self.store.history(job.id)
            assert [event.kind for event in events].count("completed") == 1
            lapses = [before.kind for before, event in itertools.pairwise(events) if event.kind == "lease_expired"]
            # A death is charged only to attempts that no worker had detached.
            assert job.lost == sum(kind != "detached" for kind in lapses)
        assert all(self.seen[what] for what in (
            "worker died before the pod", "worker died before it detached", "detached", "was finished before",
            "pod killed, or its outcome lost", "outcome late", "outcome doubled", "refused", "repeated", "accepted",
            "timed out", "lost",
        )), self.seen  # fmt: skip

    async def check_caps(self) -> None:
        """From the event log: at every start, no more jobs ran than the cap allowed then."""
        running: set[str] = set()
        events, _ = await follow(self.store)
        for event in events:
            if event.kind == "started":
                running.add(event.job)
                assert len(running) <= [cap for since, cap in self.caps if since <= event.at][-1]
            elif event.state is not None:
                running.discard(event.job)
        assert [cap for _, cap in self.caps] == list(CAPS)


@pytest.mark.parametrize(("kind", "seed"), [("memory", 1), ("memory", 2), ("sqlite", 3)])
async def test_days_of_pods_lose_nothing_and_leak_nothing(tmp_path, kind, seed):
    clock = HandClock(datetime(2026, 5, 1, tzinfo=UTC))
    made = MemoryStore(clock) if kind == "memory" else SqliteStore(tmp_path / "jobs.db", world=clock, threaded=False)
    async with made as store:
        cluster = Cluster(store, clock, seed)
        await cluster.run()
        await cluster.check()

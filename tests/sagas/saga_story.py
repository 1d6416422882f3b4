"""One saga of five steps from its start to its end, whose drivers are killed at one store operation."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

import msgspec
from driving import ONCE, CutAtCall, drive, jobs_of, progress_of, start, work
from msgspec.structs import replace
from ticking import Killed

from daybreak.client.client import Client
from daybreak.client.saga_changes import cancel_saga, resume_saga
from daybreak.client.saga_record import read_unfinished
from daybreak.core.errors import Refused
from daybreak.core.model import Need, Put, ResourceSettings
from daybreak.sagas.saga_info import saga_info
from daybreak.store.protocol import SAGA_MARK_KIND

STEPS = 5
FOR_EVER = 1_000_000


class Story:
    """What happens: the step `fails_at` fails, or the saga is cancelled when the step `cancelled_after` has completed.
    `undo_fails` says how many jobs that undo a step fail first; three in a row make the saga stuck, and a person
    resumes it, unless `stays_stuck`. Each job needs the one slot of a resource."""

    def __init__(
        self,
        store,
        name: str,
        *,
        cut_at: int | None = None,
        fails_at: int | None = None,
        cancelled_after: int | None = None,
        undo_fails: Mapping[int, int] = {},
        stays_stuck: bool = False,
    ) -> None:
        self.store, self.name = store, name
        self.cut = CutAtCall(store, cut_at)
        self.fails_at, self.cancelled_after, self.stays_stuck = fails_at, cancelled_after, stays_stuck
        self.undo_fails = {f"undo{step}": n for step, n in undo_fails.items()}
        self.done: list[str] = []

    def fails(self, task: str) -> bool:
        if task == f"do{self.fails_at}":
            return True
        left = self.undo_fails.get(task, 0)
        self.undo_fails[task] = max(left - 1, 0)
        return left > 0

    async def run(self) -> None:
        value = msgspec.json.encode(ResourceSettings(slots=1))
        await self.store.put([Put(kind="resource", name=self.name, value=value)])
        needing = replace(ONCE, resources=(Need(self.name),))
        while True:  # a caller that does not know whether its saga was started starts it again
            with contextlib.suppress(Killed):
                await start(self.cut, self.name, STEPS, queue=self.name, options=needing, undo_options=needing)
                break
        while not (await progress_of(self.store, self.name)).is_finished:
            before = len(self.done)
            self.done += await work(self.store, self.fails, self.name)
            if f"do{self.cancelled_after}" in self.done[before:]:
                await self._until_done(lambda: cancel_saga(Client(self.cut, by="ann"), self.name))
            await drive(self.cut)
            await self._check_that_nothing_is_half()
            if (await progress_of(self.store, self.name)).phase == "stuck":
                if self.stays_stuck:
                    return
                await self._until_done(lambda: resume_saga(Client(self.cut, by="ann"), self.name))
        await drive(self.store, kills=False)  # what a driver that was killed at the very end left
        assert await self.store.records(SAGA_MARK_KIND, self.name) == []

    async def _until_done(self, call) -> None:
        """A person whose command was killed repeats it; then it may be refused, because it was done."""
        try:
            await call()
        except Killed:
            with contextlib.suppress(Refused):
                await call()

    async def _check_that_nothing_is_half(self) -> None:
        """After any kill the record names exactly the jobs that exist, and one of them is awaited until the end."""
        progress = await progress_of(self.store, self.name)
        jobs = {job.id for job in await jobs_of(self.store, self.name)}
        named = {job for step in progress.steps for job in (step.job, step.undo_job) if job}
        assert named <= jobs
        assert len(jobs) == sum(bool(step.job) + step.undo_jobs for step in progress.steps)
        assert bool(progress.current_job) is not progress.is_finished
        usages = {one.name: one.used for one in await self.store.usage(self.name)}
        assert usages.get(self.name, 0) == 0, "no job runs, and a slot is held"

    async def check(self) -> None:
        """How it ended: completed, compensated in reverse order, or stuck where people see it."""
        progress = await progress_of(self.store, self.name)
        last = STEPS
        if self.fails_at is not None:
            last = self.fails_at
        elif self.cancelled_after is not None:
            last = self.cancelled_after + 1
        done = [f"do{n}" for n in range(last)]
        undone = [f"undo{n}" for n in reversed(range(last))]
        jobs = await jobs_of(self.store, self.name)
        assert len({job.spec.key for job in jobs}) == len(jobs)
        assert all(job.is_final for job in jobs)
        if self.stays_stuck:
            assert progress.phase == "stuck"
            [stuck] = [f"undo{n}" for n, step in enumerate(progress.steps) if step.state == "undoing"]
            assert self.done == done + undone[: undone.index(stuck)]
            found = await saga_info(Client(self.store), self.name)
            assert found.trouble.endswith(f"continue with: daybreak sagas resume {self.name}")
            assert self.name in [one.id for one in await read_unfinished(self.store)]
        elif last == STEPS and self.cancelled_after is None:
            assert (progress.phase, self.done) == ("completed", done)
        else:
            assert (progress.phase, self.done) == ("compensated", done + undone)

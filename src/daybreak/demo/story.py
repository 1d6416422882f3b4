"""The steps of the demo: a night's work in half a minute, with real processes and faults, and measured numbers."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from rich.console import Console

from daybreak.api.job_handle import JobHandle
from daybreak.client.client import Client
from daybreak.core.errors import BadInput, DaybreakError
from daybreak.core.model import UNFINISHED, State
from daybreak.core.units import counted
from daybreak.demo import licence
from daybreak.demo.buck import FS, VI, C, Converter, L
from daybreak.demo.measure import Measured, measure
from daybreak.demo.plan import QUICK, SHOWN_LOAD, Plan, full
from daybreak.demo.show import Show, Snapshot, seconds
from daybreak.demo.tasks import app, simulate
from daybreak.demo.workers import DemoWorkers, WorkerGone
from daybreak.store.protocol import LATEST

INTERRUPTED: Final = 130  # the exit code of a program that Ctrl-C ended
POLL_INTERVAL: Final = 0.1  # seconds
FILE: Final = "demo.db"


def run(
    *, quick: bool = False, folder: Path | None = None, console: Console | None = None, live: bool | None = None
) -> int:
    """Run the demo. Returns 0 if every promise was kept; otherwise prints the broken ones and returns 1.

    The store is kept in `folder`. Without one it is in a temporary folder, which is deleted unless a promise was
    broken."""
    show = Show(console or Console(highlight=False, markup=False, emoji=False), live=live)
    place = Path(tempfile.mkdtemp(prefix="daybreak-demo-")) if folder is None else folder.resolve()
    if (place / FILE).exists():
        raise BadInput(f"{place / FILE} exists already, from an earlier demo: name another folder, or remove the file")
    code = 1
    try:
        code = asyncio.run(_run(QUICK if quick else full(), place, show))
    except KeyboardInterrupt:
        code = INTERRUPTED
        show.plain("Stopped. All workers have ended.")
    finally:
        if folder is None and code != 1:
            shutil.rmtree(place, ignore_errors=True)
    if code == 1:
        show.plain(
            f"The workers' logs and the store are in {place}. List jobs with: daybreak jobs --url {place / FILE}"
        )
    return code


async def _run(plan: Plan, folder: Path, show: Show) -> int:
    path = folder / FILE
    app.use(str(path))
    try:
        async with licence.server(drops_every=12) as port:
            with DemoWorkers(folder, str(path), port=port, lease_for=plan.lease_for) as processes, show:
                problems = await Story(plan, await app.client(), processes, show).play()
    except (WorkerGone, TooSlow, DaybreakError) as error:
        problems = [str(error)]
    finally:
        await app.aclose()
    for sentence in problems:
        show.plain(f"Problem: {sentence}", "bold red")
    return 1 if problems else 0


class TooSlow(Exception):
    """The demo made no progress in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SecondRound:
    """The second submit of the sweep: how many of its jobs were found completed, and how many were started again."""

    submitted: int
    found: int
    started: int
    took: timedelta

    @property
    def problems(self) -> list[str]:
        found = []
        if self.found != self.submitted:
            found.append(f"the second round found only {self.found} of {self.submitted} jobs done")
        if self.started:
            found.append(f"the second round started {self.started} jobs that were done")
        return found


class Story:
    """The steps of the demo, in order, and the measurements for the report."""

    def __init__(self, plan: Plan, client: Client, processes: DemoWorkers, show: Show) -> None:
        self._plan = plan
        self._client = client
        self._processes = processes
        self._show = show
        self._workers: dict[str, str] = {}
        self._jobs: dict[tuple[float, float], JobHandle[Converter]] = {}
        self._total = len(plan.points)

    async def play(self) -> list[str]:
        """Run all steps. Returns the problems, one sentence each."""
        self._introduce()
        self._workers = {name: f"pid {self._processes.start(name)}" for name in ("A", "B")}
        await self._submit_the_sweep()
        await self._until(lambda counts: counts[State.COMPLETED] >= self._total / 4)
        urgent = await self._submit_the_urgent_one()
        await self._until(lambda counts: counts[State.COMPLETED] >= self._total / 2)
        killed_at = await self._kill("A")
        await self._until(lambda counts: not any(counts[state] for state in UNFINISHED))
        accepted = [*(job.id for job in self._jobs.values()), urgent.id]
        first = await measure(self._client.store, accepted, urgent=urgent.id, killed="A", killed_at=killed_at)
        second = await self._submit_again()
        stopped = await self._processes.stop("B")
        self._report(first, second)
        if not first.problems:
            await self._plot()
        ended = [] if stopped == 0 else [f"worker B was asked to stop, but {_how(stopped)}"]
        return [*first.problems, *second.problems, *ended]

    # -- the steps
    # ------------------------------------------------------------------------------------------------------

    def _introduce(self) -> None:
        plan, show = self._plan, self._show
        show.title(f"Daybreak demo: {self._total} simulations of a buck converter, and a bad night")
        show.plain(
            f"{VI:g} V in, {FS / 1e3:g} kHz, {L * 1e6:g} uH, {C * 1e6:g} uF; {len(plan.duties)} duty cycles, "
            f"{len(plan.loads)} loads. One SQLite file, two workers."
        )
        show.plain(
            f"Leases last {plan.lease_for.total_seconds():g} s here, not the default 7 s, to notice a crash sooner."
        )
        show.plain()

    async def _submit_the_sweep(self) -> None:
        began = time.perf_counter()
        self._jobs = await self._submitted()
        took = timedelta(seconds=time.perf_counter() - began)
        self._show.say(f"{len(self._jobs)} jobs are accepted and on disk, in {seconds(took)}. Two workers start.")

    async def _submitted(self) -> dict[tuple[float, float], JobHandle[Converter]]:
        """Submit one job for each point. The key names the point, so that a second submit finds the same job."""
        points = self._plan.points
        submits = (
            simulate.using(key=f"duty {duty} load {load}", priority="low").asubmit(duty, load) for duty, load in points
        )
        return dict(zip(points, await asyncio.gather(*submits), strict=True))

    async def _submit_the_urgent_one(self) -> JobHandle[Converter]:
        urgent = await simulate.using(priority="critical").asubmit(0.14025, SHOWN_LOAD)
        self._total += 1
        self._show.say("An urgent job is submitted, with priority critical. It runs next.", "bold")
        found = await urgent.aresult(self._plan.timeout)
        self._show.say(f"The urgent job is done: {found.vout:.2f} V, {found.ripple * 1e3:.0f} mV ripple.", "green")
        return urgent

    async def _kill(self, name: str) -> datetime:
        """Kill a worker while it holds jobs, according to the store."""
        while not any(_is_held_by(name, job.worker) for job in (await self._client.find(state="running")).jobs):
            await self._until(lambda counts: bool(counts[State.RUNNING]))
        killed_at = self._processes.kill(name)
        self._workers[name] = "killed"
        self._show.say(f"Worker {name} is killed (SIGKILL) while it runs jobs. Worker B continues.", "bold red")
        return killed_at

    async def _submit_again(self) -> SecondRound:
        self._show.say("Every job has ended. The same sweep is submitted a second time.")
        store = self._client.store
        before = (await store.events(LATEST)).cursor
        began = time.perf_counter()
        again = await self._submitted()
        jobs = await store.get([job.id for job in again.values()])
        took = timedelta(seconds=time.perf_counter() - began)
        found = sum(
            again[point] == self._jobs[point] and job is not None and job.state is State.COMPLETED
            for point, job in zip(again, jobs, strict=True)
        )
        started = sum(event.kind == "started" for event in (await store.events(before)).events)
        return SecondRound(submitted=len(again), found=found, started=started, took=took)

    # -- watching ------------------------------------------------------------------------------------------------------

    async def _until(self, is_reached: Callable[[dict[State, int]], bool]) -> None:
        deadline = time.monotonic() + self._plan.timeout.total_seconds()
        while True:
            counts = await self._client.count()
            self._show.progress(Snapshot(counts, self._total, self._workers))
            if is_reached(counts):
                return
            self._processes.check()
            if time.monotonic() > deadline:
                left = ", ".join(f"{n} {state}" for state, n in counts.items() if n)
                raise TooSlow(f"the jobs made no progress within {seconds(self._plan.timeout)}: {left}")
            await asyncio.sleep(POLL_INTERVAL)

    # -- the report ----------------------------------------------------------------------------------------------------

    def _report(self, first: Measured, second: SecondRound) -> None:
        self._show.plain()
        self._show.title(f"Measured, from the {first.events:,} events in the store")
        self._show.pairs([
            ("accepted", f"{first.accepted}", "jobs"),
            ("completed", f"{first.completed}", ""),
            ("lost", f"{len(first.lost)}", ""),
            ("completed twice", f"{len(first.twice)}", ""),
            ("retried", f"{first.retries}", "; ".join(first.errors)),
            ("urgent job waited", seconds(first.urgent_waited),
             f"overtook {counted(first.passed, 'job')}; the others waited {seconds(first.others_waited)} (median)"),
            ("recovered in", seconds(first.recovered_in),
             f"{counted(first.held, 'job')} of the killed worker, running again"),
            ("second round", f"{second.found}",
             f"of {second.submitted} found done in {seconds(second.took)}; {second.started} ran again"),
        ])  # fmt: skip

    async def _plot(self) -> None:
        shown = [(duty, job) for (duty, load), job in self._jobs.items() if load == SHOWN_LOAD]
        found = [(duty, await job.aresult("1s")) for duty, job in shown[1 :: 1 + len(shown) // 12]]
        self._show.plain()
        self._show.title(f"Ripple of the output, by duty cycle, at {SHOWN_LOAD:g} ohm")
        self._show.bars([
            (f"{duty:.2f}", one.ripple, f"{one.ripple * 1e3:.0f} mV at {one.vout:.1f} V") for duty, one in found
        ])  # fmt: skip


def _is_held_by(name: str, worker: str | None) -> bool:
    """Whether the worker of this name holds the job. A worker's id is its name and a unique suffix."""
    return worker is not None and worker.startswith(f"{name}-")


def _how(code: int | None) -> str:
    return "it did not" if code is None else f"it exited with code {code}"

"""What every worker does for runs: it records how they ended, pauses them, and tells people."""

from __future__ import annotations

import asyncio
import sys
from datetime import timedelta

import pytest
from msgspec.structs import replace

from daybreak import Daybreak
from daybreak.client.client import Client
from daybreak.core.model import Done, Failed, Failure, State
from daybreak.policy.settle import settle
from daybreak.runs.designs import design_of
from daybreak.runs.notices import TAKEN_FOR, NoticeRights
from daybreak.runs.record import MARK_KIND, Mark, RunNotice, change_run, read_mark, read_run
from daybreak.runs.run_info import all_runs
from daybreak.runs.submission import Submission
from daybreak.runs.watch import RunWatch
from daybreak.store.protocol import Claim, Exchange
from daybreak.stores.memory import MemoryStore
from daybreak.testing import HandClock

NO_LICENCE = Failed(Failure(message="no licence left\nand more", kinds=("plecs.LicenceError", "OSError")))
NO_MODEL = Failed(Failure(message="no such model", kinds=("FileNotFoundError",)))


class Watched:
    """A store with a run, and two workers that watch it. Time is moved by hand."""

    def __init__(self) -> None:
        self.clock = HandClock()
        self.store = MemoryStore(self.clock)
        self.client = Client(self.store, by="ann", world=self.clock)
        self.app = Daybreak("memory://", by="ann")
        self.rights = NoticeRights()
        self.watches = [self.new_watch(), self.new_watch()]

        @self.app.task(retry=1)
        def simulate(vin: float) -> float:
            return vin

        self.task = simulate

    def new_watch(self) -> RunWatch:
        return RunWatch(self.client, self.clock, self.rights)

    async def sweep(self, points: int = 6, **options):
        design = design_of({"vin": list(range(points))})
        return await Submission(self.client, self.task, design, "night", options={}, **options).run()

    async def work(self, jobs: int, outcome=None) -> None:
        claim = Claim(worker="w", limit=jobs)
        leases = (await self.store.exchange(Exchange(claim=claim))).leases
        assert len(leases) == jobs
        self.clock.advance("3s")
        ended = [settle(lease, outcome or Done(b"1"), chance=0.5, by="w") for lease in leases]
        assert all((await self.store.exchange(Exchange(settle=ended))).settled)

    async def look(self, times: int = 1) -> None:
        """Let both workers look, as often as said."""
        for _ in range(times):
            self.clock.advance("2s")
            for watch in self.watches:
                await watch.look()

    async def record(self):
        return (await read_run(self.store, "night"))[0]

    async def info(self):
        [info] = await all_runs(self.client)
        return info

    async def states(self) -> dict[State, int]:
        return {state: n for state, n in (await self.client.count(run="night")).items() if n}


@pytest.fixture
async def night():
    watched = Watched()
    yield watched
    watched.app.close()


# -- the end -----------------------------------------------------------------------------------------------------------


async def test_the_figures_of_a_run_that_has_ended_are_recorded(night, monkeypatch):
    await night.sweep()
    await night.work(4)
    await night.look()
    assert (await night.record()).figures is None
    await night.work(2, NO_MODEL)
    ended_at = night.clock.now
    await night.look(2)
    figures = (await night.record()).figures
    assert figures.counts == {"completed": 4, "failed": 2}
    assert figures.reasons == {"error": 2}
    assert figures.finished_at == ended_at
    assert await night.store.records(MARK_KIND) == []

    async def count(*_, **__):
        raise AssertionError("a run that has ended needs no counting")

    monkeypatch.setattr(night.store, "count", count)
    info = await night.info()
    assert (info.state, info.done, info.finished_at) == ("finished", 6, ended_at)


async def test_a_run_with_points_that_have_no_job_has_not_ended(night):
    await night.sweep()
    await change_run(night.store, "night", lambda run: replace(run, submitted=False))
    await night.work(6)
    await night.look(3)
    assert (await night.record()).figures is None
    assert (await night.info()).state == "submitting"


async def test_a_run_with_fewer_jobs_than_points_ends_once_it_stands_still(night):
    await night.sweep()
    await night.work(6)
    jobs = [job.id async for job in night.client.find_all(run="night")]
    await night.client.remove(jobs[0])
    await night.look()
    assert (await night.record()).figures is None
    await night.look(3)
    assert (await night.record()).figures.counts == {"completed": 5}


async def test_a_job_that_is_retried_in_the_instant_of_the_end_is_seen(night):
    await night.sweep()
    await night.work(6, NO_MODEL)
    await night.watches[0].look_at("night", Mark())
    jobs = [job.id async for job in night.client.find_all(run="night")]
    await night.client.retry(jobs[0])
    await night.look(2)
    assert (await night.record()).figures is None
    assert (await night.info()).state == "running"


async def test_a_run_that_never_ends_is_looked_at_ever_less(night, monkeypatch):
    await night.sweep()
    counted = 0
    count = night.store.count

    async def counting(*args, **kwargs):
        nonlocal counted
        counted += 1
        return await count(*args, **kwargs)

    monkeypatch.setattr(night.store, "count", counting)
    await night.look(900)  # half an hour
    assert counted < 60


async def test_a_deletion_that_was_killed_is_finished(night):
    await night.sweep()
    await night.work(3)
    await change_run(night.store, "night", lambda run: replace(run, deleting=True))
    await night.look(2)
    assert await night.states() == {}
    assert await night.store.records("run") == await night.store.records(MARK_KIND) == []


async def test_a_deletion_waits_for_jobs_that_still_run(night):
    await night.sweep()
    [lease] = (await night.store.exchange(Exchange(claim=Claim(worker="w", limit=1)))).leases
    await change_run(night.store, "night", lambda run: replace(run, deleting=True))
    await night.look(2)
    assert await night.states() == {State.RUNNING: 1}
    await night.store.exchange(Exchange(settle=[settle(lease, Done(b"1"), chance=0.5, by="w")]))
    await night.look(40)
    assert await night.store.records("run") == []


# -- stop_after --------------------------------------------------------------------------------------------------------


async def test_a_run_whose_first_jobs_fail_alike_pauses(night):
    await night.sweep(stop_after=3)
    await night.work(2, NO_LICENCE)
    await night.look(2)
    assert not (await night.record()).paused
    await night.work(1, NO_LICENCE)
    await night.look(2)
    assert await night.states() == {State.FAILED: 3, State.SUSPENDED: 3}
    info = await night.info()
    assert info.state == "paused"
    assert info.note == "the first 3 jobs failed, with LicenceError: no licence left"


async def test_failures_of_several_kinds_do_not_pause_it(night):
    await night.sweep(stop_after=3)
    await night.work(2, NO_LICENCE)
    await night.work(2, NO_MODEL)
    await night.look(2)
    assert not (await night.record()).paused


async def test_after_a_success_no_failure_pauses_it(night):
    await night.sweep(stop_after=2)
    await night.work(1)
    await night.work(4, NO_LICENCE)
    await night.look(2)
    assert not (await night.record()).paused


async def test_a_pause_that_was_killed_before_the_jobs_were_suspended_is_finished(night):
    await night.sweep()
    await change_run(night.store, "night", lambda run: replace(run, paused="why", suspending=True))
    await night.look(2)
    assert await night.states() == {State.SUSPENDED: 6}
    assert not (await night.record()).suspending


# -- notices -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def told(tmp_path):
    """A command that writes down what it is told, and what it wrote."""
    path = tmp_path / "told"
    code = "import os, sys; open(sys.argv[1], 'a').write(os.environ['DAYBREAK_CHANGE'] + '\\n'); sys.stdin.read()"

    class Told:
        notify = ("command", sys.executable, "-c", code, str(path))

        @property
        def lines(self) -> list[str]:
            return path.read_text().splitlines() if path.exists() else []

    return Told()


async def test_one_notice_when_it_ends_whoever_looks(night, told, monkeypatch):
    await night.sweep(notify=told.notify)
    await night.work(6)
    await night.look()  # by workers that may not run commands
    night.watches = [RunWatch(night.client, night.clock, NoticeRights(allow_commands=True)) for _ in range(3)]
    night.clock.advance("2s")
    put = night.store.put

    async def slow(*args, **kwargs):
        await asyncio.sleep(0.01)  # so that all have read the record before the first writes it
        return await put(*args, **kwargs)

    monkeypatch.setattr(night.store, "put", slow)
    await asyncio.gather(*(watch.look_at("night", Mark()) for watch in night.watches))
    await night.look(3)
    assert told.lines == ["finished"]
    assert (await night.record()).notices[0].sent_at is not None
    assert await night.store.records(MARK_KIND) == []


async def test_a_run_that_goes_on_after_its_end_is_told_of_again(night, told):
    night.watches = [RunWatch(night.client, night.clock, NoticeRights(allow_commands=True))]
    await night.sweep(notify=told.notify, stop_after=6)
    await night.work(5)
    await night.work(1, NO_MODEL)
    await night.look(3)
    await change_run(night.store, "night", lambda run: replace(run, figures=None, changes=1))
    await night.client.amend_all("retry", run="night", state="failed")
    await night.work(1)
    await night.look(3)
    assert told.lines == ["finished", "finished"]


async def test_a_pause_is_told_of(night, told):
    night.watches = [RunWatch(night.client, night.clock, NoticeRights(allow_commands=True))]
    await night.sweep(notify=told.notify, stop_after=2)
    await night.work(2, NO_LICENCE)
    await night.look(3)
    assert told.lines == ["paused"]


async def test_a_command_runs_only_where_commands_are_allowed(night, told):
    await night.sweep(notify=told.notify)
    await night.work(6)
    await night.look(3)
    assert told.lines == []
    assert len(await night.store.records(MARK_KIND)) == 1
    night.clock.advance("11m")
    await night.look(3)
    assert told.lines == []
    assert "--allow-commands" in (await night.record()).notices[0].error
    assert await night.store.records(MARK_KIND) == []


async def test_the_notice_of_a_killed_sender_is_sent_by_another(night, told):
    night.watches = [RunWatch(night.client, night.clock, NoticeRights(allow_commands=True))]
    await night.sweep(notify=told.notify)
    at = night.clock.now
    taken = RunNotice(id="1", change="finished", at=at, text="", taken_at=at)
    await change_run(night.store, "night", lambda run: replace(run, notices=(taken,)))
    await night.look(2)
    assert told.lines == []
    night.clock.advance(TAKEN_FOR)
    await night.look(2)
    assert told.lines == ["finished"]


async def test_a_private_webhook_is_refused_at_once(night):
    await night.sweep(notify=("http://127.0.0.1:1/hook",))
    await night.work(6)
    await night.look(2)
    [notice] = (await night.record()).notices
    assert notice.error.startswith("refused: 127.0.0.1")


# -- predictions -------------------------------------------------------------------------------------------------------


async def test_predictions_are_recorded_and_judged_at_the_end(night, monkeypatch):
    from daybreak.runs import estimate

    async def slots(*_):
        return 1

    monkeypatch.setattr(estimate, "_slots", slots)
    await night.sweep(20)
    await night.work(1)
    await night.work(1)
    await night.look()
    assert read_mark((await night.store.records(MARK_KIND))[0]).looks == ()  # before three jobs have ended
    await night.work(1)
    await night.look(2)
    assert (await night.info()).eta.low <= (await night.info()).eta.high
    for _ in range(17):
        await night.work(1)
        await night.look(2)
    looks = (await night.info()).accuracy
    assert looks.looks >= 5
    assert 0 <= looks.held <= looks.looks


async def test_a_run_without_a_worker_has_no_predicted_end(night):
    await night.sweep()
    await night.work(4)
    await night.look(2)
    assert read_mark((await night.store.records(MARK_KIND))[0]).looks == ()


def test_a_worker_watches_by_itself(tmp_path):
    with Daybreak(f"sqlite:///{tmp_path}/store.db") as app:

        @app.task(retry=1)
        def simulate(vin: float) -> float:
            return vin

        run = app.sweep(simulate, {"vin": [1, 2, 3]}, name="night")
        with app.worker(isolation="thread"):
            info = run.wait("30s")
        assert info.finished_at is not None
        assert info.finished_at - info.started_at < timedelta(minutes=1)
        assert [one.name for one in app.runs()] == ["night"]

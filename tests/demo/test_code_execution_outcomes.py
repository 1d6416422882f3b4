"""The outcome of a pod that is lost, doubled, late or of another attempt, in virtual time: no execution is lost, no
slot leaks, and nothing but the outcome of the present attempt counts.

The tasks, the saga, the policy and the store are the real ones. The topic of commands is a list, and the test is the
pod worker."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import executions
import pytest
from execution_queue import policies
from execution_queue.allocations import Allocations
from execution_queue.events import (
    CreatePodCommandEvent,
    DeletePodCommandEvent,
    ExecutionCompleted,
    ExecutionFailed,
    ExecutionRequested,
    ExecutionTimeout,
    Message,
    message_of,
    read_command,
    read_outcome,
)
from execution_queue.service import EXECUTIONS, ExecutionQueueService
from execution_queue.statuses import status_of

from daybreak import Saga, State
from daybreak.client.saga_changes import drive_saga
from daybreak.feeds.bridge.finish import finish
from daybreak.services.reaper import Reaper
from daybreak.store.protocol import SAGA_MARK_KIND
from daybreak.testing import HandClock, inline

DAY = timedelta(days=1)
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
POD_DEADLINE = timedelta(seconds=10 + executions.ALLOWANCE)


class System:
    """The system in virtual time."""

    def __init__(self, run, clock):
        self.run, self.clock = run, clock
        self.app = executions.app
        self.queue = ExecutionQueueService(self.app)
        self.commands = []
        self.reaper = Reaper(run.store, clock, name="reaper")

    async def publish(self, topic, message):
        assert topic == "executions.commands"
        self.commands.append(read_command(message.body))

    async def work(self):
        """Run every job that is due, and do what follows for sagas, until nothing happens any more."""
        before, place = "", None
        while before != place:
            before = place
            await self.run.awork()
            client = await self.app.client()
            for mark in await self.run.store.records(SAGA_MARK_KIND):
                await drive_saga(client, mark.name)
            place = await self._place()

    async def _place(self):
        cursor = None
        while (page := await self.run.store.events(cursor)).events:
            cursor = page.cursor
        return cursor

    async def pass_time(self, by):
        """Let time pass with nobody there; then reapers watch for eleven minutes, and workers work."""
        self.clock.advance(by)
        for _ in range(330):
            self.clock.advance(timedelta(seconds=2))
            await self.reaper.tick()
        await self.run.aadvance("1m")
        await self.work()

    def created(self):
        return [one for one in self.commands if isinstance(one, CreatePodCommandEvent)]

    def deleted(self):
        return [one.saga_id for one in self.commands if isinstance(one, DeletePodCommandEvent)]

    async def report(self, command, kind=ExecutionCompleted, **fields):
        """What a message with the outcome of a pod does, as the bridge handles it. Returns why it came too late."""
        found = {"exit_code": 0, "stdout": "1\n", "seconds": 0.1, **fields}
        event = kind(execution_id=command.execution_id, job=command.job, fence=command.fence, **found)
        message = read_outcome(Message(body=message_of(event, "m").body))
        late = await finish(self.app, await self.app.client(), message)
        await self.work()
        return late

    async def job(self, name="e"):
        return await self.queue.find(name)

    async def check_released(self):
        """Nothing is held any more: no slot, no allocation, no unfinished saga."""
        status = await self.queue.get_queue_status()
        assert (status.active_count, executions.allocations.held()) == (0, {})
        assert await self.run.store.records(SAGA_MARK_KIND) == []


@pytest.fixture
async def system(tmp_path, monkeypatch):
    clock = HandClock(NOON)
    monkeypatch.setattr(executions.app.program, "lifespans", [])
    monkeypatch.setattr(executions, "allocations", Allocations(tmp_path / "allocations.db", 1024))
    async with inline(executions.app, clock=clock) as run:
        found = System(run, clock)
        monkeypatch.setattr(executions, "publisher", found)
        await (await executions.app.client()).set_queue(EXECUTIONS, max_running=1)
        await found.queue.enqueue(ExecutionRequested(execution_id="e", script="print(1)"))
        await found.work()
        assert len(found.created()) == 1
        yield found


async def test_an_outcome_ends_its_execution_and_a_second_one_changes_nothing(system):
    [command] = system.created()
    assert (await system.job()).state is State.RUNNING
    await system.report(command)
    job = await system.job()
    assert (status_of(job), job.attempt) == ("completed", 1)
    await system.check_released()
    revision = job.revision
    assert await system.report(command) == ""  # doubled: it says the same
    assert "is over" in await system.report(command, ExecutionFailed, exit_code=1, error="another story")
    await system.pass_time(DAY)
    assert "is over" in await system.report(command, ExecutionTimeout, error="late")
    assert (await system.job()).revision == revision
    assert system.deleted() == []


async def test_a_lost_outcome_costs_one_attempt_and_the_late_one_is_refused_also_after_a_day(system):
    [first] = system.created()
    system.clock.advance(POD_DEADLINE + timedelta(seconds=1))
    for _ in range(330):
        system.clock.advance(timedelta(seconds=1))
        await system.reaper.tick()
    await system.run.aadvance("1m")
    await system.work()
    [_, second] = system.created()
    assert (second.job, second.saga_id, second.fence > first.fence) == (first.job, first.saga_id, True)
    assert (await system.job()).state is State.RUNNING
    assert "is over" in await system.report(first, stdout="of the first attempt\n")
    assert (await system.job()).state is State.RUNNING
    await system.report(second, stdout="of the second attempt\n")
    job = await system.job()
    assert status_of(job) == "completed"
    assert b"of the second attempt" in job.result
    await system.check_released()
    await system.pass_time(DAY)
    assert "is over" in await system.report(first)


async def test_when_every_outcome_is_lost_the_execution_fails_its_pod_is_deleted_and_the_next_one_runs(system):
    await system.queue.enqueue(ExecutionRequested(execution_id="next", script="print(2)"))
    await system.work()
    assert (await system.job("next")).state is State.QUEUED  # the cap is 1
    for _ in range(12):
        if (await system.job()).is_final:
            break
        await system.pass_time(POD_DEADLINE)
    job = await system.job()
    assert job.state is State.FAILED
    mine = [one for one in system.created() if one.execution_id == "e"]
    assert {one.saga_id for one in mine} <= set(system.deleted())
    for late in mine:
        assert "is over" in await system.report(late)
    assert (await system.job()).revision == job.revision
    [command] = [one for one in system.created() if one.execution_id == "next"][-1:]
    assert (await system.job("next")).state is State.RUNNING
    await system.report(command)
    assert status_of(await system.job("next")) == "completed"
    await system.check_released()


async def test_after_a_day_without_anybody_the_execution_is_tried_again_and_ends_once(system):
    [first] = system.created()
    await system.pass_time(DAY)
    assert (await system.job()).state is State.RUNNING
    newest = system.created()[-1]
    assert newest.saga_id != first.saga_id  # another attempt at the whole execution
    assert first.saga_id in system.deleted()
    assert "is over" in await system.report(first, stdout="a day late\n")
    await system.report(newest, stdout="in time\n")
    job = await system.job()
    assert (status_of(job), job.attempt) == ("completed", 2)
    assert b"in time" in job.result
    await system.check_released()


async def test_a_pod_that_died_is_created_again_and_code_that_failed_is_not(system):
    [first] = system.created()
    await system.report(first, ExecutionFailed, exit_code=None, error="the pod worker died")
    await system.run.aadvance("1m")
    await system.work()
    [_, second] = system.created()
    assert second.fence > first.fence
    await system.report(second, ExecutionFailed, exit_code=3, stderr="oops\n", error="oops")
    job = await system.job()
    assert (status_of(job), job.failure.message) == ("failed", "oops")
    await system.run.aadvance("1h")
    await system.work()
    assert len(system.created()) == 2
    await system.check_released()


async def test_a_pod_that_dies_each_time_is_an_error_and_no_failure_of_the_code(system):
    for _ in range(policies.MAX_SAGA_START_RETRIES):
        await system.report(system.created()[-1], ExecutionFailed, exit_code=None, error="the pod worker died")
        await system.run.aadvance("1m")
        await system.work()
    job = await system.job()
    assert (status_of(job), "the pod worker died" in job.failure.message) == ("error", True)
    await system.check_released()


@pytest.mark.parametrize("kind", [ExecutionFailed, ExecutionTimeout])
async def test_code_that_failed_is_not_undone_also_if_its_end_is_heard_before_the_last_step_has_ended(
    system, monkeypatch, kind
):
    end_execution = executions.end_execution

    async def end_and_hear(app, job, fence, outcome):
        assert await end_execution(app, job, fence, outcome)
        await executions.agree(job)  # as the hook `end-sagas` does
        return True

    monkeypatch.setattr(executions, "end_execution", end_and_hear)
    [command] = system.created()
    await system.report(command, kind, exit_code=1, error="the code failed")
    assert (await system.app.find_saga(command.saga_id).ainfo()).state == "completed"
    assert system.deleted() == []
    await system.check_released()


async def test_code_that_ran_too_long_is_a_timeout_and_is_not_tried_again(system):
    [command] = system.created()
    await system.report(command, ExecutionTimeout, exit_code=-9, error="ran longer than 10 s")
    assert status_of(await system.job()) == "timeout"
    await system.check_released()


async def test_cancelling_an_active_execution_deletes_its_pod_and_refuses_its_outcome(system):
    [command] = system.created()
    assert await system.queue.remove("e", "changed my mind")
    await system.work()
    job = await system.job()
    assert (status_of(job), job.note) == ("cancelled", "changed my mind")
    assert system.deleted() == [command.saga_id]
    await system.check_released()
    assert "is over" in await system.report(command)
    assert (await system.job()).revision == job.revision


async def test_deleting_an_active_execution_deletes_its_pod_and_releases_what_it_had(system):
    [command] = system.created()
    client = await system.app.client()
    job = await system.job()
    await client.cancel(job.id, note="deleted")
    await client.remove(job.id)  # before anything else hears of its end
    await system.work()
    assert system.deleted() == [command.saga_id]
    assert await system.job() is None
    await system.check_released()
    assert "is over" in await system.report(command)


async def test_a_script_that_no_pod_can_run_fails_at_the_first_step(system):
    for name, fields in {
        "empty": {"script": " \n"}, "language": {"language": "cobol"}, "nul": {"script": "a\0b"},
        "long": {"script": "#" * 70_000}, "time": {"timeout_seconds": 4000.0}, "never": {"timeout_seconds": 0.0},
        "vast": {"timeout_seconds": 1e308}, "before": {"timeout_seconds": -1e9},
    }.items():  # fmt: skip
        await system.queue.remove("e")
        await system.queue.enqueue(ExecutionRequested(**{"execution_id": name, "script": "print(1)", **fields}))
        await system.work()
        job = await system.job(name)
        assert status_of(job) == "failed", name
        assert job.failure.message, name
        assert "detach" not in job.failure.message  # what is wrong with the request, and not what that broke
    assert len(system.created()) == 1
    await system.check_released()


async def test_the_fallback_repairs_what_was_cut_off_between_an_execution_and_its_saga(system, monkeypatch):
    """The last step of the saga ended without having finished the execution, as if it had been killed in between."""

    async def cut_off(*_):
        return False

    [command] = system.created()
    with monkeypatch.context() as broken:
        broken.setattr(executions, "end_execution", cut_off)
        await system.report(command)
    assert (await system.job()).state is State.RUNNING
    assert await system.run.store.records(SAGA_MARK_KIND) == []
    await executions.try_schedule_from_queue.asubmit()
    await system.work()
    assert status_of(await system.job()) == "completed"
    await system.check_released()


async def test_sagas_of_other_programs_are_left_alone(system):
    for saga_id in ("order", "order.17", "order.18.1"):
        await Saga("order", app=system.app).step(executions.reserve_pod).astart({"saga_id": "other"}, id=saga_id)
    await executions.try_schedule_from_queue.asubmit()
    for job in ("", "order", "order.18"):
        await executions.agree(job)
    await system.work()
    assert [(await system.app.find_saga(one).ainfo()).state for one in ("order", "order.17", "order.18.1")] == [
        "completed", "completed", "completed",
    ]  # fmt: skip


async def test_output_that_is_large_or_odd_ends_its_execution_too(system):
    for name, text in {"large": "y\n" * 32_768, "odd": "\0" * 65_536, "wide": "\U0001f600" * 16_384}.items():
        await system.queue.remove("e")
        await system.queue.enqueue(ExecutionRequested(execution_id=name, script="print(1)"))
        await system.work()
        command = system.created()[-1]
        assert await system.report(command, stdout=text, stderr=text) == ""
        job = await system.job(name)
        assert status_of(job) == "completed", (name, job.failure)
        assert len(job.result) < 64 * 1024
        assert b"characters are in the log of the execution" in job.result
    await system.check_released()

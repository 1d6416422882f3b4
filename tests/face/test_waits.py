"""Whoever waits inside a task for a job that no slot is left for is told so, by a line of the job's log."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from daybreak.api import job_handle, stuck_waits
from daybreak.client.waits import KIND, Wait
from daybreak.worker.supervisor.worker_record import WorkerRecord


@pytest.fixture(autouse=True)
def _impatient(monkeypatch):
    """Two seconds pass quickly."""
    monkeypatch.setattr(job_handle, "HINT_AFTER", timedelta(seconds=0.2))
    monkeypatch.setattr(job_handle, "_hinted_tasks", set())


@pytest.fixture
def looks(monkeypatch):
    """What each look of a wait has found."""
    found = []

    async def look(client, program, job):
        found.append(await find(client, program, job))
        return found[-1]

    find = stuck_waits.find_stuck
    monkeypatch.setattr(stuck_waits, "find_stuck", look)
    return found


@pytest.fixture
def told(caplog):
    def told():
        return [record.getMessage() for record in caplog.records if "which cannot start" in record.getMessage()]

    return told


def records(app):
    async def read(client):
        return await client.store.records(KIND)

    return app.portal.run(app._with_client(read))


def put(app, *puts):
    async def write(client):
        await client.store.put(puts)

    app.portal.run(app._with_client(write))


@pytest.fixture
def family(app):
    """Tasks that wait for a job of another task, in each of the ways there are."""

    @app.task
    def child(n: int = 0) -> int:
        return n

    @app.task
    def parent(how: str) -> object:
        if how == "map":
            return child.map([1])
        job = child.submit(1)
        if how == "as_completed":
            return [one.result() for one in app.as_completed([job])]
        return str(job.wait().state) if how == "wait" else [job.result()]

    return parent, child


@pytest.mark.parametrize("how", ["result", "wait", "map", "as_completed"])
def test_a_task_that_waits_for_what_only_its_own_slot_could_run_says_so(app, family, until, told, how):
    parent, _ = family
    job = parent.submit(how)
    with app.worker(processes=1):
        until(told)
        [line] = told()
        assert line.startswith(f"parent {job.id}: waits for job ")
        assert "(child), which cannot start: this job itself holds the only slot that could run it" in line
        assert "start another worker, or restart this one with more slots (--processes)" in line
        with app.worker(processes=1):  # which is the cure
            assert job.result(timeout="20s") == ("completed" if how == "wait" else [1])
    assert len(told()) == 1
    assert records(app) == []


def test_several_that_hold_all_slots_are_found_by_the_last_of_them(app, family, until, told):
    parent, _ = family
    both = [parent.submit("result") for _ in range(2)]  # before any child: each gets a slot
    with app.worker(processes=2):
        until(told)
        assert "jobs that wait for other jobs hold all 2 slots that could run it" in told()[0]
        with app.worker(processes=1):
            assert [job.result(timeout="20s") for job in both] == [[1], [1]]


def test_nothing_is_said_while_a_slot_is_held_by_a_job_that_does_not_wait(app, family, until, told, looks):
    parent, _ = family
    go_on = threading.Event()

    @app.task
    def compute() -> None:
        go_on.wait(60)

    with app.worker(processes=2):
        busy, job = compute.submit(), parent.submit("result")
        until(lambda: len(looks) >= 3)
        assert looks[:3] == [None] * 3
        assert [one.name for one in records(app)] == [job.id]
        go_on.set()
        busy.result(timeout="20s")
        assert job.result(timeout="20s") == [1]
    assert told() == []


def test_nothing_is_said_while_another_worker_has_a_slot(app, family, until, told, looks):
    """It may be about to take the job: here it is a worker of which nothing but the record is there."""
    parent, _ = family
    now = datetime.now(UTC)
    other = WorkerRecord(
        id="other", name="other", started_at=now, seen_at=now + timedelta(hours=1), queues=("default",),
        tasks=(("child", 1),), processes=1,
    )  # fmt: skip
    put(app, other.put())
    with app.worker(processes=1):
        job = parent.submit("result")
        until(lambda: len(looks) >= 2)
        assert looks[:2] == [None] * 2
        assert told() == []
        put(app, replace(other, stopping=True).put())
        until(told)
        with app.worker(processes=1):
            assert job.result(timeout="20s") == [1]


def test_async_tasks_have_slots_of_their_own(app, until, told):
    @app.task
    async def child() -> int:
        return 1

    @app.task
    async def parent() -> int:
        return await (await child.asubmit())

    with app.worker(processes=1, async_jobs=1):
        job = parent.submit()
        until(told)
        assert "with more slots (--async-jobs)" in told()[0]
        with app.worker(async_jobs=1):
            assert job.result(timeout="20s") == 1


def test_a_sync_task_may_wait_for_an_async_one(app, told):
    @app.task
    async def child() -> int:
        return 1

    @app.task
    def parent() -> int:
        return child.submit().result()

    with app.worker(processes=1, async_jobs=1):
        assert parent.submit().result(timeout="20s") == 1
    assert told() == []


def test_what_a_killed_process_left_counts_for_nothing(app, family, until, looks):
    parent, child = family
    left = child.submit(7)
    put(app, *(Wait(name, fence=99, awaited="x").put() for name in (left.id, "gone")))
    with app.worker(processes=2):
        job = parent.submit("result")
        assert job.result(timeout="20s") == [1]
    assert all(found is None for found in looks)


def test_a_wait_outside_of_a_task_is_not_written_down(app, family, looks):
    _, child = family
    job = child.using(delay="600ms").submit()
    with app.worker(processes=1):
        assert job.result(timeout="20s") == 0
    assert looks == []


def test_it_is_told_by_a_worker_with_processes_of_its_own(script):
    ran = script(
        """
        from daybreak import Daybreak

        app = Daybreak()

        @app.task
        def child() -> int:
            return 1

        @app.task(retry=1)
        def parent() -> int:
            return child.submit().result(timeout="5s")

        if __name__ == "__main__":
            with app.worker(processes=1):
                print(parent.submit().outcome().error)
        """,
        name="nightly.py",
    ).run()
    assert "ResultTimeout: job" in ran.stdout
    assert "(child), which cannot start: this job itself holds the only slot that could run it" in ran.stderr

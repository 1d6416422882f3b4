"""Who waits for a task that no live worker knows is told so, once, with the command that starts one."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest

from daybreak import Daybreak, ResultTimeout
from daybreak.api import job_handle


@pytest.fixture(autouse=True)
def _impatient(monkeypatch):
    """Nobody was told yet, and two seconds pass quickly."""
    monkeypatch.setattr(job_handle, "_hinted_tasks", set())
    monkeypatch.setattr(job_handle, "HINT_AFTER", timedelta(seconds=0.3))


def test_two_seconds_are_the_patience():
    import inspect

    assert "HINT_AFTER: Final = timedelta(seconds=2)" in inspect.getsource(job_handle)


def test_the_command_that_starts_a_worker_is_printed_once(app, capsys):
    @app.task
    def unknown() -> None: ...

    job = unknown.submit()
    with pytest.raises(ResultTimeout):
        job.result(timeout="400ms")
    told = capsys.readouterr().err
    assert told.count("no live worker knows the task 'unknown'; start one with: ") == 1
    with pytest.raises(ResultTimeout):
        job.result(timeout="400ms")
    assert capsys.readouterr().err == ""


def test_who_looks_only_briefly_is_told_nothing(app, capsys):
    @app.task
    def unknown() -> None: ...

    job = unknown.submit()
    for _ in range(3):
        with pytest.raises(ResultTimeout):
            job.result(timeout="20ms")
    assert capsys.readouterr().err == ""


def test_the_command_names_the_file_in_which_the_app_is(script):
    ran = script(
        """
        from datetime import timedelta

        from daybreak import Daybreak, ResultTimeout
        from daybreak.api import job_handle as jobs

        jobs.HINT_AFTER = timedelta(seconds=0.3)
        app = Daybreak()

        @app.task
        def unknown() -> None: ...

        if __name__ == "__main__":
            try:
                unknown.submit().result(timeout="400ms")
            except ResultTimeout:
                print("it took too long")
        """,
        name="nightly.py",
    ).run()
    assert ran.stdout == "it took too long\n"
    assert (
        ran.stderr == "daybreak: no live worker knows the task 'unknown'; start one with: daybreak worker nightly.py\n"
    )


def test_an_app_without_the_task_is_not_named_as_the_cure(tmp_path, capsys):
    url = f"sqlite:///{tmp_path}/jobs.db"
    with Daybreak(url) as one, Daybreak(url) as two:

        @one.task
        def ours() -> None: ...

        @two.task
        def theirs() -> None: ...

        @two.task(name="ours", version=2)
        def newer() -> None: ...

        for job in (theirs.submit(), newer.submit()):
            with pytest.raises(ResultTimeout):
                one.job(job.id).result(timeout="400ms")
    assert capsys.readouterr().err == (
        "daybreak: no live worker knows the task 'theirs'; "
        "start one for the app that defines it: daybreak worker module:app\n"
        "daybreak: no live worker knows the task 'ours' at version 2; "
        "start one for the app that defines it: daybreak worker module:app\n"
    )


def test_nothing_is_said_where_a_worker_knows_the_task(app, capsys, until):
    go_on = threading.Event()

    @app.task
    def wait(n: int) -> None:
        go_on.wait(20)

    async def records():
        return await (await app.client()).store.records("worker")

    with app.worker(processes=1):
        until(lambda: app.portal.run(records()))
        busy, waiting = wait.submit(1), wait.submit(2)
        with pytest.raises(ResultTimeout):
            waiting.result(timeout="400ms")
        go_on.set()
        busy.result("20s")
        waiting.result("20s")
    assert capsys.readouterr().err == ""


def test_nothing_is_said_of_a_job_whose_time_has_not_come(app, capsys):
    @app.task
    def later() -> None: ...

    with pytest.raises(ResultTimeout):
        later.using(delay="1h").submit().result(timeout="400ms")
    assert capsys.readouterr().err == ""


async def test_the_async_twin_tells_as_well(tmp_path, capsys):
    app = Daybreak(f"sqlite:///{tmp_path}/jobs.db")

    @app.task
    def unknown() -> None: ...

    async with app:
        job = await unknown.asubmit()
        with pytest.raises(ResultTimeout):
            await job.aresult(timeout="400ms")
    assert "no live worker knows the task 'unknown'" in capsys.readouterr().err

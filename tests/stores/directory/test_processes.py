"""Real processes: one owner at a time, and a kill at any moment."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from directory_processes import LIMIT, Program, kill_again_and_again

from daybreak import Daybreak
from daybreak.core.errors import StoreUnavailable
from daybreak.core.model import State
from daybreak.stores.directory import DirectoryStore
from daybreak.testing.contract.builders import accept, get_job


def test_another_process_gets_an_error_that_names_the_holder(tmp_path):
    holder = Program(tmp_path / "jobs", "one", tmp_path / "one.log")
    try:
        holder.wait_for("completed")
        app = Daybreak(f"dir://{tmp_path / 'jobs'}")
        with pytest.raises(StoreUnavailable, match=f"in use by process {holder.process.pid}"):
            app.stats()
        app.close()
    finally:
        holder.kill()
    app = Daybreak(f"dir://{tmp_path / 'jobs'}")
    assert app.queue("default").stats().by_state["completed"] > 0, "the lock ended with its process"
    app.close()


async def test_a_forked_child_neither_holds_nor_uses_the_store(tmp_path):
    async with DirectoryStore(tmp_path / "jobs") as store:
        await accept(store, id="a")
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                await store.get(["a"])
            except StoreUnavailable:
                try:
                    await DirectoryStore(tmp_path / "jobs").open()
                except StoreUnavailable as error:
                    code = 0 if f"process {os.getppid()}" in str(error) else 2
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0  # noqa: ASYNC222 - nobody else is on this loop
        assert (await get_job(store, "a")).state is State.QUEUED
        await accept(store, id="b")


async def test_the_stores_of_one_process_share_the_folder(tmp_path):
    async with DirectoryStore(tmp_path / "jobs") as one, DirectoryStore(tmp_path / "jobs") as other:
        await accept(one, id="a")
        assert (await get_job(other, "a")).state is State.QUEUED
        await one.close()
        await accept(other, id="b")
    async with DirectoryStore(tmp_path / "jobs") as store:
        assert [job is not None for job in await store.get(["a", "b"])] == [True, True]


def test_a_kill_at_any_moment_loses_nothing_and_repeats_nothing(tmp_path):
    kill_again_and_again(tmp_path, 4)


def test_an_app_its_worker_and_its_queues_use_one_folder(tmp_path):
    app = Daybreak(f"dir://{tmp_path / 'jobs'}")

    @app.task
    def double(n):
        return 2 * n

    with app.worker():
        handles = [double.submit(n) for n in range(5)]
        assert [handle.result(timeout="60s") for handle in handles] == [0, 2, 4, 6, 8]
    app.queue("reports").add({"serial": "A1"}, id="r1")
    app.close()
    assert (tmp_path / "jobs" / "r1.queued.json").exists()
    again = Daybreak(f"dir://{tmp_path / 'jobs'}")
    [lease] = again.queue("reports").take()
    assert lease.data == {"serial": "A1"}
    lease.complete()
    again.close()


def test_the_worker_command_runs_the_jobs_of_a_folder(tmp_path):
    (tmp_path / "tasks.py").write_text(
        "from daybreak import Daybreak\n"
        "app = Daybreak('dir://jobs')\n"
        "@app.task\n"
        "def count(n):\n"
        "    if n:\n"
        "        count.submit(n - 1)\n"
        "    return n\n"
        "if __name__ == '__main__':\n"
        "    count.submit(2)\n"
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DAYBREAK_")}
    for command in (["tasks.py"], ["-m", "daybreak.cli", "worker", "tasks.py", "--until-idle"]):
        done = subprocess.run(
            [sys.executable, *command], cwd=tmp_path, env=environment, capture_output=True, timeout=LIMIT, text=True,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    assert len(list((tmp_path / "jobs").glob("*.completed.json"))) == 3, "a task can submit more"

"""The blocking face where others trip: after a fork, inside a running loop, at the end of the interpreter."""

from __future__ import annotations

import asyncio
import sys

import pytest

from daybreak import Daybreak, State

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there is no fork on Windows")


def test_after_a_fork_parent_and_child_both_submit_and_read(script):
    printed = script(
        """
        import os, sys
        from daybreak import Daybreak

        app = Daybreak()

        @app.task
        def add(a: int, b: int) -> int:
            return a + b

        if __name__ == "__main__":
            first = add.submit(1, 2)
            assert first.state().value == "queued"
            pids = []
            for n in range(3):
                pid = os.fork()
                if pid == 0:
                    jobs = [add.submit(n, k) for k in range(20)]
                    assert all(job.state().value == "queued" for job in jobs)
                    assert first.info().id == first.id
                    sys.exit(0)
                pids.append(pid)
                add.submit(n, 100)
            codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
            print(codes, app.queue("default").size())
        """
    ).printed()
    assert printed == "[0, 0, 0] 64\n"


@pytest.mark.parametrize("at", ["typing.get_type_hints", "daybreak.config.resolve"])
def test_a_fork_while_another_thread_makes_its_first_submit_hangs_nobody(script, at):
    """Whatever that thread holds meanwhile, the child would wait for in vain."""
    module, name = at.rsplit(".", 1)
    code = f"""
        import os, signal, threading
        import {module} as module
        from daybreak import Daybreak

        app = Daybreak("sqlite:///jobs.db")
        there, go_on, real = threading.Event(), threading.Event(), module.{name}

        def slow(*args, **kwargs):
            there.set()
            go_on.wait(20)
            return real(*args, **kwargs)

        @app.task
        def add(a: 'int') -> int:
            return a

        if __name__ == "__main__":
            module.{name} = slow
            other = threading.Thread(target=add.submit, args=(1,))
            other.start()
            assert there.wait(20)
            pid = os.fork()
            if pid == 0:
                signal.alarm(15)
                go_on.set()
                add.submit(2)
                os._exit(0)
            status = os.waitpid(pid, 0)[1]
            go_on.set()
            other.join()
            print(os.waitstatus_to_exitcode(status), app.stats().queue.submitted)
            app.close()
    """
    assert script(code).printed() == "0 2\n"


@pytest.mark.parametrize("how", ["fork", "spawn"])
def test_children_of_multiprocessing_submit(script, how):
    printed = script(
        f"""
        import multiprocessing
        from daybreak import Daybreak

        app = Daybreak()

        @app.task
        def add(a: int, b: int) -> int:
            return a + b

        def submit(n: int) -> str:
            return add.submit(n, n).id

        if __name__ == "__main__":
            submit(0)
            with multiprocessing.get_context("{how}").Pool(2) as pool:
                ids = pool.map(submit, range(10))
                pool.close()
                pool.join()
            app.work(processes=1)
            print(sum(app.job(id).result("1s") for id in ids))
        """
    ).printed()
    assert printed == "90\n"


async def test_a_blocking_call_inside_a_running_loop_works(tmp_path):
    with Daybreak(f"sqlite:///{tmp_path}/jobs.db") as app:

        @app.task
        def add(a: int, b: int) -> int:
            return a + b

        with app.worker(isolation="thread", processes=1):
            assert add.submit(1, 2).result("20s") == 3
            assert add.map([1], [2]) == [3]
            job = await add.asubmit(3, 4)
            assert job.result("20s") == 7
            assert await job == 7
        assert app.queue("default").stats().by_state["completed"] == 3
        await app.aclose()


def test_one_app_serves_several_loops_one_after_the_other(tmp_path):
    with Daybreak(f"sqlite:///{tmp_path}/jobs.db") as app:

        @app.task
        def nothing() -> None: ...

        async def once() -> str:
            async with app:
                job = await nothing.asubmit()
                assert await job.astate() is State.QUEUED
                return job.id

        ids = [asyncio.run(once()) for _ in range(3)]
        assert [app.job(one).state() for one in ids] == [State.QUEUED] * 3


def test_a_script_that_ends_without_closing_ends_quietly_with_its_hooks_told(script):
    printed = script(
        """
        import time
        from daybreak import Daybreak

        app = Daybreak()

        @app.on("submitted")
        def told(event):
            time.sleep(0.2)
            print(event.kind, event.task, app.job(event.job).info().spec.queue)

        @app.on("submitted")
        async def told_too(event):
            print("async", event.n)

        @app.task
        def nothing() -> None: ...

        if __name__ == "__main__":
            nothing.submit()
            app.queue("q").add(1)
            app.queue("q").take()
        """
    ).printed()
    assert printed.splitlines() == ["submitted nothing default", "async 1", "submitted item q", "async 1"]


def test_a_taken_item_is_handed_back_when_its_process_ends(script, tmp_path):
    script(
        """
        from daybreak import Daybreak

        app = Daybreak()
        queue = app.queue("q")
        queue.add(1, id="one")
        taken = queue.take()
        """
    ).printed()
    with Daybreak(f"sqlite:///{tmp_path}/daybreak.db") as app:
        item = app.queue("q").get("one")
    assert (item.state, item.attempt) == (State.QUEUED, 0)

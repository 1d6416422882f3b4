"""The current stack and memory of a running job: asked for through the store, answered by its worker."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest
import stack_tasks as tasks
from server_stores import place_on
from worker_processes import WorkerProcess, nobody_left, until

from daybreak import Daybreak, Secret, State
from daybreak.client.client import Client
from daybreak.client.job_stacks import (
    MAX_ANSWER_BYTES,
    STACK_KIND,
    JobProcess,
    JobStack,
    StackRequest,
    answer_put,
    ask_for_stack,
    forget_stacks,
)
from daybreak.core.errors import WrongState
from daybreak.core.model import Put
from daybreak.core.units import moment
from daybreak.store.protocol import REQUEST_KIND, Claim, Exchange, request_name
from daybreak.stores.memory import MemoryStore
from daybreak.system.ports import RealWorld
from daybreak.worker.child.stacks import in_call_order
from daybreak.worker.supervisor.worker_record import KIND, WorkerRecord

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="the system does not report it")


@pytest.fixture(params=["sqlite", "postgres", "redis"])
def any_url(request, tmp_path):
    with contextlib.ExitStack() as around:
        if request.param == "sqlite":
            yield f"sqlite:///{tmp_path}/jobs.db"
        else:
            yield around.enter_context(place_on(request.param))


@contextlib.contextmanager
def worker(url, folder, *words):
    tasks.app.use(url)
    with nobody_left(), WorkerProcess(Path(tasks.__file__), url, folder, "--lease", "1s", *words) as process:
        try:
            yield process.wait_ready(tasks.app)
        finally:
            tasks.app.close()


def started(*jobs):
    """The jobs, once their worker knows that they run."""
    for job in jobs:
        until(lambda job=job: job.state() is State.RUNNING, f"{job} runs")
        until(lambda job=job: "has not started" not in job.stack().note, f"{job} has started")
    return jobs


# -- what a worker answers ---------------------------------------------------------------------------------------------


def test_a_worker_on_every_store_tells_where_its_jobs_are(any_url, tmp_path):
    with worker(any_url, tmp_path, "--processes", "1"):
        sync, loop = started(tasks.waits.submit(), tasks.awaits.submit())
        found = until(lambda: stack if "in stands_here" in (stack := sync.stack()).text else None, "it stands there")
        assert "time.sleep(600)" in found.text
        assert found.text.index("in waits") < found.text.index("in stands_here")
        assert "sync_loop" not in found.text
        assert (found.note, found.attempt, found.job) == ("", 1, sync.id)
        waiting = until(lambda: stack if "in sleep" in (stack := loop.stack()).text else None, "it waits")
        assert waiting.text.index("in awaits") < waiting.text.index("in stands_there") < waiting.text.index("in sleep")
        assert waiting.pid != found.pid
        assert not found.shared
        assert waiting.shared


@pytest.fixture(scope="module")
def stage(tmp_path_factory):
    """Jobs of every kind on one worker, which run until they are killed."""
    folder = tmp_path_factory.mktemp("stacks")
    url = f"sqlite:///{folder}/jobs.db"
    with worker(url, folder, "--processes", "6", "--allow-commands") as process:
        yield process, url


@linux_only
def test_a_job_that_holds_the_interpreter_is_seen_by_a_signal(stage):
    [job] = started(tasks.holds_the_interpreter.submit())
    found = until(lambda: stack if "in holds_the_interpreter" in (stack := job.stack()).text else None, "a signal")
    assert found.note == "no answer for 1 s: the process is busy in native code"
    assert "sync_loop" not in found.text
    assert found.memory > 5_000_000


@linux_only
def test_a_job_that_blocks_the_loop_is_named_to_those_beside_it(stage):
    [beside] = started(tasks.awaits.submit())
    blocking = tasks.blocks.submit()
    until(lambda: blocking.state() is State.RUNNING, "it runs")
    own = until(lambda: stack if "blocks the event loop" in (stack := blocking.stack()).note else None, "it blocks")
    assert own.note == "no answer for 1 s: it blocks the event loop of its process"
    assert own.text.rstrip().endswith("in blocks")
    other = beside.stack()
    assert f"job {blocking.id} blocks the event loop of its process" in other.note
    assert other.text.rstrip().endswith("in blocks")


@linux_only
def test_a_stopped_process_is_called_so(stage):
    [job] = started(tasks.waits.submit())
    pid = job.stack().pid
    os.kill(pid, signal.SIGSTOP)
    try:
        until(lambda: job.stack().note == "no answer for 1 s: the process is stopped (SIGSTOP)", "it says so")
    finally:
        os.kill(pid, signal.SIGCONT)
    job.cancel()


@linux_only
def test_programs_of_a_task_are_named_without_their_arguments_and_secrets_are_masked(stage):
    [job] = started(tasks.starts_a_program.submit(Secret("swordfish-1")))
    found = until(lambda: stack if len((stack := job.stack()).processes) == 2 else None, "the program runs")
    assert [process.command for process in found.processes] == ["sh", "sleep"]
    assert found.processes[0].memory > 0
    assert 'File "/***.py"' in found.text
    for process in found.processes:  # they would outlive a worker that is killed
        os.kill(process.pid, signal.SIGKILL)


@linux_only
def test_a_command_job_shows_its_command_line(stage):
    _, url = stage
    app = Daybreak(url)
    made = subprocess.run(
        [sys.executable, "-m", "daybreak.cli", "exec", "--url", url, "--json", "--", "sleep", "601"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    job = app.job(json.loads(made.stdout)["id"])
    until(lambda: job.state() is State.RUNNING, "it runs")
    found = until(lambda: stack if (stack := job.stack()).processes else None, "the program runs")
    assert [process.command for process in found.processes] == ["sleep 601"]
    job.cancel()
    app.close()


def test_only_the_last_100_frames_are_told_and_no_local_variables(stage):
    [job] = started(tasks.waits.submit(150))
    found = until(lambda: stack if "time.sleep(600)" in (stack := job.stack()).text else None, "it stands there")
    assert "in waits" not in found.text  # it is 151 frames away
    assert "shown to nobody" not in found.text
    assert "Previous line repeated" in found.text
    job.cancel()


def test_the_command_prints_escapes_and_the_json_has_the_rest(stage):
    _, url = stage
    [job] = started(tasks.stands_in_made_up_code.submit())
    until(lambda: "script" in job.stack().text, "it stands there")
    run = [sys.executable, "-m", "daybreak.cli", "jobs", "stack", job.id, "--url", url]
    printed = subprocess.run(run, capture_output=True, text=True, check=True).stdout
    assert "\x1b" not in printed
    assert "\\x1b[31m<script>" in printed
    assert "memory" in printed
    told = json.loads(subprocess.run([*run, "--json"], capture_output=True, text=True, check=True).stdout)
    assert told["job"] == job.id
    assert "\x1b[31m<script>" in told["stack"]
    assert "\x1b" not in told["text"]
    job.cancel()


def test_a_worker_publishes_the_memory_of_its_children(stage):
    process, url = stage
    if sys.platform != "linux":
        pytest.skip("it is unknown there")
    run = [sys.executable, "-m", "daybreak.cli", "workers", "--json", "--url", url]
    told = json.loads(subprocess.run(run, capture_output=True, text=True, check=True).stdout)["workers"]
    [one] = [one for one in told if one["pid"] == process.pid]
    assert len(one["children"]) >= 6
    assert all(child["memory"] > 5_000_000 for child in one["children"])
    assert one["memory"] > sum(child["memory"] for child in one["children"])


def test_jobs_in_threads_are_seen_too(tmp_path):
    app = Daybreak(f"sqlite:///{tmp_path}/jobs.db")
    gate = threading.Event()

    @app.task
    def nested() -> None:
        gate.wait(120)

    with app.worker(processes=1):
        job = nested.submit()
        until(lambda: job.state() is State.RUNNING, "it runs")
        found = until(lambda: stack if "gate.wait" in (stack := job.stack()).text else None, "it waits")
        assert found.shared
        assert found.pid == os.getpid()
        assert "worker/child" not in found.text
        gate.set()
        job.result(timeout="60s")
        with pytest.raises(WrongState, match="only a running job has a stack"):
            job.stack()
    app.close()


# -- when nobody answers -----------------------------------------------------------------------------------------------


async def running_job(store, worker="w"):
    client = Client(store)
    id_ = await client.submit("t")
    await store.exchange(Exchange(claim=Claim(worker=worker)))
    return client, await client.get(id_)


async def test_a_silent_worker_is_reported_and_leaves_no_request():
    store = MemoryStore()
    client, job = await running_job(store)
    now = moment(RealWorld().wall())
    await store.put([WorkerRecord(id="w", name="w", started_at=now, seen_at=now).put()])
    found = await ask_for_stack(store, RealWorld(), job, lambda: client.get(job.id), timedelta(milliseconds=60))
    assert found.text == ""
    assert "its worker did not answer within 0.06 s" in found.note
    assert await store.records(REQUEST_KIND) == []


async def test_a_lock_or_a_consumer_is_not_asked():
    store = MemoryStore()
    client, job = await running_job(store, worker="someone")
    found = await client.stack(job.id)
    assert found.note == "it is held by someone, which is no worker: a lock or a consumer"
    assert await store.records(REQUEST_KIND) == []


async def test_an_answer_to_an_earlier_question_is_not_taken():
    store = MemoryStore()
    client, job = await running_job(store)
    now = moment(RealWorld().wall())
    old = JobStack(job=job.id, worker="w", fence=job.fence, text="old", answer="1", taken_at=now)
    await store.put([Put(kind=KIND, name="w", value=b"{}"), answer_put(old)])

    async def answer():
        while not await store.records(REQUEST_KIND):  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        await store.put([answer_put(msgspec.structs.replace(old, text="new", answer="2"))])

    answering = asyncio.create_task(answer())
    found = await ask_for_stack(store, RealWorld(), job, lambda: client.get(job.id), timedelta(seconds=60))
    assert found.text == "new"
    await answering


async def test_what_killed_processes_left_is_deleted_after_a_minute():
    store = MemoryStore()
    now = moment(RealWorld().wall())
    minute = timedelta(seconds=61)
    for name, at in (("old", now - minute), ("new", now), ("from a wrong clock", now + 2 * minute)):
        request = msgspec.json.encode(StackRequest(name, 1, at))
        await store.put([
            Put(kind=REQUEST_KIND, name=request_name("w", name.replace(" ", "-")), value=request),
            answer_put(JobStack(job=name, worker="w", taken_at=at)),
        ])  # fmt: skip
    await store.put([Put(kind=REQUEST_KIND, name="w x", value=b"not json")])
    await forget_stacks(store, now)
    assert [record.name for record in await store.records(REQUEST_KIND)] == ["w new"]
    assert [record.name for record in await store.records(STACK_KIND)] == ["new"]


def test_an_answer_never_exceeds_its_bound():
    processes = tuple(JobProcess(pid=n, command="\x01" * 10_000) for n in range(1000))
    put = answer_put(JobStack(job="j", worker="w", text="\x01\n" * 500_000 + "the end", processes=processes))
    assert len(put.value) <= MAX_ANSWER_BYTES
    assert msgspec.json.decode(put.value, type=JobStack).text.endswith("the end") or not processes


# -- stacks made by a signal -------------------------------------------------------------------------------------------


def test_a_stack_by_signal_is_turned_into_call_order():
    runner = str(Path(sys.modules["daybreak.worker.child.stacks"].__file__).with_name("runner.py"))
    text = (
        'Thread 0x01 (most recent call first):\n  File "/threading.py", line 1 in wait\n'
        "Current thread 0x02 (most recent call first):\n"
        '  File "/a.py", line 7 in inner\n  File "/a.py", line 3 in outer\n'
        f'  File "{runner}", line 9 in run\n  File "<string>", line 1 in <module>\n'
    )
    assert in_call_order(text) == '  File "/a.py", line 3, in outer\n  File "/a.py", line 7, in inner\n'
    assert in_call_order("nonsense") == ""

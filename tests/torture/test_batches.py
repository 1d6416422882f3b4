"""Items of a batch task whose producer is killed right after the last `submit`, and whose worker is killed in mid-call:
each item has one outcome, only the poisoned ones fail, each with its own error, and attempts are exact."""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from batch_load import ITEMS, LICENCE, POISON, SIZE, app, square
from player_processes import count
from private_servers import private_server
from worker_processes import LINES, WorkerProcess, ask, nobody_left, read_lines, until

from daybreak import Client, State
from daybreak.core.events import Event
from daybreak.core.model import Job
from daybreak.testing.contract.builders import assert_sound

pytestmark = pytest.mark.torture

TARGET = Path(__file__).with_name("batch_load.py")
KILLS = count(2, 20)


@pytest.fixture(params=["sqlite", "postgresql", "redis"])
def url(request, tmp_path, monkeypatch) -> Iterator[str]:
    monkeypatch.setenv(LINES, str(tmp_path / "lines"))
    with contextlib.ExitStack() as around:
        around.enter_context(nobody_left())
        url = f"sqlite:///{tmp_path}/jobs.db"
        if request.param != "sqlite":
            url = around.enter_context(private_server(request.param, tmp_path)).url
        app.use(url)
        around.callback(app.close)
        yield url


def test_only_poison_fails_and_attempts_are_exact_whatever_is_killed(url, tmp_path, tell):
    features = ask(app, _features)
    if "batches" not in features:
        pytest.skip("this store has no batches")
    chance = random.Random(7)
    began = time.monotonic()
    submit_and_die(url)
    worker = WorkerProcess(TARGET, url, tmp_path, "--lease", "1s", "--processes", "2")
    for _ in range(KILLS):
        # In the middle of a call: one has begun since then, and has not ended.
        before = len(read_lines(word="call"))
        until(lambda before=before: len(read_lines(word="call")) > before + chance.randrange(4), "another call")
        time.sleep(chance.uniform(0, 0.02))
        worker.kill()
        worker = WorkerProcess(TARGET, url, tmp_path, "--lease", "1s", "--processes", "2")
    until(lambda: app.count(state=["completed", "failed"]) == ITEMS, "the end of all items", within=600)
    assert worker.stop() == 0, worker.said
    lost = check_outcomes()
    check_calls()
    ask(app, lambda client: assert_sound(client.store))
    [stats] = app.stats().batch_calls
    tell(
        f"{ITEMS} items on {url.split(':')[0]}, worker killed {KILLS} times: {ITEMS - len(POISON)} completed once, "
        f"{len(POISON)} failed with their own error, 0 lost; {lost} attempts ended with a worker; "
        f"{stats.calls} calls settled, {stats.average_size:.1f} jobs each; {time.monotonic() - began:.0f} s"
    )


def test_a_folder_keeps_the_same_promise_though_one_process_at_a_time_has_it(tmp_path, monkeypatch, tell):
    """The worker is killed as soon as another call has begun; the last one goes on until nothing is left."""
    monkeypatch.setenv(LINES, str(tmp_path / "lines"))
    url, began = f"dir://{tmp_path}/jobs", time.monotonic()
    words = ("--lease", "1s", "--processes", "2", "--until-idle")
    with nobody_left(), contextlib.ExitStack() as around:
        app.use(url)
        around.callback(app.close)
        submit_and_die(url)
        app.close()  # the folder is the worker's now
        for _ in range(KILLS):
            before = len(read_lines(word="call"))
            worker = around.enter_context(WorkerProcess(TARGET, url, tmp_path, *words))
            until(lambda before=before: len(read_lines(word="call")) > before, "another call")
            worker.kill()
        worker = around.enter_context(WorkerProcess(TARGET, url, tmp_path, *words))
        until(lambda: worker.returned is not None, "the end of all items", within=600)
        assert worker.returned == 0, worker.said
        app.use(url)
        lost = check_outcomes()
        check_calls()
        ask(app, lambda client: assert_sound(client.store))
    tell(
        f"{ITEMS} items in a folder, worker killed {KILLS} times: {ITEMS - len(POISON)} completed once, {len(POISON)} "
        f"failed with their own error, 0 lost; {lost} attempts ended with a worker; {time.monotonic() - began:.0f} s"
    )


def submit_and_die(url: str) -> None:
    around = {**os.environ, "DAYBREAK_URL": url, "PYTHONPATH": f"{TARGET.parent}:{os.environ.get('PYTHONPATH', '')}"}
    command = [sys.executable, str(TARGET), str(ITEMS)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=around, text=True) as producer:
        assert producer.stdout is not None
        assert producer.stdout.readline() == "submitted\n"
        producer.kill()
    assert app.count(task=square.name) == ITEMS


def check_outcomes() -> int:
    """How many attempts ended with their worker."""

    async def look(client: Client) -> list[tuple[Job, list[Event]]]:
        jobs = [job async for job in client.find_all(task=square.name)]
        return [(job, await client.store.history(job.id)) for job in jobs]

    found = ask(app, look)
    items = sorted(_item(job) for job, _ in found)
    assert items == list(range(ITEMS)), "an item is missing, or there twice"
    lost = 0
    for job, history in found:
        kinds = [event.kind for event in history]
        item, deaths = _item(job), kinds.count("lease_expired")
        lost += deaths
        assert kinds.count("completed") + kinds.count("failed") == 1
        if item in POISON:
            assert job.state is State.FAILED
            assert job.failure is not None
            assert job.failure.message == f"poison: [{item}]"
            assert "batch_load.py" in job.failure.traceback
        else:
            assert job.state is State.COMPLETED
            assert job.result == str(item * item).encode()
        assert job.attempt == 1 + deaths, f"item {item}: attempt {job.attempt}, {deaths} deaths: {kinds}"
    return lost


def _item(job: Job) -> int:
    return int(job.spec.args.split(b":")[1].rstrip(b"}"))


def check_calls() -> None:
    """No call has more than its size or an item twice, and nobody holds the licence."""
    for line in read_lines(word="call"):
        assert len(line["items"]) <= SIZE
        assert len(set(line["items"])) == len(line["items"])
    assert app.resource(LICENCE.name).info().used == 0


async def _features(client: Client) -> frozenset[str]:
    return client.store.traits.features

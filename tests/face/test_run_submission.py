"""A sweep that is killed anywhere, or submitted by several at once, is one run in which every point has one job."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections import Counter

import pytest

from daybreak import Daybreak, QueueFull
from daybreak.client.client import Client
from daybreak.core.model import Done, State
from daybreak.errors import RunChanged
from daybreak.policy.settle import settle
from daybreak.runs import submission
from daybreak.runs.designs import design_of
from daybreak.runs.record import label_of, read_run
from daybreak.runs.result_rows import number_of
from daybreak.runs.submission import Submission
from daybreak.store.protocol import Claim, Exchange
from daybreak.stores.memory import MemoryStore

FIRST = design_of({"vin": [1, 2, 3, 4, 5]})
SECOND = design_of({"vin": [3, 4, 5, 6]})


class Killed(BaseException):
    """The process is gone."""


class Mortal:
    """A store as a process sees it that is killed at its n-th call, before or after the store has done it."""

    def __init__(self, store: MemoryStore, dies_at: float = float("inf"), *, after: bool = False) -> None:
        self.calls = 0
        self.names: list[str] = []
        self._store, self._dies_at, self._after = store, dies_at, after

    def __getattr__(self, name: str):
        found = getattr(self._store, name)
        if not asyncio.iscoroutinefunction(found):
            return found

        async def call(*args, **kwargs):
            self.calls += 1
            self.names.append(name)
            if self.calls == self._dies_at and not self._after:
                raise Killed
            answer = await found(*args, **kwargs)
            if self.calls == self._dies_at:
                raise Killed
            return answer

        return call


@pytest.fixture
def task():
    with Daybreak("memory://", by="ann") as app:

        @app.task(retry=1)
        def simulate(vin: float) -> float:
            return vin

        yield simulate


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(submission, "CHUNK", 2)


async def submit(store, task, design=FIRST, **options):
    return await Submission(Client(store, by="ann"), task, design, "night", options={}, **options).run()


async def work(store: MemoryStore, jobs: int) -> None:
    leases = (await store.exchange(Exchange(claim=Claim(worker="w", limit=jobs)))).leases
    await store.exchange(Exchange(settle=[settle(lease, Done(b"1"), chance=0.5, by="w") for lease in leases]))


async def prepared(store, task, scenario: str) -> dict:
    """What the submission that is killed is given."""
    if scenario == "new":
        return {}
    await submit(store, task)
    await work(store, 3)
    if scenario == "changed":
        return {"design": SECOND, "accept_changes": True}
    return {"fresh": True}


async def check(store, scenario: str) -> None:
    record, _ = await read_run(store, "night")
    assert record.submitted
    assert not record.orphans
    jobs = [job async for job in Client(store).find_all(run=label_of("night", record.epoch))]
    keys = Counter(job.spec.key for job in jobs)
    assert set(keys.values()) == {1}
    numbers = sorted(number_of(job) for job in jobs)
    vins = sorted(job.spec.args for job in jobs)
    assert len(set(numbers)) == len(numbers)
    if scenario == "changed":
        assert len(vins) == 6
        states = {job.spec.args: job.state for job in jobs}
        assert states[b'{"vin":1.0}'] is State.COMPLETED
        assert states[b'{"vin":6.0}'] is State.QUEUED
        assert record.orphaned == 2
    else:
        assert numbers == [0, 1, 2, 3, 4]
    if scenario == "fresh":
        assert record.epoch == 2
        old = await Client(store).count(run="night")
        assert (old[State.COMPLETED], old[State.CANCELLED], old[State.QUEUED]) == (3, 2, 0)


@pytest.mark.parametrize("scenario", ["new", "changed", "fresh"])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_killed_at_any_call_the_same_sweep_again_completes_it(task, scenario, after):
    whole = MemoryStore()
    counting = Mortal(whole)
    await submit(counting, task, **await prepared(whole, task, scenario))
    await check(whole, scenario)
    assert counting.calls >= 6
    # Killed after the last call, `fresh` was done: the next one is another fresh start.
    last = counting.calls - (scenario == "fresh" and after)
    for dies_at in range(1, last + 1):
        store = MemoryStore()
        options = await prepared(store, task, scenario)
        with pytest.raises(Killed):
            await submit(Mortal(store, dies_at, after=after), task, **options)
        with contextlib.suppress(Killed):  # and killed once more on the way
            await submit(Mortal(store, 3), task, **options)
        await submit(store, task, **options)
        await check(store, scenario)


async def test_several_processes_that_submit_at_once_make_one_run(task):
    store = MemoryStore()

    class Hesitant(Mortal):
        def __getattr__(self, name):
            found = super().__getattr__(name)
            if not asyncio.iscoroutinefunction(found):
                return found

            async def call(*args, **kwargs):
                await asyncio.sleep(0)  # others come in between
                return await found(*args, **kwargs)

            return call

    await asyncio.gather(*(submit(Hesitant(store), task) for _ in range(4)))
    await check(store, "new")
    await work(store, 3)
    await asyncio.gather(*(submit(Hesitant(store), task, fresh=True) for _ in range(4)))
    await check(store, "fresh")


async def test_a_fresh_start_that_another_made_meanwhile_is_the_one_that_was_asked_for(task):
    store = MemoryStore()
    await submit(store, task)
    await work(store, 3)

    class Slow(Mortal):
        """Somebody else makes the same fresh start before this process writes the record."""

        async def put(self, puts, **options):
            if (await read_run(store, "night"))[0].epoch == 1:
                await submit(store, task, fresh=True)
            return await store.put(puts, **options)

    await submit(Slow(store), task, fresh=True)
    await check(store, "fresh")


async def test_of_two_processes_with_other_points_one_is_refused(task):
    store = MemoryStore()
    answers = await asyncio.gather(submit(store, task), submit(store, task, SECOND), return_exceptions=True)
    assert sorted(type(answer).__name__ for answer in answers) == ["RunChanged", "RunRecord"]
    assert isinstance(next(answer for answer in answers if isinstance(answer, Exception)), RunChanged)


async def test_the_sweep_of_a_run_that_has_ended_costs_two_calls(task, monkeypatch):
    monkeypatch.setattr(submission, "CHUNK", 1000)
    store, design = MemoryStore(), design_of({"vin": list(range(1000))})
    await submit(store, task, design)
    await work(store, 1000)
    again = Mortal(store)
    await submit(again, task, design)
    assert again.names == ["records", "count"]


async def test_points_are_inserted_in_bounded_chunks(task, monkeypatch):
    monkeypatch.setattr(submission, "CHUNK", 1000)
    store, sizes = MemoryStore(), []
    insert = store.insert

    async def counted(specs, **options):
        sizes.append(len(specs))
        return await insert(specs, **options)

    monkeypatch.setattr(store, "insert", counted)
    await submit(store, task, design_of({"vin": range(4500)}))
    assert sizes == [1000, 1000, 1000, 1000, 500]


async def test_a_full_queue_says_how_far_it_came_and_is_continued(task):
    store = MemoryStore()
    client = Client(store)
    await client.set_queue("default", capacity=3)
    with pytest.raises(QueueFull, match="3 points of 5"):
        await submit(store, task)
    await work(store, 3)
    await submit(store, task)
    await check(store, "new")


# -- processes ---------------------------------------------------------------------------------------------------------

CODE = """
    import sys
    from daybreak import Daybreak
    from daybreak.runs import submission

    submission.CHUNK = 50
    app = Daybreak(sys.argv[1])

    @app.task
    def simulate(vin: float, duty: float) -> float:
        return vin

    if __name__ == "__main__":
        print("ready", flush=True)
        sys.stdin.readline()
        app.sweep(simulate, {"vin": range(20), "duty": [n / 50 for n in range(50)]}, name="night")
"""


class Submitter:
    """A process that submits a sweep of 1,000 points once it is told to."""

    def __init__(self, folder) -> None:
        path = folder / "sweep.py"
        path.write_text(textwrap.dedent(CODE))
        self.process = subprocess.Popen(
            [sys.executable, path, f"sqlite:///{folder}/store.db"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout.readline() == "ready\n"

    def go(self) -> None:
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def end(self) -> int:
        try:
            return self.process.wait(60)
        finally:
            self.process.stdin.close()
            self.process.stdout.close()


def check_points(folder) -> None:
    with Daybreak(f"sqlite:///{folder}/store.db") as app:
        rows = list(app.find_run("night").rows())
        assert [row["point"] for row in rows] == list(range(1000))
        assert len({(row["vin"], row["duty"]) for row in rows}) == 1000
        assert app.count() == 1000
        assert app.find_run("night").info().state == "running"


def test_two_real_processes_at_once_make_one_run(tmp_path):
    submitters = [Submitter(tmp_path), Submitter(tmp_path)]
    for each in submitters:
        each.go()
    assert [each.end() for each in submitters] == [0, 0]
    check_points(tmp_path)


def test_a_submitter_that_is_killed_is_continued(tmp_path):
    first = Submitter(tmp_path)
    with Daybreak(f"sqlite:///{tmp_path}/store.db") as app:
        first.go()
        deadline = time.monotonic() + 60
        while not app.count(run="night"):
            assert time.monotonic() < deadline
        os.kill(first.process.pid, signal.SIGKILL)
        assert first.end() == -signal.SIGKILL
    second = Submitter(tmp_path)
    second.go()
    assert second.end() == 0
    check_points(tmp_path)

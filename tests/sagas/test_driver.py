"""Sagas on every store: killed after every operation in turn, and every way in which a step can end."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from driving import ONCE, WORLD, drive, jobs_of, progress_of, start, work
from msgspec.structs import replace
from saga_story import STEPS, Story
from ticking import open_store

from daybreak import Daybreak, Saga
from daybreak.client import saga_record
from daybreak.client.client import Client
from daybreak.client.saga_changes import cancel_saga, drive_saga, find_saga, resume_saga
from daybreak.client.saga_migration import hold_sagas
from daybreak.client.saga_record import (
    KEEP_COMPENSATED,
    KEEP_COMPLETED,
    MAX_CONTEXT,
    BadUpdate,
    forget_sagas,
    merge,
    read_outlines,
    read_saga,
    read_sagas,
    read_unfinished,
)
from daybreak.client.store_migration import Mover
from daybreak.core.errors import BadInput, KeyConflict, Refused, SagaNotFound
from daybreak.core.model import Done, JobSpec, Need, Put, QueueSettings, Reason, ResourceSettings, State, TimedOut
from daybreak.core.units import moment
from daybreak.policy.settle import settle
from daybreak.services import runner
from daybreak.services.saga_driver import FOLLOWER_KIND, SagaDriver
from daybreak.store.protocol import SAGA_MARK_KIND, Amend, Claim, Exchange, Purge


@pytest.fixture
async def memory():
    async with open_store("memory", None) as store:
        yield store


# -- killed after every operation --------------------------------------------------------------------------------------

DAY = timedelta(days=1)
STORIES = {
    "completes": {},
    "last step fails": {"fails_at": 4},
    "undo fails and is stuck": {"fails_at": 4, "undo_fails": {1: 4}},
    "cancelled": {"cancelled_after": 2},
}


@pytest.mark.parametrize("story", STORIES)
async def test_a_saga_cut_at_every_operation_in_turn_ends_right(store, story):
    """On other stores than memory at every seventh; the long form is in tests/torture."""
    is_fast = store.traits.name == "memory"
    whole = Story(store, "uncut", **STORIES[story])
    await whole.run()
    await whole.check()
    assert whole.cut.calls > 4 * STEPS
    for cut_at in range(1, whole.cut.calls + 1, 1 if is_fast else 7):
        cut = Story(store, f"cut-{cut_at}", cut_at=cut_at, **STORIES[story])
        await cut.run()
        await cut.check()


async def test_drivers_side_by_side_submit_each_job_once(store):
    await start(store, "r")
    done: list[str] = []
    while not (await progress_of(store, "r")).is_finished:
        done += await work(store, lambda task: task == "do3")
        await asyncio.gather(*(drive(store, kills=False) for _ in range(3)))
    assert done == ["do0", "do1", "do2", "undo2", "undo1", "undo0"]
    assert len(await jobs_of(store, "r")) == 7


# -- every way to end --------------------------------------------------------------------------------------------------


async def claimed(store):
    [lease] = (await store.exchange(Exchange(claim=Claim(worker="w", lease_for=timedelta(minutes=5))))).leases
    return lease


async def times_out(store, job):
    settlement = settle(await claimed(store), TimedOut(after=timedelta(seconds=1)), chance=0.5, by="w")
    await store.exchange(Exchange(settle=[settlement]))


async def expires(store, job):
    deadline = time.monotonic() + 60
    while not (await store.advance()).expired:
        assert time.monotonic() < deadline


async def is_shed(store, job):
    settings = msgspec.json.encode(QueueSettings(capacity=1, when_full="shed"))
    await store.put([Put(kind="queue", name="default", value=settings)])
    await store.insert([JobSpec(id="urgent", task="t", priority=0)])
    await store.amend(Amend(action="cancel", by="t", jobs=("urgent",)))


async def is_cancelled(store, job):
    await store.amend(Amend(action="cancel", by="t", jobs=(job,)))


async def is_cancelled_while_it_runs(store, job):
    lease = await claimed(store)
    await store.amend(Amend(action="cancel", by="t", jobs=(job,)))
    await store.exchange(Exchange(settle=[settle(lease, Done(b"{}"), chance=0.5, by="w")]))


async def is_removed(store, job):
    await is_cancelled(store, job)
    await store.amend(Amend(action="remove", by="t", jobs=(job,)))


@pytest.mark.parametrize(
    ("way", "state", "reason"),
    [
        (times_out, State.FAILED, Reason.TIMEOUT), (expires, State.FAILED, Reason.EXPIRED),
        (is_shed, State.FAILED, Reason.SHED), (is_cancelled, State.CANCELLED, None),
        (is_cancelled_while_it_runs, State.CANCELLED, None), (is_removed, None, None),
    ],
    ids=lambda way: getattr(way, "__name__", ""),
)  # fmt: skip
async def test_a_step_that_ends_without_completing_is_compensated_and_holds_no_slot(store, way, state, reason):
    settings = msgspec.json.encode(ResourceSettings(slots=1))
    await store.put([Put(kind="resource", name="pods", value=settings)])
    needing = replace(ONCE, resources=(Need("pods"),))
    expiring = replace(needing, expires_in=timedelta(microseconds=1) if way is expires else None)
    await start(store, "r", 2, options=needing, last_options=expiring, undo_options=needing)
    assert await work(store) == ["do0"]
    await drive(store, kills=False)
    current = (await progress_of(store, "r")).current_job
    if (await store.get([current]))[0].state is not State.FAILED:
        await way(store, current)
    [job] = await store.get([current])
    assert (state, reason) == (None, None) if job is None else (job.state, job.reason) == (state, reason)
    assert [one.used for one in await store.usage("pods")] in ([], [0])
    await drive(store, kills=False)
    assert await work(store) == ["undo0"]
    await drive(store, kills=False)
    progress = await progress_of(store, "r")
    assert progress.phase == "compensated"
    assert progress.error.startswith("step1: ")
    assert [one.used for one in await store.usage("pods")] in ([], [0])


async def test_a_first_step_that_expires_has_nothing_to_undo(memory):
    await start(memory, "r", 2, options=replace(ONCE, expires_in=timedelta(microseconds=1)))
    await expires(memory, "")
    await drive(memory, kills=False)
    progress = await progress_of(memory, "r")
    assert (progress.phase, len(await jobs_of(memory, "r"))) == ("compensated", 1)
    assert progress.error.startswith("step0: ")


# -- the driver as a service -------------------------------------------------------------------------------------------


async def test_the_feed_drives_a_saga_and_an_idle_driver_stops_following(store):
    driver = SagaDriver(store, WORLD, name="d")
    running = asyncio.create_task(runner.run([driver], WORLD))
    try:
        await start(store, "r", 3)
        done: list[str] = []
        deadline = time.monotonic() + 60
        while not (await progress_of(store, "r")).is_finished:
            assert time.monotonic() < deadline
            done += await work(store)
            await asyncio.sleep(0.01)
        assert done == ["do0", "do1", "do2"]
        while driver._following is not None or await is_held(store):  # the next driver need not wait
            assert time.monotonic() < deadline
            await asyncio.sleep(0.01)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def is_held(store):
    """Whether a driver says that it follows the feed."""
    [position] = await store.records(FOLLOWER_KIND)
    return b'"holder"' in position.value


async def test_a_driver_that_is_stopped_while_it_closes_its_follower_stops(memory):
    driver, asked, may_end = SagaDriver(memory, WORLD, name="d"), asyncio.Event(), asyncio.Event()

    async def ends_slowly() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            asked.set()
            await may_end.wait()

    driver._following = asyncio.create_task(ends_slowly())
    await asyncio.sleep(0)
    running = asyncio.create_task(runner.run([driver], WORLD))  # there is no saga, so it closes the follower
    await asked.wait()
    running.cancel()
    await asyncio.sleep(0)
    may_end.set()
    assert (await asyncio.wait([running], timeout=5))[0], "it goes on for ever"
    assert running.cancelled()


async def test_a_job_that_belongs_to_no_saga_is_left_alone(memory):
    driver = SagaDriver(memory, WORLD, name="d")
    await start(memory, "r", 1)
    await work(memory)
    page = await memory.events()
    await driver.handle(page.events[-1])  # without names, as of a job that is gone
    assert (await progress_of(memory, "r")).phase == "forward"
    await driver.handle(replace(page.events[-1], run="saga:r"))
    assert (await progress_of(memory, "r")).phase == "completed"
    await driver.handle(replace(page.events[-1], run="saga:r"))
    await driver.handle(replace(page.events[-1], run="saga:unknown"))


async def test_a_saga_that_another_version_wrote_stops_no_other(memory, caplog):
    await start(memory, "a", 1)
    await start(memory, "b", 1)
    [record] = await memory.records("saga", "a")
    await memory.put([Put(kind="saga", name="a", value=b'{"moon":1}')])
    await work(memory)
    await drive(memory, kills=False)
    assert (await progress_of(memory, "b")).phase == "completed"
    assert "saga a cannot be driven" in caplog.text
    await memory.put([Put(kind="saga", name="a", value=record.value)])
    await drive(memory, kills=False)
    assert (await progress_of(memory, "a")).phase == "completed"


# -- changes by people -------------------------------------------------------------------------------------------------


async def test_starting_again_with_the_same_content_is_the_same_saga(memory):
    await start(memory, "r", 2)
    await start(memory, "r", 2)
    assert len(await jobs_of(memory, "r")) == 1
    refused = "^saga 'r' was started with other steps or another context; start this one under another id$"
    with pytest.raises(KeyConflict, match=refused):
        await start(memory, "r", 3)


async def test_jobs_that_are_kept_for_a_moment_only_wait_until_the_saga_has_seen_how_they_ended(store):
    """A worker ran the step and was killed, and the janitor comes before a driver does."""
    await start(store, "r", steps=2, options=replace(ONCE, keep_completed=timedelta(), keep_failed=timedelta()))
    assert await work(store) == ["do0"]
    await store.purge(Purge())
    await drive(store, kills=False)
    progress = await progress_of(store, "r")
    assert [step.state for step in progress.steps] == ["completed", "running"]
    assert await work(store, fails=lambda task: True) == []
    await store.purge(Purge())
    await drive(store, kills=False)
    assert "broken" in (await progress_of(store, "r")).error


async def test_changes_that_come_too_late_are_refused(memory):
    client = Client(memory, by="ann")
    await start(memory, "r", 1)
    with pytest.raises(Refused, match="only one that is stuck"):
        await resume_saga(client, "r")
    await work(memory)
    await drive(memory, kills=False)
    with pytest.raises(Refused, match="has completed"):
        await cancel_saga(client, "r")
    with pytest.raises(SagaNotFound, match="did you mean 'r'"):
        await find_saga(client, "rr")


async def test_a_stuck_saga_is_told_once_in_the_feed(memory):
    await start(memory, "r", 2, undo_tries=2)
    while (await progress_of(memory, "r")).phase != "stuck":
        await work(memory, lambda task: task in ("do1", "undo0"))
        await drive(memory, kills=False)
    await drive(memory, kills=False)
    told = [event for event in (await memory.events()).events if event.kind == "saga_stuck"]
    assert [(event.note, event.job) for event in told] == [("r", "")]


async def test_a_step_retried_before_anybody_reacted_goes_on(memory):
    await start(memory, "r", 2)
    job = (await progress_of(memory, "r")).current_job
    await work(memory, lambda task: True)
    await memory.amend(Amend(action="retry", by="ann", jobs=(job,)))
    await drive(memory, kills=False)
    assert (await progress_of(memory, "r")).phase == "forward"
    await work(memory)
    await drive(memory, kills=False)
    assert (await progress_of(memory, "r")).current == 1


async def test_sagas_move_with_their_jobs_and_go_on_in_the_target(memory, tmp_path):
    async with open_store("sqlite", tmp_path) as target:
        await start(memory, "ended", 1)
        await work(memory)
        await drive(memory, kills=False)
        await start(memory, "r", 2)
        with pytest.raises(BadInput, match="saga 'r' has steps in queue 'default'"):
            await Mover(memory, target, WORLD, by="t", queue="default").run()
        report = await Mover(memory, target, WORLD, by="t").run()
        assert report.sagas == 2
        assert await memory.records("saga") == await memory.records(SAGA_MARK_KIND) == []
        await drive(memory, kills=False)
        for _ in range(2):
            await work(target)
            await drive(target, kills=False)
        assert [(await progress_of(target, name)).phase for name in ("ended", "r")] == ["completed", "completed"]
        assert len(await jobs_of(target, "r")) == 2


async def test_a_saga_that_is_being_moved_is_not_driven(memory):
    await start(memory, "r", 2)
    await hold_sagas(memory, queue=None)
    await work(memory)
    await drive(memory, kills=False)
    assert (await progress_of(memory, "r")).current == 0
    with pytest.raises(Refused, match="being moved"):
        await cancel_saga(Client(memory, by="ann"), "r")


async def test_old_sagas_are_forgotten_and_unfinished_ones_are_not(memory):
    for name in ("completed", "compensated", "unfinished"):
        await start(memory, name, 1, queue=name)
    await work(memory, queue="completed")
    await work(memory, lambda task: True, queue="compensated")
    await drive(memory, kills=False)
    now = moment(WORLD.wall())
    left = []
    for later in (KEEP_COMPLETED - DAY, KEEP_COMPLETED + DAY, KEEP_COMPENSATED + DAY):
        await forget_sagas(memory, now + later)
        left.append([found.id for found in await read_sagas(memory)])
    assert left == [["unfinished", "compensated", "completed"], ["unfinished", "compensated"], ["unfinished"]]


async def test_the_id_of_a_forgotten_saga_is_refused_while_the_store_knows_its_jobs(store):
    """A new saga would wait for jobs that the store does not make a second time, and be compensated for nothing."""
    long = replace(ONCE, keep_completed=timedelta(days=30))
    await start(store, "r", 2, options=ONCE, last_options=long)
    for _ in range(2):
        await work(store)
        await drive(store, kills=False)
    first, _ = await jobs_of(store, "r")
    await forget_sagas(store, moment(WORLD.wall()) + KEEP_COMPLETED + DAY)
    assert await read_sagas(store) == []
    with pytest.raises(KeyConflict, match=r"^saga 'r' has run before: .*; start this one under another id$"):
        await start(store, "r", 2)
    await store.amend(Amend(action="remove", by="tester", jobs=(first.id,)))
    with pytest.raises(KeyConflict, match="has run before"):  # also if only a later job is left
        await start(store, "r", 2)
    assert await read_sagas(store) == []


async def test_the_records_of_ended_sagas_are_bounded_in_number_and_size(memory, monkeypatch):
    for n in range(6):
        await start(memory, f"r{n}", 1)
    await work(memory)
    for n in range(5):
        await drive_saga(Client(memory, by="d"), f"r{n}")
    now, ended = moment(WORLD.wall()), {f"r{n}" for n in range(5)}
    sizes = {one.id: one.size for one in await read_outlines(memory)}
    monkeypatch.setattr(saga_record, "MAX_FINISHED_SIZE", sum(sizes[one] for one in ended) - 1)
    await forget_sagas(memory, now)
    assert [one.id for one in await read_outlines(memory)] == ["r5", "r4", "r3", "r2", "r1"], (
        "the oldest that has ended"
    )
    monkeypatch.setattr(saga_record, "MAX_FINISHED", 2)
    monkeypatch.setattr(saga_record, "DELETED_AT_ONCE", 1)
    await forget_sagas(memory, now)
    assert [one.id for one in await read_outlines(memory)] == ["r5", "r4", "r3"]
    assert [one.id for one in await read_unfinished(memory)] == ["r5"]
    monkeypatch.setattr(saga_record, "READ_ALL_FROM", 0)
    assert [one.id for one in await read_unfinished(memory)] == ["r5"]


# -- the context -------------------------------------------------------------------------------------------------------


def merged(context: bytes, result: bytes | None) -> bytes:
    return bytes(merge(msgspec.Raw(context), result, "step"))


def test_what_a_step_returns_is_merged():
    assert merged(b'{"a":1}', None) == b'{"a":1}'
    assert merged(b'{"a":1}', b"null") == b'{"a":1}'
    assert merged(b'{"a":1,"b":2}', b'{"b":3,"c":{"$":["set",[1]]}}') == b'{"a":1,"b":3,"c":{"$":["set",[1]]}}'
    assert merged(b'{"a":1}', b"[1,2]") == b'{"a":1,"step":[1,2]}'
    assert merged(b'{"a":1}', b'{"$":["tuple",[1]]}') == b'{"a":1,"step":{"$":["tuple",[1]]}}'
    assert merged(b'{"a":1}', b'{"$":["any",{"b":2}]}') == b'{"a":1,"b":2}'
    assert merged(b'{"a":1}', b'{"$":["dict",{"$":2}]}') == b'{"$":["dict",{"a":1,"$":2}]}'
    assert merged(b'{"$":["dict",{"a":1,"$":2}]}', b'{"b":3}') == b'{"$":["dict",{"a":1,"$":2,"b":3}]}'


def test_a_batch_task_whose_items_have_fields_is_no_step():
    app = Daybreak("memory://")

    @app.batch_task
    def runs(items: list[dict]) -> list[dict]: ...

    @app.batch_task
    def steps(items: list[Any]) -> list[dict]: ...

    with pytest.raises(BadInput, match=r"batch task 'runs' takes items whose fields .* the context; annotate"):
        Saga("s").step(runs)
    Saga("s").step(steps)


def test_a_context_that_grows_too_large_is_refused():
    with pytest.raises(BadUpdate, match="the limit is"):
        merged(b'{"a":1}', msgspec.json.encode({"b": "x" * MAX_CONTEXT}))
    with pytest.raises(BadUpdate, match="return a File"):
        merged(b'{"a":1}', b'{"$":["file result",{"sha256":"' + b"a" * 64 + b'","size":1,"name":"x"}]}')


async def test_a_step_whose_result_is_refused_is_undone_itself(memory):
    await start(memory, "r", 2)
    [lease] = (await memory.exchange(Exchange(claim=Claim(worker="w")))).leases
    large = msgspec.json.encode({"b": "x" * MAX_CONTEXT})
    await memory.exchange(Exchange(settle=[settle(lease, Done(large), chance=0.5, by="w")]))
    await drive_saga(Client(memory, by="d"), "r")
    assert await work(memory) == ["undo0"]
    await drive(memory, kills=False)
    found = await read_saga(memory, "r")
    assert (found.saga.progress.phase, bytes(found.saga.context)) == ("compensated", b'{"x":1}')
    assert "the limit is" in found.saga.progress.error

"""Submitting from Python: blocking and async, one and many, with options before the arguments."""

from __future__ import annotations

import asyncio
import itertools
import sys
import threading
from datetime import UTC, datetime, timedelta

import pytest

from daybreak import BadInput, Context, Daybreak, JobHandle, KeyConflict, KeySpent, QueueFull, State, UniqueConflict
from daybreak.core.errors import BadArguments, NotEncodable, Unsupported
from daybreak.store.protocol import Purge


@pytest.fixture
def add(app):
    @app.task(queue="sums", priority="high", retry=2)
    def add(a: int, b: int = 0) -> int:
        return a + b

    return add


def test_what_is_submitted_is_accepted_with_its_options(app, add):
    job = add.using(priority="low", tags=["t"], meta={"k": "v"}, owner="bob", key="one").submit(1, b=2)
    found = job.info()
    assert (found.state, found.spec.queue, found.priority, found.spec.tags) == (State.QUEUED, "sums", 7, ("t",))
    assert (found.spec.by, found.spec.owner, found.spec.meta, found.spec.key) == ("ann", "bob", {"k": "v"}, "one")
    assert found.spec.options.retry.attempts == 2


async def test_the_async_twin_does_the_same(app, add):
    job = await add.using(priority="low").asubmit(1)
    assert (await job.ainfo()).priority == 7
    assert await job.astate() is State.QUEUED


def test_options_of_using_add_up_and_leave_the_task_alone(add):
    late = add.using(delay="1h").using(priority=0)
    assert (late.submit(1).info().state, late.submit(1).info().priority) == (State.SCHEDULED, 0)
    assert add.submit(1).state() is State.QUEUED


def test_a_misspelt_option_is_named(add):
    with pytest.raises(BadInput, match="did you mean 'priority'"):
        add.using(prioriti="high")
    with pytest.raises(Unsupported, match="not available in this version"):
        add.using(after=[])


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"priority": "hihg"}, "not a priority"),
        ({"delay": 5}, "write '5s'"),
        ({"run_at": datetime(2026, 1, 1)}, "no time zone"),  # noqa: DTZ001
        ({"tags": "t"}, "not a list of strings"),
        ({"retry": 0}, "attempts"),
    ],
)
def test_an_option_that_cannot_be_right_is_refused_at_submit(add, options, told):
    with pytest.raises(BadInput, match=told):
        add.using(**options).submit(1)


@pytest.mark.parametrize(
    ("args", "kwargs", "told"),
    [((), {}, "a"), ((1, 2, 3), {}, "takes 2"), ((1,), {"c": 3}, "'c'"), ((1,), {"a": 3}, "twice"), (("x",), {}, "a")],
)
def test_arguments_that_do_not_fit_are_refused_at_submit_naming_the_parameter(add, args, kwargs, told):
    with pytest.raises(BadArguments, match=told):
        add.submit(*args, **kwargs)


def test_a_value_that_would_not_come_back_is_refused_at_submit(app):
    @app.task
    def keep(anything):
        return anything

    with pytest.raises(NotEncodable, match="anything"):
        keep.submit(object())


def test_the_same_key_is_one_job_and_other_content_a_conflict(add):
    first = add.using(key="k").submit(1)
    assert add.using(key="k").submit(1) == first
    with pytest.raises(KeyConflict):
        add.using(key="k").submit(2)


def test_a_removed_job_frees_its_key(add):
    first = add.using(key="k").submit(1)
    first.cancel()
    first.remove()
    assert add.using(key="k").submit(2) != first


def purge(app, *jobs):
    async def drop():
        store = (await app.client()).store
        moved = [(job.id, (await job.ainfo()).revision) for job in jobs]
        await store.purge(Purge(moved=tuple(moved)))

    app.portal.run(drop())


def test_a_key_whose_job_was_purged_is_spent(app, add):
    first = add.using(key="k").submit(1)
    first.cancel()
    purge(app, first)
    with pytest.raises(KeySpent, match=f"job {first.id} ran under idempotency key 'k'") as refused:
        add.using(key="k").submit(1)
    assert (refused.value.key, refused.value.job) == ("k", first.id)
    with pytest.raises(KeyConflict):
        add.using(key="k").submit(2)
    with pytest.raises(KeySpent, match="row 1 was refused, nothing was submitted"):
        add.using(key=lambda a, b: "k" if a == 1 else "l").submit_many([{"a": 2}, {"a": 1}])


def test_a_key_may_follow_from_the_arguments(add):
    keyed = add.using(key=lambda a, b: f"sum-{a}-{b}")
    assert keyed.submit(1, b=2).info().spec.key == "sum-1-2"
    assert keyed.submit(1, 2) == keyed.submit(1, b=2) == keyed.submit_many([{"a": 1, "b": 2}])[0]
    assert keyed.submit(3).info().spec.key == "sum-3-0"


async def test_a_key_may_follow_from_the_arguments_async(add):
    keyed = add.using(key=lambda a, **_: f"sum-{a}")
    assert await keyed.asubmit(1) == await keyed.asubmit(1)


@pytest.mark.parametrize("key", [None, 7, "", "two\nlines"])
def test_a_function_of_keys_returns_a_text(add, key):
    with pytest.raises(BadInput, match="key"):
        add.using(key=lambda **_: key).submit(1)
    with pytest.raises(BadInput, match="row 0"):
        add.using(key=lambda **_: key).submit_many([{"a": 1}])


def test_rows_with_the_same_key_and_content_are_one_job(app, add):
    keyed = add.using(key=lambda a, **_: f"k{a}")
    first, second, third = keyed.submit_many([{"a": 1}, {"a": 2}, {"a": 1}])
    assert first == third != second
    assert keyed.submit_many([{"a": 2}, {"a": 3}])[0] == second


def count(app):
    async def ask():
        return sum((await (await app.client()).count()).values())

    return app.portal.run(ask())


def test_rows_with_the_same_key_and_other_content_are_a_conflict_that_names_both(app, add):
    with pytest.raises(KeyConflict, match="rows 1 and 2 have the same idempotency key 'k1' but different content"):
        add.using(key=lambda a, **_: f"k{a}").submit_many([{"a": 0}, {"a": 1}, {"a": 1, "b": 2}])
    assert count(app) == 0


def test_a_conflict_in_a_bulk_submit_leaves_nothing_half_done(app, add):
    taken = add.using(key="k2").submit(7)
    with pytest.raises(KeyConflict, match=f"row 2 was refused, nothing was submitted.*belongs to job {taken.id}"):
        add.using(key=lambda a, **_: f"k{a}").submit_many([{"a": n} for n in range(4)])
    assert count(app) == 1


def test_a_submit_under_the_key_of_a_job_of_older_code_warns_once(app, caplog):
    def define(times):
        @app.task(name="scale")
        def scale(a: int, times: int = times) -> int:
            return a * times

        return scale

    first = define(2).using(key="k").submit(1)
    assert define(2).using(key="k").submit(1) == first
    assert caplog.records == []
    for _ in range(2):
        assert define(3).using(key="k").submit(1) == first
    [record] = caplog.records
    assert record.levelname == "WARNING"
    assert record.name == "daybreak"
    assert f"key 'k' belongs to job {first.id}" in record.getMessage()
    assert "remove that job or use another key" in record.getMessage()


def test_many_jobs_of_older_code_are_one_warning(app, caplog):
    def define(times):
        @app.task(name="scale")
        def scale(a: int, times: int = times) -> int:
            return a * times

        return scale.using(key=lambda a, **_: f"k{a}")

    rows = [{"a": n} for n in range(3)]
    jobs = define(2).submit_many(rows)
    assert define(3).submit_many(rows) == jobs
    [record] = caplog.records
    assert f"job {jobs[0].id}" in record.getMessage()
    assert "(2 more like it)" in record.getMessage()


def test_only_jobs_with_a_key_keep_the_digest_of_their_code(add):
    assert add.submit(1).info().spec.code == ""
    assert add.using(key="k").submit(1).info().spec.code == add.definition.code != ""


def test_a_unique_name_may_be_given_up_by_a_running_job(app, add):
    waiting = add.using(unique="user:7", unique_while="waiting")
    first = waiting.submit(1)
    assert waiting.submit(2) == first
    with pytest.raises(BadInput, match="unique_while='later': choose unfinished or waiting"):
        add.using(unique="user:7", unique_while="later").submit(1)


def test_a_running_task_can_submit_itself_again(app):
    runs = []

    @app.task
    def tick(n: int) -> None:
        runs.append(n)
        if n < 3:
            tick.using(unique="tick", unique_while="waiting").submit(n + 1)

    tick.using(unique="tick", unique_while="waiting").submit(1)
    app.work()
    assert runs == [1, 2, 3]


def test_a_unique_name_is_held_by_one_unfinished_job(add):
    first = add.using(unique="user:7").submit(1)
    assert add.using(unique="user:7").submit(2) == first
    with pytest.raises(UniqueConflict):
        add.using(unique="user:7", on_conflict="refuse").submit(2)


def test_a_full_queue_refuses(app, add):
    app.queue("sums").set(capacity=1)
    add.submit(1)
    with pytest.raises(QueueFull):
        add.submit(2)


def test_many_are_submitted_in_the_order_of_their_rows(add):
    jobs = add.submit_many([{"a": n, "b": 1} for n in range(25)])
    assert len({job.id for job in jobs}) == 25
    assert [job.position().ahead for job in (jobs[0], jobs[24])] == [0, 24]


async def test_many_are_submitted_by_the_async_twin(add):
    jobs = await add.asubmit_many({"a": n} for n in range(3))
    assert [(await job.aposition()).ahead for job in jobs] == [0, 1, 2]


def test_a_bad_row_is_named_and_nothing_is_submitted(app, add):
    with pytest.raises(BadArguments, match="row 1"):
        add.submit_many([{"a": 1}, {"b": 2}])
    assert app.queue("sums").size() == 0


@pytest.mark.parametrize(
    ("rows", "trouble"),
    [
        ([{"a": 1, "b": 2}, 5], "row 1 of submit_many is of type int.*'a': ..., 'b': ....*map"),
        (["ab"], "row 0 of submit_many is of type str"),
        ([(1, 2)], "row 0 of submit_many is of type tuple"),
        ({"a": 1, "b": 2}, "given a single dict: pass a list"),
        ("ab", "given a single str"),
        (None, "given NoneType"),
        ([{1: 2}], "row 0"),
    ],
    ids=["number", "text", "tuple", "one row", "one text", "nothing", "numbered"],
)
def test_what_is_no_row_is_named_and_nothing_is_submitted(app, add, rows, trouble):
    with pytest.raises(BadInput, match=trouble):
        add.submit_many(rows)
    assert app.queue("default").stats().active == 0


@pytest.mark.parametrize(
    ("columns", "trouble"),
    [
        (([1, 2], [3]), "column 2 of map ends after 1 element, and"),
        (([1, 2], itertools.repeat(3)), "column 1 of map ends after 2 elements"),
        ((), "map was given no columns"),
        ((5,), "map was given int"),
        (("ab", [1, 2]), "map was given a single str"),
        (([1], [2], [3]), "takes 2 arguments; map was given 3 columns"),
    ],
)
def test_columns_that_do_not_fit_are_named(app, add, columns, trouble):
    with pytest.raises(BadInput, match=trouble):
        add.map(*columns)
    assert app.queue("default").stats().active == 0


class Record:
    """As rows of asyncpg and pandas are."""

    def __init__(self, **values):
        self._values = values

    def keys(self):
        return self._values.keys()

    def __getitem__(self, name):
        return self._values[name]


def test_a_row_of_a_database_is_a_row(app, add):
    jobs = add.submit_many([Record(a=1, b=2)])
    app.work()
    assert jobs[0].result() == 3


def test_an_error_of_whoever_makes_the_rows_is_theirs(add):
    class Query:
        def __iter__(self):
            return iter([int(None)])

    with pytest.raises(TypeError, match="int"):
        add.submit_many(Query())


def test_one_handle_is_no_list_of_them(app, add):
    with pytest.raises(BadInput, match="takes a list of job handles"):
        list(app.as_completed(add.submit(1)))


@pytest.mark.parametrize("given", [5, [1], ["text"], "text"])
def test_what_is_no_handle_is_refused(app, given):
    with pytest.raises(BadInput, match="as_completed takes a list of job handles"):
        list(app.as_completed(given))


def test_an_id_is_a_text(app):
    with pytest.raises(BadInput, match="a job's id is a string, not 5"):
        app.job(5)


def test_names_of_arguments_are_texts_however_many_a_task_takes(app):
    @app.task
    def takes_all(**named: int) -> None: ...

    with pytest.raises(BadArguments, match=r"row 0.*got 2 as a parameter name; names are strings"):
        takes_all.submit_many([{"a": 1, 2: 3}])


def test_a_full_queue_names_the_row_at_which_it_was_full(app, add):
    app.queue("sums").set(capacity=2)
    with pytest.raises(QueueFull, match="row 2"):
        add.submit_many([{"a": n} for n in range(4)])
    assert app.queue("sums").size() == 2


def test_map_keeps_the_order_of_its_input(app, add):
    with app.worker(processes=2):
        assert add.map(range(20), timeout="20s") == list(range(20))
        assert add.map([1, 2], [10, 20]) == [11, 22]


async def test_amap_keeps_the_order_of_its_input(app, add):
    async with app.aworker():
        assert await add.amap([3, 1, 2]) == [3, 1, 2]


def test_as_completed_gives_jobs_as_they_end(app):
    gates = [threading.Event() for _ in range(3)]

    @app.task
    async def pass_gate(n: int) -> int:
        while not gates[n].is_set():  # noqa: ASYNC110 - opened from another thread
            await asyncio.sleep(0.001)
        return n

    with app.worker():
        jobs = [pass_gate.submit(n) for n in range(3)]
        order = []
        gates[1].set()
        for job in app.as_completed(jobs, timeout="20s"):
            order.append(job.result())
            gates[{1: 2, 2: 0, 0: 0}[order[-1]]].set()
    assert order == [1, 2, 0]


async def test_aas_completed_gives_jobs_as_they_end(app, add):
    async with app.aworker():
        jobs = await add.asubmit_many({"a": n} for n in range(4))
        seen = [job async for job in app.aas_completed(jobs)]
    assert set(seen) == set(jobs)


def test_as_completed_has_a_time_limit_and_can_be_left(app, add):
    jobs = [add.submit(1), add.submit(2)]
    with pytest.raises(TimeoutError):
        list(app.as_completed(jobs, timeout="50ms"))
    with app.worker(), app.as_completed(jobs) as some:
        assert next(some) in jobs


def test_a_plain_call_runs_here_and_now(app):
    @app.task
    def who(ctx: Context, name: str) -> tuple[str, str]:
        return (name, threading.current_thread().name)

    assert who("ann") == ("ann", threading.current_thread().name)
    assert app.queue("default").stats().total == 0
    assert who.__name__ == "who"


def test_handles_are_equal_by_id_and_can_be_found_again(app, add):
    job = add.submit(1)
    assert app.job(job.id) == job
    assert {job, app.job(job.id)} == {job}
    assert job != add.submit(1)
    assert repr(job) == f"<job {job.id}>"
    assert isinstance(app.job(job.id), JobHandle)


def test_a_handle_sees_and_changes_its_job(app, add):
    job = add.submit(1)
    assert job.position().ahead == 0
    assert (job.suspend(note="wait").verdict, job.state()) == ("done", State.SUSPENDED)
    assert (job.resume().verdict, job.state()) == ("done", State.QUEUED)
    assert (job.reprioritise("low").verdict, job.info().priority) == ("done", 7)
    assert (job.cancel(note="enough").verdict, job.state()) == ("done", State.CANCELLED)
    assert (job.retry().verdict, job.state()) == ("done", State.QUEUED)
    job.cancel()
    assert [event.kind for event in job.history()] == [
        "submitted", "suspended", "resumed", "reprioritised", "cancelled", "retried", "cancelled",
    ]  # fmt: skip
    assert {event.by for event in job.history()} == {"ann"}
    assert job.remove().verdict == "done"
    with pytest.raises(LookupError, match=job.id):
        job.info()


async def test_a_handle_s_async_twins_see_and_change_its_job(app, add):
    job = await add.asubmit(1)
    assert (await job.aposition()).ahead == 0
    await job.asuspend(note="wait")
    await job.aresume()
    await job.areprioritise("low")
    await job.acancel(note="enough")
    await job.aretry()
    await job.acancel()
    assert len(await job.ahistory()) == 7
    assert (await job.aremove()).verdict == "done"


def test_run_at_is_an_instant(add):
    at = datetime.now(UTC) + timedelta(hours=1)
    assert add.using(run_at=at).submit(1).info().run_at == at


def test_threads_that_begin_together_submit_to_one_store():
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(10):
            with Daybreak("memory://") as app:
                assert len(submitted_by_threads(app)) == 20
                assert app.queue("default").size() == 20
    finally:
        sys.setswitchinterval(interval)


def submitted_by_threads(app: Daybreak) -> set[str]:
    """The ids of what four threads submit, five jobs each, the first use of the app included."""

    @app.task
    def nothing() -> None: ...

    ids: set[str] = set()
    together = threading.Barrier(4)

    def submit() -> None:
        together.wait()
        ids.update([nothing.submit().id for _ in range(5)])

    threads = [threading.Thread(target=submit) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return ids


def test_an_app_that_was_closed_opens_again(tmp_path):
    app = Daybreak(f"sqlite:///{tmp_path}/jobs.db")

    @app.task
    def nothing() -> None: ...

    job = nothing.submit()
    app.close()
    app.close()
    assert job.state() is State.QUEUED
    app.close()

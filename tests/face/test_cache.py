"""Cached tasks: what is known is not computed again, and people can ask why something was."""

from __future__ import annotations

import enum
import functools
import os
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any, NotRequired, TypedDict

import pytest

from daybreak import Cache, Daybreak, File, JobFailed, Resource, Secret, State
from daybreak.api.cache import CacheHandle
from daybreak.core.errors import BadInput, JobNotFound
from daybreak.core.model import Done
from daybreak.policy.settle import settle
from daybreak.store.protocol import Claim, Exchange
from daybreak.testing import inline

runs: list[Any] = []


@pytest.fixture(autouse=True)
def _no_runs():
    runs.clear()


def simulate(model: str, vin: float, duty: float = 0.5) -> dict[str, float]:
    runs.append((model, vin, duty))
    return {"vout": vin * duty}


# -- hits --------------------------------------------------------------------------------------------------------------


def test_the_second_of_two_equal_jobs_does_not_run(app):
    task = app.task(cache=True)(simulate)
    first = task.submit("buck", 24.0)
    with app.worker():
        assert first.result() == {"vout": 12.0}
    second = task.submit(vin=24, model="buck", duty=0.5)  # no worker is there any more
    assert second.state() is State.COMPLETED
    assert second.result() == {"vout": 12.0}
    info = second.info()
    assert (info.cached_from, info.attempt, info.started_at) == (first.id, 0, None)
    assert [event.kind for event in second.history()] == ["submitted", "completed"]
    assert first.info().cached_from is None
    assert runs == [("buck", 24.0, 0.5)]


def test_a_hit_needs_no_slot_no_queue_and_no_worker(app):
    licence = Resource("licence", slots=1)
    task = app.task(cache=True, resource=licence)(simulate)
    free = threading.Event()

    @app.task(resource=licence)
    def hold() -> None:
        free.wait(20)

    with app.worker(processes=2):
        known = task.submit("buck", 24.0)
        known.result("20s")
        holder = hold.submit()
        while holder.state() is not State.RUNNING:
            pass
        app.queue("default").pause()
        try:
            assert app.resource("licence").info().used == 1
            hit = task.submit("buck", 24.0)
            assert hit.state() is State.COMPLETED
            assert hit.result("5s") == {"vout": 12.0}
            other = task.submit("buck", 25.0)
            assert other.state() is not State.COMPLETED
        finally:
            free.set()


def test_equal_jobs_in_flight_run_once(app):
    task = app.task(cache=True)(simulate)
    jobs = task.submit_many([{"model": "buck", "vin": 24.0}] * 50)
    assert [job.state() for job in jobs[:3]] == [State.QUEUED, State.BLOCKED, State.BLOCKED]
    assert "same computation by job " + jobs[0].id in str(jobs[1].why())
    with app.worker():
        assert {job.result("20s")["vout"] for job in app.as_completed(jobs)} == {12.0}
    assert len(runs) == 1
    assert {job.info().cached_from for job in jobs[1:]} == {jobs[0].id}


def test_map_returns_results_of_known_and_new_points_in_order(app):
    task = app.task(cache=True)(simulate)
    with app.worker():
        task.map(["buck"] * 3, [1.0, 2.0, 3.0])
        found = task.map(["buck"] * 4, [4.0, 3.0, 2.0, 1.0])
    assert [one["vout"] for one in found] == [2.0, 1.5, 1.0, 0.5]
    assert len(runs) == 4


async def test_the_async_face_does_the_same():
    async with Daybreak("memory://", by="ann") as app:
        task = app.task(cache=Cache(environment=lambda: {"engine": "4.9"}))(simulate)
        async with app.aworker():
            first = await task.asubmit("buck", 24.0)
            await first
        second = await task.asubmit("buck", 24)
        assert await second == {"vout": 12.0}
        [third] = await task.asubmit_many([{"model": "buck", "vin": 24.0}])
        assert (await third.ainfo()).cached_from == first.id
        assert (await app.cache.astats()).hits == 2


def test_the_result_of_other_code_than_was_asked_for_is_not_kept(app):
    def before(x: float) -> float:
        return x

    def after(x: float) -> float:
        return x + 1

    app.task(name="run", cache=True)(before)  # as of a worker that was started before the change
    changed = Daybreak("memory://")
    changed._open_sessions = app._sessions  # the same store
    task = changed.task(name="run", cache=True)(after)
    with app.worker():
        leader, follower = task.submit_many([{"x": 1.0}] * 2)
        assert (leader.result("20s"), follower.result("20s")) == (1.0, 1.0)
        assert follower.info().cached_from is None
        assert app.cache.entries() == []
        versioned = Cache(version="1")
        kept = task.using(cache=versioned).submit(1.0)  # here the code does not count
        kept.result("20s")
        assert task.using(cache=versioned).submit(1.0).info().cached_from == kept.id


def test_hooks_hear_of_a_hit_where_it_was_submitted(app):
    heard: list[str] = []
    app.on("completed")(lambda event: heard.append(event.job))
    task = app.task(cache=True)(simulate)
    with app.worker():
        first = task.submit("buck", 1.0)
        first.result("20s")
    hit = task.submit("buck", 1.0)
    many = task.submit_many([{"model": "buck", "vin": vin} for vin in (1.0, 2.0, 1.0)])
    app.hooks.flush()
    assert heard == [first.id, hit.id, many[0].id, many[2].id]
    run = app.sweep(task, {"model": "buck", "vin": [1.0, 3.0]}, name="points")
    [swept] = [row["job"] for row in run.rows() if row["cached_from"] is not None]
    [keyed, repeated] = [task.using(key="k").submit("buck", 1.0) for _ in range(2)]
    assert keyed.id == repeated.id
    app.hooks.flush()
    assert heard[4:] == [swept, keyed.id]
    kept = [event.kind for event in hit.history()]
    assert kept == ["submitted", "completed"]


def test_elements_of_a_batch_task_are_known_one_by_one(app):
    @app.batch_task(size=4, cache=True)
    def squares(items: list[int]) -> list[int]:
        runs.append(items)
        return [item * item for item in items]

    with app.worker():
        assert squares.map([1, 2, 3, 4, 2, 1]) == [1, 4, 9, 16, 4, 1]
    assert sorted(item for items in runs for item in items) == [1, 2, 3, 4]
    hit = squares.submit(3)
    assert (hit.state(), hit.result()) == (State.COMPLETED, 9)


def test_items_that_may_lack_a_key_are_known_too(app):
    class Fields(TypedDict):
        vin: float
        label: NotRequired[str]

    def halve(items) -> list[float]:
        return [item["vin"] / 2 for item in items]

    halve.__annotations__["items"] = list[Fields]
    task = app.batch_task(cache=True)(halve)
    with app.worker():
        assert task.submit({"vin": 24.0}).result("20s") == 12.0
    assert task.submit(vin=24.0).state() is State.COMPLETED
    assert task.submit(vin=24.0, label="").state() is State.QUEUED


def test_a_secret_may_be_a_default(app):
    @app.task(cache=True)
    def fetch(page: int, pin: Secret[str] = Secret("1234")) -> int:  # noqa: B008
        return page

    with app.worker():
        assert fetch.submit(1).result("20s") == 1
    assert fetch.submit(1, Secret("1234")).state() is State.COMPLETED
    assert fetch.submit(1, Secret("1235")).state() is State.QUEUED


def test_the_digest_of_a_secret_is_of_use_in_its_own_store_only():
    flights = []
    for _ in range(2):
        with Daybreak("memory://", by="ann") as app:

            @app.task(cache=True)
            def fetch(pin: Secret[str], page: int) -> None: ...

            spec = fetch.submit(Secret("1234"), 1).info().spec
            assert fetch.submit(Secret("1234"), 1).info().spec.flight == spec.flight
            flights.append((spec.flight_parts["argument pin"], spec.flight_parts["argument page"]))
    (one_pin, one_page), (other_pin, other_page) = flights
    assert (one_pin == other_pin, one_page == other_page) == (False, True)


def test_a_failure_is_not_kept_and_a_success_on_a_retry_is(app):
    tries: list[int] = []

    @app.task(cache=True, retry=2)
    def flaky(good_at: int) -> int:
        tries.append(1)
        if len(tries) < good_at:
            raise ConnectionError("not yet")
        return len(tries)

    with app.worker():
        with pytest.raises(JobFailed):
            flaky.using(retry=1).submit(good_at=2).result("20s")
        assert app.cache.stats().entries == 0
        job = flaky.submit(good_at=3)
        assert job.result("20s") == 3
        assert job.info().attempt == 2
        assert flaky.submit(good_at=3).info().cached_from == job.id


def test_a_hit_may_be_bypassed_and_refreshed(app):
    task = app.task(cache=True)(simulate)
    with app.worker():
        first = task.submit("buck", 24.0)
        first.result("20s")
        bypassing = task.using(cache=False).submit("buck", 24.0)
        bypassing.result("20s")
        assert task.submit("buck", 24.0).info().cached_from == first.id
        fresh = task.using(cache="refresh").submit("buck", 24.0)
        fresh.result("20s")
        assert (bypassing.info().cached_from, fresh.info().cached_from) == (None, None)
        assert task.submit("buck", 24.0).info().cached_from == fresh.id
    assert len(runs) == 3


def test_a_task_without_a_cache_gets_one_for_single_jobs(app):
    task = app.task(simulate)
    with app.worker():
        [first, second] = [task.using(cache=Cache(ttl="1h")).submit("buck", 24.0) for _ in range(2)]
        assert second.result("20s") == {"vout": 12.0}
        assert second.info().cached_from == first.id
        assert task.submit("buck", 24.0).info().spec.flight is None


def test_cancelling_one_leaves_the_others_their_result(app):
    task = app.task(cache=True)(simulate)
    jobs = task.submit_many([{"model": "buck", "vin": 24.0}] * 4)
    jobs[0].cancel()  # it leads
    jobs[2].cancel()  # it follows
    with app.worker():
        assert jobs[1].result("20s") == jobs[3].result("20s") == {"vout": 12.0}
    assert [job.state() for job in (jobs[0], jobs[2])] == [State.CANCELLED] * 2
    assert len(runs) == 1


def test_files_count_by_content_and_secrets_without_being_shown(app, tmp_path):
    @app.task(cache=True)
    def run(model: File, token: Secret[str]) -> str:
        runs.append(1)
        return model.path.read_text()

    for name in ("a", "b"):
        (tmp_path / name).write_text("L = 1e-3")
    with app.worker():
        first = run.submit(File(tmp_path / "a"), Secret("1234"))
        first.result("20s")
        assert run.submit(File(tmp_path / "b"), Secret("1234")).info().cached_from == first.id
        (tmp_path / "b").write_text("L = 2e-3")
        changed = run.submit(File(tmp_path / "b"), Secret("1234"))
        other = run.submit(File(tmp_path / "a"), Secret("9876"))
        assert [changed.result("20s"), other.result("20s")] == ["L = 2e-3", "L = 1e-3"]
    why = app.cache.why(changed)
    assert [(one.kind, one.name) for one in why.differences] == [("argument", "model")]
    assert "sha256:" in why.text
    [secret] = app.cache.why(other).differences
    assert (secret.name, secret.before, secret.now) == ("token", '"***"', '"***"')
    assert "9876" not in app.cache.why(other).text


def test_what_a_decorator_does_and_was_given_counts_as_code():
    def scaled(by):
        def decorate(function):
            @functools.wraps(function)
            def inner(x: int) -> int:
                return by * function(x)

            return inner

        return decorate

    def plus_one(x: int) -> int:
        return x + 1

    with Daybreak("memory://") as app:
        client = app.portal.run(app.client())
        codes = []
        for by in (2, 2, 3):
            job = app.task(name=f"scaled-{len(codes)}", cache=True)(scaled(by)(plus_one)).submit(1)
            codes.append(app.portal.run(client.get(job.id)).spec.flight_parts["source"])
    assert codes[0] == codes[1] != codes[2]


def test_schedules_and_direct_calls_do_not_use_the_cache(app):
    task = app.task(cache=True)(simulate)
    assert task("buck", 24.0) == task("buck", 24.0)
    assert len(runs) == 2
    app.schedule("hourly", task, every="1h", args={"model": "buck", "vin": 24.0}).save()
    with app.worker():
        task.submit("buck", 24.0).result("20s")
        ticked = app.find_schedule("hourly").run_now()
        ticked.result("20s")
    assert ticked.info().cached_from is None


def test_in_inline_mode_too(app):
    heard: list[str] = []
    app.on("submitted", "completed")(lambda event: heard.append(event.kind))
    task = app.task(cache=True)(simulate)
    with inline(app):
        first = task.submit("buck", 24.0)
        assert task.submit("buck", 24.0).info().cached_from == first.id
        assert heard == ["submitted", "completed"] * 2
    assert len(runs) == 1


# -- runs --------------------------------------------------------------------------------------------------------------


def test_a_new_run_over_known_points_needs_no_worker(app):
    task = app.task(cache=True)(simulate)
    grid = {"model": "buck", "vin": [float(vin) for vin in range(20)]}
    with app.worker():
        app.sweep(task, grid, name="one").wait()
    again = app.sweep(task, {**grid, "vin": [*grid["vin"][10:], 99.0]}, name="two")
    info = again.info()
    assert (info.jobs[State.COMPLETED], info.jobs[State.QUEUED]) == (10, 1)
    assert info.eta is None
    rows = list(again.rows())
    assert [row["vout"] for row in rows[:10]] == [vin / 2 for vin in range(10, 20)]
    assert all(row["cached_from"] and row["ran_for"] is None for row in rows[:10])
    fresh = app.sweep(task, grid, name="one", fresh=True)
    assert fresh.info().jobs[State.COMPLETED] == 0


def test_the_table_of_a_run_without_a_cache_has_no_column_for_it(app):
    task = app.task(simulate)
    with app.worker():
        run = app.sweep(task, {"model": "buck", "vin": [1.0]}, name="plain")
        run.wait()
    assert "cached_from" not in next(iter(run.rows()))


# -- app.cache ---------------------------------------------------------------------------------------------------------


def test_statistics_count_hits_and_what_they_saved(app):
    task = app.task(cache=True)(simulate)
    assert (app.cache.stats().entries, app.cache.stats().hit_rate) == (0, 0.0)
    with app.worker():
        task.submit("buck", 1.0).result("20s")
        task.submit("buck", 2.0).result("20s")
    for _ in range(6):
        task.submit("buck", 1.0)
    found = app.cache.stats()
    [of_task] = found.tasks
    assert (of_task.task, of_task.entries, of_task.cached, of_task.computed) == ("simulate", 2, 6, 2)
    assert found.hit_rate == 6 / 8
    assert found.bytes == 2 * len(b'{"vout":0.5}')
    assert timedelta() < found.saved < timedelta(minutes=1)
    assert app.stats().queue.completed == 8
    assert app.stats().queue.cached == 6
    [latest, older] = app.cache.entries("simulate")
    assert (latest.hits, older.hits) == (6, 0)
    assert app.cache.entries("other") == []


def test_results_can_be_dropped_by_task_by_job_and_all(app):
    task = app.task(cache=True)(simulate)
    with app.worker():
        jobs = task.submit_many([{"model": "buck", "vin": float(vin)} for vin in range(5)])
        for job in jobs:
            job.result("20s")
    hit = task.submit("buck", 1.0)
    assert app.cache.invalidate(job=jobs[1]) == 1
    assert hit.result("5s") == {"vout": 0.5}  # who has it keeps it
    assert task.submit("buck", 1.0).state() is State.QUEUED
    assert app.cache.invalidate(flight=jobs[2].info().spec.flight) == 1
    assert app.cache.invalidate(task=task) == 3
    assert app.cache.clear() == 0
    with pytest.raises(BadInput, match="name one thing"):
        app.cache.invalidate()
    with pytest.raises(JobNotFound):
        app.cache.invalidate(job="0199")


# -- why ---------------------------------------------------------------------------------------------------------------


async def complete_one(app: Daybreak) -> None:
    store = (await app.client()).store
    [lease] = (await store.exchange(Exchange(claim=Claim(worker="w")))).leases
    await store.exchange(Exchange(settle=[settle(lease, Done(b"1"), chance=0.5, by="w")]))


def planted(app: Daybreak, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Twenty changes of one thing each: what was changed, and what `why` says."""
    model = tmp_path / "model"
    model.write_text("L = 1e-3")
    monkeypatch.setenv("PLANT_SITE", "north")
    engine = {"engine": "4.9", "solver": {"tolerance": 1e-6}}
    base: dict[str, Any] = {
        "body": "return a + b", "helper": "return x + 1", "gain": "return 1", "version": 1, "key": None,
        "text": "2026", "args": {"a": 1.0, "b": 2.0, "names": ["x"], "table": {"k": 1}, "note": None},
    }  # fmt: skip

    def submit(change: dict[str, Any]) -> Any:
        now = {**base, **change}
        names: dict[str, Any] = {"__name__": "planted_code", "File": File}
        exec(  # noqa: S102 - code that differs in one place
            f"def helper(x):\n    {now['helper']}\n"
            f"class Plant:\n    def gain(self):\n        {now['gain']}\n"
            "def run(model: File, a: float, b: float, names: list, table: dict, note: str | None, *rest: int,"
            f" **more: int):\n    {now['body']}\n",
            names,
        )
        other = Daybreak("memory://")
        other._open_sessions = app._sessions  # the same store, other code
        cache = Cache(
            version=now["key"], salt=(names["helper"], names["Plant"], now["text"]),
            environment=("PLANT_SITE", lambda: dict(engine)),
        )  # fmt: skip
        task = other.task(name="run", version=now["version"], cache=cache)(names["run"])
        return task.submit(File(model), *now["args"].values(), *now.get("rest", ()), **now.get("more", {}))

    submit({})
    app.portal.run(complete_one(app))
    changes: list[tuple[str, dict[str, Any]]] = [
        *[(f"argument {name}", {"args": {**base["args"], name: value}}) for name, value in (
            ("a", 1.0000000000000002), ("b", -2.0), ("names", ["y"]), ("table", {"k": 1, "l": 2}), ("note", ""),
        )],
        ("argument rest", {"rest": (7,)}),
        ("argument extra", {"more": {"extra": 1}}),
        ("source ", {"body": "return a - b"}),
        ("source ", {"body": "return a + b + 0"}),
        ("source ", {"body": "print(a)\n    return a + b"}),
        ("version ", {"version": 2}),
        ("salt helper", {"helper": "return x + 2"}),
        ("salt helper", {"helper": "y = 1\n    return x + y"}),
        ("salt Plant", {"gain": "return 2"}),
        ("salt text", {"text": "2027"}),
    ]  # fmt: skip
    found = []
    for expected, change in changes:
        found.append((expected, told(app, submit(change))))
    model.write_text("L = 2e-3")
    found.append(("argument model", told(app, submit({}))))
    model.write_text("L = 1e-3")
    monkeypatch.setenv("PLANT_SITE", "south")
    found.append(("environment PLANT_SITE", told(app, submit({}))))
    monkeypatch.delenv("PLANT_SITE")
    found.append(("environment PLANT_SITE", told(app, submit({}))))
    monkeypatch.setenv("PLANT_SITE", "north")
    engine["engine"] = "5.0"
    found.append(("environment engine", told(app, submit({}))))
    engine["engine"] = "4.9"
    engine["solver"] = {"tolerance": 1e-7}
    found.append(("environment solver", told(app, submit({}))))
    return found


def told(app: Daybreak, job: Any) -> str:
    assert job.info().cached_from is None
    [difference] = app.cache.why(job).differences
    return f"{difference.kind} {difference.name}"


def test_why_names_the_one_part_that_was_changed_in_20_of_20_cases(app, tmp_path, monkeypatch):
    found = planted(app, tmp_path, monkeypatch)
    assert len(found) == 20
    assert [said for _, said in found] == [expected for expected, _ in found]


def test_why_says_what_was_before_and_what_is_now(app):
    task = app.task(cache=True)(simulate)
    with app.worker():
        task.submit("buck", 24.0).result("20s")
        other = task.submit("buck", 25.0, 0.25)
        other.result("20s")
    why = app.cache.why(other)
    assert why.outcome == "computed"
    assert "in 2 parts" in why.text
    assert "the argument 'vin': 24.0 before, 25.0 now" in why.text
    assert "the argument 'duty': its default before, 0.25 now" in why.text


def test_why_says_that_a_result_was_known_and_is_no_longer(app):
    task = app.task(cache=Cache(size=20))(simulate)
    with app.worker():
        first = task.submit("buck", 24.0)
        first.result("20s")
        task.submit("buck", 25.0).result("20s")  # makes room
        evicted = task.submit("buck", 24.0)
        evicted.result("20s")
        fresh = task.using(cache="refresh").submit("buck", 24.0)
        fresh.result("20s")
    for job, before in ((evicted, first), (fresh, evicted)):
        why = app.cache.why(job)
        assert why.text.startswith(f"job {before.id} computed the same before")
        assert (why.outcome, why.differences) == ("computed", ())
    assert app.cache.why(first).text.startswith("nothing else is known")


def test_why_says_where_a_difference_is_that_the_values_do_not_show(app):
    texts = []
    for low, label in ((0.5, "a" * 100), (0.5, "a" * 101), (0.7, "a" * 101)):
        kind = enum.Enum("Gain", {"LOW": low, "HIGH": 2.0})

        def run(gain, label: str) -> None: ...

        run.__annotations__["gain"] = kind
        other = Daybreak("memory://")
        other._open_sessions = app._sessions  # the same store, other code
        job = other.task(name="run", cache=True)(run).submit(kind["LOW"], label)
        texts.append(app.cache.why(job).text)
        app.portal.run(complete_one(app))
    assert "the argument 'label', beyond what is shown of it: \"aaa" in texts[1]
    assert "the argument 'gain', in a default or a value of an enum: \"LOW\"" in texts[2]


def test_why_tells_of_hits_followers_and_jobs_without_a_cache(app):
    task = app.task(cache=True)(simulate)
    leader, follower = task.submit_many([{"model": "buck", "vin": 1.0}] * 2)
    assert app.cache.why(follower).outcome == "following"
    assert (app.cache.why(leader).outcome, app.cache.why(leader).nearest) == ("waiting", None)
    with app.worker():
        leader.result("20s")
        follower.result("20s")
    assert app.cache.why(follower).outcome == "followed"
    assert app.cache.why(task.submit("buck", 1.0)).outcome == "cached"
    assert app.cache.why(task.using(cache=False).submit("buck", 1.0)).outcome == "uncached"


def test_the_handle_takes_ids_and_names(app):
    assert isinstance(app.cache, CacheHandle)
    task = app.task(cache=True)(simulate)
    job = task.submit("buck", 1.0)
    assert app.cache.why(job.id).job == job.id
    assert app.cache.invalidate(task="simulate") == 0
    with pytest.raises(BadInput, match="limit=0"):
        app.cache.entries(limit=0)


# -- queues without workers --------------------------------------------------------------------------------------------


def test_items_of_one_flight_are_taken_once(app):
    queue, heard = app.queue("tests"), []
    app.on("completed")(lambda event: heard.append(event.job))
    what = {"serial": 17, "limits": {"low": 1.0, "high": 2.0}}
    queue.add("a", id="a", flight=what, cache=Cache(ttl="1d"))
    queue.add("b", id="b", flight={"limits": {"high": 2.0, "low": 1.0}, "serial": 17})
    assert [lease.id for lease in queue.take(10)] == ["a"]
    app.portal.run(app.job("a").arelease())
    [lease] = queue.take(10)
    lease.complete("passed")
    assert (queue.get("b").state, queue.get("b").result) == (State.COMPLETED, "passed")
    known = queue.add("c", id="c", flight=what)
    assert (known.state, known.result) == (State.COMPLETED, "passed")
    assert queue.add("d", id="d", flight={**what, "serial": 18}).state is State.QUEUED
    app.hooks.flush()
    assert heard == ["a", "c"]
    for bad in ({}, "a", {1: 2}, {"pin": Secret("1234")}, {"x": object()}):
        with pytest.raises(BadInput):
            queue.add("e", flight=bad)
    with pytest.raises(BadInput, match="pass flight="):
        queue.add("e", cache=Cache())
    for wrong in (False, 1, "1d"):
        with pytest.raises(BadInput, match=r"add\(.*cache="):
            queue.add("e", flight=what, cache=wrong)
    assert queue.add("f", flight=what, cache=True).result == "passed"


def test_the_version_of_an_item_stands_beside_what_decides_its_result(app):
    queue = app.queue("tests")
    queue.add("a", id="a", flight={"version": "A"}, cache=Cache(version="1"))
    queue.add("b", id="b", flight={"version": "B"}, cache=Cache(version="1"))
    queue.add("c", id="c", flight={"version": "A"}, cache=Cache(version="2"))
    queue.add("d", id="d", flight={"version": "A"}, cache=Cache(version="1"))
    assert [lease.id for lease in queue.take(10)] == ["a", "b", "c"]


def test_an_environment_that_is_not_known_now_caches_nothing(app):
    known: list[dict[str, str] | None] = [None, {"engine": "4.9"}, {"engine": "4.9"}]
    task = app.task(cache=Cache(environment=lambda: known.pop(0)))(simulate)
    with app.worker():
        jobs = [task.submit("buck", 1.0) for _ in range(3)]
        for job in jobs:
            job.result("20s")
    assert [job.info().spec.flight is None for job in jobs] == [True, False, False]
    assert jobs[2].info().cached_from == jobs[1].id


# -- with a spool ------------------------------------------------------------------------------------------------------


def test_jobs_that_are_submitted_while_the_store_is_away_use_the_cache_later(tmp_path, script):
    code = """
        import os
        from daybreak import Cache, Daybreak, Secret

        app = Daybreak("postgresql://127.0.0.1:1/none", spool="jobs.spool")

        @app.task(cache=True)
        def plain(vin: float) -> float: ...

        @app.task(cache=True)
        def secret(pin: Secret[str]) -> float: ...

        a, b = plain.submit(1.0), secret.submit("1234")
        for job in (a, b):
            spooled = app._sessions.spool.file.find(job.id)
            print(spooled.spec.flight is not None, spooled.spec.options.cache is not None)
        os._exit(0)
    """
    done = script(code).run()
    assert done.stdout == "True True\nFalse False\n", done.stderr


# -- keys are cheap ----------------------------------------------------------------------------------------------------


def test_the_environment_is_read_once_for_many_jobs(app):
    calls: list[int] = []

    def engine() -> dict[str, str]:
        calls.append(os.getpid())
        return {"engine": "4.9"}

    task = app.task(cache=Cache(environment=engine))(simulate)
    task.submit_many([{"model": "buck", "vin": float(vin)} for vin in range(50)])
    assert len(calls) == 1
    app.sweep(task, {"model": "buck", "vin": [float(vin) for vin in range(2500)]}, name="many")
    assert len(calls) == 2

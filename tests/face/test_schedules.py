"""Schedules as an app declares them: checked where they are written, stored by workers, changed by their handle."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

from daybreak import Daybreak, File, Permanent
from daybreak.api.background_worker import make_worker
from daybreak.core.errors import BadArguments, BadInput, CalledDuringImport, ScheduleNotFound
from daybreak.core.model import State
from daybreak.services.file_collector import FileCollector
from daybreak.services.schedule_ticker import ScheduleTicker
from daybreak.tasks import import_guard
from daybreak.testing import HandClock

MINUTE = timedelta(minutes=1)


def add(a: int, b: int = 2) -> int:
    return a + b


def read(model: File) -> int:
    return len(model.path.read_bytes())


async def start_worker(app: Daybreak) -> None:
    """What a worker does with the schedules of its app when it starts."""
    await make_worker(app, app.worker_settings(isolation="thread"))


@pytest.fixture
async def apps(tmp_path):
    """Apps on one store; each call is another program."""
    async with contextlib.AsyncExitStack() as opened:

        async def make(name: str = "", **options) -> Daybreak:
            app = Daybreak(f"sqlite:///{tmp_path}/jobs.db", name=name, by="ann", **options)
            opened.push_async_callback(app.aclose)
            app.task(add)
            app.task(read)
            return app

        yield make


# -- declaring ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "trouble"),
    [
        ({}, "needs one of cron"),
        ({"cron": "99 * * * *"}, "bad minute"),
        ({"every": "1m", "args": {"c": 1}}, "'c'"),
        ({"every": "1m", "args": {"a": "x"}}, "args.a: 'x' is not a valid int"),
        ({"every": "1m"}, "'a'"),
        ({"every": "1m", "args": [1, 2, 3]}, "takes 2 arguments, not 3"),
        ({"every": "1m", "args": "abc"}, "write {'name': value}"),
        ({"every": "1m", "args": [1], "catch_up": "some"}, "choose skip, latest or all"),
        ({"every": "1m", "args": [1], "overlap": "yes"}, "choose skip, queue or allow"),
        ({"every": "1m", "args": [1], "grace": 60}, "bare number"),
    ],
)
def test_a_mistake_is_an_error_where_it_is_written(app, options, trouble):
    task = app.task(add)
    with pytest.raises((BadInput, BadArguments), match=trouble):
        app.schedule("s", task, **options)
    assert app.declared_schedules == {}


def test_a_batch_task_takes_one_item_in_a_list_or_its_fields_by_name(app):
    @dataclass
    class Point:
        model: str
        vin: float = 24.0

    def simulate(points) -> list[float]: ...

    simulate.__annotations__["points"] = list[Point]
    task = app.batch_task(simulate)
    app.schedule("item", task, every="1m", args=[Point("buck")])
    app.schedule("fields", task, every="1m", args={"model": "buck", "vin": 24.0})
    declared = app.declared_schedules
    assert declared["item"].args == declared["fields"].args
    with pytest.raises(BadArguments, match="'buck' is not a valid"):
        app.schedule("text", task, every="1m", args=["buck"])


def test_names_and_options_that_cannot_work_are_refused(app):
    task = app.task(add)
    app.schedule("s", task, every="1m", args=[1])
    with pytest.raises(BadInput, match="two schedules are named 's'"):
        app.schedule("s", task, every="2m", args=[1])
    with pytest.raises(BadInput, match="1 to 150 characters"):
        app.schedule("x" * 151, task, every="2m", args=[1])
    with pytest.raises(BadInput, match=r"using\(key=...\) is decided by the schedule"):
        app.schedule("k", task.using(key="k"), every="2m", args=[1])
    with pytest.raises(BadInput, match="is no task"):
        app.schedule("f", add, every="2m", args=[1])
    with pytest.raises(BadInput, match="no task named 'ad'"):
        app.schedule("f", "ad", every="2m", args=[1])


def test_it_is_a_decorator_too(app):
    @app.schedule("hourly", cron="@hourly", tz="Europe/Berlin", args={"a": 1})
    @app.task
    def count(a: int) -> int:
        return a

    assert count(3) == 3
    assert app.declared_schedules["hourly"].task is count


def test_a_declaration_writes_nothing_while_a_worker_imports_the_module(app):
    task = app.task(add)
    with import_guard.importing():
        handle = app.schedule("s", task, every="1m", args=[1])
        with pytest.raises(CalledDuringImport):
            handle.save()
    assert app.schedules() == []


# -- what workers write ------------------------------------------------------------------------------------------------


async def test_a_worker_stores_what_the_code_declares_and_changes_what_it_declares_otherwise(apps):
    first = await apps()
    first.schedule("s", first.find_task("add").using(queue="nights", priority="low"), every="1m", args=[1])
    assert "nights" in first.program.queues()
    await start_worker(first)
    [info] = await first.aschedules()
    assert (info.name, info.state, info.task, info.queue, info.priority) == ("s", "active", "add", "nights", 7)
    assert (info.words, info.args, info.app) == ("every minute", b'{"a":1}', "")
    await first.find_schedule("s").apause()
    second = await apps()
    second.schedule("s", "add", every="2m", args=[1, 5])
    await start_worker(second)
    [info] = await second.aschedules()
    assert (info.state, info.words, info.args) == ("paused", "every 2 minutes", b'{"a":1,"b":5}')


async def test_a_worker_warns_of_a_schedule_that_never_ticks(apps, caplog):
    app = await apps()
    app.schedule("past", "add", at=[datetime(2020, 1, 1, tzinfo=UTC), datetime(2021, 1, 1, tzinfo=UTC)], args=[1])
    app.schedule("later", "add", at=[datetime(2020, 1, 1, tzinfo=UTC), datetime(9000, 1, 1, tzinfo=UTC)], args=[1])
    for _ in range(2):  # the second worker finds it as it is
        await start_worker(app)
    warnings = [one.getMessage() for one in caplog.records if one.levelname == "WARNING"]
    assert warnings == ["schedule past: every time in at= is in the past, so it never ticks"]


async def test_an_app_with_a_name_removes_what_its_code_no_longer_declares(apps, caplog):
    old = await apps("mailer")
    old.schedule("kept", "add", every="1m", args=[1])
    old.schedule("dropped", "add", every="1m", args=[1])
    await start_worker(old)
    await old.schedule("of run time", "add", every="1m", args=[1]).asave()
    other = await apps("other")
    other.schedule("others", "add", every="1m", args=[1])
    await start_worker(other)
    new = await apps("mailer")
    new.schedule("kept", "add", every="1m", args=[1])
    await start_worker(new)
    assert [info.name for info in await new.aschedules()] == ["kept", "of run time", "others"]
    assert "schedule dropped: removed, because app mailer no longer declares it" in caplog.text


async def test_two_apps_do_not_overwrite_each_other(apps, caplog):
    for name in ("one", "two"):
        app = await apps(name)
        app.schedule("s", "add", every="1m" if name == "one" else "2m", args=[1])
        await start_worker(app)
    [info] = await app.aschedules()
    assert (info.app, info.words) == ("one", "every minute")
    assert "schedule 's' is declared by app 'one': give one of the two another name" in caplog.text


async def test_rules_of_the_app_apply_to_the_jobs_of_a_schedule(apps):
    app = await apps()
    app.rule(lambda admission: {"priority": "high"})
    await app.schedule("s", "add", every="1m", args=[1]).asave()
    assert (await app.find_schedule("s").ainfo()).priority == 2


async def test_the_files_of_a_schedule_are_kept_as_long_as_it(apps, tmp_path):
    (tmp_path / "model.txt").write_bytes(b"x" * 100)
    app = await apps()
    handle = app.schedule("s", "read", every="1m", args={"model": File(tmp_path / "model.txt")})
    await handle.asave()
    client, clock = await app.client(), HandClock(datetime.now(UTC) + timedelta(days=3))
    files = await app.file_store()
    files._world = clock

    async def collect() -> None:
        collector = FileCollector(files, client.store, clock, name="w")
        await collector.tick()
        while (await collector.tick()).total_seconds() == 1:
            pass
        clock.advance("12h")

    await collect()
    assert len(await files.infos()) == 1
    await handle.aremove()
    await collect()
    assert await files.infos() == []


# -- handles -----------------------------------------------------------------------------------------------------------


async def test_a_handle_shows_and_changes_its_schedule(apps):
    app = await apps()
    handle = app.schedule("s", "add", cron="30 2 * * *", tz="Europe/Berlin", args=[1])
    await handle.asave()
    await app.schedule("s", "add", cron="30 3 * * *", tz="Europe/Berlin", args=[1]).asave()
    info = await handle.ainfo()
    assert info.words == "at 03:30 every day, Europe/Berlin time"
    previewed = await handle.apreview(3)
    assert previewed[0].at == info.next_tick
    assert all("03:30:00" in tick.local for tick in previewed)
    job = await handle.arun_now()
    assert (await job.ainfo()).tags == ("schedule:s",)
    await handle.apause()
    await handle.aresume()
    assert (await handle.ainfo()).state == "active"
    await handle.aremove()
    with pytest.raises(ScheduleNotFound, match="no schedules"):
        await handle.ainfo()
    with pytest.raises(BadInput, match="not declared here"):
        await app.find_schedule("t").asave()


async def test_the_info_shows_the_last_tick_and_a_task_that_no_worker_knows(apps):
    app = await apps()
    clock = HandClock(datetime.now(UTC))
    await app.schedule("s", "add", every="1m", args=[1]).asave()
    client = await app.client()
    clock.advance(MINUTE)
    await ScheduleTicker(client.store, clock).tick()
    info = await app.find_schedule("s").ainfo()
    assert (info.ticks, info.last_state, info.is_known) == (1, State.SCHEDULED, True)
    assert info.last_tick == info.through
    assert (await app.job(info.last_job).ainfo()).meta["tick"] == info.last_tick.isoformat().replace("+00:00", "Z")


def test_the_blocking_face_works_on_a_store_inside_the_process(app, until):
    @app.task
    def fail(n: int) -> None:
        raise Permanent(f"at {n}")

    task = app.task(add)
    app.schedule("s", task, every="1s", args=[1])
    app.schedule("at", fail, at=datetime.now(UTC) + timedelta(seconds=1), args=[7])
    with app.worker(isolation="thread"):
        until(lambda: app.count(state="completed"), seconds=60)
        [failed] = until(lambda: list(app.find(state="failed")), seconds=60)
    assert str(failed.error) == "Permanent: at 7"
    assert app.find_schedule("at").info().state == "ended"
    assert [info.name for info in app.schedules()] == ["at", "s"]

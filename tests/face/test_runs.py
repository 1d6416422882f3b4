"""Runs: a sweep is one run, however often and by whom it is submitted."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass

import pytest

from daybreak import BadInput, Daybreak
from daybreak.client.client import Client
from daybreak.client.store_migration import Mover
from daybreak.core.model import Done, State
from daybreak.errors import RunBusy, RunChanged, RunNotFound, RunTimeout, TooLarge
from daybreak.policy.settle import settle
from daybreak.runs.designs import design_of
from daybreak.runs.run_info import all_runs
from daybreak.runs.submission import Submission
from daybreak.store.protocol import Claim, Exchange
from daybreak.stores.memory import MemoryStore
from daybreak.system.ports import RealWorld

GRID = {"vin": [10, 12, 24], "duty": [0.25, 0.5]}


@pytest.fixture
def simulate(app):
    @app.task(retry=1)
    def simulate(vin: float, duty: float = 0.5, model: str = "buck") -> dict[str, float]:
        if vin == 13:
            raise ValueError("unlucky")
        return {"vout": vin * duty}

    return simulate


def worked(app: Daybreak) -> None:
    app.work(isolation="thread", processes=2)


def vins(run) -> list[float]:
    return [row["vin"] for row in run.rows()]


# -- submitting --------------------------------------------------------------------------------------------------------


def test_every_point_is_a_job_and_a_row(app, simulate):
    run = app.sweep(simulate, {**GRID, "model": "boost"}, name="overnight", priority="low")
    assert app.count(run="overnight") == 6
    worked(app)
    info = run.wait("10s")
    assert (info.state, info.total, info.done) == ("finished", 6, 6)
    rows = list(run.rows())
    assert [row["point"] for row in rows] == list(range(6))
    first = {name: value for name, value in rows[0].items() if name not in ("job", "ran_for")}
    assert first == {
        "point": 0, "vin": 10.0, "duty": 0.25, "model": "boost", "vout": 2.5, "state": "completed", "error": None,
    }  # fmt: skip
    assert app.job(rows[0]["job"]).info().priority == 7


def test_the_same_sweep_again_runs_nothing_twice(app, simulate):
    app.sweep(simulate, GRID, name="overnight")
    worked(app)
    before = [row["job"] for row in app.find_run("overnight").rows()]
    again = app.sweep(simulate, GRID, name="overnight")
    assert [row["job"] for row in again.rows()] == before
    plan = app.plan_sweep(simulate, GRID, name="overnight")
    assert (plan.total, plan.done, plan.to_run, plan.is_refused) == (6, 6, 0, False)


def test_equal_rows_stay_separate_jobs(app, simulate):
    rows = [{"vin": 1}, {"vin": 1}, {"vin": 2}, {"vin": 1}]
    app.sweep(simulate, rows=rows, name="repeated")
    app.sweep(simulate, rows=rows, name="repeated")
    assert vins(app.find_run("repeated")) == [1, 1, 2, 1]


def test_values_that_are_encoded_alike_are_equal_points(app, simulate):
    run = app.sweep(simulate, {"vin": [1, 1.0]}, name="alike")
    assert vins(run) == [1.0, 1.0]


def test_a_point_that_was_removed_is_submitted_again(app, simulate):
    run = app.sweep(simulate, GRID, name="overnight")
    worked(app)
    lost = list(run.rows())[2]["job"]
    app.job(lost).remove()
    assert app.plan_sweep(simulate, GRID, name="overnight").to_run == 1
    app.sweep(simulate, GRID, name="overnight")
    rows = list(run.rows())
    assert [row["point"] for row in rows] == list(range(6))
    assert rows[2]["job"] != lost
    assert rows[2]["state"] == "queued"


def test_names_of_runs_do_not_mix(app, simulate):
    one, other = (app.sweep(simulate, {"vin": [1, 2]}, name=name) for name in ("one", "other"))
    assert len(list(one.rows())) == len(list(other.rows())) == 2
    assert [info.name for info in app.runs()] == ["other", "one"]


# -- changes -----------------------------------------------------------------------------------------------------------


def test_a_changed_grid_is_refused_with_a_diff(app, simulate):
    app.sweep(simulate, {"vin": [10, 12, 24], "model": "buck"}, name="overnight")
    with pytest.raises(RunChanged) as refused:
        app.sweep(simulate, {"vin": [10, 12, 48, 60], "model": "boost"}, name="overnight")
    assert refused.value.changes == [
        "vin: added 48, 60; removed 24",
        "model: 'buck' -> 'boost'",
        "0 points kept, 4 new, 3 no longer in the sweep",
    ]
    assert app.count(run="overnight") == 3


def test_accepted_changes_keep_the_results_of_points_that_both_have(app, simulate):
    run = app.sweep(simulate, {"vin": [10, 12, 24]}, name="overnight")
    worked(app)
    before = {row["vin"]: row["job"] for row in run.rows()}
    app.sweep(simulate, {"vin": [12, 24, 48]}, name="overnight", accept_changes=True)
    after = {row["vin"]: row["job"] for row in run.rows()}
    assert {vin: after[vin] for vin in before} == before
    assert vins(run) == [10, 12, 24, 48]
    info = run.info()
    assert (info.state, info.total, info.orphaned) == ("running", 3, 1)


def test_unfinished_points_that_a_change_takes_away_are_cancelled_and_come_back(app, simulate):
    run = app.sweep(simulate, {"vin": [10, 12, 24]}, name="overnight")
    app.sweep(simulate, {"vin": [10]}, name="overnight", accept_changes=True)
    assert [row["state"] for row in run.rows()] == ["queued", "cancelled", "cancelled"]
    app.sweep(simulate, {"vin": [10, 24]}, name="overnight", accept_changes=True)
    assert [row["state"] for row in run.rows()] == ["queued", "cancelled", "queued"]


def test_another_order_of_the_points_is_no_change(app, simulate):
    app.sweep(simulate, {"vin": [10, 12, 24]}, name="overnight")
    app.sweep(simulate, {"vin": [24, 12, 10]}, name="overnight")
    assert app.count(run="overnight") == 3


def test_edited_code_is_refused_once_there_are_results(tmp_path):
    url = f"sqlite:///{tmp_path}/store.db"

    def submitted(function, **options):
        with Daybreak(url) as app:
            run = app.sweep(app.task(name="simulate")(function), {"vin": [1, 2]}, name="overnight", **options)
            if options.get("works"):
                worked(app)
            return [row.get("result") for row in run.rows()]

    def first(vin: float) -> float:
        return vin

    def second(vin: float) -> float:
        return 2 * vin

    submitted(first)
    submitted(second)  # nothing has run yet
    with Daybreak(url) as app:
        app.task(name="simulate")(second)
        worked(app)
    with pytest.raises(RunChanged, match=r"code of simulate: 3\.\d+-\w+ -> 3\.\d+-\w+"):
        submitted(first)
    assert submitted(first, accept_changes=True) == [2, 4]
    assert submitted(first) == [2, 4]


def test_fresh_runs_every_point_anew_and_keeps_the_older_results(app, simulate):
    run = app.sweep(simulate, GRID, name="overnight")
    worked(app)
    app.sweep(simulate, {"vin": [10, 99]}, name="overnight", fresh=True)
    info = run.info()
    assert (info.epoch, info.total, info.unfinished) == (2, 2, 2)
    assert vins(run) == [10, 99]
    assert len(list(app.find_run("overnight#1").rows())) == 6


def test_figures_of_an_earlier_start_are_its_own(app, simulate):
    app.sweep(simulate, GRID, name="overnight")
    worked(app)
    app.sweep(simulate, {"vin": [10, 99]}, name="overnight", fresh=True)
    old = app.find_run("overnight#1")
    info = old.info()
    assert (info.name, info.label, info.epoch, info.total) == ("overnight#1", "overnight", 1, 6)
    assert (info.state, info.jobs[State.COMPLETED]) == ("finished", 6)
    assert old.wait(timeout="10s").jobs[State.COMPLETED] == 6
    assert repr(old) == "<run overnight#1>"


def test_an_earlier_start_that_was_cut_off_counts_as_cancelled(app, simulate):
    app.sweep(simulate, GRID, name="overnight")
    app.sweep(simulate, {"vin": [10]}, name="overnight", fresh=True)
    info = app.find_run("overnight#1").info()
    assert (info.state, info.total, info.jobs[State.CANCELLED]) == ("cancelled", 6, 6)


def test_points_that_are_no_longer_in_the_sweep_count_as_jobs(app, simulate):
    app.sweep(simulate, {"vin": [10, 12, 24]}, name="overnight")
    worked(app)
    run = app.sweep(simulate, {"vin": [24, 48]}, name="overnight", accept_changes=True)
    info = run.info()
    assert (info.total, info.orphaned, info.job_count, info.done) == (2, 2, 4, 3)
    worked(app)
    info = run.info()
    assert (info.done, info.job_count) == (4, 4)


def test_fresh_cancels_what_waits_of_the_older_start(app, simulate):
    app.sweep(simulate, GRID, name="overnight")
    app.sweep(simulate, GRID, name="overnight", fresh=True)
    assert {row["state"] for row in app.find_run("overnight#1").rows()} == {"cancelled"}


# -- rows --------------------------------------------------------------------------------------------------------------


@dataclass
class Result:
    state: str
    vin: float
    gain: float


def test_columns_that_would_collide_are_prefixed(app):
    @app.task
    def measure(vin: float, error: str) -> Result:
        return Result("steady", vin + 1, 2.0)

    run = app.sweep(measure, {"vin": [1.0], "error": "none"}, name="collide")
    worked(app)
    [row] = run.rows()
    assert row["args.error"] == "none"
    assert row["error"] is None
    assert (row["result.state"], row["result.vin"], row["gain"]) == ("steady", 2.0, 2.0)


def test_failed_points_say_why(app, simulate):
    run = app.sweep(simulate, {"vin": [12, 13]}, name="overnight")
    worked(app)
    info = run.wait("10s")
    assert info.failed == {"error": 1}
    assert [row["error"] for row in run.rows()] == [None, "ValueError: unlucky"]


def test_rows_as_csv(app, simulate, tmp_path):
    run = app.sweep(simulate, {"vin": [12, 24]}, name="overnight")
    worked(app)
    assert run.to_csv(tmp_path / "overnight.csv") == 2
    header, first, _ = (tmp_path / "overnight.csv").read_text().splitlines()
    assert header == "point,vin,vout,state,error,ran_for,job"
    assert first.startswith("0,12.0,6.0,completed,,")


async def test_rows_from_a_loop_of_ones_own(app, simulate):
    run = await app.asweep(simulate, {"vin": [12, 24]}, name="overnight")
    assert [row["vin"] async for row in run.arows()] == [12, 24]


# -- changes of all jobs -----------------------------------------------------------------------------------------------


def test_changes_of_all_jobs(app, simulate):
    run = app.sweep(simulate, {"vin": [12, 13]}, name="overnight")
    assert run.suspend("look first") == 2
    info = run.info()
    assert (info.state, info.note) == ("paused", "look first")
    assert run.resume() == 2
    assert run.reprioritise("high") == 2
    assert run.info().priority == 2
    worked(app)
    assert run.info().state == "finished"
    assert run.retry() == 1
    assert run.info().state == "running"
    assert run.cancel() == 1
    assert run.info().state == "cancelled"


def test_a_wait_that_ends_early_changes_nothing(app, simulate):
    run = app.sweep(simulate, GRID, name="overnight")
    with pytest.raises(RunTimeout, match="6 unfinished jobs"):
        run.wait("10ms")
    assert run.info().unfinished == 6


def test_a_run_is_deleted_with_its_jobs(app, simulate):
    run = app.sweep(simulate, GRID, name="overnight")
    with pytest.raises(RunBusy, match="0 running and 6 waiting"):
        run.delete()
    assert run.delete(force=True) == 6
    assert (app.count(), app.runs()) == (0, [])
    with pytest.raises(RunNotFound, match="this store has no runs"):
        run.info()
    assert app.sweep(simulate, GRID, name="overnight").info().total == 6


def test_an_unknown_run_is_answered_with_the_closest_name(app, simulate):
    app.sweep(simulate, GRID, name="overnight")
    with pytest.raises(RunNotFound, match="no run named 'overnigth'; did you mean 'overnight'"):
        app.find_run("overnigth")


# -- bad input ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["über nacht", "a/b", 'it\'s "quoted"', "-rf", "100%", "名前"])
def test_any_printable_name_will_do(app, simulate, name):
    run = app.sweep(simulate, {"vin": [1]}, name=name)
    assert app.find_run(name) == run
    assert vins(run) == [1]


@pytest.mark.parametrize("name", ["", " ", "a\nb", "a\0b", " a", "run#2", 7, None])
def test_a_name_that_cannot_be_found_again_is_refused(app, simulate, name):
    with pytest.raises(BadInput):
        app.sweep(simulate, {"vin": [1]}, name=name)
    assert app.runs() == []


def test_a_name_that_is_too_long_is_refused(app, simulate):
    with pytest.raises(TooLarge, match="151 characters"):
        app.sweep(simulate, {"vin": [1]}, name="x" * 151)


@pytest.mark.parametrize("grid", [{}, {"vin": []}, {"volts": [1]}, {"vin": ["ten"]}])
def test_a_bad_grid_leaves_nothing_behind(app, simulate, grid):
    with pytest.raises(BadInput):
        app.sweep(simulate, grid, name="overnight")
    assert (app.runs(), app.count()) == ([], 0)


def test_a_bad_point_is_named_before_anything_is_submitted(app, simulate):
    rows = [{"vin": 1}] * 2500 + [{"vin": "ten"}]
    with pytest.raises(BadInput, match="point 2500 of the sweep"):
        app.sweep(simulate, rows=rows, name="overnight")
    assert (app.runs(), app.count()) == ([], 0)


def test_nan_is_a_value_like_others(app, simulate):
    nan = float("nan")
    app.sweep(simulate, {"vin": [nan, 1.0]}, name="nan")
    app.sweep(simulate, {"vin": [nan, 1.0]}, name="nan")
    assert [str(vin) for vin in vins(app.find_run("nan"))] == ["nan", "1.0"]


@pytest.mark.parametrize("option", ["key", "id", "run", "unique", "keep"])
def test_options_that_the_run_decides_are_refused(app, simulate, option):
    with pytest.raises(BadInput, match=f"sweep\\(\\) has no option {option!r}"):
        app.sweep(simulate, {"vin": [1]}, name="overnight", **{option: "1h"})


def test_a_misspelt_option_is_named(app, simulate):
    with pytest.raises(BadInput, match="did you mean 'priority'"):
        app.sweep(simulate, {"vin": [1]}, name="overnight", priorty="low")


# -- other stores ------------------------------------------------------------------------------------------------------


async def test_a_run_moves_to_another_store_with_its_jobs(app, simulate):
    source, target = MemoryStore(), MemoryStore()
    design = design_of({"vin": [1, 2, 3]})

    async def submit(store, **options):
        return await Submission(Client(store), simulate, design, "overnight", options={}, **options).run()

    await submit(source)
    await submit(source, fresh=True)
    leases = (await source.exchange(Exchange(claim=Claim(worker="w", limit=2)))).leases
    await source.exchange(Exchange(settle=[settle(lease, Done(b"1"), chance=0.5, by="w") for lease in leases]))
    await Mover(source, target, RealWorld(), by="ann").run()
    assert await source.records("run") == await source.records("active run") == []
    [info] = await all_runs(Client(target))
    assert (info.epoch, info.total, info.jobs[State.COMPLETED], info.jobs[State.QUEUED]) == (2, 3, 2, 1)
    assert len(await target.records("active run")) == 1
    await submit(target)  # every point is known
    assert sum((await Client(target).count(run="overnight#2")).values()) == 3


async def test_a_run_of_which_jobs_stay_behind_is_kept_in_both_stores(app, simulate):
    source, target = MemoryStore(), MemoryStore()
    for queue in ("sims", "mail"):
        design = design_of({"vin": [1, 2, 3]})
        await Submission(Client(source), simulate, design, queue, options={"queue": queue}).run()
    [lease] = (await source.exchange(Exchange(claim=Claim(worker="w", limit=1, queues=("sims",))))).leases
    await Mover(source, target, RealWorld(), by="ann", queue="sims").run(wait=False)
    assert [record.name for record in await source.records("run")] == ["mail", "sims"]
    assert [record.name for record in await target.records("run")] == ["sims"]
    assert lease.spec.run == "sims"


def test_work_until_a_run_has_ended(app, simulate):
    run = app.sweep(simulate, GRID, name="overnight")
    app.work(until=run, isolation="thread")
    assert run.info().state == "finished"
    with pytest.raises(BadInput, match="a job handle or a run"):
        app.work(until="tomorrow")


def test_ctrl_c_ends_the_wait_and_says_how_to_come_back(app, simulate, capsys, monkeypatch):
    run = app.sweep(simulate, GRID, name="over night")

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(type(run), "_wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run.wait(progress=True)
    assert "daybreak runs wait 'over night'" in capsys.readouterr().err
    assert run.info().unfinished == 6


def test_a_paused_run_ends_the_wait(app, simulate):
    run = app.sweep(simulate, GRID, name="overnight")
    run.suspend("look first")
    info = run.wait("10s")
    assert (info.state, info.note) == ("paused", "look first")


def test_the_process_that_submitted_a_run_may_run_its_command(app, simulate, tmp_path):
    code = "import pathlib, sys; pathlib.Path(sys.argv[1]).write_text(sys.stdin.read())"
    command = [sys.executable, "-c", code, str(tmp_path / "told.json")]
    run = app.sweep(simulate, {"vin": [1, 2]}, name="overnight", notify=command)
    worked(app)
    assert run.wait("10s").state == "finished"
    told = json.loads((tmp_path / "told.json").read_text())
    assert (told["run"], told["change"], told["jobs"]) == ("overnight", "finished", {"completed": 2})


@pytest.mark.parametrize("notify", ["mail me", "", [], ["a", 1], 7, {"a": 1}])
def test_whom_to_tell_is_checked(app, simulate, notify):
    with pytest.raises(BadInput, match="notify="):
        app.sweep(simulate, {"vin": [1]}, name="overnight", notify=notify)


@pytest.mark.parametrize("stop_after", [0, -1, 1.5, True, "3"])
def test_stop_after_is_a_number_of_failures(app, simulate, stop_after):
    with pytest.raises(BadInput, match="stop_after"):
        app.sweep(simulate, {"vin": [1]}, name="overnight", stop_after=stop_after)


def test_only_the_results_of_an_older_start_can_be_read(app, simulate):
    app.sweep(simulate, {"vin": [1]}, name="overnight")
    app.sweep(simulate, {"vin": [1]}, name="overnight", fresh=True)
    with pytest.raises(BadInput, match="epoch 1 is over"):
        app.find_run("overnight#1").cancel()
    with pytest.raises(RunNotFound):
        app.find_run("overnight#3")

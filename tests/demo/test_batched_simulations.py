"""Simulations in batch calls of PLECS: the example, and what a batch task makes of two models and of a wrong point."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from daybreak import Daybreak, File, JobFailed
from daybreak.adapters.plecs import PLECS_RETRY, Plecs, PlecsError, plecs_resource
from daybreak.adapters.plecs.stand_in import Faults, StandIn

EXAMPLE = Path(__file__).parents[2] / "examples" / "simulation_sweep"


@dataclass(frozen=True)
class Point:
    model: File
    vin: float


@pytest.fixture
def app():
    with Daybreak("memory://") as app:
        yield app


def declare(app: Daybreak, address: str):
    plecs, calls = Plecs(address, timeout="20s"), []

    @app.batch_task(size=4, resource=plecs_resource(address), retry=PLECS_RETRY)
    def simulate(points: list[Point]) -> list[float | PlecsError]:
        name = plecs.load_by_content(points[0].model.path)
        calls.append((name, [point.vin for point in points]))
        found = plecs.simulate_batch(name, [{"Vi": point.vin} for point in points])
        return [one if isinstance(one, PlecsError) else round(one.final[0], 1) for one in found]

    return simulate, calls


def models(folder: Path) -> list[File]:
    for name, load in (("A", 1), ("B", 2)):
        (folder / f"{name}.plecs").write_text(f"Vi = 24;\nduty = 0.5;\nR = {load};\n")
    return [File(folder / f"{name}.plecs") for name in "AB"]


def test_two_models_interleaved_give_full_calls_of_one_model_each(app, tmp_path):
    both = models(tmp_path)
    with StandIn() as stand_in:
        simulate, calls = declare(app, stand_in.address)
        jobs = simulate.submit_many([Point(both[n % 2], 10.0 + n) for n in range(16)])
        with app.worker(processes=2, isolation="thread"):
            assert all(job.result(timeout="60s") > 0 for job in jobs)
        assert (stand_in.batches, stand_in.simulations, stand_in.refused) == (4, 16, 0)
    assert sorted(name[0] for name, _ in calls) == ["A", "A", "B", "B"]
    for name, volts in calls:
        assert len(volts) == 4
        assert {int(vin) % 2 for vin in volts} == {0 if name[0] == "A" else 1}
    [found] = app.stats().batch_calls
    assert (found.calls, found.average_size) == (4, 4.0)


def test_a_call_with_a_damaged_answer_is_tried_again(app, tmp_path):
    model = models(tmp_path)[0]
    with StandIn(Faults(wrong_at=1)) as stand_in:
        simulate, calls = declare(app, stand_in.address)
        jobs = simulate.submit_many([Point(model, 10.0), Point(model, 12.0)])
        with app.worker(processes=1, isolation="thread"):
            assert [job.result(timeout="60s") > 0 for job in jobs] == [True, True]
    assert [len(volts) for _, volts in calls] == [2, 1, 1]


def test_an_element_with_an_error_fails_its_job_for_good(app, tmp_path):
    (tmp_path / "odd.plecs").write_text("Vi = 24;\nduty = 0.5;\nR = 1;\n")
    model = File(tmp_path / "odd.plecs")
    with StandIn() as stand_in:
        plecs = Plecs(stand_in.address, timeout="20s")

        @app.batch_task(size=4, resource=plecs_resource(stand_in.address), retry=PLECS_RETRY)
        def loaded(points: list[Point]) -> list[float | PlecsError]:
            name = plecs.load_by_content(points[0].model.path)
            found = plecs.simulate_batch(name, [{"R": point.vin} for point in points])
            return [one if isinstance(one, PlecsError) else one.final[0] for one in found]

        jobs = loaded.submit_many([Point(model, 1.0), Point(model, 0.0), Point(model, 2.0)])
        with app.worker(processes=1, isolation="thread"):
            assert jobs[0].result(timeout="60s") > 0
            with pytest.raises(JobFailed, match="buck/R: 0 must be above 0"):
                jobs[1].result(timeout="60s")
            assert jobs[2].result(timeout="60s") > 0
        assert {job.info().attempt for job in jobs} == {1}
        assert stand_in.batches == 1


def test_the_example_runs_in_full_calls(tmp_path):
    for name in ("batched.py", "buck.plecs"):
        shutil.copy(EXAMPLE / name, tmp_path)
    with StandIn() as stand_in:
        own = {name: value for name, value in os.environ.items() if not name.startswith("DAYBREAK_")}
        ran = subprocess.run(
            [sys.executable, "batched.py", "--points", "40"],
            cwd=tmp_path, env={**own, "PLECS": stand_in.address}, capture_output=True, text=True, timeout=120,
            check=False,
        )  # fmt: skip
        assert ran.returncode == 0, ran.stderr
        assert ran.stdout.splitlines()[-2:] == ["batched.csv: 40 points, 0 failed", "3 calls, 13.3 points each"]
        assert (stand_in.batches, stand_in.simulations) == (3, 40)
    assert len((tmp_path / "batched.csv").read_text().splitlines()) == 41

"""OpenTelemetry: one trace from the request that submits a job to its last attempt, exact on every store."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
import worker_traced
from server_stores import place_on
from worker_processes import WorkerProcess, nobody_left, until

from daybreak import State
from otlp_receiver import receiving

TASKS = Path(worker_traced.__file__)
ERROR = 2  # the status of a failed span


@pytest.fixture(params=["sqlite", "postgres", "redis"])
def url(request, tmp_path):
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/jobs.db"
    else:
        with place_on(request.param) as url:
            yield url


@contextlib.contextmanager
def using(url):
    with nobody_left():
        worker_traced.app.use(url)
        try:
            yield worker_traced.app
        finally:
            worker_traced.app.close()


def test_a_request_and_all_that_follows_from_it_is_one_trace(url, tmp_path):
    with using(url) as app, receiving() as receiver:
        env = {**os.environ, **receiver.env, "OTEL_SERVICE_NAME": "web"}
        asked = subprocess.run(
            [sys.executable, str(TASKS), url], env=env, cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert asked.returncode == 0, asked.stderr
        again, dead = (app.job(job) for job in asked.stdout.split())
        words = ("--processes", "1", "--until-idle", "--lease", "1s")
        with WorkerProcess(TASKS, url, tmp_path, *words, env=receiver.env) as worker:
            assert worker.wait() == 0, worker.said
        assert receiver.tree() == sorted([
            ("submit second_time", "request"),
            ("wait second_time", "submit second_time"),
            ("run second_time 1", "submit second_time"),
            ("look 1", "run second_time 1"),
            ("run second_time 2", "submit second_time"),
            ("look 2", "run second_time 2"),
            ("submit dies_once", "request"),
            ("wait dies_once", "submit dies_once"),
            ("run dies_once 1", "submit dies_once"),
            ("run dies_once 2", "submit dies_once"),
            ("work", "run dies_once 2"),
        ])  # fmt: skip
        assert len({span.trace for span in receiver.spans}) == 1
        found = {receiver.name_of(span.id): span for span in receiver.spans}
        outcomes = {name: span.attributes["daybreak.outcome"] for name, span in found.items() if name[:3] == "run"}
        assert outcomes == {
            "run second_time 1": "failed", "run second_time 2": "completed",
            "run dies_once 1": "lost", "run dies_once 2": "completed",
        }  # fmt: skip
        assert {name for name, span in found.items() if span.status == ERROR} == {
            "run second_time 1",
            "run dies_once 1",
        }
        assert {span.service for span in receiver.spans} == {"web", "daybreak"}
        for job in (again, dead):
            info, wait = job.info(), found[f"wait {job.info().task}"]
            assert info.state is State.COMPLETED
            assert wait.attributes["daybreak.job"] == info.id
            assert wait.start == int(info.created_at.timestamp() * 1e6) * 1000
            first = next(event for event in job.history() if event.kind == "started")
            assert wait.end == int(first.at.timestamp() * 1e6) * 1000
        look, run = found["look 1"], found["run second_time 1"]
        assert run.start - 1_000_000_000 <= look.start <= look.end <= run.end + 1_000_000_000
        assert run.attributes["daybreak.worker"] == found["run dies_once 2"].attributes["daybreak.worker"]


IN_ONE_PROCESS = """
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from daybreak import Daybreak

exporter, provider, app = InMemorySpanExporter(), TracerProvider(), Daybreak("memory://")
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)

@app.task
def inner() -> None:
    pass

@app.task
def outer() -> None:
    with trace.get_tracer("user").start_as_current_span("mine"):
        inner.submit()

@app.task
async def beside() -> None:
    await inner.asubmit()

with trace.get_tracer("user").start_as_current_span("request"):
    outer.submit()
    beside.submit_many([{}, {}])
app.work()
spans = exporter.get_finished_spans()
names = {span.context.span_id: span.name for span in spans}
for line in sorted(f"{span.name} < {names[span.parent.span_id] if span.parent else ''}" for span in spans):
    print(line)
print(len({span.context.trace_id for span in spans}))
"""


def test_in_one_process_jobs_that_submit_jobs_are_one_trace(tmp_path):
    ran = subprocess.run(
        [sys.executable, "-c", IN_ONE_PROCESS], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines() == [
        "mine < run outer", "request < ",
        *["run beside < submit beside"] * 2, *["run inner < submit inner"] * 3, "run outer < submit outer",
        "submit beside < request", "submit inner < mine", *["submit inner < run beside"] * 2, "submit outer < request",
        *["wait beside < submit beside"] * 2, *["wait inner < submit inner"] * 3, "wait outer < submit outer",
        "1",
    ]  # fmt: skip


def test_the_attempt_of_a_killed_worker_has_its_span_too(tmp_path):
    url = f"sqlite:///{tmp_path}/jobs.db"
    with using(url), receiving() as receiver:
        job = worker_traced.waits.submit(f"{tmp_path}/began", f"{tmp_path}/released")
        with WorkerProcess(TASKS, url, tmp_path, "--lease", "1s", "--processes", "1", env=receiver.env) as worker:
            until((tmp_path / "began").exists, "the first attempt has begun")
        assert receiver.spans == []
        words = ("--processes", "1", "--until-idle", "--lease", "1s")
        with WorkerProcess(TASKS, url, tmp_path, *words, env=receiver.env) as worker:
            assert worker.wait() == 0, worker.said
        assert receiver.tree() == [
            ("run waits 1", "wait waits"),
            ("run waits 2", "wait waits"),
            ("wait waits", ""),
        ], "a job that was submitted without a span begins a trace of its own"
        outcomes = {receiver.name_of(span.id): span.attributes.get("daybreak.outcome") for span in receiver.spans}
        assert outcomes == {"wait waits": None, "run waits 1": "lost", "run waits 2": "completed"}
        assert job.info().attempt == 2


def test_jobs_run_while_nothing_can_be_exported(tmp_path):
    url = f"sqlite:///{tmp_path}/jobs.db"
    nobody = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}
    with using(url):
        job = worker_traced.second_time.submit()
        with WorkerProcess(TASKS, url, tmp_path, "--processes", "1", "--until-idle", env=nobody) as worker:
            assert worker.wait() == 0, worker.said
        assert job.info().state is State.COMPLETED


@pytest.mark.parametrize("env", [{}, {"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://x"}])
def test_without_traces_no_process_imports_opentelemetry(env, tmp_path):
    url = f"sqlite:///{tmp_path}/jobs.db"
    with using(url):
        job = worker_traced.modules.submit()
        with WorkerProcess(TASKS, url, tmp_path, "--processes", "1", "--until-idle", env=env) as worker:
            assert worker.wait() == 0, worker.said
        assert job.result() == []
        assert job.info().spec.trace is None


def test_an_exporter_that_is_not_installed_is_a_warning(tmp_path):
    url = f"sqlite:///{tmp_path}/jobs.db"
    with using(url):
        job = worker_traced.modules.submit()
        env = {"OTEL_TRACES_EXPORTER": "carrier-pigeon"}
        with WorkerProcess(TASKS, url, tmp_path, "--processes", "1", "--until-idle", env=env) as worker:
            assert worker.wait() == 0, worker.said
        assert "OpenTelemetry traces are off" in worker.said
        assert "no exporter 'carrier-pigeon' for traces is installed" in worker.said
        assert job.info().state is State.COMPLETED


def test_of_several_workers_one_exports_metrics_and_another_takes_over(tmp_path):
    url = f"sqlite:///{tmp_path}/jobs.db"
    words = ("--processes", "1", "--lease", "1s")
    with using(url) as app, receiving() as receiver:
        env = {**receiver.env, "OTEL_METRIC_EXPORT_INTERVAL": "100", "OTEL_TRACES_EXPORTER": "none"}
        with WorkerProcess(TASKS, url, tmp_path, *words, env={**env, "OTEL_SERVICE_NAME": "first"}) as first:
            until(lambda: "first" in receiver.services, "the first worker exports")
            with WorkerProcess(TASKS, url, tmp_path, *words, env={**env, "OTEL_SERVICE_NAME": "second"}) as second:
                second.wait_ready(app)
                seen = len(receiver.services)
                until(lambda: len(receiver.services) > seen + 5, "more was exported")
                assert set(receiver.services) == {"first"}
                worker_traced.modules.submit().result(timeout="60s")
                until(lambda: receiver.metrics.get("daybreak.jobs.completed"), "the job is counted")
                first.kill()
                until(lambda: "second" in receiver.services, "the second worker takes over")
                assert second.stop() == 0

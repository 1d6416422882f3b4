"""The example of simulation sweeps: every snippet of the original article, replayed through the layer that carries its
names; and what the tests of the original project promise, for this layer."""

from __future__ import annotations

import asyncio
import gc
import heapq
import inspect
import itertools
import logging
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
import uuid
import weakref
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest

from daybreak import BadInput, Daybreak, Priority, Retry
from daybreak.adapters.plecs import PlecsUnavailable
from daybreak.adapters.plecs.stand_in import Faults, StandIn
from daybreak.server import asgi

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "simulation_sweep"
sys.path.insert(0, str(EXAMPLE))

import orchestration as layer  # noqa: E402 - it stands beside its script, as a reader's own would
from orchestration import (  # noqa: E402
    BatchSimulationExecutor,
    PlecsServer,
    SimulationOrchestrator,
    SimulationRequest,
    SimulationResult,
    SimulationTask,
    TaskPriority,
    TaskStatus,
)
from orchestration.routes import routes  # noqa: E402

SECONDS = 30  # for anything that should take much less
QUICK = Retry(attempts=3, delay=timedelta(milliseconds=1), unknown="fail")
CRITICAL, HIGH, NORMAL, LOW = TaskPriority


class Server:
    """A simulator that answers as PLECS does, or as it is told to, and notes what it was asked."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.calls = []
        self.models = []

    def use_model(self, model):
        self.models.append(Path(model).name)

    def simulate_batch(self, parameter_list):
        self.calls.append([dict(parameters) for parameters in parameter_list])
        answer = self.answers.pop(0) if self.answers else None
        if isinstance(answer, Exception):
            raise answer
        if callable(answer):
            return answer(parameter_list)
        if answer is not None:
            return answer
        return [{"Time": [0.0, 1.0], "Values": [[0.0, p.get("Vi", 0.0)]]} for p in parameter_list]


class BlockedServer(Server):
    """A simulator that answers when it is let."""

    def __init__(self, *answers):
        super().__init__(*answers)
        self.started, self.may_end = threading.Event(), threading.Event()

    def simulate_batch(self, parameter_list):
        self.started.set()
        assert self.may_end.wait(SECONDS)
        return super().simulate_batch(parameter_list)


@pytest.fixture
def app():
    with Daybreak("memory://", by="ann") as app:
        yield app


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "buck.plecs"
    path.write_bytes((EXAMPLE / "buck.plecs").read_bytes())
    return path


@pytest.fixture
def orchestrator(app, tmp_path):
    return SimulationOrchestrator(app=app, models=tmp_path / "models", retry=QUICK)


@pytest.fixture
def make(app, tmp_path):
    return lambda server, **options: SimulationOrchestrator(
        server, **{"app": app, "models": tmp_path / "models", "retry": QUICK, **options}
    )


async def until(condition):
    async with asyncio.timeout(SECONDS):
        while not condition():  # noqa: ASYNC110 - of another thread
            await asyncio.sleep(0.01)


def request_of(model, **parameters):
    return SimulationRequest(str(model), parameters)


# -- the snippets of the article ---------------------------------------------------------------------------------------


def test_feature_1_the_four_levels_and_their_numbers_both_ways():
    assert [(level.name, level.value) for level in TaskPriority] == [
        ("CRITICAL", 0), ("HIGH", 1), ("NORMAL", 2), ("LOW", 3),
    ]  # fmt: skip
    found = [layer.priority_of(level) for level in range(4)]
    assert found == [Priority.CRITICAL, Priority.HIGH, Priority.NORMAL, Priority.LOW]
    assert layer.priority_of("low") is Priority.LOW
    assert [layer.task_priority(number).value for number in range(11)] == [0, 0, 1, 1, 2, 2, 2, 3, 3, 3, 3]
    for level in TaskPriority:
        assert layer.task_priority(layer.priority_of(level)) is level
    for wrong in (4, -1, True, "urgent", None, 1.0):
        with pytest.raises(BadInput, match="is no level"):
            layer.priority_of(wrong)


def test_feature_1_the_most_urgent_comes_first_and_equals_as_they_came(orchestrator, model):
    """The article's dataclass cannot be defined: a field without default after one with, and two kinds of order."""
    levels = [LOW, NORMAL, CRITICAL, NORMAL, LOW, HIGH, CRITICAL]
    ids = [orchestrator.submit(request_of(model, Vi=n), priority=level) for n, level in enumerate(levels)]
    tasks = []
    while (task := orchestrator.get_next_task()) is not None:
        tasks.append(task)
    assert [ids.index(task.task_id) for task in tasks] == [2, 6, 5, 1, 3, 0, 4]
    assert orchestrator.get_next_task() is None
    assert sorted({*tasks}) == tasks
    assert tasks[0] < tasks[1] < tasks[2]
    assert {task.status for task in tasks} == {TaskStatus.RUNNING}
    assert tasks[0].priority is CRITICAL


def test_feature_1_many_of_one_instant_keep_their_order(app, tmp_path, model):
    orchestrator = SimulationOrchestrator(app=app, models=tmp_path / "models")
    first = [orchestrator.submit(request_of(model, n=n)) for n in range(300)]
    taken = []
    while batch := orchestrator.get_next_batch(100):
        taken += [task.task_id for task in batch]
    assert taken == first


def test_real_world_scenario_an_urgent_one_starts_after_the_batch_that_runs(make, model):
    server = BlockedServer()
    orchestrator = make(server, batch_size=10)
    for n in range(60):
        orchestrator.submit(request_of(model, sim=n), LOW)
    with orchestrator:
        assert server.started.wait(SECONDS)
        urgent = orchestrator.submit(request_of(model, sim="urgent"), CRITICAL)
        server.may_end.set()
        assert asyncio.run(orchestrator.wait_for_completion(urgent, SECONDS)).status is TaskStatus.COMPLETED
    before = itertools.takewhile(lambda call: {"sim": "urgent"} not in call, server.calls)
    assert len(list(before)) == 1  # the one batch that ran when it came
    assert {"sim": "urgent"} in server.calls[1]


def test_feature_2_transient_errors_are_tried_again_with_delays_that_double(make, model, caplog):
    server = Server(ConnectionError("refused"), TimeoutError("late"))
    orchestrator = make(server)
    orchestrator.submit(request_of(model, Vi=24))
    task = orchestrator.get_next_task()
    caplog.set_level(logging.INFO)
    result = orchestrator.execute_task_with_retry(task, max_retries=3, base_delay=0.1)
    assert isinstance(result, SimulationResult)
    assert (result.success, len(server.calls)) == (True, 3)
    assert orchestrator.get_task(task.task_id).status is TaskStatus.COMPLETED
    told = [record.getMessage() for record in caplog.records]
    assert [text for text in told if "attempt 3/3" in text]
    delays = [text.rpartition("retrying in ")[2] for text in told if "retrying in" in text]
    assert delays == ["0.1 s", "0.2 s"]


def test_feature_2_max_retries_counts_attempts_and_the_last_error_is_named(make, model):
    server = Server(*[ConnectionError("refused")] * 9)
    orchestrator = make(server)
    orchestrator.submit(request_of(model))
    task = orchestrator.get_next_task()
    for wrong in (0, -1):  # in the article nothing ran, and the error was "Last error: None"
        with pytest.raises(BadInput, match="counts attempts"):
            orchestrator.execute_task_with_retry(task, max_retries=wrong)
    with pytest.raises(RuntimeError, match=r"failed after 3 attempts\. Last error: refused"):
        orchestrator.execute_task_with_retry(task, max_retries=3, base_delay=0.001)
    assert len(server.calls) == 3
    found = orchestrator.get_task(task.task_id)
    assert found.status is TaskStatus.FAILED
    assert "Last error: refused" in found.error


def test_feature_2_other_errors_are_raised_at_once(make, model):
    server = Server(ValueError("no such variable"))
    orchestrator = make(server)
    orchestrator.submit(request_of(model))
    task = orchestrator.get_next_task()
    with pytest.raises(ValueError, match="no such variable"):
        orchestrator.execute_task_with_retry(task)
    assert (len(server.calls), orchestrator.get_task(task.task_id).status) == (1, TaskStatus.FAILED)


def test_feature_2_a_busy_plecs_is_transient_too(make, model):
    """The story that the article begins with: PLECS answers a second command with a fault, which the article's list of
    transient errors does not have."""
    with StandIn(Faults(busy=2)) as stand_in:
        orchestrator = make(PlecsServer(port=stand_in.port))
        orchestrator.submit(request_of(model, Vi=24))
        result = orchestrator.execute_task_with_retry(orchestrator.get_next_task(), base_delay=0.01)
        assert (result.success, stand_in.refused, stand_in.simulations) == (True, 2, 1)


def test_feature_3_a_batch_is_of_one_model_and_within_one_level(orchestrator, model, tmp_path):
    other = tmp_path / "boost.plecs"
    other.write_bytes(model.read_bytes() + b"\n")
    plan = [("a", NORMAL), ("b", NORMAL), ("a", NORMAL), ("b", LOW), ("a", LOW), ("a", CRITICAL), ("a", HIGH)]
    files = {"a": model, "b": other}
    for number, (name, level) in enumerate(plan):
        orchestrator.submit(request_of(files[name], n=number), level)
    batches = []
    while batch := orchestrator.get_next_batch():
        assert len({task.request.model_file for task in batch}) == 1
        batches.append([task.request.parameters["n"] for task in batch])
    # Critical takes high, not normal. Of two models with normal ones, the older goes first, and past the other one.
    assert batches == [[5, 6], [0, 2, 4], [1, 3]]


def test_feature_3_a_batch_is_no_longer_than_asked(orchestrator, model):
    for n in range(10):
        orchestrator.submit(request_of(model, n=n))
    sizes = [len(orchestrator.get_next_batch(max_batch_size=4)) for _ in range(4)]
    assert sizes == [4, 4, 2, 0]
    with pytest.raises(BadInput, match="1 or more"):
        orchestrator.get_next_batch(0)


def test_a_task_that_was_taken_and_dropped_is_kept_by_nobody(orchestrator, model):
    orchestrator.submit(request_of(model))
    task = orchestrator.get_next_task()
    assert len(orchestrator._selection.held) == 1
    lease = weakref.ref(task.lease)
    del task
    deadline = time.monotonic() + 60
    while lease() is not None and time.monotonic() < deadline:  # a heartbeat may hold it for a moment
        gc.collect()
        time.sleep(0.01)
    assert (len(orchestrator._selection.held), lease()) == (0, None)  # so its lease ends, and it is queued again


def test_feature_3_the_executor_makes_one_call_and_keeps_the_order(orchestrator, model):
    server = Server()
    for volts in (12.0, 24.0, 48.0):
        orchestrator.submit(SimulationRequest(str(model), {"Vi": volts}, output_variables=["Vo"]))
    tasks = orchestrator.get_next_batch()
    results = BatchSimulationExecutor(server, batch_size=4).execute_batch(tasks)
    assert server.calls == [[{"Vi": 12.0}, {"Vi": 24.0}, {"Vi": 48.0}]]
    assert [result.timeseries_data["Vo"][-1] for result in results] == [12.0, 24.0, 48.0]
    assert [result.task_id for result in results] == [task.task_id for task in tasks]


def test_feature_3_tasks_that_are_made_by_hand_are_ordered_and_executed(model):
    """As the article makes them: with a level or its number, and a request of any class."""
    request = SimpleNamespace(model_file=str(model), parameters={"Vi": 3.0})
    tasks = [
        SimulationTask(priority=level, request=request, task_id=str(uuid.uuid4())) for level in (3, NORMAL, 0, LOW, 0)
    ]
    heap: list[SimulationTask] = []
    for task in tasks:
        heapq.heappush(heap, task)
    in_order = [tasks[2], tasks[4], tasks[1], tasks[0], tasks[3]]
    assert [heapq.heappop(heap) for _ in tasks] == in_order
    task = SimulationTask(request=request)
    assert (task.priority, task.status, task.progress, task.retry_count) == (NORMAL, TaskStatus.QUEUED, 0.0, 0)
    server = Server()
    results = BatchSimulationExecutor(server).execute_batch(tasks)
    assert server.calls == [[{"Vi": 3.0}] * 5]
    assert [result.task_id for result in results] == [task.task_id for task in tasks]
    assert all(result.success for result in results)
    with pytest.raises(BadInput, match="was not taken here"):
        task.taken()


def test_a_request_of_any_class_may_be_submitted(make, model):
    orchestrator = make(Server())
    task_id = orchestrator.submit(SimpleNamespace(model_file=str(model), parameters={"Vi": 3.0}))
    orchestrator.execute_task(orchestrator.get_next_task())
    assert orchestrator.get_task(task_id).result.timeseries_data["signal_0"] == [0.0, 3.0]


def test_what_replaces_a_simulation_may_return_any_plain_data(make, model, monkeypatch):
    orchestrator = make(Server())
    answers = [{"Vo": 5.0}, "a text", object()]
    monkeypatch.setattr(orchestrator, "_execute_simulation", lambda task: answers.pop(0))
    ids = [orchestrator.submit(request_of(model, n=n)) for n in range(3)]
    assert orchestrator.execute_task(orchestrator.get_next_task()) == {"Vo": 5.0}
    assert orchestrator.execute_task_with_retry(orchestrator.get_next_task()) == "a text"
    with pytest.raises(BadInput, match="object"):
        orchestrator.execute_task(orchestrator.get_next_task())
    assert [orchestrator.get_task(task_id).status for task_id in ids] == ["COMPLETED", "COMPLETED", "FAILED"]
    assert orchestrator.get_task(ids[0]).result.timeseries_data == {"Vo": 5.0}


def test_feature_3_by_the_parallel_api_of_the_stand_in(make, model):
    with StandIn() as stand_in:
        orchestrator = make(PlecsServer(port=stand_in.port))
        ids = [orchestrator.submit(request_of(model, Vi=volts)) for volts in (12, 24, 36, 48)]
        with orchestrator:
            tasks = [asyncio.run(orchestrator.wait_for_completion(one, SECONDS)) for one in ids]
        assert (stand_in.batches, stand_in.simulations) == (1, 4)
    volts = [task.result.timeseries_data["signal_0"][-1] for task in tasks]
    assert volts == pytest.approx([volts[0] * n for n in (1, 2, 3, 4)])


def test_feature_4_the_life_of_a_task(make, model):
    assert [status.value for status in TaskStatus] == ["QUEUED", "RUNNING", "COMPLETED", "FAILED", "CANCELLED"]
    orchestrator = make(Server())
    before = datetime.now(UTC)
    task_id = orchestrator.submit(request_of(model, Vi=1))
    queued = orchestrator.get_task(task_id)
    assert (queued.status, queued.progress, queued.started_at, queued.execution_time) == ("QUEUED", 0.0, None, None)
    assert before <= queued.submitted_at <= datetime.now(UTC)
    running = orchestrator.get_next_task()
    assert (running.status, running.retry_count, running.error) == (TaskStatus.RUNNING, 0, None)
    orchestrator.report_progress(task_id, 67.5)
    assert orchestrator.get_task(task_id).progress == 67.5
    orchestrator.execute_task(running)
    done = orchestrator.get_task(task_id)
    assert (done.status, done.progress, done.cache_hit) == (TaskStatus.COMPLETED, 100.0, False)
    assert done.submitted_at <= done.started_at <= done.completed_at
    assert done.execution_time == (done.completed_at - done.started_at).total_seconds()
    assert done.result.success
    assert orchestrator.get_task("nobody") is None
    assert orchestrator.report_progress("nobody", 50) is False
    with pytest.raises(BadInput, match="was not taken here"):
        orchestrator.execute_task(done)


def test_feature_4_all_five_events_are_told_at_once(make, app, model):
    """In the code of the article neither on_submit nor on_progress was ever told."""
    told = []
    orchestrator = make(Server(None, ValueError("no")))
    for event in ("on_submit", "on_start", "on_progress", "on_complete", "on_error"):
        orchestrator.register_callback(event, lambda *args, event=event: told.append((event, *args)))
    good = orchestrator.submit(request_of(model, Vi=1))
    task = orchestrator.get_next_task()
    orchestrator.report_progress(good, 67.5, "steady state")
    orchestrator.execute_task(task)
    bad = orchestrator.submit(request_of(model, Vi=2))
    with pytest.raises(ValueError, match="no"):
        orchestrator.execute_task(orchestrator.get_next_task())
    app.hooks.flush()
    assert [entry[:2] for entry in told] == [
        ("on_submit", good), ("on_start", good), ("on_progress", good), ("on_complete", good),
        ("on_submit", bad), ("on_start", bad), ("on_error", bad),
    ]  # fmt: skip
    assert told[2][2] == 67.5
    assert told[3][2].timeseries_data["Time"] == [0.0, 1.0]
    assert "no" in str(told[6][2])


def test_feature_4_a_callback_that_raises_is_logged_and_harms_nothing(make, app, model, caplog):
    heard = []
    orchestrator = make(Server())
    orchestrator.register_callback("on_complete", lambda *_: 1 / 0)
    orchestrator.register_callback("on_complete", lambda task_id, _: heard.append(task_id))
    task_id = orchestrator.submit(request_of(model))
    orchestrator.execute_task(orchestrator.get_next_task())
    app.hooks.flush()
    assert heard == [task_id]
    assert "a callback for on_complete failed" in caplog.text
    with pytest.raises(BadInput, match="the events are on_submit"):  # the article ignored it
        orchestrator.register_callback("on_finish", print)

    async def told(_task):
        """It would never be awaited."""

    with pytest.raises(BadInput, match="told for on_task_completed is async"):
        orchestrator.add_callback("on_task_completed", told)


async def test_feature_4_the_route_has_nine_fields_and_404_for_others(tmp_path, model):
    import httpx

    with Daybreak(str(tmp_path / "sims.db"), by="ann") as app:
        orchestrator = SimulationOrchestrator(Server(), app=app, models=tmp_path / "models")
        task_id = await asyncio.to_thread(orchestrator.submit, request_of(model, Vi=1))
        other = await app.queue("mail").aadd(1)
        web = asgi(app, routes=[routes])
        transport = httpx.ASGITransport(web)
        token = await _token(app)
        headers = {"Authorization": f"Bearer {token}"}
        async with httpx.AsyncClient(transport=transport, base_url="http://server", headers=headers) as http:
            queued = (await http.get(f"/api/tasks/{task_id}")).json()
            task = await asyncio.to_thread(orchestrator.get_next_task)
            assert await asyncio.to_thread(orchestrator.report_progress, task.task_id, 67.5)
            running = (await http.get(f"/api/tasks/{task_id}")).json()
            assert [(await http.get(f"/api/tasks/{one}")).status_code for one in ("abc123", other.id)] == [404, 404]
            assert (await http.get(f"/api/tasks/{task_id}", headers={"Authorization": "Bearer x"})).status_code == 401
    assert list(queued) == [
        "task_id", "status", "progress", "submitted_at", "started_at", "completed_at", "execution_time",
        "retry_count", "error",
    ]  # fmt: skip
    assert (queued["status"], queued["progress"], queued["started_at"]) == ("QUEUED", 0.0, None)
    assert (running["status"], running["progress"], running["execution_time"]) == ("RUNNING", 67.5, None)
    assert datetime.fromisoformat(running["submitted_at"]) <= datetime.fromisoformat(running["started_at"])


def test_the_server_of_the_example_starts_as_its_readme_says(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = [sys.executable, str(EXAMPLE / "serve.py"), "--url", str(tmp_path / "sims.db"), "--port", str(port)]
    with subprocess.Popen(words, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as server:
        try:
            assert f"127.0.0.1:{port}" in server.stderr.readline()
            with pytest.raises(urllib.error.HTTPError) as caught:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/api/tasks/abc123", timeout=SECONDS)
            with caught.value as answer:
                assert answer.code == 404
                assert "no task abc123" in answer.read().decode()
        finally:
            server.terminate()


async def _token(app):
    from daybreak.server.access.tokens import create_token

    client = await app.client()
    return (await create_token(client.store, "test", ["read"], now=datetime.now(UTC)))[1]


# -- what the original project's tests promise -------------------------------------------------------------------------


def test_executor_initialization():
    server = Server()
    executor = BatchSimulationExecutor(server, batch_size=8)
    assert (executor.server, executor.batch_size) == (server, 8)
    assert executor.stats == {"batches_executed": 0, "total_simulations": 0, "total_runtime": 0.0}


def test_execute_empty_batch():
    server = Server()
    assert BatchSimulationExecutor(server).execute_batch([]) == []
    assert server.calls == []


def test_batch_statistics_updated(orchestrator, model):
    for n in range(3):
        orchestrator.submit(request_of(model, n=n))
    executor = BatchSimulationExecutor(Server())
    executor.execute_batch(orchestrator.get_next_batch())
    assert (executor.stats["batches_executed"], executor.stats["total_simulations"]) == (1, 3)
    assert executor.stats["total_runtime"] > 0


def test_a_batch_of_two_models_is_two_calls_with_results_in_the_order_of_the_tasks(orchestrator, model, tmp_path):
    other = tmp_path / "boost.plecs"
    other.write_bytes(model.read_bytes())
    for n, path in enumerate((model, other, model, other)):
        orchestrator.submit(request_of(path, Vi=n))
    tasks = sorted([*orchestrator.get_next_batch(), *orchestrator.get_next_batch()])
    server = Server()
    results = BatchSimulationExecutor(server).execute_batch(tasks)
    assert server.calls == [[{"Vi": 0}, {"Vi": 2}], [{"Vi": 1}, {"Vi": 3}]]
    assert [name.partition("_")[0] for name in server.models] == ["buck", "boost"]
    assert [result.timeseries_data["signal_0"][-1] for result in results] == [0, 1, 2, 3]


async def test_orchestrator_batches_tasks(make, model):
    server = Server()
    orchestrator = make(server, batch_size=4)
    for n in range(10):
        await asyncio.to_thread(orchestrator.submit, request_of(model, n=n))
    async with orchestrator:
        assert await orchestrator.wait_for_all_tasks(timeout=SECONDS)
    assert [len(call) for call in server.calls] == [4, 4, 2]
    assert [p["n"] for call in server.calls for p in call] == list(range(10))


async def test_submit_simulation_starts_the_dispatcher_and_what_comes_together_shares_batches(make, model):
    """The code of PyPLECS calls no `start`."""
    server = Server()
    orchestrator = make(server)
    ids = await asyncio.gather(
        *(orchestrator.submit_simulation(request_of(model, n=n), level) for n, level in enumerate((HIGH, CRITICAL)))
    )
    for task_id in ids:
        assert (await orchestrator.wait_for_completion(task_id, SECONDS)).status is TaskStatus.COMPLETED
    await orchestrator.stop()
    assert sorted(p["n"] for call in server.calls for p in call) == [0, 1]


def test_a_program_that_never_calls_stop_ends_with_the_batch_that_runs(tmp_path, model):
    server = BlockedServer()

    def end_the_batch_once_the_app_closes():
        while not orchestrator._dispatcher._is_stopping:
            time.sleep(0.01)
        server.may_end.set()

    with Daybreak(str(tmp_path / "sims.db")) as app:
        orchestrator = SimulationOrchestrator(server, app=app, models=tmp_path / "models")
        ids = [orchestrator.submit(request_of(model, n=n)) for n in range(5)]
        asyncio.run(orchestrator.start())
        assert server.started.wait(SECONDS)
        threading.Thread(target=end_the_batch_once_the_app_closes, daemon=True).start()
    with Daybreak(str(tmp_path / "sims.db")) as app:
        found = SimulationOrchestrator(app=app)
        statuses = [found.get_task(task_id).status for task_id in ids]
    assert statuses == [TaskStatus.COMPLETED] * 4 + [TaskStatus.QUEUED]
    assert len(server.calls) == 1


async def test_wait_for_completion_is_none_after_its_timeout_and_for_what_is_no_simulation(orchestrator, app, model):
    task_id = await orchestrator.submit_simulation(request_of(model))
    assert await orchestrator.wait_for_completion(task_id, 0.01) is None
    assert await orchestrator.wait_for_completion("nobody") is None
    assert await orchestrator.wait_for_completion((await app.queue("mail").aadd(1)).id) is None


async def test_cache_avoids_redundant_simulations(make, model):
    server, completed = Server(), []
    orchestrator = make(server, batch_size=1)
    orchestrator.add_callback("on_task_completed", completed.append)
    async with orchestrator:
        first = await orchestrator.submit_simulation(request_of(model, Vi=24.0))
        one = await orchestrator.wait_for_completion(first, SECONDS)
        second = await orchestrator.submit_simulation(request_of(model, Vi=24.0))
        two = await orchestrator.wait_for_completion(second, SECONDS)
        assert len(server.calls) == 1
        assert (one.cache_hit, two.cache_hit, two.result.cached) == (False, True, True)
        assert two.result.timeseries_data == one.result.timeseries_data
        assert first != second
        for again in (
            orchestrator.submit_simulation(request_of(model, Vi=24.0), use_cache=False),
            orchestrator.submit_simulation(request_of(model, Vi=12.0)),
            orchestrator.submit_simulation(SimulationRequest(str(model), {"Vi": 24.0}, output_variables=["Vo"])),
        ):
            await orchestrator.wait_for_completion(await again, SECONDS)
        assert len(server.calls) == 4
        model.write_bytes(model.read_bytes().replace(b"Vi = 24", b"Vi = 25"))  # another content, another result
        await orchestrator.wait_for_completion(await orchestrator.submit_simulation(request_of(model, Vi=24.0)), 30)
        assert len(server.calls) == 5
    orchestrator.app.hooks.flush()
    assert len(completed) == 6
    stats = orchestrator.get_orchestrator_stats()
    assert (stats["total_submitted"], stats["total_completed"], stats["total_cached_hits"]) == (6, 6, 1)


async def test_the_cache_methods_of_the_code(make, model):
    server = Server()
    orchestrator = make(server, batch_size=4)
    cache = orchestrator.cache
    request = SimulationRequest(str(model), {"Vi": 24.0, "run_id": "a"}, metadata={"label": "tuesday"})
    async with orchestrator:
        first = await orchestrator.submit_simulation(request)
        done = await orchestrator.wait_for_completion(first, SECONDS)
        found = await asyncio.to_thread(cache.get_cached_result, request)
        assert (found.cached, found.timeseries_data) == (True, done.result.timeseries_data)
        assert await asyncio.to_thread(cache.get_cached_result, str(model), {"Vi": 24.0}) == found
        other = SimulationRequest(str(model), {"Vi": 24.0, "run_id": "b"}, metadata={"label": "friday"})
        again = await orchestrator.get_task_status(await orchestrator.submit_simulation(other))
        assert (again.status, again.cache_hit, again.retry_count) == (TaskStatus.COMPLETED, True, 0)
        assert (done.result.metadata, again.result.metadata) == ({"label": "tuesday"}, {"label": "friday"})
        named = SimulationRequest(str(model), {"Vi": 24.0}, output_variables=["Vo"])
        asked = await orchestrator.wait_for_completion(await orchestrator.submit_simulation(named), SECONDS)
        assert not asked.cache_hit
        stats = await asyncio.to_thread(cache.get_cache_stats)
        assert (stats["total_entries"], stats["hits"], stats["misses"], stats["hit_rate"]) == (2, 1, 2, 1 / 3)
        assert await asyncio.to_thread(cache.invalidate_cache, str(model), {"Vi": 24.0})
        assert await asyncio.to_thread(cache.get_cached_result, request) is None
        anew = await orchestrator.wait_for_completion(await orchestrator.submit_simulation(request), SECONDS)
        assert not anew.cache_hit
        assert await asyncio.to_thread(cache.clear_cache) == 2
    assert len(server.calls) == 3


def test_the_cache_keeps_results_that_were_computed_elsewhere(make, model, tmp_path):
    server = Server()
    orchestrator = make(server)
    cache = orchestrator.cache
    key = cache.cache_result(str(model), {"Vi": 1.0}, {"Time": [0.0], "Vo": [7.0]}, {"label": "lab"})
    assert key == cache.compute_hash(model, {"Vi": 1.0}) != cache.compute_hash(model, {"Vi": 2.0})
    other = tmp_path / "renamed.plecs"
    other.write_bytes(model.read_bytes())  # a name is no content
    task = orchestrator.get_task(orchestrator.submit(request_of(other, Vi=1.0)))
    assert (task.status, task.cache_hit) == (TaskStatus.COMPLETED, True)
    assert task.result.timeseries_data == {"Time": [0.0], "Vo": [7.0]}
    assert cache.cache_result(str(model), {"Vi": 1.0}, {"Time": [0.0], "Vo": [8.0]}) == key
    assert cache.get_cached_result(model, {"Vi": 1.0}).timeseries_data["Vo"] == [8.0]
    assert [task.task_id for task in orchestrator.list_tasks()] == [task.task_id]
    server.engine = lambda: None
    orchestrator.set_plecs_server(server)
    assert cache.cache_result(str(model), {"Vi": 1.0}, {}) == ""
    assert cache.get_cached_result(model, {"Vi": 1.0}) is None
    assert not cache.invalidate_cache(model, {"Vi": 1.0})


async def test_equal_tasks_in_flight_run_once(make, model):
    server = Server()
    orchestrator = make(server, batch_size=4)
    ids = [await orchestrator.submit_simulation(request_of(model, Vi=24.0)) for _ in range(20)]
    async with orchestrator:
        assert await orchestrator.wait_for_all_tasks(SECONDS)
    tasks = [await orchestrator.get_task_status(task_id) for task_id in ids]
    assert [task.cache_hit for task in tasks] == [False] + [True] * 19
    assert [len(call) for call in server.calls] == [1]


async def test_nothing_is_cached_while_the_version_of_plecs_is_unknown(make, model):
    server = Server()
    server.engine = lambda: None
    orchestrator = make(server, batch_size=1)
    async with orchestrator:
        for _ in range(2):
            task_id = await orchestrator.submit_simulation(request_of(model, Vi=24.0))
            assert not (await orchestrator.wait_for_completion(task_id, SECONDS)).cache_hit
    assert len(server.calls) == 2


async def test_priority_queue_ordering(make, model):
    server = Server()
    orchestrator = make(server, batch_size=1)
    for number, level in enumerate((LOW, CRITICAL, NORMAL, HIGH)):
        await asyncio.to_thread(orchestrator.submit, request_of(model, n=number), priority=level)
    async with orchestrator:
        assert await orchestrator.wait_for_all_tasks(SECONDS)
    assert [call[0]["n"] for call in server.calls] == [1, 3, 2, 0]


async def test_orchestrator_statistics(make, model):
    server = Server(None, ValueError("no"))
    orchestrator = make(server, batch_size=2)
    assert orchestrator.get_orchestrator_stats()["total_submitted"] == 0
    assert make(server, batch_size=None).get_orchestrator_stats()["executor"]["batch_size"] == 4
    for n in range(4):
        await asyncio.to_thread(orchestrator.submit, request_of(model, n=n))
    stats = orchestrator.get_orchestrator_stats()
    assert (stats["total_submitted"], stats["queue_size"], stats["active_tasks"]) == (4, 4, 0)
    async with orchestrator:
        await orchestrator.wait_for_all_tasks(SECONDS)
    stats = orchestrator.get_orchestrator_stats()
    assert set(stats) >= {
        "total_submitted", "total_completed", "total_failed", "total_cached_hits", "total_batches", "queue_size",
        "active_tasks", "executor", "cache_stats",
    }  # fmt: skip
    assert (stats["total_completed"], stats["total_failed"], stats["queue_size"]) == (2, 2, 0)
    assert set(stats["executor"]) >= {"batch_size", "batches_executed", "total_simulations", "total_runtime"}
    assert stats["executor"]["is_processing"] is False


async def test_failed_attempt_is_retried_then_completed(make, model):
    server = Server(PlecsUnavailable("refused"))
    orchestrator = make(server, batch_size=1)
    async with orchestrator:
        task_id = await orchestrator.submit_simulation(request_of(model))
        task = await orchestrator.wait_for_completion(task_id, SECONDS)
    assert (task.status, task.retry_count, len(server.calls)) == (TaskStatus.COMPLETED, 1, 2)


async def test_the_dispatcher_does_not_wait_for_a_task_that_failed(make, model):
    """In the original a failed batch slept for each of its tasks, while an urgent one waited."""
    server = Server(ConnectionError("refused"))
    orchestrator = make(server, retry=Retry(attempts=3, delay=timedelta(hours=1), cap=timedelta(hours=1)))
    async with orchestrator:
        slow = [await orchestrator.submit_simulation(request_of(model, n=n), LOW) for n in range(4)]
        await until(lambda: server.calls and not orchestrator.get_orchestrator_stats()["active_tasks"])
        urgent = await orchestrator.submit_simulation(request_of(model, n=99), CRITICAL)
        assert (await orchestrator.wait_for_completion(urgent, SECONDS)).status is TaskStatus.COMPLETED
        waiting = [await orchestrator.get_task_status(one) for one in slow]
    assert {task.status for task in waiting} <= {TaskStatus.QUEUED, TaskStatus.COMPLETED}
    assert any("refused" in (task.error or "") for task in waiting)


async def test_one_error_string_of_a_batch_fails_that_task_alone(make, model):
    good = {"Time": [0.0], "Values": [[1.0]]}
    server = Server([good, good, "buck/Divide: Division by zero", good])
    orchestrator = make(server)
    ids = [await asyncio.to_thread(orchestrator.submit, request_of(model, n=n)) for n in range(4)]
    async with orchestrator:
        assert await orchestrator.wait_for_all_tasks(SECONDS)
    tasks = [await orchestrator.get_task_status(one) for one in ids]
    assert [task.status.value for task in tasks] == ["COMPLETED", "COMPLETED", "FAILED", "COMPLETED"]
    assert "Division by zero" in tasks[2].error
    assert (tasks[2].result.success, len(server.calls)) == (False, 1)


async def test_a_lost_call_is_retried_for_each_task_alone(make, model):
    """One of them may have brought PLECS down: it must not take the others with it again."""

    def poisoned(parameter_list):
        if any(p["n"] == 2 for p in parameter_list):
            raise ConnectionResetError("PLECS crashed")
        return [{"Time": [0.0], "Values": [[1.0]]} for _ in parameter_list]

    server = Server(*[poisoned] * 50)
    orchestrator = make(server)
    ids = [await asyncio.to_thread(orchestrator.submit, request_of(model, n=n)) for n in range(4)]
    async with orchestrator:
        assert await orchestrator.wait_for_all_tasks(SECONDS)
    tasks = [await orchestrator.get_task_status(one) for one in ids]
    assert [task.status.value for task in tasks] == ["COMPLETED", "COMPLETED", "FAILED", "COMPLETED"]
    assert "PLECS crashed" in tasks[2].error
    assert [task.retry_count for task in tasks] == [1, 1, 2, 1]


async def test_a_cancelled_task_never_runs(make, model):
    server = Server()
    orchestrator = make(server)
    task_id = await asyncio.to_thread(orchestrator.submit, request_of(model))
    assert await orchestrator.cancel_task(task_id) is True
    other = await asyncio.to_thread(orchestrator.submit, request_of(model, n=1))
    async with orchestrator:
        await orchestrator.wait_for_completion(other, SECONDS)
    assert server.calls == [[{"n": 1}]]
    assert (await orchestrator.get_task_status(task_id)).status is TaskStatus.CANCELLED
    assert await orchestrator.cancel_task(task_id) is False
    assert orchestrator.cancel("nobody") is False


async def test_running_task_can_be_cancelled_and_stays_so(make, model):
    server = BlockedServer()
    orchestrator = make(server)
    async with orchestrator:
        task_id = await orchestrator.submit_simulation(request_of(model))
        assert await asyncio.to_thread(server.started.wait, SECONDS)
        assert await orchestrator.cancel_task(task_id) is True
        task = await orchestrator.wait_for_completion(task_id, SECONDS)
        assert (task.status, task.result.success) == (TaskStatus.CANCELLED, False)
        assert "cancelled" in task.result.error_message
        assert await orchestrator.cancel_task(task_id) is False
        server.may_end.set()
    assert (await orchestrator.get_task_status(task_id)).status is TaskStatus.CANCELLED


async def test_all_complete_requires_terminal_truth_not_queue_emptiness(make, model):
    server = BlockedServer()
    orchestrator = make(server)
    async with orchestrator:
        await orchestrator.submit_simulation(request_of(model))
        assert await asyncio.to_thread(server.started.wait, SECONDS)
        stats = orchestrator.get_orchestrator_stats()
        assert (stats["queue_size"], stats["active_tasks"], stats["executor"]["is_processing"]) == (0, 1, True)
        assert await orchestrator.wait_for_all_tasks(timeout=0.05) is False
        server.may_end.set()
        assert await orchestrator.wait_for_all_tasks(timeout=SECONDS) is True


async def test_without_a_server_nothing_is_lost(make, orchestrator, model):
    """In the original such tasks were taken and dropped, and stayed QUEUED for ever."""
    task_id = await orchestrator.submit_simulation(request_of(model))
    with pytest.raises(BadInput, match="no PLECS server"):
        await orchestrator.start()
    assert await orchestrator.wait_for_all_tasks(timeout=0.05) is False
    executor = {
        "batch_size": 4,
        "batches_executed": 0,
        "total_simulations": 0,
        "total_runtime": 0,
        "is_processing": False,
    }
    assert orchestrator.get_orchestrator_stats()["executor"] == executor
    orchestrator.set_plecs_server(Server())
    async with orchestrator:
        assert (await orchestrator.wait_for_completion(task_id, SECONDS)).status is TaskStatus.COMPLETED


async def test_events_of_the_code_and_removed_callbacks(make, app, model):
    told = []
    orchestrator = make(Server(None, ["bad model"]))
    for event in (
        "on_task_started", "on_task_completed", "on_task_failed", "on_batch_started", "on_batch_completed",
        "on_queue_empty",
    ):  # fmt: skip
        orchestrator.add_callback(event, lambda *_, event=event: told.append(event))
    removed = lambda *_: told.append("removed")  # noqa: E731
    orchestrator.add_callback("on_task_started", removed)
    orchestrator.remove_callback("on_task_started", removed)
    async with orchestrator:
        for n in range(2):
            await orchestrator.wait_for_completion(await orchestrator.submit_simulation(request_of(model, n=n)), 30)
        await until(lambda: "on_queue_empty" in told)
    app.hooks.flush()
    assert {event: told.count(event) for event in told if event != "on_queue_empty"} == {
        "on_task_started": 2, "on_task_completed": 1, "on_task_failed": 1, "on_batch_started": 2,
        "on_batch_completed": 2,
    }  # fmt: skip


def test_requests_name_a_file_that_is_there(tmp_path, model):
    with pytest.raises(FileNotFoundError, match="no model file"):
        SimulationRequest(str(tmp_path / "none.plecs"))
    request = SimulationRequest(os.path.relpath(model))
    assert request.model_file == str(model.resolve())
    assert (request.parameters, request.simulation_time, request.output_variables) == ({}, None, [])


def test_plecs_server_is_a_context_manager_that_closes_its_model(model):
    with StandIn() as stand_in:
        with PlecsServer(str(model), port=str(stand_in.port)) as server:
            assert server.is_available()
            assert "not PLECS" in server.health_check()["version"]
            assert len(stand_in.models) == 1
            assert server.simulate().final  # without options
            assert len(server.simulate_batch([{"Vi": 1}, {"Vi": 2}])) == 2
            server.set_value("source", "Vi", 12)
        assert stand_in.models == {}
        server.close()
        with pytest.raises(BadInput, match="no model is loaded"):
            server.simulate()
    assert PlecsServer(port=1).health_check()["available"] is False


async def test_the_model_that_was_submitted_is_simulated_whatever_becomes_of_its_file(make, model):
    """The article's fourth failure. Size and time of the file stay the same, so only its content tells."""
    with StandIn() as stand_in:
        orchestrator = make(PlecsServer(port=stand_in.port), batch_size=2)
        ids = [await asyncio.to_thread(orchestrator.submit, request_of(model, n=n), use_cache=False) for n in range(6)]
        stat, content = model.stat(), model.read_bytes()
        model.write_bytes(content.replace(b"Vi = 24", b"Vi = 48"))
        os.utime(model, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        assert (model.stat().st_size, model.stat().st_mtime_ns) == (stat.st_size, stat.st_mtime_ns)
        new = await asyncio.to_thread(orchestrator.submit, request_of(model, n=99))
        model.unlink()
        async with orchestrator:
            assert await orchestrator.wait_for_all_tasks(SECONDS)
        volts = [
            (await orchestrator.get_task_status(one)).result.timeseries_data["signal_0"][-1] for one in [*ids, new]
        ]
    assert len(set(volts[:6])) == 1
    assert volts[6] == pytest.approx(2 * volts[0])


async def test_calls_that_fail_at_random_fail_no_task_and_lose_none(make, model):
    with StandIn(Faults(fail_share=0.25, seed=1)) as stand_in:
        retry = Retry(attempts=20, delay=timedelta(milliseconds=1), unknown="fail")
        orchestrator = make(PlecsServer(port=stand_in.port), batch_size=2, retry=retry)
        ids = [
            await asyncio.to_thread(orchestrator.submit, request_of(model, Vi=n), use_cache=False) for n in range(40)
        ]
        async with orchestrator:
            assert await orchestrator.wait_for_all_tasks(SECONDS)
        tasks = [await orchestrator.get_task_status(one) for one in ids]
        assert stand_in.faults.injected > 0
    assert {task.status for task in tasks} == {TaskStatus.COMPLETED}
    assert any(task.retry_count for task in tasks)


async def test_tasks_and_results_survive_the_process(tmp_path, model):
    path = str(tmp_path / "sims.db")
    with Daybreak(path) as app:
        orchestrator = SimulationOrchestrator(Server(), 1, app=app, models=tmp_path / "models", retry=QUICK)
        done = await asyncio.to_thread(orchestrator.submit, request_of(model, Vi=7))
        async with orchestrator:
            await orchestrator.wait_for_completion(done, SECONDS)
        waiting = await asyncio.to_thread(orchestrator.submit, request_of(model, Vi=8), HIGH)
    with Daybreak(path) as app:
        server = Server()
        orchestrator = SimulationOrchestrator(server, app=app, models=tmp_path / "models")
        assert orchestrator.get_task(done).result.timeseries_data["signal_0"][-1] == 7
        assert orchestrator.get_task(waiting).priority is HIGH
        assert [task.task_id for task in orchestrator.list_tasks()] == [waiting, done]
        async with orchestrator:
            await orchestrator.wait_for_completion(waiting, SECONDS)
        assert server.calls == [[{"Vi": 8}]]


async def test_the_measurement_of_backoff_sees_refusals_and_none_where_jobs_take_turns():
    import compare_backoff

    named = {name: (retry, turns) for name, retry, turns in compare_backoff.strategies(timedelta(milliseconds=20), 8)}
    retry, takes_turns = named["one-slot resource"]
    found = await compare_backoff.measure(5, 0.01, retry, takes_turns=takes_turns)
    assert (found.refused_at_first, found.calls) == (0, 5)
    retry, takes_turns = named["jittered 50 %"]
    found = await compare_backoff.measure(5, 0.3, retry, takes_turns=takes_turns)
    assert found.refused_at_first > 0
    assert found.calls > 5


def test_the_layer_has_every_name_of_the_article_and_its_code():
    names = {
        "submit", "get_next_task", "execute_task_with_retry", "execute_task", "register_callback", "get_task",
        "get_next_batch", "cancel", "submit_simulation", "add_callback", "remove_callback", "get_task_status",
        "cancel_task", "start", "stop", "get_orchestrator_stats", "wait_for_completion", "wait_for_all_tasks",
        "set_plecs_server",
    }  # fmt: skip
    assert names <= set(dir(SimulationOrchestrator))
    is_async = {name for name in names if inspect.iscoroutinefunction(getattr(SimulationOrchestrator, name))}
    assert is_async == {
        "submit_simulation", "get_task_status", "cancel_task", "start", "stop", "wait_for_completion",
        "wait_for_all_tasks",
    }  # fmt: skip
    assert set(layer.__all__) >= {
        "TaskPriority", "TaskStatus", "SimulationTask", "SimulationRequest", "SimulationOrchestrator",
        "BatchSimulationExecutor", "SimulationResult", "PlecsServer",
    }  # fmt: skip

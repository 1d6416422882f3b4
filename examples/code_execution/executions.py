"""Code of users, run in pods: the tasks, the saga, and what connects them with the broker.

    daybreak worker executions.py          runs the tasks, drives the sagas, reads and writes the broker
    python serve.py                        the routes
    python pod_worker.py                   runs the pods

STORE, BROKER and ALLOCATIONS say where they meet."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
from pathlib import Path
from typing import Any, Final

from execution_queue import sandbox
from execution_queue.allocations import Allocations
from execution_queue.broker import OutputIntake, Publisher
from execution_queue.events import (
    COMMANDS,
    EVENTS,
    MAX_SCRIPT,
    OUTCOMES,
    REQUESTED,
    RUNS,
    CreatePodCommandEvent,
    DeletePodCommandEvent,
    message_of,
    read_outcome,
    read_request,
)
from execution_queue.policies import POD_RETRY
from execution_queue.service import CANCELLED, EXECUTIONS, ExecutionTimedOut, PodFailed, end_execution, name_of
from execution_queue.settings import DEFAULT_MAX_CONCURRENT, MAX_QUEUE_SIZE

from daybreak import Context, Daybreak, Event, Permanent, Saga
from daybreak.client.saga_record import read_saga
from daybreak.core.errors import Refused
from daybreak.core.model import State
from daybreak.store.protocol import SAGA_MARK_KIND

BROKER: Final = os.environ.get("BROKER", "nats://localhost:4222")
STEPS: Final = "execution-steps"
LANGUAGES: Final = frozenset(sandbox.LANGUAGES)
LONGEST: Final = 300.0  # seconds that code may run
MEMORY_MB: Final = 128
ALLOWANCE: Final = float(os.environ.get("POD_ALLOWANCE", "60"))  # seconds beside those of the code: broker, start

Saved = dict[str, Any]  # the context of a saga
Report = dict[str, Any]  # what a pod reported

app = Daybreak(os.environ.get("STORE"), name="code-execution")
allocations = Allocations(Path(os.environ.get("ALLOCATIONS", "allocations.db")), memory_mb=64 * 1024)
# A broker that is away costs no attempt of `create_pod` at first: three such waits fit into the deadline of `execute`.
publisher = Publisher(BROKER, patience=3 * ALLOWANCE)


# -- an execution ------------------------------------------------------------------------------------------------------


@app.task(queue=EXECUTIONS, retry=2, keep="30d")
async def execute(ctx: Context, script: str, language: str = "python", timeout_seconds: float = 10.0) -> Report | None:
    """One execution. It holds one of the slots from here to the end of its saga, but no worker: the last step of the
    saga, or the last compensation, finishes it."""
    saga_id = f"{ctx.job}.{ctx.fence}"
    context = {
        "saga_id": saga_id, "execution_id": await name_of(app, ctx.job), "job": ctx.job, "fence": ctx.fence,
        "script": script, "language": language, "timeout_seconds": timeout_seconds, "user_id": ctx.owner or "",
        "priority": ctx.priority,
    }  # fmt: skip
    await saga(ctx.priority).astart(context, id=saga_id)
    # What is out of these bounds is refused by the first step of the saga, with a reason.
    pods = POD_RETRY.attempts * (min(max(timeout_seconds, 0.0), LONGEST) + ALLOWANCE)
    return ctx.detach(deadline=f"{pods + 10 * ALLOWANCE:g}s")


# -- the saga ----------------------------------------------------------------------------------------------------------


@app.task(queue=STEPS)
async def validate_execution(context: Saved) -> None:
    """Refuse what no pod can run, before anything is allocated for it."""
    problem = problem_of(context)
    if problem:
        await end_execution(app, context["job"], context["fence"], Permanent(problem))
        raise Permanent(problem)


def problem_of(context: Saved) -> str:
    """What is wrong with an execution; empty if nothing is."""
    script, seconds = context["script"], context["timeout_seconds"]
    if context["language"] not in LANGUAGES:
        return f"language {context['language']!r:.40}: write {', '.join(sorted(LANGUAGES))}"
    if not script.strip():
        return "the script is empty"
    if len(script.encode("utf-8", "surrogatepass")) > MAX_SCRIPT:
        return f"the script has more than {MAX_SCRIPT:,} bytes"
    if "\0" in script:
        return "the script contains a NUL character"
    if not 0 < seconds <= LONGEST:
        return f"timeout_seconds {seconds:g}: write a number above 0 and up to {LONGEST:g}"
    return ""


@app.task(queue=STEPS)
async def fail_execution(context: Saved) -> None:
    """Undo of the first step, so the last compensation: the slot is free after this."""
    found = await app.find_saga(context["saga_id"]).ainfo()
    outcome = CANCELLED if found.cancelled_by is not None else PodFailed(found.error)
    await end_execution(app, context["job"], context["fence"], outcome)


@app.task(queue=STEPS, retry=20)
def allocate_resources(context: Saved) -> Saved:
    allocations.allocate(context["saga_id"], MEMORY_MB)
    return {"memory_mb": MEMORY_MB}


@app.task(queue=STEPS)
def release_resources(context: Saved) -> None:
    allocations.release(context["saga_id"])


@app.task(queue=STEPS)
def reserve_pod(context: Saved) -> Saved:
    """Name the pod. Its undo deletes the pod: a step that fails is not undone, and a pod may run although nobody heard
    of it, so what deletes it must stand before the step that creates it."""
    return {"pod": f"executor-{context['saga_id']}"}


@app.task(queue=STEPS, retry=5)
async def delete_pod(context: Saved) -> None:
    saga_id = context["saga_id"]
    command = DeletePodCommandEvent(execution_id=context["execution_id"], saga_id=saga_id, reason="compensation")
    await publisher.publish(COMMANDS, message_of(command, f"{saga_id}.delete"))


@app.task(queue=STEPS, retry=POD_RETRY)
async def create_pod(ctx: Context, context: Saved) -> Report:
    """Ask for a pod, and leave. The outcome of the pod ends this job, by its fence: that of an earlier attempt is
    refused."""
    command = CreatePodCommandEvent(
        execution_id=context["execution_id"], saga_id=context["saga_id"], execution_job=context["job"],
        run=context["fence"] * RUNS + min(ctx.attempt, RUNS - 1), job=ctx.job, fence=ctx.fence,
        script=context["script"], language=context["language"], timeout_seconds=context["timeout_seconds"],
        memory_mb=context["memory_mb"], user_id=context["user_id"], priority=str(context["priority"]),
    )  # fmt: skip
    await publisher.publish(COMMANDS, message_of(command, f"{ctx.job}.{ctx.fence}"))
    return ctx.detach(deadline=f"{context['timeout_seconds'] + ALLOWANCE:g}s")


@app.task(queue=STEPS, retry=20)
async def complete_execution(context: Saved) -> None:
    """The pod has run to its end, whether the code succeeded or not: nothing is undone, all is released."""
    allocations.release(context["saga_id"])
    await end_execution(app, context["job"], context["fence"], outcome_of(context["outcome"]))


def outcome_of(report: Report) -> Report | Exception:
    """How an execution ends whose pod has run to its end."""
    if report["status"] == "completed":
        return report
    kind = ExecutionTimedOut if report["status"] == "timeout" else Permanent
    return kind(report["error"])


@functools.cache
def saga(priority: int) -> Saga:
    """The saga of executions of one priority."""
    of = {"priority": priority}
    return (
        Saga("execute", app=app)
        .step(validate_execution.using(**of), undo=fail_execution.using(**of))
        .step(allocate_resources.using(**of), undo=release_resources.using(**of))
        .step(reserve_pod.using(**of), undo=delete_pod.using(**of))
        .step(create_pod.using(**of))
        .step(complete_execution.using(**of))
    )


# -- what else ends ----------------------------------------------------------------------------------------------------


@app.on("cancelled", "failed", "expired", "retrying", "released", "lease_expired", durable=True, name="end-sagas")
async def end_saga(event: Event) -> None:
    """An execution that ended, or begins again, without its saga: cancelled by a person or a message, past its
    deadline, taken back. Its saga is cancelled, which deletes the pod and releases what was allocated."""
    if event.task in {None, "", execute.name}:
        await agree(event.job)


async def agree(job: str) -> None:
    """Make an execution and its sagas agree. May be repeated."""
    store = (await app.client()).store
    [found] = await store.get([job])
    if found is None:  # it was deleted, and what it had is left
        for mark in await store.records(SAGA_MARK_KIND):
            handle = app.find_saga(mark.name)
            if job_of(mark.name) == job and (await handle.ainfo()).context.get("job") == job:
                with contextlib.suppress(Refused):
                    await handle.acancel()
        return
    if found.spec.task != execute.name:
        return
    for fence in range(max(found.fence - 3, 1), found.fence + 1):
        saga_id = f"{job}.{fence}"
        if await read_saga(store, saga_id) is not None:
            with contextlib.suppress(Refused):  # it completed meanwhile
                await _agree(saga_id, job, fence, is_current=found.state is State.RUNNING and fence == found.fence)


def job_of(saga_id: str) -> str:
    """The job `execute` that started a saga."""
    return saga_id.rpartition(".")[0]


async def _agree(saga_id: str, job: str, fence: int, *, is_current: bool) -> None:
    handle = app.find_saga(saga_id)
    run = await handle.ainfo()
    if not is_current:
        # Once its pod has reported, a saga completes: its last step may be what ended the execution just now.
        if run.state == "forward" and "outcome" not in run.context:
            await handle.acancel()
    elif run.state == "completed":
        await end_execution(app, job, fence, outcome_of(run.context["outcome"]))
    elif run.state in ("compensated", "stuck"):
        await end_execution(app, job, fence, CANCELLED if run.cancelled_by is not None else PodFailed(run.trouble))


@app.task(queue=STEPS, retry=1)
async def try_schedule_from_queue() -> int:
    """The periodic fallback. Workers claim by themselves, and a slot is never lost with a message; what is left to
    repair is an execution and its saga that do not agree, because something was killed between the two."""
    jobs = {info.id async for info in app.afind(queue=EXECUTIONS, state=State.RUNNING, limit=1000)}
    store = (await app.client()).store
    jobs.update(job_of(mark.name) for mark in await store.records(SAGA_MARK_KIND))
    for job in sorted(jobs - {""}):  # those of other programs may have any id
        await agree(job)
    return len(jobs)


app.schedule("saga_try_schedule", try_schedule_from_queue, every="10s", overlap="skip", grace="30s")


# -- the broker --------------------------------------------------------------------------------------------------------

app.bridge(
    BROKER, execute, name="executions", incoming=REQUESTED, outgoing=EVENTS, read=read_request,
    max_running=DEFAULT_MAX_CONCURRENT, capacity=MAX_QUEUE_SIZE,
)  # fmt: skip
app.bridge(BROKER, name="pod-outcomes", incoming=OUTCOMES, read=read_outcome)


@app.lifespan
async def live_output() -> Any:
    """What pods print goes into the logs of their executions."""
    intake = asyncio.create_task(OutputIntake(app, BROKER).run())
    yield {}
    intake.cancel()
    await asyncio.gather(intake, return_exceptions=True)

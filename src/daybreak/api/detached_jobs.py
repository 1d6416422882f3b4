"""Jobs whose work goes on elsewhere: their outcome as a caller gives it, encoded as a worker would."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from daybreak import values
from daybreak.client.finish import Finished, FinishedWith
from daybreak.core.errors import BadInput
from daybreak.core.model import Cancelled, Done, Failed, Failure, JobSpec, TimedOut
from daybreak.core.units import ZERO, clean
from daybreak.values.file import Content, collecting
from daybreak.values.result import SPILL_ABOVE, spilled
from daybreak.worker.child.failures import failure_of
from daybreak.worker.supervisor.lease_source import Settled

if TYPE_CHECKING:
    from daybreak.api.hooks import Hooks
    from daybreak.api.store_sessions import Sessions
    from daybreak.tasks.registry import Definition, Program


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """How work that went on elsewhere has ended, as `app.finish` takes it: at most one of `error`, `cancelled` and
    `timed_out`, or else the `result`."""

    result: object = None
    error: BaseException | Failure | str | None = None
    permanent: bool = False
    cancelled: bool = False
    timed_out: bool = False
    note: str = ""


async def finish(
    sessions: Sessions, program: Program, hooks: Hooks, job: str, report: Report, *, fence: int | None, by: str | None
) -> Finished:
    """End a job that goes on elsewhere, and call the hooks of this process. `by` is who does, if it is not the app."""
    client = await sessions.client()
    spec = (await client.get(job)).spec
    outcome, contents = await asyncio.to_thread(outcome_of, report, definition_of(program, spec))
    await sessions.files.put(contents)
    finished = await client.finish(job, outcome, fence=fence, by=by)
    if finished.settled is not None:
        hooks.settled(Settled(*finished.settled, accepted=True))
    return finished


def definition_of(program: Program, spec: JobSpec) -> Definition | None:
    """The task of a job, if the program has it."""
    return program[spec.task] if (spec.task, spec.version) in program.known() else None


def outcome_of(report: Report, task: Definition | None) -> tuple[FinishedWith, list[Content]]:
    """The outcome of a job of this task, and the contents that must be stored before it is written."""
    is_error = isinstance(report.result, BaseException | Failure)
    error = report.result if is_error else report.error
    ways = (error is not None, report.cancelled, report.timed_out)
    if sum(ways) > 1 or (any(ways) and report.result is not None and not is_error):
        raise BadInput("finish: an attempt ends in one way: give a result, an error, cancelled or timed_out")
    if report.permanent and error is None:
        raise BadInput("finish: permanent belongs to an error")
    if error is not None:
        return Failed(_failure(error, permanent=report.permanent)), []
    if report.cancelled:
        return Cancelled(), []
    if report.timed_out:
        return TimedOut(ZERO, clean(report.note) or "it ran too long where it went on"), []
    with collecting() as contents:
        encoded = _encoded(report.result, task)
    return Done(encoded, note=clean(report.note)), list(contents.values())


def _failure(error: object, *, permanent: bool) -> Failure:
    if isinstance(error, BaseException):
        failure = failure_of(error)
    elif isinstance(error, Failure):
        failure = error
    else:
        failure = Failure(message=clean(str(error)), verdict="transient")
    return msgspec.structs.replace(failure, verdict="permanent") if permanent else failure


def _encoded(result: object, task: Definition | None) -> bytes:
    """The result as a worker stores it: by the annotation of the task, and elsewhere if it is large."""
    encoded = values.encode(result, "result") if task is None else task.result.encode(task.result.accept(result))
    return spilled(encoded) if len(encoded) > SPILL_ABOVE else encoded

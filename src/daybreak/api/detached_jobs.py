"""Jobs whose work goes on elsewhere: their outcome as a caller gives it, encoded as a worker would."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from daybreak import values
from daybreak.client.finish import Finished, FinishedWith
from daybreak.core.errors import BadInput
from daybreak.core.model import Cancelled, Done, Failed, Failure, TimedOut
from daybreak.core.units import ZERO, clean
from daybreak.worker.child.failures import failure_of
from daybreak.worker.supervisor.lease_source import Settled

if TYPE_CHECKING:
    from daybreak.api.hooks import Hooks
    from daybreak.api.store_sessions import Sessions
    from daybreak.tasks.registry import Program


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
    finished = await client.finish(job, await _outcome(sessions, program, job, report), fence=fence, by=by)
    if finished.settled is not None:
        hooks.settled(Settled(*finished.settled, accepted=True))
    return finished


async def _outcome(sessions: Sessions, program: Program, job: str, report: Report) -> FinishedWith:
    is_error = isinstance(report.result, BaseException | Failure)
    error = report.result if is_error else report.error
    ways = (error is not None, report.cancelled, report.timed_out)
    if sum(ways) > 1 or (any(ways) and report.result is not None and not is_error):
        raise BadInput("finish: an attempt ends in one way: give a result, an error, cancelled or timed_out")
    if report.permanent and error is None:
        raise BadInput("finish: permanent=True belongs to an error")
    if error is not None:
        return Failed(_failure(error, permanent=report.permanent))
    if report.cancelled:
        return Cancelled()
    if report.timed_out:
        return TimedOut(ZERO, clean(report.note) or "it ran too long where it went on")
    return Done(await _encoded(sessions, program, job, report.result), note=clean(report.note))


def _failure(error: object, *, permanent: bool) -> Failure:
    if isinstance(error, BaseException):
        failure = failure_of(error)
    elif isinstance(error, Failure):
        failure = error
    else:
        failure = Failure(message=clean(str(error)), verdict="transient")
    return msgspec.structs.replace(failure, verdict="permanent") if permanent else failure


async def _encoded(sessions: Sessions, program: Program, job: str, result: object) -> bytes:
    """The result as a worker stores it: by the annotation of the task, if this app has the task."""
    found = await (await sessions.client()).get(job)
    if (found.spec.task, found.spec.version) not in program.known():
        return await sessions.files.encode_result(lambda: values.encode(result, "result"))
    encoder = program[found.spec.task].result
    accepted = encoder.accept(result)
    return await sessions.files.encode_result(lambda: encoder.encode(accepted))

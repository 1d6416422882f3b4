"""Ends the jobs that messages speak of. A message may come twice, late, or for a job that has ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from daybreak.client.client import Client
from daybreak.core.errors import AttemptOver, JobNotFound
from daybreak.core.text import safe
from daybreak.feeds.bridge.messages import Cancel, Completed, Failed, Finish, TimedOut

if TYPE_CHECKING:
    from daybreak.api.app import Daybreak


class NotFinished(Exception):
    """The message cannot end a job, now or later; its text says why."""


async def finish(app: Daybreak, client: Client, message: Finish) -> str:
    """Apply a message. Returns why it came too late to change anything; empty if it is applied, now or before. Raises
    NotFinished if it can never be applied."""
    job = await _job_of(client, message)
    try:
        if isinstance(message, Cancel):
            await client.cancel(job, note=message.note)
        else:
            await app.afinish(job, **_outcome(message), fence=message.fence, by=client.by)
    except JobNotFound:
        raise NotFinished(f"no job has the id {safe(job)!r}") from None
    except AttemptOver as error:
        return str(error)
    return ""


def _outcome(message: Completed | Failed | TimedOut) -> dict[str, Any]:
    match message:
        case Completed(result=result):
            return {"result": result}
        case Failed(error=error, permanent=permanent):
            return {"error": error or "it failed where it went on", "permanent": permanent}
        case TimedOut(note=note):
            return {"timed_out": True, "note": note}


async def _job_of(client: Client, message: Finish) -> str:
    if message.job is not None:
        return message.job
    assert message.key is not None
    [known] = await client.store.known_keys([message.key])
    if known is None:
        raise NotFinished(f"no job has the key {safe(message.key)!r}")
    if known.is_spent:
        raise NotFinished(f"the job with the key {safe(message.key)!r} has ended and was purged")
    return known.job

"""Ends the jobs that messages speak of. A message may come twice, late, or for a job that has ended."""

from __future__ import annotations

from daybreak.client.client import Client
from daybreak.core.errors import JobNotFound
from daybreak.core.text import safe
from daybreak.feeds.bridge.messages import Cancel, Finish


class NotFinished(Exception):
    """The message cannot end a job, now or later; its text says why."""


async def finish(client: Client, message: Finish) -> None:
    """Apply a message. Nothing is wrong if the job has ended already. Raises NotFinished if it can never be applied."""
    job = await _job_of(client, message)
    if isinstance(message, Cancel):
        await _cancel(client, job, message.note)
        return
    kind = message.__struct_config__.tag
    raise NotFinished(
        f"a message of kind {kind!r} ends work that a job handed to another system, and this version of Daybreak "
        "has no such jobs; of the messages about jobs it reads 'cancel'"
    )


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


async def _cancel(client: Client, job: str, note: str) -> None:
    """Cancelling a job that is cancelled, asked to stop or ended changes nothing."""
    try:
        await client.cancel(job, note=note)
    except JobNotFound:
        raise NotFinished(f"no job has the id {safe(job)!r}") from None

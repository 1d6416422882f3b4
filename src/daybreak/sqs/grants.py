"""What a job may reach where it runs, such as signed URLs: made when the job is sent, so that nothing expires while it
waits in the ledger. A grant is only in the task message; the ledger does not keep it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Final

import msgspec
from msgspec import Struct

from daybreak.core.metadata import encode_meta
from daybreak.core.model import JobSpec, Lease
from daybreak.tasks.registry import Program

_log = logging.getLogger("daybreak.sqs")

META: Final = "grant"  # the key under which a task finds its grant in ctx.meta
MAX_LENGTH: Final = 32_000  # characters
RETRY_IN: Final = timedelta(seconds=5)


class GrantRequest(Struct, frozen=True, kw_only=True):
    """The job that is about to be sent. Its `fence` is new for each time that it is sent, so a key of an output that
    contains it is written by one delivery. The message is not run after `valid_for`."""

    job: str
    task: str
    args: Mapping[str, Any]
    fence: int
    attempt: int
    valid_for: timedelta


Grant = Callable[[GrantRequest], Mapping[str, Any]]


class NotGranted(Exception):
    """The function that grants failed. The job goes back to its queue, uncharged, for a few seconds."""


class Grants:
    """Calls `grant` for each lease; without one, jobs are sent as they are."""

    def __init__(self, grant: Grant | None, program: Program, valid_for: timedelta) -> None:
        self._grant = grant
        self._program = program
        self._valid_for = valid_for

    async def granted(self, lease: Lease) -> JobSpec:
        """The job with its grant in `meta`. Raises NotGranted."""
        if self._grant is None:
            return lease.spec
        try:
            found = await asyncio.to_thread(self._grant, self._request(lease))
            meta = encode_meta({META: dict(found)})
        except Exception as error:
            _log.exception("job %s is not sent: the function of --grant failed", lease.job)
            raise NotGranted(str(error)) from error
        if len(meta[META]) > MAX_LENGTH:
            _log.error("job %s is not sent: its grant has more than %d characters", lease.job, MAX_LENGTH)
            raise NotGranted("it is too long")
        return msgspec.structs.replace(lease.spec, meta={**lease.spec.meta, **meta})

    def _request(self, lease: Lease) -> GrantRequest:
        return GrantRequest(
            job=lease.job,
            task=lease.spec.task,
            args=self._program[lease.spec.task].arguments.decode_named(lease.spec.args),
            fence=lease.fence,
            attempt=lease.attempt,
            valid_for=self._valid_for,
        )

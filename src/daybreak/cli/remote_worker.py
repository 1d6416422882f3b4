"""`daybreak worker --url sqs://region/prefix`: a worker that reaches nothing but SQS."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

from msgspec.structs import replace

from daybreak.api.background_worker import child_plan
from daybreak.cli import logs
from daybreak.cli.errors import leave_stdout_to_tasks
from daybreak.cli.output import tell
from daybreak.core.errors import BadInput
from daybreak.core.text import safe
from daybreak.files import blobs_at
from daybreak.sqs.address import address_of
from daybreak.sqs.queues import open_queues
from daybreak.sqs.remote_source import RemoteSource
from daybreak.sqs.setup import told_files
from daybreak.worker.settings import WorkerSettings
from daybreak.worker.supervisor.process import serve
from daybreak.worker.supervisor.worker import Worker

LEASE: Final = timedelta(seconds=60)  # the visibility timeout, unless --lease says otherwise
MIN_LEASE: Final = timedelta(seconds=1)


def run_remote_worker(
    app: Any, settings: WorkerSettings, target: str, url: str, how: Mapping[str, Any], *, verbose: bool
) -> int:
    """Run until stopped. Returns the exit code."""
    address = address_of(url)
    if "lease" not in how:
        settings = replace(settings, lease_for=LEASE)
    if settings.lease_for < MIN_LEASE:
        raise BadInput(f"--lease {settings.lease_for.total_seconds():g}s: SQS hides messages for 1 s at least")
    stack = contextlib.AsyncExitStack()

    async def make() -> Worker:
        queues = await stack.enter_async_context(open_queues(address))
        location = app.settings.files if str(app.settings.files).startswith("file://") else None
        location = location or await told_files(queues)
        blobs = None if location is None else blobs_at(location)
        plan = child_plan(app, settings, target, blobs=blobs)
        source = RemoteSource(queues, plan, app.world, blobs=blobs, app=app.name or target)
        return Worker(source, plan, app.world)

    leave_stdout_to_tasks()
    logs.to_stderr(verbose=verbose)
    tell(f"Worker for {safe(target)} on {address}. Ctrl-C stops it.")
    return serve(make, stack.aclose)

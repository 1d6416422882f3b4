"""Finds the run that a command names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from daybreak.cli.session import session
from daybreak.client.client import Client

if TYPE_CHECKING:
    from daybreak.runs.run import Run


async def find_run(client: Client, name: str) -> Run:
    """A handle on the run. RunNotFound says what comes closest."""
    from daybreak.runs import client_runs  # noqa: PLC0415 - the list of runs does not need it, and is asked for often

    settings = session().settings
    return await client_runs.find_run(client, name, (settings.files, settings.url))

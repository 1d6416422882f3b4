"""Finds the run that a command names."""

from __future__ import annotations

from daybreak.cli.session import session
from daybreak.client.client import Client
from daybreak.runs import client_runs
from daybreak.runs.run import Run


async def find_run(client: Client, name: str) -> Run:
    """A handle on the run. RunNotFound says what comes closest."""
    settings = session().settings
    return await client_runs.find_run(client, name, (settings.files, settings.url))

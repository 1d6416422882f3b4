"""Checks the settings, and the store that they name."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from daybreak import config
from daybreak.cli.session import Session
from daybreak.client.client import Client
from daybreak.core.errors import DaybreakError, StoreError
from daybreak.core.model import Put
from daybreak.store.protocol import Examines, Finding, Store, ok_finding


def about_settings(session: Session) -> Iterator[Finding]:
    """Which store is used, where it was named, and whether the app's code names another one."""
    project = session.project
    yield ok_finding(f"store {session.settings.store}")
    if project.file is not None:
        yield ok_finding(f"settings in {project.file}")
    target = session.target
    if target is None:
        return
    try:
        with session.command_line():
            found = getattr(session.loaded, "settings", None)
    except DaybreakError as error:
        yield Finding(
            f"the app {target} (from {project.origins.get('app', '')}): {error}", cure="correct it, or name another app"
        )
        return
    if isinstance(found, config.Settings) and found.url != session.settings.url:
        yield Finding(
            f"the code of {target} names the store {found.store}; commands without --app use another one",
            cure=f'write url = "{found.path or config.shown(found.url)}" in daybreak.toml, and take it out of the code',
        )
    else:
        yield ok_finding(f"app {target}")


async def about_store(store: Store) -> list[Finding]:
    """The store's own checks. They work for a store that could not be opened, too."""
    with contextlib.suppress(StoreError):
        return await store.examine() if isinstance(store, Examines) else []
    return []


async def about_writing(client: Client) -> Finding:
    """Check that the store accepts writes: write a record and delete it."""
    await client.store.put([Put(kind="doctor", name="probe", value=b"{}")])
    await client.store.put([Put(kind="doctor", name="probe", value=None)])
    return ok_finding(f"the store can be read and written; {client.store.traits.durable}")

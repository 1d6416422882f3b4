"""Checks the offline spool: jobs that wait for the store, and jobs that it refused."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from daybreak.cli.session import Session
from daybreak.cli.spool import spool_of
from daybreak.core.errors import DaybreakError
from daybreak.core.text import ago, counted
from daybreak.store.protocol import Finding, ok_finding


def about_spool(here: Session) -> Iterator[Finding]:
    """What is in the spool, if there is one. It is readable while the store is away."""
    path = here.settings.spool
    if path is None:
        return
    if not path.exists():
        yield ok_finding(f"spool {path}, not used yet")
        return
    try:
        status = spool_of(here).status()
    except DaybreakError as error:
        yield Finding(f"the spool {path}: {error}", cure="move it away, or name another file")
        return
    if status.waiting and status.oldest is not None:
        since = ago(status.oldest, datetime.now(UTC))
        what = f"{counted(status.waiting, 'job')} in the spool {path}, the oldest submitted {since}"
        cause = f": {status.last_error}" if status.last_error else ""
        yield Finding(what + cause, cure=here.command("spool", "--flush"))
    else:
        yield ok_finding(f"no job waits in the spool {path}")
    if status.set_aside:
        what = f"{counted(status.set_aside, 'job')} set aside in the spool {path}: the store refused them"
        yield Finding(what, cure=f"see {here.command('spool')}, then retry or drop each")

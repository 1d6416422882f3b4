"""`daybreak backup`: copies a store that is in use."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from urllib.parse import quote

import click

from daybreak import config
from daybreak.cli.options import Place
from daybreak.cli.output import console, say
from daybreak.cli.root import store_options
from daybreak.cli.session import is_there, missing, session
from daybreak.config import check_path
from daybreak.core.errors import StoreUnavailable, Unsupported
from daybreak.core.text import safe
from daybreak.core.units import bytes_text


@click.command("backup", short_help="Copy the store while it is in use.")
@click.argument("file", type=Place(path_type=Path))
@click.option("--force", is_flag=True, help="Overwrite the file if it exists; never a link or a device.")
def command(file: Path, force: bool) -> int:
    """Copy the store to a file as it is at this instant. Workers and submitters can continue meanwhile. The copy is
    verified. It is a store itself: use it with --url.

    Example:
      daybreak backup /backups/jobs-2026-01-31.db

    """
    settings = session().settings
    source = settings.path
    if source is None:
        raise Unsupported(f"{settings.store} is not a file: use the backup tool of its server")
    if settings.url.startswith("dir://"):
        raise Unsupported(f"{settings.store} is a folder: stop its process, then copy it with cp -a")
    if not is_there(settings):
        raise StoreUnavailable(missing(settings))
    target = file.absolute()
    check_path(target)
    size = _with_progress(source, target, force=force)
    listing = shlex.join(["daybreak", "jobs", "--url", _url(target)])
    say(f"{safe(str(target))} written: {bytes_text(size)}. List its jobs with: {safe(listing)}")
    return 0


store_options(command)


def _url(target: Path) -> str:
    """The file as a value of --url. A name without the suffix of a store needs the scheme."""
    return str(target) if target.name.endswith(config.SUFFIXES) else "sqlite:///" + quote(os.fsencode(target), "/:")


def _with_progress(source: Path, target: Path, *, force: bool) -> int:
    from daybreak.stores.sqlite.backup import backup  # noqa: PLC0415 - only SQLite stores need it

    if not sys.stderr.isatty():
        return backup(source, target, overwrite=force)
    from rich.progress import Progress  # noqa: PLC0415

    with Progress(console=console(err=True), transient=True) as bar:
        task = bar.add_task("copying", total=1.0)
        return backup(source, target, overwrite=force, on_progress=lambda done: bar.update(task, completed=done))

"""`daybreak backup`: a copy of a store that is in use."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from daybreak.cli.printing import console, say
from daybreak.cli.root import store_options
from daybreak.cli.session import missing, session
from daybreak.cli.text import safe
from daybreak.errors import StoreUnavailable, Unsupported
from daybreak.units import bytes_text


@click.command("backup", short_help="Copy the store while it is in use.")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--force", is_flag=True, help="Overwrite the file if it is there.")
def command(file: Path, force: bool) -> int:
    """Copy the store to a file as it is at this instant. Workers and submitters go on meanwhile. The copy is checked,
    and is a store itself: look into it with --url.

    Example:
      daybreak backup /backups/jobs-2026-01-31.db

    """
    settings = session().settings
    source = settings.path
    if source is None:
        raise Unsupported(f"{settings.store} is no file that could be copied: use the backup of its server")
    if not source.exists():
        raise StoreUnavailable(missing(settings))
    target = file.absolute()
    size = _with_progress(source, target, force=force)
    say(f"{safe(str(target))} written: {bytes_text(size)}. Look into it with: daybreak jobs --url {safe(str(target))}")
    return 0


store_options(command)


def _with_progress(source: Path, target: Path, *, force: bool) -> int:
    from daybreak.stores.sqlite.backup import backup  # noqa: PLC0415 - only for this kind of store

    if not sys.stderr.isatty():
        return backup(source, target, overwrite=force)
    from rich.progress import Progress  # noqa: PLC0415

    with Progress(console=console(err=True), transient=True) as bar:
        task = bar.add_task("copying", total=1.0)
        return backup(source, target, overwrite=force, tell=lambda done: bar.update(task, completed=done))

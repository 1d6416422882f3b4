"""`daybreak demo`: runs a demonstration."""

from __future__ import annotations

from pathlib import Path

import click

from daybreak.cli.options import Place
from daybreak.cli.root import store_options
from daybreak.core.errors import BadInput


@click.command("demo", short_help="See Daybreak at work in half a minute.")
@click.option("--quick", is_flag=True, help="Run a smaller demonstration, in a few seconds.")
@click.option("--folder", type=Place(path_type=Path), help="Keep the store in this folder, to inspect it afterwards.")
def command(quick: bool, folder: Path | None) -> int:
    """See Daybreak at work in half a minute: a sweep of simulations on two workers, an urgent job, and a worker that is
    killed. The demo uses its own store and deletes it at the end, unless --folder names a folder to keep it in.

    Example:
      daybreak demo --quick

    """
    from daybreak.demo.story import run  # noqa: PLC0415 - it imports the whole package

    if folder is not None and not folder.is_dir():
        raise BadInput(f"there is no folder {folder}: create it first")
    return run(quick=quick, folder=folder)


store_options(command)

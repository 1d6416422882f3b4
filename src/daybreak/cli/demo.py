"""`daybreak demo`: a story that runs before your eyes."""

from __future__ import annotations

from pathlib import Path

import click

from daybreak.cli.options import Place
from daybreak.cli.root import store_options
from daybreak.core.errors import BadInput


@click.command("demo", short_help="See Daybreak at work in half a minute.")
@click.option("--quick", is_flag=True, help="A smaller story, in a few seconds.")
@click.option("--folder", type=Place(path_type=Path), help="Keep the store in this folder, to look at afterwards.")
def command(quick: bool, folder: Path | None) -> int:
    """See Daybreak at work in half a minute: a sweep of simulations on two workers, an urgent job, and a worker that is
    killed. It has a store of its own and leaves nothing behind, unless --folder says where to keep it.

    Example:
      daybreak demo --quick

    """
    from daybreak.demo.story import run  # noqa: PLC0415 - it loads everything there is

    if folder is not None and not folder.is_dir():
        raise BadInput(f"there is no folder {folder}: make it first")
    return run(quick=quick, folder=folder)


store_options(command)

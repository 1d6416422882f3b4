"""`daybreak demo`: a story that runs before your eyes."""

from __future__ import annotations

import click

from daybreak.cli.root import store_options


@click.command("demo", short_help="See Daybreak at work in half a minute.")
def command() -> int:
    """See Daybreak at work in half a minute: jobs of all priorities, a crash and what follows. It uses a store of its
    own in a temporary folder and leaves nothing behind.

    Example:
      daybreak demo

    """
    from daybreak.demo import story  # noqa: PLC0415 - it loads everything there is

    return int(story.run() or 0)


store_options(command)

"""`daybreak queues`: lists and shows queues, and changes their settings."""

from daybreak.cli.queues.change import pause, resume, set_
from daybreak.cli.queues.list import command, show

for subcommand in (show, set_, pause, resume):
    command.add_command(subcommand)

__all__ = ["command"]

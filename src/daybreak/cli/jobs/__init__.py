"""`daybreak jobs`: lists, shows and changes jobs."""

from daybreak.cli.jobs.change import cancel, priority, remove, resume, retry, suspend
from daybreak.cli.jobs.list import command
from daybreak.cli.jobs.result import result
from daybreak.cli.jobs.show import show

for subcommand in (show, result, cancel, retry, suspend, resume, remove, priority):
    command.add_command(subcommand)

__all__ = ["command"]

"""`daybreak jobs`: lists, shows and changes jobs."""

from daybreak.cli.jobs.change import cancel, priority, remove, resume, retry, start_now, suspend
from daybreak.cli.jobs.list import command
from daybreak.cli.jobs.logs import logs
from daybreak.cli.jobs.release import release
from daybreak.cli.jobs.result import result
from daybreak.cli.jobs.show import show
from daybreak.cli.jobs.stack import stack

for subcommand in (show, result, logs, stack, cancel, retry, start_now, release, suspend, resume, remove, priority):
    command.add_command(subcommand)

__all__ = ["command"]

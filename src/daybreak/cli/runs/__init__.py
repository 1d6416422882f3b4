"""`daybreak runs`: lists, shows, exports and changes runs."""

from daybreak.cli.runs.change import cancel, delete, priority, resume, retry, suspend
from daybreak.cli.runs.export import export
from daybreak.cli.runs.list import command
from daybreak.cli.runs.show import show
from daybreak.cli.runs.wait import wait

for subcommand in (show, wait, export, cancel, suspend, resume, priority, retry, delete):
    command.add_command(subcommand)

__all__ = ["command"]

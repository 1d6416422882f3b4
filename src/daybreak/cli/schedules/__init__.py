"""`daybreak schedules`: lists, shows and changes schedules."""

from daybreak.cli.schedules.change import pause, remove, resume, run_now
from daybreak.cli.schedules.list import command
from daybreak.cli.schedules.show import preview, show

for subcommand in (show, preview, pause, resume, run_now, remove):
    command.add_command(subcommand)

__all__ = ["command"]

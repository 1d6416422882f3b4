"""The command line: commands, and how they print.

root       the program `daybreak`: its commands by group, loaded when they are called
session    what all commands of one call share: the settings, the store, who asks
errors     errors as one sentence and an exit code
options    what commands take: filters, durations, priorities
text       words for people: safe on a terminal, times and amounts readable
output     tables, JSON, notes; the JSON itself is built in `daybreak.api.views`
"""

from daybreak.cli.root import main

__all__ = ["main"]

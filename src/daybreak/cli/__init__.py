"""The command line: commands, and how they print.

root       the program `daybreak`: its commands by section, imported when they are called
session    what a command needs: the settings, the app, the store and a client
errors     turns an exception into one sentence and an exit code
options    types of options and arguments, and the filters
output     tables, JSON, notes; the JSON itself is built in `daybreak.api.views`
"""

from daybreak.cli.root import main

__all__ = ["main"]

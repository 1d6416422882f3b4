"""`daybreak init`: a settings file and a first task."""

from __future__ import annotations

import json
from pathlib import Path

import click

from daybreak.cli.options import Place
from daybreak.cli.output import say
from daybreak.cli.root import store_options
from daybreak.cli.session import session
from daybreak.cli.text import safe
from daybreak.core.errors import BadInput

APP = "tasks.py:app"
SETTINGS = """\
# Settings of Daybreak for this folder and those below it. The command line, the code and DAYBREAK_* go before.
# Relative paths count from this file.
url = {url}
app = {app}  # what `daybreak worker` runs and `daybreak submit` checks arguments by

[worker]
# queues = ["default"]          # those of the tasks, unless named here
# processes = 4                 # for sync tasks; as many as there are processors, unless said otherwise
# async_jobs = 100              # for async tasks, on one loop
# grace = "10s"                 # for running jobs, when the worker is stopped
"""

TASKS = '''\
"""The first tasks: run `daybreak worker` here, and in another terminal `daybreak submit greet name=Ann --wait`."""

import time

from daybreak import Context, Daybreak

app = Daybreak()


@app.task(retry=3, timeout="1m")
def greet(name: str = "world") -> str:
    return f"Good morning, {name}!"


@app.task
def count(ctx: Context, to: int = 10) -> int:
    for n in range(to):
        ctx.progress(n / to, f"{n} of {to}")
        time.sleep(0.2)
    return to
'''


@click.command("init", short_help="Write a settings file and a first task.")
@click.argument("folder", type=Place(path_type=Path), default=Path())
def command(folder: Path) -> int:
    """Write daybreak.toml and tasks.py into a folder, this one unless another is named. Files that are there stay.
    With --url and --app these go into the settings; with another app than tasks.py:app no tasks.py is written.

    Example:
      daybreak init && daybreak worker

    """
    if not folder.is_dir():
        raise BadInput(f"there is no folder {folder}: make it first")
    url, app = session().url or "sqlite:///daybreak.db", session().app or APP
    made = _write(folder / "daybreak.toml", SETTINGS.format(url=_quoted(url), app=_quoted(app)))
    if app == APP:
        made = _write(folder / "tasks.py", TASKS) or made
    if made:
        say()
        say("Start a worker here:       daybreak worker")
        say(f"Then, in another terminal: daybreak submit {'greet name=Ann' if app == APP else 'TASK'} --wait")
    return 0


store_options(command)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)  # TOML's strings are JSON's


def _write(path: Path, text: str) -> bool:
    """Write a file that is not there yet; one that is stays as it is."""
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        say(f"{safe(str(path))} is there already: left as it is")
        return False
    except OSError as error:
        raise BadInput(f"{path} cannot be written: {error.strerror}") from None
    say(f"{safe(str(path))} written")
    return True

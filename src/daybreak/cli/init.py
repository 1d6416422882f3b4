"""`daybreak init`: writes a settings file and a first task."""

from __future__ import annotations

import json
from pathlib import Path

import click

from daybreak.cli.options import Place
from daybreak.cli.output import say
from daybreak.cli.root import store_options
from daybreak.cli.session import session
from daybreak.core.errors import BadInput
from daybreak.core.text import safe

APP = "tasks.py:app"
SETTINGS = """\
# Settings of Daybreak for this folder and its subfolders. The command line, the code and DAYBREAK_* override them.
# Relative paths start at the folder of this file.
url = {url}
app = {app}  # the app that `daybreak worker` runs; `daybreak submit` checks arguments with it

[worker]
# queues = ["default"]          # default: the queues of the tasks
# processes = 4                 # for sync tasks; default: one per processor
# async_jobs = 100              # how many async jobs may run at once
# grace = "10s"                 # how long running jobs may continue after a stop
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
    """Write daybreak.toml and tasks.py to a folder; default: the current folder. Existing files are not changed. --url
    and --app are written to the settings; with an app other than tasks.py:app, no tasks.py is written.

    Example:
      daybreak init && daybreak worker

    """
    if not folder.is_dir():
        raise BadInput(f"there is no folder {folder}: create it first")
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
    return json.dumps(text, ensure_ascii=False)  # a JSON string is a valid TOML string


def _write(path: Path, text: str) -> bool:
    """Write a file unless it exists. Returns whether it was written."""
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        say(f"{safe(str(path))} exists already; it was not changed")
        return False
    except OSError as error:
        raise BadInput(f"cannot write {path}: {error.strerror}") from None
    say(f"{safe(str(path))} written")
    return True

"""`daybreak watch`: makes a job of every file that is put into a folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from daybreak.cli import logs
from daybreak.cli.errors import leave_stdout_to_tasks
from daybreak.cli.options import DURATION, NAME, PRIORITY, Whole
from daybreak.cli.output import tell
from daybreak.cli.root import store_options
from daybreak.cli.session import is_there, session
from daybreak.cli.worker import Size
from daybreak.core.errors import BadInput
from daybreak.core.text import safe

if TYPE_CHECKING:
    from daybreak.feeds.drop_folder import FolderWatch


@click.command("watch", short_help="Make a job of every file that is put into a folder.")
@click.argument("folder", metavar="DIR", type=NAME)
@click.option("--task", type=NAME, help="The task that gets each file [default: what the app's code says].")
@click.option("--pattern", type=NAME, help="Only files of these names, for example '*.json' [default: *].")
@click.option("--priority", "-p", type=PRIORITY, help="The priority of files that name none [default: the task's].")
@click.option("--done", type=NAME, help="Where files go whose job completed [default: done, in DIR].")
@click.option("--failed", type=NAME, help="Where files go whose job failed, with a note [default: failed, in DIR].")
@click.option("--delete", is_flag=True, default=None, help="Delete files whose job completed.")
@click.option("--settle", type=DURATION, help="How long a file must not change to be complete [default: 500ms].")
@click.option("--done-marker", metavar="SUFFIX", help="A file is complete once there is NAME and this, such as .done.")
@click.option("--queue", "-q", type=NAME, help="The queue of the jobs [default: one named after the task].")
@click.option("--max-running", type=Whole(1), help="How many jobs of a new queue may run at once [default: 5].")
@click.option("--capacity", type=Whole(1), help="How many unfinished jobs a new queue may hold [default: 10000].")
@click.option("--max-size", type=Size(), help="Larger files are left alone [default: 1GB].")
@click.option("--name", type=NAME, help="A name for this watch [default: the name of the folder].")
@click.option("--polling", is_flag=True, default=None, help="Look every two seconds instead of being told of changes.")
@click.option("--worker", "with_worker", is_flag=True, help="Run the jobs too, in a worker with its default settings.")
@click.option("--until-idle", is_flag=True, help="Stop when no complete file is left and every job has ended.")
@click.option("--verbose", "-v", is_flag=True, help="Log more.")
def command(folder: str, task: str | None, with_worker: bool, until_idle: bool, verbose: bool, **options: Any) -> int:
    """Make a job of every complete file that is put into DIR, until Ctrl-C. Workers run the jobs; then each file moves
    to `done`, or to `failed` with a note beside it. Workers of an app whose code calls app.watch(...) do the same, so
    they need no such command. `daybreak watches` shows and pauses watches.

    Examples:
      daybreak watch reports --task upload_report
      daybreak watch reports --task upload_report --pattern '*.json' --settle 2s --worker

    """
    here = session()
    app = here.loaded
    if with_worker and until_idle:
        raise click.UsageError("--until-idle is for a watch without --worker", click.get_current_context())
    with here.command_line():
        watch = _declared(app, folder, task, {name: value for name, value in options.items() if value is not None})
        is_there(app.settings)  # raises if there is no permission to check; a store that is missing will be created
        leave_stdout_to_tasks()
        logs.to_stderr(verbose=verbose)
        tell(safe(f"Watching {watch.folder} for task {watch.task} on {app.settings.store}. Ctrl-C stops it."))
        if with_worker:
            return int(app.run_worker(app.worker_settings(), here.target))
        from daybreak.feeds.drop_folder.process import watch_folder  # noqa: PLC0415 - loads the watcher

        return watch_folder(app, watch, until_idle=until_idle)


store_options(command)


def _declared(app: Any, folder: str, task: str | None, options: dict[str, Any]) -> FolderWatch:
    """The watch of the app's code on this folder, or a new one in its place if there are options."""
    path = Path(folder).absolute()
    if not path.is_dir():
        raise BadInput(f"there is no folder {folder}: create it, or name another one")
    found: FolderWatch | None = next((watch for watch in app.watches if watch.folder == path), None)
    if found is not None and task in (None, found.task) and not options:
        return found
    if found is not None:
        app.watches.remove(found)
        task = task or found.task
    if task is None:
        raise BadInput(f"which task gets the files of {folder}? add --task NAME, or call app.watch(...) in the code")
    made: FolderWatch = app.watch(path, task, **options)
    return made

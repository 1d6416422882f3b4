"""`daybreak worker`: runs a worker until it is stopped."""

from __future__ import annotations

import functools
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from daybreak import config
from daybreak.cli import logs
from daybreak.cli.errors import leave_stdout_to_tasks
from daybreak.cli.options import DURATION, OneOf, ParamType, Whole
from daybreak.cli.output import tell
from daybreak.cli.root import store_options
from daybreak.cli.session import Session, is_there, session
from daybreak.core.errors import BadInput
from daybreak.core.text import safe

if TYPE_CHECKING:
    from daybreak.worker.settings import WorkerSettings

F = TypeVar("F", bound=Callable[..., Any])


class Size(ParamType):
    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            return config.size(value)
        except BadInput as error:
            self.fail(str(error).removeprefix("size = "), param, ctx)


_COUNT = Whole(1)
_OPTIONS = [
    click.option(
        "--queues",
        "-q",
        metavar="NAMES",
        multiple=True,
        help="Queues to serve, separated by commas [default: the queues of the tasks].",
    ),
    click.option("--processes", "-c", type=_COUNT, help="Child processes for sync tasks [default: one per processor]."),
    click.option("--async-jobs", type=_COUNT, help="How many async jobs may run at once [default: 100]."),
    click.option(
        "--lease", type=DURATION, help="How long jobs stay leased to a worker that stops responding [default: 7s]."
    ),
    click.option("--grace", type=DURATION, help="How long running jobs may continue after a stop [default: 10s]."),
    click.option("--recycle-after", type=_COUNT, metavar="JOBS", help="Replace a child process after this many jobs."),
    click.option("--memory-limit", type=Size(), help="Replace a child process that uses more memory, for example 2GB."),
    click.option(
        "--isolation",
        type=OneOf("isolation", ("process", "thread")),
        help="Run sync tasks in child processes or in threads [default: process].",
    ),
    click.option(
        "--allow-commands", is_flag=True, default=None, help="Also run command lines that `daybreak exec` submits."
    ),
    click.option("--name", help="A name to show in lists and logs; the id is always unique."),
]
_NAMES = (
    "queues",
    "processes",
    "async_jobs",
    "lease",
    "grace",
    "recycle_after",
    "memory_limit",
    "isolation",
    "allow_commands",
    "name",
)


def worker_options(command: F) -> F:
    """Add the options of a worker to a command, which receives those that were given as `how`."""

    @functools.wraps(command)
    def packed(*args: Any, **options: Any) -> Any:
        how = {name: options.pop(name) for name in _NAMES}
        return command(*args, how={name: value for name, value in how.items() if value not in (None, ())}, **options)

    for option in reversed(_OPTIONS):
        packed = option(packed)
    return packed  # type: ignore[return-value]


@click.command("worker", short_help="Run a worker until it is stopped.")
@click.argument("target", required=False)
@click.option("--verbose", "-v", is_flag=True, help="Also log jobs that complete at their first attempt.")
@click.option("--until-idle", is_flag=True, help="Exit when no job waits or runs.")
@worker_options
def command(target: str | None, until_idle: bool, verbose: bool, how: dict[str, Any]) -> int:
    """Run a worker until it is stopped. TARGET is the app: tasks.py, tasks.py:app or module:app. Default: the app of
    the settings. Options that are not given are read from DAYBREAK_WORKER_... and from [worker] in daybreak.toml.

    The first Ctrl-C lets running jobs end. Jobs that do not end within --grace are released, and another worker runs
    them.

    Examples:
      daybreak worker tasks.py
      daybreak worker shop.jobs:app --queues mail,reports --processes 8
      daybreak worker --allow-commands
      daybreak worker tasks.py --url sqs://eu-west-1/transcribe

    """
    here = session()
    if target is not None:
        here.app = target
    app = _app(here, how)
    settings = _settings(here, how, until_idle=until_idle)
    with here.command_line():
        where = _store_settings(app, here)
        if where.url.startswith("sqs://"):
            from daybreak.cli.remote_worker import run_remote_worker  # noqa: PLC0415 - needs aiobotocore

            return run_remote_worker(app, settings, here.target or COMMANDS_TARGET, where.url, how, verbose=verbose)
        is_there(where)  # raises if there is no permission to check; a store that is missing will be created
        leave_stdout_to_tasks()
        logs.to_stderr(verbose=verbose)
        tell(f"Worker for {safe(here.target or 'command lines')} on {safe(where.store)}. Ctrl-C stops it.")
        return int(app.run_worker(settings, here.target or COMMANDS_TARGET))


store_options(command)

COMMANDS_TARGET: Final = "daybreak.cli.command_app:app"


def _app(here: Session, how: dict[str, Any]) -> Any:
    """The app. A worker that only runs command lines gets an app without tasks."""
    allowed = how.get("allow_commands", here.project.worker.get("allow_commands"))
    if here.target is None and allowed:
        from daybreak.worker.target import load  # noqa: PLC0415 - only a worker needs it

        with here.command_line():
            return load(COMMANDS_TARGET)
    return here.loaded


def _settings(here: Session, how: dict[str, Any], *, until_idle: bool) -> WorkerSettings:
    from daybreak.worker.settings import WorkerSettings  # noqa: PLC0415

    given = dict(how)
    if "queues" in given:
        given["queues"] = tuple(name.strip() for word in given["queues"] for name in word.split(",") if name.strip())
    if "lease" in given:
        given["lease_for"] = given.pop("lease")
    settings = WorkerSettings(**{**here.project.worker, **given, "until_idle": until_idle})
    settings.check()
    return settings


def _store_settings(app: Any, here: Session) -> config.Settings:
    """The settings that name the store: the app's own if it has some, else those of the project."""
    found = getattr(app, "settings", None)
    return found if isinstance(found, config.Settings) else here.project


def words_of(how: dict[str, Any]) -> list[str]:
    """The options as words of a command line."""
    words: list[str] = []
    for name, value in how.items():
        option = "--" + name.replace("_", "-")
        if value is True:
            words.append(option)
        elif name == "queues":
            words += [option, ",".join(value)]
        else:
            words += [option, f"{value.total_seconds():f}s" if isinstance(value, timedelta) else str(value)]
    return words

"""`daybreak worker`: runs jobs until it is stopped."""

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
from daybreak.cli.text import safe
from daybreak.core.errors import BadInput

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
        help="Queues to serve, with commas [default: those of the tasks].",
    ),
    click.option("--processes", "-c", type=_COUNT, help="Processes for sync tasks [default: one for each processor]."),
    click.option("--async-jobs", type=_COUNT, help="Async tasks that run at once [default: 100]."),
    click.option("--lease", type=DURATION, help="How long a silent worker keeps its jobs [default: 7s]."),
    click.option("--grace", type=DURATION, help="How long jobs may go on when it is stopped [default: 10s]."),
    click.option("--recycle-after", type=_COUNT, metavar="JOBS", help="Replace a child process after so many jobs."),
    click.option("--memory-limit", type=Size(), help="Replace a child process that takes more, such as 2GB."),
    click.option(
        "--isolation", type=OneOf("isolation", ("process", "thread")), help="Run tasks in processes, or in threads."
    ),
    click.option(
        "--allow-commands", is_flag=True, default=None, help="Run command lines too, as `daybreak exec` submits them."
    ),
    click.option("--name", help="A name for people; each start has an id of its own besides."),
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
    """How the worker runs; the command gets what was said as `how`."""

    @functools.wraps(command)
    def packed(*args: Any, **said: Any) -> Any:
        how = {name: said.pop(name) for name in _NAMES}
        return command(*args, how={name: value for name, value in how.items() if value not in (None, ())}, **said)

    for option in reversed(_OPTIONS):
        packed = option(packed)
    return packed  # type: ignore[return-value]


@click.command("worker", short_help="Run jobs until stopped.")
@click.argument("target", required=False)
@click.option("--verbose", "-v", is_flag=True, help="Also log jobs that complete at the first try.")
@click.option("--until-idle", is_flag=True, help="End once nothing waits and nothing runs.")
@worker_options
def command(target: str | None, until_idle: bool, verbose: bool, how: dict[str, Any]) -> int:
    """Run jobs until stopped. TARGET is where the tasks are: tasks.py, tasks.py:app or module:app; without one, the app
    of the settings. What is not said here comes from DAYBREAK_WORKER_... and [worker] in daybreak.toml.

    The first Ctrl-C lets running jobs end; what does not end in time is handed back and runs elsewhere.

    Examples:
      daybreak worker tasks.py
      daybreak worker shop.jobs:app --queues mail,reports --processes 8
      daybreak worker --allow-commands

    """
    here = session()
    if target is not None:
        here.app = target
    app = _app(here, how)
    settings = _settings(here, how, until_idle=until_idle)
    with here.said():
        place = _place(app, here)
        is_there(place)  # or will be: only one at which nobody may look is refused
        leave_stdout_to_tasks()
        logs.to_stderr(verbose=verbose)
        tell(f"Worker for {safe(here.target or 'command lines')} on {safe(place.store)}. Ctrl-C stops it.")
        return int(app.run_worker(settings, here.target or BARE))


store_options(command)

BARE: Final = "daybreak.cli.command_app:app"


def _app(here: Session, how: dict[str, Any]) -> Any:
    """The app; an empty one for a worker that only runs command lines."""
    allowed = how.get("allow_commands", here.project.worker.get("allow_commands"))
    if here.target is None and allowed:
        from daybreak.worker.target import load  # noqa: PLC0415 - only a worker needs it

        with here.said():
            return load(BARE)
    return here.loaded


def _settings(here: Session, how: dict[str, Any], *, until_idle: bool) -> WorkerSettings:
    from daybreak.worker.settings import WorkerSettings  # noqa: PLC0415

    said = dict(how)
    if "queues" in said:
        said["queues"] = tuple(name.strip() for word in said["queues"] for name in word.split(",") if name.strip())
    if "lease" in said:
        said["lease_for"] = said.pop("lease")
    settings = WorkerSettings(**{**here.project.worker, **said, "until_idle": until_idle})
    settings.check()
    return settings


def _place(app: Any, here: Session) -> config.Settings:
    """The settings that name the store: the app's own, where it has some."""
    found = getattr(app, "settings", None)
    return found if isinstance(found, config.Settings) else here.project


def words_of(how: dict[str, Any]) -> list[str]:
    """The same options as a command line."""
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

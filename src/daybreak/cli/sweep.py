"""`daybreak sweep`: a command line for every combination of values, as one run."""

from __future__ import annotations

import hashlib
import logging
import re
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import click
from msgspec import Struct

from daybreak.cli import completions
from daybreak.cli.command_cache import CommandCache, cache_options, command_cache
from daybreak.cli.errors import Exit
from daybreak.cli.options import NAME, PRIORITY, TIMEOUT, Place, Whole, as_json
from daybreak.cli.output import note, say, say_json, tell
from daybreak.cli.root import store_options
from daybreak.cli.runs.wait import exit_code, say_end
from daybreak.cli.session import Session, session
from daybreak.cli.submit_options import RetryType
from daybreak.config import here
from daybreak.core.errors import BadInput, Permanent, RunChanged
from daybreak.core.text import counted, number, safe
from daybreak.runs.designs import Design, design_of
from daybreak.runs.grid_text import parse_grid
from daybreak.runs.record import check_run_name
from daybreak.runs.run import Run
from daybreak.runs.run_info import RunInfo
from daybreak.runs.submission import SweepPlan
from daybreak.tasks.command_tasks import EXEC_POINT
from daybreak.worker.child.command_template import CommandTemplate, names_in
from daybreak.worker.child.sweep_points import OWN, prepare_folder
from daybreak.worker.supervisor.exchange_retry import STORE_LOG

SWEEP_TARGET: Final = "daybreak.cli.sweep_app:app"
EXAMPLES: Final = 3
_PLAIN_WORD: Final = re.compile(r"[\w@%+=:,./{}-]+", re.ASCII)  # needs no quotes without a shell
GRACE: Final = timedelta(seconds=10)


class SweepOptions(Struct, frozen=True, kw_only=True):
    """The options of the command line."""

    grid: tuple[str, ...]
    rows: str | None
    name: str | None
    jobs: int | None
    collect: tuple[str, ...]
    share_folder: bool
    shell: bool
    no_work: bool
    dry_run: bool
    as_json: bool
    fresh: bool
    accept_changes: bool
    stop_after: int | None
    priority: int | None
    queue: str | None
    retry: object
    timeout: object
    use_cache: bool
    inputs: tuple[str, ...]


@click.command("sweep", short_help="Run a command line for every combination of values.")
@click.argument("command_line", metavar="COMMAND")
@click.option(
    "--grid", "-g", metavar="NAME=VALUES", multiple=True,
    help="Values for {NAME}: 10,12,24 is a list, 0.1:0.9:0.1 a range with its last value. May be repeated: every "
    "combination is run.",
)  # fmt: skip
@click.option(
    "--rows", type=Place(), metavar="FILE", help="Values from a CSV file: a column for each name, a row for each point."
)
@click.option("--name", "-n", type=NAME, help="The name of the run. Default: made from the command.")
@click.option(
    "--jobs", "-j", type=Whole(1), metavar="N", help="How many points run at once here [default: one per processor]."
)
@click.option(
    "--collect",
    metavar="PATTERN",
    multiple=True,
    help="Run each point in a folder of its own, and store the files that match with its result, for example '*.csv'. "
    "May be repeated.",
)
@click.option("--here", "share_folder", is_flag=True, help="With --collect: run all points in the current folder.")
@click.option("--shell", is_flag=True, help="Run the command with /bin/sh. Values stay plain text.")
@click.option("--no-work", is_flag=True, help="Only submit the points, and leave them to other workers.")
@click.option(
    "--priority", "-p", type=PRIORITY, help="A name (critical, high, normal, low ...), or 0 to 10; lower runs first."
)
@click.option(
    "--queue",
    "-q",
    type=NAME,
    shell_complete=completions.queues,
    help="The queue of the points. Default: one that is named like the run.",
)
@click.option("--retry", type=RetryType(), help="How often a point is tried, or a preset [default: 3].")
@click.option("--timeout", type=TIMEOUT, help="How long a point may run, for example 10m.")
@click.option("--stop-after", type=Whole(1), metavar="K", help="Pause the run if its first K points to end fail alike.")
@click.option("--fresh", is_flag=True, help="Run every point anew.")
@click.option("--accept-changes", is_flag=True, help="Continue a run although its points have changed.")
@cache_options
@click.option("--dry-run", is_flag=True, help="Print what would run; change nothing.")
@as_json
def command(command_line: str, **options: Any) -> int:
    """Run a command line for every combination of values, several at once, with a record of each. The same line again
    continues: points that have completed do not run a second time, whatever was killed in between.

    {name} in COMMAND is replaced by a value. A value is always plain text, also with spaces, quotes and semicolons in
    it. Output, exit code and duration of every point are kept: daybreak runs export NAME.

    Examples:
      daybreak sweep "sim --vin {vin} --duty {duty}" --grid vin=10,12,24 --grid duty=0.1:0.9:0.1
      daybreak sweep "python3 sim.py {vin}" --rows points.csv --collect '*.csv' --name overnight
      daybreak sweep "sim {vin} | gzip > {vin}.gz" --shell --grid vin=10:24 --jobs 4 --dry-run

    """
    return _sweep(command_line, SweepOptions(**options))


store_options(command)


def _sweep(command_line: str, options: SweepOptions) -> int:
    design, template = _points(options), CommandTemplate(command_line, shell=options.shell)
    for name in OWN:
        if name in design.columns:
            raise BadInput(f"no values can be named {name!r}, because the table of results has that column already")
    template.check_names(design.columns)
    if template.scripted is not None:
        note(
            f"{{{template.scripted}}} is inside a script, so its values are read as code. Write only the script as "
            "COMMAND, and add --shell: then values are plain text"
        )
    for pattern in options.collect:
        _check_pattern(pattern, design.columns)
    name = check_run_name(options.name or default_name(template, here()))
    if options.share_folder and not options.collect:
        raise click.UsageError("--here is for --collect: without it, points run in the current folder anyway")
    folder = _own_folders(name) if options.collect and not options.share_folder else None
    template = _with_full_paths(template, here()) if folder is not None else template
    how = {"cwd": str(here()), "collect": list(options.collect), "shell": options.shell}
    if folder is not None:
        how["folder"] = str(folder)
    fixed = {"command": template.text, "how": {key: value for key, value in how.items() if value}}
    if options.inputs and not options.use_cache:
        raise click.UsageError("--input is for --cache: it names files on which a known result depends")
    cache = _cache(template, options, how) if options.use_cache else None
    sweep = _Sweep(session(), options, name, design, template, fixed, cache)
    if options.dry_run:
        return sweep.say_plan()
    if folder is not None and not options.no_work:
        try:
            prepare_folder(folder)
        except Permanent as error:
            raise BadInput(str(error)) from None
    return sweep.run()


def _cache(template: CommandTemplate, options: SweepOptions, how: Mapping[str, Any]) -> CommandCache:
    """The folder of a point does not count: it is named like the run."""
    words = [] if template.shell else [word for word in shlex.split(template.text) if "{" not in word]
    also = {name: value for name, value in how.items() if name != "folder" and value}
    return command_cache(words, options.inputs, here(), also=also, ignore="how")


def _points(options: SweepOptions) -> Design:
    if options.grid and options.rows:
        raise click.UsageError("give --grid or --rows, not both", click.get_current_context())
    if options.rows:
        return design_of(rows=here() / options.rows)
    if not options.grid:
        raise click.UsageError(
            "no values are given: add --grid NAME=VALUES or --rows FILE", click.get_current_context()
        )
    grid: dict[str, list[str]] = {}
    for text in options.grid:
        name, values = parse_grid(text)
        if name in grid:
            raise click.UsageError(f"--grid {name} is given twice", click.get_current_context())
        if any("\0" in value for value in values):
            raise BadInput(f"--grid {name}: a value contains a NUL character, which no command line can have")
        grid[name] = values
    return design_of(grid)


def _check_pattern(pattern: str, columns: Sequence[str]) -> None:
    for name in names_in(pattern):
        if name not in columns:
            raise BadInput(f"--collect {pattern}: there are no values for {{{name}}}; a brace as such is {{{{ or }}}}")
    if not pattern or pattern.startswith("/") or ".." in Path(pattern).parts:
        raise BadInput(f"--collect {pattern}: name files inside the folder of the point, such as '*.csv'")


def _own_folders(name: str) -> Path:
    """The folder of the points' own folders, which is named like the run."""
    if Path(name).is_absolute() or ".." in Path(name).parts or Path(name) == Path():
        raise BadInput(
            f"the folder of the points is named like the run, and {name!r} is not inside the current folder: choose "
            "another --name, or use --here"
        )
    folder = here() / name
    if folder.exists() and not folder.is_dir():
        raise BadInput(f"{folder} is a file, and the folder of the points is named like the run: choose another --name")
    return folder


def default_name(template: CommandTemplate, folder: Path) -> str:
    """A name for a sweep without one: the same command in the same folder has the same name."""
    word = re.sub(r"[^\w.-]+", "-", Path(template.program).name).strip("-")[:40] or "sweep"
    digest = hashlib.sha256(f"{folder}\0{template.shell}\0{template.text}".encode("utf-8", "surrogateescape"))
    return f"{word}-{digest.hexdigest()[:6]}"


def _with_full_paths(template: CommandTemplate, folder: Path) -> CommandTemplate:
    """The template with the full path of each word that names a file of the current folder: every point runs in a
    folder of its own, where `sim.py` is not. Not with a shell, whose words are not known."""
    if template.shell:
        return template
    words = []
    for word in shlex.split(template.text):
        is_file = "{" not in word and not word.startswith(("-", "/")) and (folder / word).is_file()
        words.append(str(folder / word).replace("{", "{{").replace("}", "}}") if is_file else word)
    return CommandTemplate(" ".join(word if _PLAIN_WORD.fullmatch(word) else shlex.quote(word) for word in words))


class _Sweep:
    """One call of the command."""

    def __init__(
        self,
        here: Session,
        options: SweepOptions,
        name: str,
        design: Design,
        template: CommandTemplate,
        fixed: Mapping[str, Any],
        cache: CommandCache | None = None,
    ) -> None:
        self._cache = cache
        self._here = here
        self._options = options
        self._name = name
        self._queue = options.queue or name
        self._design = design
        self._template = template
        if not here.store.traits.persistent:
            raise BadInput(f"{here.settings.store} ends with this command: name another store, such as --url jobs.db")
        sys.modules.pop(SWEEP_TARGET.partition(":")[0], None)  # its settings are those of its first import
        self._app = here.load(SWEEP_TARGET)
        with here.command_line():
            self._app.settings  # noqa: B018 - resolves them now, with --url of this call
        self._fixed = fixed

    def _arguments(self) -> dict[str, Any]:
        """The arguments of `app.sweep` and `app.plan_sweep`."""
        options = self._options
        given: dict[str, Any] = {
            "priority": options.priority, "retry": options.retry, "timeout": options.timeout,
        }  # fmt: skip
        if self._cache is not None:
            given |= {"cache": self._cache.cache, "meta": self._cache.meta}
        levels = self._design.levels
        if levels:
            points: dict[str, Any] = {"grid": levels}
        else:
            points = {"rows": here() / str(options.rows)}
        return {
            **points,
            "fixed": self._fixed,
            "name": self._name,
            "queue": self._queue,
            "fresh": options.fresh,
            "accept_changes": options.accept_changes,
            **{name: value for name, value in given.items() if value is not None},
        }

    def say_plan(self) -> int:
        """Print what would run."""
        task = self._app.find_task(EXEC_POINT)
        if self._here.absent is None:
            plan: SweepPlan = self._app.plan_sweep(task, **self._arguments())
        else:
            plan = SweepPlan(total=len(self._design), to_run=len(self._design), new=len(self._design))
        self._app.close()
        lines = [self._template.shown(_texts(point)) for point, _ in zip(self._design, range(EXAMPLES), strict=False)]
        if self._options.as_json:
            say_json(
                {
                    "run": self._name,
                    "total": plan.total,
                    "done": plan.done,
                    "to_run": plan.to_run,
                    "failed": plan.failed,
                    "changes": list(plan.changes),
                    "examples": lines,
                }
            )
            return 0
        for line in lines:
            say(safe(line))
        if plan.total > len(lines):
            say(f"... and {counted(plan.total - len(lines), 'more command')}")
        say()
        failed = f", {number(plan.failed)} failed" if plan.failed else ""
        counts = f"{counted(plan.total, 'point')}, {number(plan.done)} done, {number(plan.to_run)} to run{failed}"
        say(f"Run {safe(self._name)}: {counts}.")
        for change in plan.changes:
            say(f"  {safe(change)}")
        if plan.is_refused:
            say("The points have changed: add --accept-changes or --fresh.")
        return 0

    def run(self) -> int:
        """Submit the points, run them here unless that is not wanted, and say how it ended."""
        if self._here.absent is not None:
            note(f"created the store {safe(self._here.settings.store)}")
        try:
            run = self._submitted()
            if self._options.no_work:
                return self._say_submitted(run)
            return self._worked(run)
        finally:
            self._app.close()

    def _submitted(self) -> Run:
        try:
            found: Run = self._app.sweep(
                self._app.find_task(EXEC_POINT), stop_after=self._options.stop_after, **self._arguments()
            )
        except RunChanged as changed:
            listed = "\n".join(f"  {change}" for change in changed.changes)
            raise BadInput(
                f"run {self._name!r} is not the same any more:\n{listed}\nNothing was submitted. Add --accept-changes "
                "to keep the results of the points that both have, --fresh to run every point anew, or another --name"
            ) from None
        return found

    def _say_submitted(self, run: Run) -> int:
        info = run.info()
        if self._options.as_json:
            say_json(info.as_dict())
            return 0
        say(f"Run {safe(info.name)}: {counted(info.total, 'point')}, {number(info.unfinished)} to run.")
        say(f"Start a worker with: {self._here.start_for(EXEC_POINT, self._queue)}")
        say(f"Wait for it with: {self._here.command('runs', 'wait', info.name)}")
        return 0

    def _worked(self, run: Run) -> int:
        is_shown = not self._options.as_json and sys.stderr.isatty()
        if not self._options.as_json:
            before = run.info()
            left = f"{number(before.unfinished)} to run" if before.unfinished < before.total else "all to run"
            tell(
                f"Run {safe(self._name)}: {counted(before.total, 'point')}, {left}. Ctrl-C stops it; the same line "
                "again continues."
            )
        settings: dict[str, Any] = {"queues": [self._queue], "processes": self._options.jobs, "grace": GRACE}
        try:
            with _quiet_logs(), self._app.worker(**settings):
                info = self._waited(run, is_shown=is_shown)
        except KeyboardInterrupt:
            info = run.info()
            if not info.is_over:
                return self._say_stopped(info)
        if self._options.as_json:
            say_json(info.as_dict())
        else:
            say_end(info)
        return exit_code(info)

    def _waited(self, run: Run, *, is_shown: bool) -> RunInfo:
        try:
            found: RunInfo = self._app.portal.run(run.await_(progress=is_shown))
        except KeyboardInterrupt:
            grace = f"{GRACE.total_seconds():g} s"
            tell(
                f"Stopping: points that run may end within {grace}. Ctrl-C again stops them now; they run again later."
            )
            raise
        return found

    def _say_stopped(self, info: RunInfo) -> int:
        again = " ".join(["daybreak", *(shlex.quote(word) for word in sys.argv[1:])])
        ended = f"{number(info.done)} of {counted(info.job_count, 'point')} have ended"
        tell(f"Stopped: {ended}. Nothing is lost. Continue with:")
        tell(f"  {safe(again)}")
        return int(Exit.INTERRUPTED)


def _texts(point: Mapping[str, Any]) -> dict[str, str]:
    return {name: str(value) for name, value in point.items()}


class _StoreTrouble(logging.Handler):
    """Prints each trouble of the store once."""

    def __init__(self, level: int) -> None:
        super().__init__(level)
        self._printed: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        if record.name != STORE_LOG or not isinstance(record.args, tuple):
            return
        trouble = str(record.args[0])
        if trouble not in self._printed:
            self._printed.add(trouble)
            tell(f"The sweep waits: {safe(trouble)}")


@contextmanager
def _quiet_logs() -> Iterator[None]:
    """Log lines of the worker would tear the progress bar apart, and what failed is said at the end. Only if the store
    cannot be reached or written, this is said at once: nothing moves until somebody helps."""
    logger, silent = logging.getLogger("daybreak"), _StoreTrouble(logging.WARNING)
    before = logger.propagate
    logger.addHandler(silent)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(silent)
        logger.propagate = before

"""The program `daybreak`: its commands by section. A command's module is imported only when it is called."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Sequence
from typing import Any, Final, NoReturn

import click
from click.shell_completion import shell_complete

from daybreak.cli import errors

PROGRAM: Final = "daybreak"
COMPLETE: Final = "_DAYBREAK_COMPLETE"  # the variable that a shell sets to ask for completions

# Name: (module, short help). The short help is repeated here so that `daybreak --help` imports no command module; a
# test checks that both texts agree.
SECTIONS: Final[dict[str, dict[str, tuple[str, str]]]] = {
    "Submit work": {
        "submit": ("daybreak.cli.submit", "Submit a job and print its id."),
        "exec": ("daybreak.cli.exec", "Submit a command line as a job."),
        "sweep": ("daybreak.cli.sweep", "Run a command line for every combination of values."),
        "lock": ("daybreak.cli.lock", "Run a command while holding a lock."),
    },
    "Inspect and manage": {
        "jobs": ("daybreak.cli.jobs", "List, show and change jobs."),
        "runs": ("daybreak.cli.runs", "List, show, export and change runs."),
        "finish": ("daybreak.cli.finish", "End a job whose work went on elsewhere."),
        "why": ("daybreak.cli.why", "Say why a job waits, and what to do."),
        "queues": ("daybreak.cli.queues", "List queues and change their settings."),
        "resources": ("daybreak.cli.resources", "List shared resources and change their limits."),
        "locks": ("daybreak.cli.locks", "List locks; take, extend and release them for an owner."),
        "files": ("daybreak.cli.files", "List, fetch and verify the files of jobs."),
        "schedules": ("daybreak.cli.schedules", "List, preview and change schedules."),
        "sagas": ("daybreak.cli.sagas", "List, show, resume and cancel sagas."),
        "cache": ("daybreak.cli.cache", "Show what is known, and drop known results."),
        "watches": ("daybreak.cli.watches", "List watched folders; pause them."),
        "workers": ("daybreak.cli.workers", "List workers and whether they are live."),
        "stats": ("daybreak.cli.stats", "Show counts of jobs, retries and timeouts."),
        "report": ("daybreak.cli.report", "Show what happened last night, and what to do."),
        "alerts": ("daybreak.cli.alerts", "Show which alerts are raised, and what to do."),
        "top": ("daybreak.cli.top", "Watch waiting, running and failed jobs live."),
    },
    "Run workers and servers": {
        "worker": ("daybreak.cli.worker", "Run a worker until it is stopped."),
        "dispatch": ("daybreak.cli.dispatch", "Send jobs to remote workers through SQS."),
        "sqs": ("daybreak.cli.sqs", "Create, count and delete the queues of remote workers."),
        "scale": ("daybreak.cli.scale", "Print how many workers are wanted."),
        "serve": ("daybreak.cli.serve", "Serve the REST API and the dashboard until they are stopped."),
        "dev": ("daybreak.cli.dev", "Run a worker that restarts when the code changes."),
        "watch": ("daybreak.cli.watch", "Make a job of every file that is put into a folder."),
        "bridge": ("daybreak.cli.bridge", "Make jobs of a broker's messages, and send it events."),
    },
    "Set up and maintain": {
        "init": ("daybreak.cli.init", "Write a settings file and a first task."),
        "demo": ("daybreak.cli.demo", "See Daybreak at work in half a minute."),
        "spool": ("daybreak.cli.spool", "Show and forward jobs that wait for the store."),
        "doctor": ("daybreak.cli.doctor", "Find problems and suggest fixes."),
        "tokens": ("daybreak.cli.tokens", "Create, list and revoke tokens for the server."),
        "backup": ("daybreak.cli.backup", "Copy the store while it is in use."),
        "move": ("daybreak.cli.move", "Move all jobs and settings to another store."),
        "completion": ("daybreak.cli.completion", "Print a shell completion script."),
    },
}
COMMANDS: Final = {name: about for section in SECTIONS.values() for name, about in section.items()}


class Group(click.Group):
    """A command group that suggests the closest command for a misspelt one."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if not ctx.resilient_parsing and not name.startswith("-") and self.get_command(ctx, name) is None:
            ctx.fail(f"no command {name!r}; {self.hint(ctx, name)}")
        return super().resolve_command(ctx, args)

    def hint(self, ctx: click.Context, name: str) -> str:
        from difflib import get_close_matches  # noqa: PLC0415 - slow to import, and needed only for a misspelt command

        known = self.list_commands(ctx)
        close = get_close_matches(name.lower(), known, n=1)
        return f"did you mean {close[0]!r}?" if close else f"the commands are {', '.join(known)}"


class Root(Group):
    """The top-level group. It imports commands on demand and turns every exception into an error and an exit code."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        return importlib.import_module(COMMANDS[cmd_name][0]).command  # type: ignore[no-any-return]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        width = max(len(name) for name in COMMANDS)
        for section, commands in SECTIONS.items():
            with formatter.section(section):
                formatter.write_dl([(name.ljust(width), about) for name, (_, about) in commands.items()])

    def main(self, args: Sequence[str] | None = None, prog_name: str | None = None, **_: Any) -> NoReturn:  # type: ignore[override]
        """Run a command line and exit with its code. An exception becomes a one-sentence error and its exit code."""
        errors.mend_streams()
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):  # characters that the terminal cannot show are escaped
                stream.reconfigure(errors="backslashreplace")
        if instruction := os.environ.get(COMPLETE):
            sys.exit(shell_complete(self, {}, PROGRAM, COMPLETE, instruction))
        try:
            code = self._run(sys.argv[1:] if args is None else list(args), prog_name or PROGRAM)
            sys.stdout.flush()
        except Exception as error:  # noqa: BLE001 - otherwise the user sees a traceback
            code = errors.end(error)
        except KeyboardInterrupt as error:
            code = errors.end(error)
        sys.exit(code)

    def _run(self, args: list[str], name: str) -> int:
        try:
            with self.make_context(name, args) as ctx:
                return int(self.invoke(ctx) or 0)
        except click.exceptions.Exit as leaving:
            return leaving.exit_code


def store_options(command: click.Command) -> click.Command:
    """Add `--url` and `--app` to a command. Every command and the program itself have them; the last one given
    counts."""
    command.help = _laid_out(command.help or "")
    command.params += [
        click.Option(
            ["--url"], metavar="URL", expose_value=False, callback=_keep,
            help="The store: a file such as jobs.db, postgresql://host/database or redis://host.",
        ),
        click.Option(
            ["--app"], metavar="TARGET", expose_value=False, callback=_keep,
            help="The app: tasks.py, tasks.py:app or module:app.",
        ),
    ]  # fmt: skip
    return command


def _laid_out(text: str) -> str:
    """Click rewraps paragraphs. Keep those that contain indented lines (examples, lists) as they are written."""
    paragraphs = inspect.cleandoc(text).split("\n\n")
    return "\n\n".join(f"\b\n{part}" if "\n  " in part else part for part in paragraphs)


def _keep(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    from daybreak.cli.session import Session  # noqa: PLC0415 - `daybreak --help` does not need it

    if value is not None:
        if not value and not ctx.resilient_parsing:
            raise click.BadParameter(f"{errors.EMPTY}, or leave it out", ctx, param)
        root = ctx.find_root()
        root.obj = ctx.obj = ctx.obj or Session()
        setattr(ctx.obj, str(param.name), value)


@click.group(
    cls=Root,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Settings are read from the command line, then from DAYBREAK_URL and DAYBREAK_APP, then from daybreak.toml "
    "or [tool.daybreak] in pyproject.toml; the first value found is used. The default store is daybreak.db in the "
    "current folder.",
)
@click.version_option(package_name="daybreak", message="daybreak %(version)s")
@click.pass_context
def root(ctx: click.Context) -> None:
    """Daybreak runs work unattended: submit jobs in the evening and find the results at daybreak."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


store_options(root)


def main() -> None:
    root.main()

"""The program `daybreak`: its commands by group, each loaded when it is called."""

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
COMPLETE: Final = "_DAYBREAK_COMPLETE"  # the variable by which a shell asks

# Name: (module, what the overview says of it). Written here so that the overview loads no command; a test compares.
SECTIONS: Final[dict[str, dict[str, tuple[str, str]]]] = {
    "Work": {
        "submit": ("daybreak.cli.submit", "Submit a job and print its id."),
        "exec": ("daybreak.cli.exec", "Submit a command line as a job."),
        "lock": ("daybreak.cli.lock", "Run a command while holding a lock."),
    },
    "See": {
        "jobs": ("daybreak.cli.jobs", "List jobs, look at them and change them."),
        "queues": ("daybreak.cli.queues", "List queues and change their settings."),
        "resources": ("daybreak.cli.resources", "List what jobs share, and change its limits."),
        "locks": ("daybreak.cli.locks", "List locks; take, extend and release them for an owner."),
        "workers": ("daybreak.cli.workers", "List workers: who is there, who has gone."),
        "stats": ("daybreak.cli.stats", "Show what has happened so far, in numbers."),
        "top": ("daybreak.cli.top", "Watch what is waiting, running and failing."),
    },
    "Run": {
        "worker": ("daybreak.cli.worker", "Run jobs until stopped."),
        "serve": ("daybreak.cli.serve", "Serve the REST API until stopped."),
        "dev": ("daybreak.cli.dev", "Run a worker that restarts when the code changes."),
    },
    "Set up": {
        "init": ("daybreak.cli.init", "Write a settings file and a first task."),
        "demo": ("daybreak.cli.demo", "See Daybreak at work in half a minute."),
        "doctor": ("daybreak.cli.doctor", "Find what is wrong, and say the cure."),
        "tokens": ("daybreak.cli.tokens", "Create, list and revoke tokens for the server."),
        "backup": ("daybreak.cli.backup", "Copy the store while it is in use."),
        "move": ("daybreak.cli.move", "Move all jobs and settings to another store."),
        "completion": ("daybreak.cli.completion", "Print the script that completes commands in a shell."),
    },
}
COMMANDS: Final = {name: about for section in SECTIONS.values() for name, about in section.items()}


class Group(click.Group):
    """A group that guesses what a misspelt command means."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if not ctx.resilient_parsing and not name.startswith("-") and self.get_command(ctx, name) is None:
            ctx.fail(f"no command {name!r}; {self.hint(ctx, name)}")
        return super().resolve_command(ctx, args)

    def hint(self, ctx: click.Context, name: str) -> str:
        from difflib import get_close_matches  # noqa: PLC0415 - only where something is misspelt

        known = self.list_commands(ctx)
        close = get_close_matches(name.lower(), known, n=1)
        return f"did you mean {close[0]!r}?" if close else f"there are {', '.join(known)}"


class Root(Group):
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
        """Run a command line and exit: 0, or the code of what went wrong, said in one sentence."""
        errors.mend_streams()
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):  # what the terminal cannot show is spelt out
                stream.reconfigure(errors="backslashreplace")
        if instruction := os.environ.get(COMPLETE):
            sys.exit(shell_complete(self, {}, PROGRAM, COMPLETE, instruction))
        try:
            code = self._run(sys.argv[1:] if args is None else list(args), prog_name or PROGRAM)
            sys.stdout.flush()
        except Exception as error:  # noqa: BLE001 - the last place where it can become a sentence
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
    """`--url` and `--app`, on the program and on every command: the nearest to the end counts."""
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
    """Click fills paragraphs; those with indented lines (examples, lists) are left as they were written."""
    paragraphs = inspect.cleandoc(text).split("\n\n")
    return "\n\n".join(f"\b\n{part}" if "\n  " in part else part for part in paragraphs)


def _keep(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    from daybreak.cli.session import Session  # noqa: PLC0415 - the overview needs none

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
    epilog="Settings come from the command line, DAYBREAK_URL and DAYBREAK_APP, daybreak.toml or [tool.daybreak] in "
    "pyproject.toml, in this order; without any, the store is daybreak.db in the current folder.",
)
@click.version_option(package_name="daybreak", message="daybreak %(version)s")
@click.pass_context
def root(ctx: click.Context) -> None:
    """Daybreak runs work unattended: submit jobs in the evening, the results are there at daybreak."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


store_options(root)


def main() -> None:
    root.main()

"""`daybreak completion`: prints a shell completion script."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from daybreak.cli.root import COMPLETE, PROGRAM, root, store_options

SHELLS = ("bash", "zsh", "fish")


@click.command("completion", short_help="Print a shell completion script.")
@click.argument("shell", type=click.Choice(SHELLS))
def command(shell: str) -> int:
    """Print a script that lets a shell complete commands, options, states, queues, tasks and job ids.

    Examples:
      eval "$(daybreak completion bash)"   in ~/.bashrc
      eval "$(daybreak completion zsh)"    in ~/.zshrc
      daybreak completion fish > ~/.config/fish/completions/daybreak.fish

    """
    made = get_completion_class(shell)
    assert made is not None
    complete = made(root, {}, PROGRAM, COMPLETE)
    click.echo(complete.source_template % complete.source_vars())
    return 0


store_options(command)

"""`daybreak completion`: the script that completes commands in a shell."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from daybreak.cli.root import COMPLETE, PROGRAM, root, store_options

SHELLS = ("bash", "zsh", "fish")


@click.command("completion", short_help="Print the script that completes commands in a shell.")
@click.argument("shell", type=click.Choice(SHELLS))
def command(shell: str) -> int:
    """Print the script that completes commands, options, states, queues, tasks and job ids in a shell.

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

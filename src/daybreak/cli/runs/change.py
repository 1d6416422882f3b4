"""`daybreak runs cancel | suspend | resume | priority | retry | delete`: changes all jobs of a run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import TYPE_CHECKING, Any

import click

from daybreak.cli import completions
from daybreak.cli.options import NAME, PRIORITY, as_json
from daybreak.cli.output import note as note_for_people
from daybreak.cli.output import say, say_json
from daybreak.cli.root import store_options
from daybreak.cli.runs.found import find_run, no_worker_note
from daybreak.cli.session import session
from daybreak.client.client import Client
from daybreak.core.model import UNFINISHED, WAITING, State
from daybreak.core.text import counted, priority_name, safe

if TYPE_CHECKING:
    from daybreak.runs.run import Run

_name = click.argument("name", type=NAME, shell_complete=completions.runs)
_dry_run = click.option("--dry-run", is_flag=True, help="Change nothing; print how many jobs would be changed.")
_note = click.option("--note", default="", help="The reason; it is kept in the history of the jobs.")


@click.command(short_help="Cancel the points of a run that have not ended.")
@_name
@_note
@_dry_run
@as_json
def cancel(name: str, note: str, dry_run: bool, as_json: bool) -> int:
    """Cancel every point of a run that has not ended. Waiting ones end at once; running ones are asked to stop. Results
    are kept.

    Example:
      daybreak runs cancel overnight

    """
    return _change(name, UNFINISHED, "cancelled", lambda run: run.acancel(note), dry_run, as_json)


@click.command(short_help="Pause a run: no more of its points start.")
@_name
@_note
@_dry_run
@as_json
def suspend(name: str, note: str, dry_run: bool, as_json: bool) -> int:
    """Suspend the waiting points of a run, so that no more of them start. Running ones go on to their end.

    Example:
      daybreak runs suspend overnight --note 'the licence is needed elsewhere'

    """
    return _change(name, WAITING - {State.SUSPENDED}, "suspended", lambda run: run.asuspend(note), dry_run, as_json)


@click.command(short_help="Let a paused run go on.")
@_name
@_dry_run
@as_json
def resume(name: str, dry_run: bool, as_json: bool) -> int:
    """Let the suspended points of a run wait for a worker again.

    Example:
      daybreak runs resume overnight

    """
    return _change(name, {State.SUSPENDED}, "resumed", lambda run: run.aresume(), dry_run, as_json, is_woken=True)


@click.command(short_help="Change the priority of a run.")
@_name
@click.argument("level", metavar="PRIORITY", type=PRIORITY)
@_dry_run
@as_json
def priority(name: str, level: int, dry_run: bool, as_json: bool) -> int:
    """Change the priority of the points of a run that wait: a name, or 0 to 10; lower runs first.

    Example:
      daybreak runs priority overnight low

    """
    done = f"moved to priority {priority_name(level)}"
    return _change(name, WAITING, done, lambda run: run.areprioritise(level), dry_run, as_json)


@click.command(short_help="Run the failed points of a run again.")
@_name
@click.option("--cancelled", is_flag=True, help="Run the cancelled points again instead.")
@_dry_run
@as_json
def retry(name: str, cancelled: bool, dry_run: bool, as_json: bool) -> int:
    """Run the points of a run that failed again, with all their attempts.

    Example:
      daybreak runs retry overnight

    """
    state = State.CANCELLED if cancelled else State.FAILED
    return _change(name, {state}, "queued again", lambda run: run.aretry(state.value), dry_run, as_json, is_woken=True)


@click.command(short_help="Remove a run, its jobs and their results.")
@_name
@click.option("--force", is_flag=True, help="Cancel the points that have not ended.")
@_dry_run
@as_json
def delete(name: str, force: bool, dry_run: bool, as_json: bool) -> int:
    """Remove a run, its jobs and their results. A run that has not ended is refused without --force.

    Example:
      daybreak runs delete overnight

    """
    return _change(name, frozenset(State), "removed", lambda run: run.adelete(force=force), dry_run, as_json)


def _change(
    name: str,
    states: Collection[State],
    done: str,
    change: Callable[[Run], Awaitable[int]],
    dry_run: bool,
    as_json: bool,
    *,
    is_woken: bool = False,
) -> int:
    """Change the jobs of a run that are in these states, and say how many there were. Jobs that are woken need a
    worker: say so if there is none."""

    async def apply(client: Client) -> int:
        run = await find_run(client, name)
        if dry_run:
            info = await run.ainfo()
            n = sum(info.jobs[state] for state in states)
        else:
            n = await change(run)
        if as_json:
            found: dict[str, Any] = {"run": run.name, "changed": 0 if dry_run else n}
            say_json({**found, "would_change": n} if dry_run else found)
            return 0
        verb = f"would be {done}" if dry_run else done
        shown = safe(run.name)
        say(f"{counted(n, 'job')} of run {shown} {verb}." if n else f"No job of run {shown} to change.")
        if is_woken and n and not dry_run and (hint := await no_worker_note(client, await run.ainfo())):
            note_for_people(hint)
        return 0

    return session().run(apply)


for made in (cancel, suspend, resume, priority, retry, delete):
    store_options(made)

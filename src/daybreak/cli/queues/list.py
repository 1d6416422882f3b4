"""`daybreak queues` and `daybreak queues show`."""

from __future__ import annotations

from datetime import UTC, datetime

import click

from daybreak.api.queue_info import QueueInfo, read_queues
from daybreak.api.views.queue import queue_view
from daybreak.cli import completions
from daybreak.cli.options import NAME, as_json
from daybreak.cli.output import Column, heading, say, say_json, say_pairs, say_table
from daybreak.cli.queues.queue_text import by_bucket, described, found
from daybreak.cli.root import Group, store_options
from daybreak.cli.session import session
from daybreak.client.client import Client
from daybreak.core.model import State
from daybreak.core.text import ago, bar, counted, lasted, number, safe


@click.group(cls=Group, name="queues", invoke_without_command=True, short_help="List queues and change their settings.")
@as_json
@click.pass_context
def command(ctx: click.Context, as_json: bool) -> int | None:
    """List queues: the number of jobs in each state, and the settings.

    Examples:
      daybreak queues
      daybreak queues set mail max_running=4 capacity=10000
      daybreak queues pause mail

    """
    if ctx.invoked_subcommand is not None:
        if as_json:
            ctx.fail(f"put options after the command: daybreak queues {ctx.invoked_subcommand} --json")
        return None
    return session().run(lambda client: _list(client, as_json=as_json))


async def _list(client: Client, *, as_json: bool) -> int:
    queues = await read_queues(client)
    if as_json:
        say_json({"queues": [queue_view(queue) for queue in queues]})
        return 0
    if not queues:
        say(
            f"No queues yet: a queue appears with its first job. Submit one with: {session().command('submit', 'TASK')}"
        )
        return 0
    say_table(
        [
            Column("QUEUE"), Column("QUEUED", right=True), Column("SCHEDULED", right=True),
            Column("BLOCKED", right=True), Column("SUSPENDED", right=True, drop=2), Column("RUNNING", right=True),
            Column("COMPLETED", right=True, drop=1), Column("FAILED", right=True), Column("SETTINGS", gives=True),
        ],
        [_row(queue) for queue in queues],
    )  # fmt: skip
    say()
    say(_next_step(queues))
    return 0


def _row(queue: QueueInfo) -> list[str]:
    def n(state: State) -> str:
        return number(queue.states.get(state, 0))

    most = queue.settings.max_running
    running = n(State.RUNNING) + (f"/{most}" if most is not None else "")
    return [
        safe(queue.name), n(State.QUEUED), n(State.SCHEDULED), n(State.BLOCKED), n(State.SUSPENDED), running,
        n(State.COMPLETED), n(State.FAILED), described(queue.settings),
    ]  # fmt: skip


def _next_step(queues: list[QueueInfo]) -> str:
    summary = f"{counted(len(queues), 'queue')}."
    paused = [queue for queue in queues if queue.settings.paused and queue.waiting]
    if paused:
        held = sum(queue.waiting for queue in paused)
        resume = session().command("queues", "resume", paused[0].name)
        return f"{summary} {counted(held, 'job waits', 'jobs wait')} in paused queues. Resume with: {resume}"
    busiest = max(queues, key=lambda queue: queue.waiting)
    return f"{summary} Show one with: {session().command('queues', 'show', busiest.name)}"


# -- one queue ---------------------------------------------------------------------------------------------------------


@click.command(short_help="Show one queue in detail.")
@click.argument("name", type=NAME, shell_complete=completions.queues)
@as_json
def show(name: str, as_json: bool) -> int:
    """Show one queue: its settings, its jobs by state, and its waiting jobs by priority.

    Example:
      daybreak queues show mail

    """
    return session().run(lambda client: _show(client, name, as_json=as_json))


async def _show(client: Client, name: str, *, as_json: bool) -> int:
    queue = await found(client, name)
    if as_json:
        say_json(queue_view(queue))
        return 0
    heading(f"queue {name}")
    settings = queue.settings
    say_pairs([
        ("paused", "yes: no job of this queue is started" if settings.paused else "no"),
        ("max_running", "no limit" if settings.max_running is None else number(settings.max_running)),
        ("capacity", "no limit" if settings.capacity is None else counted(settings.capacity, "unfinished job")),
        ("when full", "sheds the least urgent job for a more urgent one" if settings.when_full == "shed" else ""),
        ("discipline", settings.discipline),
        ("patience", lasted(settings.patience) if settings.discipline == "aging" else ""),
        ("weight", str(settings.weight)),
    ])  # fmt: skip
    say()
    say_pairs([(state.value, number(queue.states.get(state, 0))) for state in State])
    say()
    _say_depth(queue.priorities)
    await _say_oldest(client, name)
    say(f"Change it with: {session().command('queues', 'set', name, 'max_running=4')}")
    return 0


def _say_depth(priorities: dict[int, int]) -> None:
    depth = by_bucket(priorities)
    most = max(depth.values())
    say_table(
        [Column("PRIORITY"), Column("WAITING", right=True), Column("")],
        [[p.name.lower(), number(n), bar(n / most).rstrip("░") if most else ""] for p, n in depth.items()],
    )
    say()


async def _say_oldest(client: Client, name: str) -> None:
    page = await client.find(queue=name, state=State.QUEUED, limit=1)
    if page.jobs:
        job = page.jobs[0]
        say(f"Next: {safe(job.spec.task)} {job.id}, submitted {ago(job.created_at, datetime.now(UTC))}.")


store_options(command)
store_options(show)

"""`daybreak queues`: list queues, look at them, change them while they run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import click
import msgspec
from msgspec import Struct

from daybreak.cli import completing
from daybreak.cli.failing import NotFound
from daybreak.cli.options import as_json, pairs
from daybreak.cli.printing import Column, heading, note, say, say_json, say_pairs, say_table
from daybreak.cli.root import Group, store_options
from daybreak.cli.session import session
from daybreak.cli.text import ago, bar, counted, lasted, number, safe
from daybreak.client import Client
from daybreak.config import closest
from daybreak.errors import BadInput
from daybreak.model import DEFAULT_QUEUE, WAITING, QueueSettings, State
from daybreak.units import Priority, bucket

SETTINGS = tuple(name for name in QueueSettings.__struct_fields__ if name != "ranked")


class Queue(Struct, frozen=True, kw_only=True):
    """A queue as it is now."""

    name: str
    settings: QueueSettings
    is_set: bool
    states: dict[State, int]
    priorities: dict[int, int]  # of what waits
    tasks: dict[str, int]  # of what is unfinished

    @property
    def waiting(self) -> int:
        return sum(self.states.get(state, 0) for state in WAITING)

    def data(self) -> dict[str, Any]:
        settings = {name: getattr(self.settings, name) for name in SETTINGS}
        settings["patience"] = self.settings.patience.total_seconds()
        return {
            "name": self.name,
            **settings,
            "by_state": {state.value: self.states.get(state, 0) for state in State},
            "by_priority": {str(level): self.priorities.get(level, 0) for level in range(11)},
            "by_task": self.tasks,
        }


async def read_queues(client: Client) -> list[Queue]:
    """All queues that have settings or jobs, by name."""
    records = await client.store.records("queue")
    settings = {record.name: msgspec.json.decode(record.value, type=QueueSettings) for record in records}
    states: dict[str, dict[State, int]] = defaultdict(lambda: defaultdict(int))
    priorities: dict[str, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    tasks: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for tally in await client.tallies():
        if not tally.n:
            continue
        states[tally.queue][tally.state] += tally.n
        if tally.state in WAITING:
            priorities[tally.queue][tally.priority] += tally.n
        if tally.state in WAITING or tally.state is State.RUNNING:
            tasks[tally.queue][tally.task] += tally.n
    return [
        Queue(
            name=name,
            settings=settings.get(name, DEFAULT_QUEUE),
            is_set=name in settings,
            states=dict(states[name]),
            priorities=dict(priorities[name]),
            tasks=dict(tasks[name]),
        )
        for name in sorted({*settings, *states})
    ]


@click.group(cls=Group, name="queues", invoke_without_command=True, short_help="List queues and change their settings.")
@as_json
@click.pass_context
def command(ctx: click.Context, as_json: bool) -> int | None:
    """List queues: what waits and runs in each, and how it is set.

    Examples:
      daybreak queues
      daybreak queues set mail max_running=4 capacity=10000
      daybreak queues pause mail

    """
    if ctx.invoked_subcommand is not None:
        if as_json:
            ctx.fail(f"write options after the command: daybreak queues {ctx.invoked_subcommand} --json")
        return None
    return session().run(lambda client: _list(client, as_json=as_json))


async def _list(client: Client, *, as_json: bool) -> int:
    queues = await read_queues(client)
    if as_json:
        say_json({"queues": [queue.data() for queue in queues]})
        return 0
    if not queues:
        say(f"No queues yet: they come with their first job. Submit one with: {session().command('submit', 'TASK')}")
        return 0
    say_table(
        [
            Column("QUEUE"), Column("QUEUED", right=True), Column("SCHEDULED", right=True),
            Column("SUSPENDED", right=True), Column("RUNNING", right=True), Column("COMPLETED", right=True, drop=1),
            Column("FAILED", right=True), Column("SETTINGS", gives=True),
        ],
        [_row(queue) for queue in queues],
    )  # fmt: skip
    say()
    say(_next_step(queues))
    return 0


def _row(queue: Queue) -> list[str]:
    def n(state: State) -> str:
        return number(queue.states.get(state, 0))

    most = queue.settings.max_running
    running = n(State.RUNNING) + (f"/{most}" if most is not None else "")
    return [
        safe(queue.name), n(State.QUEUED), n(State.SCHEDULED), n(State.SUSPENDED), running, n(State.COMPLETED),
        n(State.FAILED), described(queue.settings),
    ]  # fmt: skip


def described(settings: QueueSettings) -> str:
    """What differs from the defaults, in words."""
    said = ["paused"] if settings.paused else []
    said += [f"capacity {number(settings.capacity)}"] if settings.capacity is not None else []
    said += [f"aging, patience {lasted(settings.patience)}"] if settings.discipline == "aging" else []
    said += [f"weight {settings.weight}"] if settings.weight != 1 else []
    return ", ".join(said)


def _next_step(queues: list[Queue]) -> str:
    told = f"{counted(len(queues), 'queue')}."
    paused = [queue for queue in queues if queue.settings.paused and queue.waiting]
    if paused:
        held = sum(queue.waiting for queue in paused)
        go_on = session().command("queues", "resume", paused[0].name)
        return f"{told} {counted(held, 'job')} held by a pause. Go on with: {go_on}"
    busiest = max(queues, key=lambda queue: queue.waiting)
    return f"{told} Look at one with: {session().command('queues', 'show', busiest.name)}"


# -- one queue ---------------------------------------------------------------------------------------------------------


@click.command(short_help="All about one queue.")
@click.argument("name", shell_complete=completing.queues)
@as_json
def show(name: str, as_json: bool) -> int:
    """All about one queue: its settings, and what is in it by priority and task.

    Example:
      daybreak queues show mail

    """
    return session().run(lambda client: _show(client, name, as_json=as_json))


async def _show(client: Client, name: str, *, as_json: bool) -> int:
    queue = await _found(client, name)
    if as_json:
        say_json(queue.data())
        return 0
    heading(f"queue {name}")
    settings = queue.settings
    say_pairs([
        ("paused", "yes: nothing is claimed from it" if settings.paused else "no"),
        ("max_running", "no limit" if settings.max_running is None else number(settings.max_running)),
        ("capacity", "no limit" if settings.capacity is None else f"{number(settings.capacity)} unfinished jobs"),
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


def by_bucket(priorities: dict[int, int]) -> dict[Priority, int]:
    """Counts under the named priorities, zeros included."""
    found = dict.fromkeys(Priority, 0)
    for level, n in priorities.items():
        found[bucket(level)] += n
    return found


async def _say_oldest(client: Client, name: str) -> None:
    page = await client.find(queue=name, state=State.QUEUED, limit=1)
    if page.jobs:
        job = page.jobs[0]
        say(f"Next: {safe(job.spec.task)} {job.id}, submitted {ago(job.created_at, datetime.now(UTC))}.")


async def _found(client: Client, name: str) -> Queue:
    queues = await read_queues(client)
    for queue in queues:
        if queue.name == name:
            return queue
    raise NotFound(_unknown(name, [queue.name for queue in queues]))


def _unknown(name: str, known: Iterable[str]) -> str:
    hint = closest(name, known)
    return f"no queue named {name!r}" + (f"; did you mean {hint!r}?" if hint else ": it has neither jobs nor settings")


# -- changing ----------------------------------------------------------------------------------------------------------

_new = click.option("--new", is_flag=True, help="The name is right, though much like that of another queue.")


@click.command("set", short_help="Change a queue while it runs.")
@click.argument("name", shell_complete=completing.queues)
@click.argument("words", metavar="SETTING=VALUE...", nargs=-1, required=True)
@_new
@as_json
def set_(name: str, words: tuple[str, ...], new: bool, as_json: bool) -> int:
    """Change a queue while it runs; the change holds from the next claim on, in every process.

    Settings:
      paused       true or false
      max_running  at most so many at once, over all workers; none for no limit
      capacity     at most so many unfinished jobs, more are refused; none for no limit
      discipline   fifo, or aging: nothing starves
      patience     of aging: waiting so long counts as one priority, such as 2m
      weight       its share between equally urgent queues

    Example:
      daybreak queues set mail max_running=4 discipline=aging patience=10m

    """
    changes = {key: _setting(key, text) for key, text in pairs(words, "setting").items()}
    return _apply([name], changes, new=new, as_json=as_json)


@click.command(short_help="Claim nothing more from queues; what runs goes on.")
@click.argument("names", metavar="NAME...", nargs=-1, required=True, shell_complete=completing.queues)
@_new
@as_json
def pause(names: tuple[str, ...], new: bool, as_json: bool) -> int:
    """Claim nothing more from these queues. What runs goes on to its end.

    Example:
      daybreak queues pause mail reports

    """
    return _apply(names, {"paused": True}, new=new, as_json=as_json)


@click.command(short_help="Claim from paused queues again.")
@click.argument("names", metavar="NAME...", nargs=-1, required=True, shell_complete=completing.queues)
@as_json
def resume(names: tuple[str, ...], as_json: bool) -> int:
    """Claim from paused queues again.

    Example:
      daybreak queues resume mail

    """
    return _apply(names, {"paused": False}, new=None, as_json=as_json)


for subcommand in (show, set_, pause, resume):
    command.add_command(store_options(subcommand))
store_options(command)


def _setting(key: str, text: str) -> Any:
    if key not in SETTINGS:
        hint = closest(key, SETTINGS)
        raise BadInput(
            f"a queue has no setting {key!r}; "
            + (f"did you mean {hint!r}?" if hint else f"there are {', '.join(SETTINGS)}")
        )
    word = text.strip().lower()
    if key in ("max_running", "capacity") and word in ("none", "null", ""):
        return None
    if key in ("max_running", "capacity", "weight"):
        if not word.isascii() or not word.isdigit():
            raise BadInput(
                f"{key}={text}: write a whole number" + ("" if key == "weight" else ", or none for no limit")
            )
        return int(word[:12])
    if key == "paused":
        if word not in ("true", "false", "yes", "no", "on", "off", "1", "0"):
            raise BadInput(f"paused={text}: write true or false")
        return word in ("true", "yes", "on", "1")
    if key == "discipline" and word not in ("fifo", "aging"):
        raise BadInput(f"discipline={text}: write fifo or aging")
    return word if key == "discipline" else text


def _apply(names: Iterable[str], changes: dict[str, Any], *, new: bool | None, as_json: bool) -> int:
    async def apply(client: Client) -> int:
        for name in names:
            await _check_known(client, name, new=new)
        after = {name: await client.set_queue(name, **changes) for name in names}
        if as_json:
            say_json({"queues": [(await _found(client, name)).data() for name in after]})
        else:
            for name, settings in after.items():
                say(_told(name, settings, changes))
        return 0

    return session().run(apply, create=new is not None)


async def _check_known(client: Client, name: str, *, new: bool | None) -> None:
    """A queue may be set before its first job; but a name that is nearly another's is more likely a slip."""
    known = [queue.name for queue in await read_queues(client)]
    if name in known or new:
        return
    if new is None or closest(name, known):
        raise NotFound(_unknown(name, known) + ("" if new is None else " If not, add --new."))
    note(f"queue {safe(name)!r} has no jobs yet")


def _told(name: str, settings: QueueSettings, changes: dict[str, Any]) -> str:
    if set(changes) == {"paused"}:
        if settings.paused:
            return f"{safe(name)} is paused. Go on with: {session().command('queues', 'resume', name)}"
        return f"{safe(name)} goes on."
    return f"{safe(name)}: " + ", ".join(f"{key} {_worth(getattr(settings, key))}" for key in changes) + "."


def _worth(value: object) -> str:
    match value:
        case None:
            return "without limit"
        case bool():
            return "yes" if value else "no"
        case int():
            return number(value)
        case str():
            return value
        case _:
            return lasted(value)  # type: ignore[arg-type]

"""`daybreak locks`: lists holders and waiters of locks; takes, extends and releases locks of an owner."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import click

from daybreak.api.locks import owned_locks
from daybreak.api.locks.lock_job import Waiter, all_waiters
from daybreak.api.views.lock import lock_view, owned_lock_view
from daybreak.cli import completions
from daybreak.cli.errors import NotFound
from daybreak.cli.lock import WAITED_TOO_LONG, leaving_on_signals
from daybreak.cli.options import Duration, PriorityType, as_json
from daybreak.cli.output import Column, say, say_json, say_table
from daybreak.cli.root import Group, store_options
from daybreak.cli.session import session
from daybreak.client.client import Client
from daybreak.core.errors import BadInput, LockTimeout
from daybreak.core.model import Lease, State
from daybreak.core.text import ago, counted, lasted, local, priority_name, safe
from daybreak.system.ports import Ids, RealWorld


@click.group(
    cls=Group,
    name="locks",
    invoke_without_command=True,
    short_help="List locks; take, extend and release them for an owner.",
)
@as_json
@click.pass_context
def command(ctx: click.Context, as_json: bool) -> int | None:
    """List locks: who holds each one, and who waits for it.

    Examples:
      daybreak locks
      daybreak locks take prod/network --owner pr-812 --for 8h
      daybreak locks release prod/network --owner pr-812

    """
    if ctx.invoked_subcommand is not None:
        if as_json:
            ctx.fail(f"put options after the command: daybreak locks {ctx.invoked_subcommand} --json")
        return None
    return session().run(lambda client: _list(client, as_json=as_json))


async def _list(client: Client, *, as_json: bool) -> int:
    found = await all_waiters(client)
    if as_json:
        say_json({"locks": [lock_view(one) for one in found]})
        return 0
    if not found:
        say(f"No lock is held. Run a command under a lock with: {session().command('lock', 'NAME', '--', 'COMMAND')}")
        return 0
    say_table(
        [
            Column("LOCK"), Column("WHO"), Column("STATE"), Column("PRIORITY"), Column("SINCE"),
            Column("UNTIL"), Column("JOB", drop=1),
        ],
        [_row(one) for one in found],
    )  # fmt: skip
    waiting = sum(one.state is State.BLOCKED for one in found)
    say()
    say(f"{len(found) - waiting} held, {waiting} waiting. Move a waiter forward with: "
        f"{session().command('jobs', 'priority', 'high', 'JOB')}")  # fmt: skip
    return 0


def _row(one: Waiter) -> list[str]:
    state = "held" if one.state is State.RUNNING else f"waiting, {one.position} ahead"
    until = "" if one.until is None else local(one.until)
    since = ago(one.since, datetime.now(UTC))
    return [safe(", ".join(one.locks)), safe(one.who), state, priority_name(one.priority), since, until, one.job]


# -- locks of an owner
# -------------------------------------------------------------------------------------------------------

_owner = click.option("--owner", metavar="WHO", help="The owner of the lock: a pull request, a person, a machine.")
_names = click.argument("names", metavar="NAME...", nargs=-1, required=True, shell_complete=completions.locks)


@click.command(short_help="Take a lock for an owner, for a given time.")
@_names
@_owner
@click.option(
    "--for", "hold_for", type=Duration(), required=True, help="Release the lock after this time if nobody did before."
)
@click.option(
    "--wait", type=Duration(), default="5m", show_default=True, help="Give up after this time, with exit code 75."
)
@click.option(
    "--priority", type=PriorityType(), default="normal", help="Waiters with a more urgent priority get the lock first."
)
@as_json
def take(
    names: tuple[str, ...], owner: str | None, hold_for: timedelta, wait: timedelta, priority: int, as_json: bool
) -> int:
    """Take a lock for an owner. No process has to keep running: the owner's name extends and releases the lock, from
    any machine. If the owner holds the lock already, it is held for the given time from now.

    Example:
      daybreak locks take prod/network --owner pr-812 --for 8h

    """
    who = _checked_owner(owner)

    async def apply(client: Client) -> int:
        new_id = Ids(RealWorld())()
        try:
            with leaving_on_signals():
                lease = await owned_locks.take(
                    client, names, who, hold_for=hold_for, wait=wait, priority=priority, id=new_id
                )
        except LockTimeout as error:
            click.echo(f"Error: {safe(str(error).replace('wait=...', '--wait'))}", err=True)
            return WAITED_TOO_LONG
        return _say_held(lease, names, who, hold_for, as_json=as_json)

    return session().run(apply, create=True)


@click.command(short_help="Extend an owner's lock.")
@_names
@_owner
@click.option("--for", "hold_for", type=Duration(), required=True, help="How long to hold the lock, from now on.")
@as_json
def extend(names: tuple[str, ...], owner: str | None, hold_for: timedelta, as_json: bool) -> int:
    """Extend a lock that the owner holds: it is held for the given time from now.

    Example:
      daybreak locks extend prod/network --owner pr-812 --for 2h

    """
    who = _checked_owner(owner)

    async def apply(client: Client) -> int:
        lease = await owned_locks.extend(client, names, who, hold_for)
        return _say_held(lease, names, who, hold_for, as_json=as_json)

    return session().run(apply)


@click.command(short_help="Release a lock, from any machine.")
@_names
@_owner
@click.option(
    "--force", is_flag=True, help="Release the lock whoever holds it. The holder is told that it lost the lock."
)
@as_json
def release(names: tuple[str, ...], owner: str | None, force: bool, as_json: bool) -> int:
    """Release a lock by its owner's name, or with --force whoever holds it.

    Examples:
      daybreak locks release prod/network --owner pr-812
      daybreak locks release prod/network --force

    """
    if force == (owner is not None):
        raise BadInput(
            "name the owner of the lock with --owner WHO, or release it whoever holds it with --force; not both"
        )

    async def apply(client: Client) -> int:
        released = await owned_locks.release(client, names, owner)
        if not released:
            raise NotFound(f"lock {', '.join(names)} is not held" + (f" by {owner}" if owner else ""))
        if as_json:
            say_json({"released": [job.id for job in released]})
        else:
            was = ", ".join(sorted({job.spec.owner or "" for job in released}))
            say(f"{counted(len(released), 'lock')} released; held by {safe(was)} until now.")
        return 0

    return session().run(apply)


def _checked_owner(owner: str | None) -> str:
    if not owner:
        raise BadInput("name the owner of the lock, for example --owner pr-812")
    return owner


def _say_held(lease: Lease, names: tuple[str, ...], owner: str, hold_for: timedelta, *, as_json: bool) -> int:
    if as_json:
        say_json(owned_lock_view(lease, names, owner, hold_for))
    else:
        say(f"{safe(', '.join(names))} is held by {safe(owner)} for {lasted(hold_for)}, fence {lease.fence}.")
    return 0


for made in (take, extend, release):
    command.add_command(made)
    store_options(made)
store_options(command)

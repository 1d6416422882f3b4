"""`daybreak resources`: lists shared resources and changes their limits."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from daybreak.api.resources import ResourceInfo, all_resources, info_of, reset_resource, set_resource, settings_in
from daybreak.api.views.resource import resource_view
from daybreak.cli import completions
from daybreak.cli.errors import NotFound
from daybreak.cli.options import NAME, as_json, pairs
from daybreak.cli.output import Column, heading, say, say_json, say_pairs, say_table
from daybreak.cli.root import Group, store_options
from daybreak.cli.session import session
from daybreak.client.client import Client
from daybreak.config import closest, duration_setting
from daybreak.core.errors import BadInput
from daybreak.core.model import Breaker, State
from daybreak.core.text import counted, lasted, local, number, safe
from daybreak.policy.admit import MAX_SLOTS
from daybreak.policy.resources import LOCK_PREFIX

BREAKER_SETTINGS = ("failures", "successes", "open_for", "probes", "forget_after")
SETTINGS = ("slots", "rate", "burst", "max_waiting", "breaker", *BREAKER_SETTINGS)


@click.group(
    cls=Group,
    name="resources",
    invoke_without_command=True,
    short_help="List shared resources and change their limits.",
)
@click.option("--locks", is_flag=True, help="Include locks, of which there may be many.")
@as_json
@click.pass_context
def command(ctx: click.Context, locks: bool, as_json: bool) -> int | None:
    """List shared resources: their limits, how many slots are in use, and how many jobs wait.

    Examples:
      daybreak resources
      daybreak resources set plecs slots=2
      daybreak resources set api rate=10/s burst=5 breaker=on

    """
    if ctx.invoked_subcommand is not None:
        if as_json:
            ctx.fail(f"put options after the command: daybreak resources {ctx.invoked_subcommand} --json")
        return None
    return session().run(lambda client: _list(client, locks=locks, as_json=as_json))


async def _list(client: Client, *, locks: bool, as_json: bool) -> int:
    found = [info for info in await all_resources(client) if locks or not info.name.startswith(LOCK_PREFIX)]
    if as_json:
        say_json({"resources": [resource_view(info) for info in found]})
        return 0
    if not found:
        say("No resources yet: a resource appears with the first job that needs it. Create one with:")
        say(f"  {session().command('resources', 'set', 'NAME', 'slots=1')}")
        return 0
    say_table(
        [
            Column("RESOURCE"), Column("IN USE", right=True), Column("WAITING", right=True), Column("RATE"),
            Column("BREAKER"), Column("SETTINGS", gives=True),
        ],
        [_row(info) for info in found],
    )  # fmt: skip
    say()
    say(f"{counted(len(found), 'resource')}. Show one with: {session().command('resources', 'show', found[0].name)}")
    return 0


def _row(info: ResourceInfo) -> list[str]:
    used = number(info.used) + (f"/{number(info.slots)}" if info.slots is not None else "")
    return [safe(info.name), used, number(info.waiting), _rate(info), _breaker(info), _notes(info)]


def _rate(info: ResourceInfo) -> str:
    return "" if info.rate == "none" else info.rate + (f", burst {info.burst}" if info.burst != 1 else "")


def _breaker(info: ResourceInfo) -> str:
    if info.breaker == "none":
        return ""
    if info.breaker == "open":
        return f"open until {local(info.shut_until)}" if info.shut_until else "probing"
    return f"closed, {counted(info.failures, 'failure')}" if info.failures else "closed"


def _notes(info: ResourceInfo) -> str:
    notes = []
    if info.retries_waiting:
        notes.append(f"failing: {counted(info.retries_waiting, 'retry waits', 'retries wait')}")
    if info.max_waiting is not None:
        notes.append(f"at most {number(info.max_waiting)} may wait")
    if info.set_by:
        notes.append(f"set by {safe(info.set_by)}")
    if info.differs:
        notes.append("differs from the code")
    return ", ".join(notes)


# -- one ---------------------------------------------------------------------------------------------------------------


@click.command(short_help="Show one resource in detail.")
@click.argument("name", type=NAME, shell_complete=completions.resources)
@as_json
def show(name: str, as_json: bool) -> int:
    """Show one resource: its limits, how many jobs wait, and which jobs hold it.

    Example:
      daybreak resources show plecs

    """
    return session().run(lambda client: _show(client, name, as_json=as_json))


async def _show(client: Client, name: str, *, as_json: bool) -> int:
    info = await _found(client, name)
    holders = [
        job async for job in client.find_all(state=State.RUNNING)
        if any(need.resource == name for need in job.spec.options.resources)
    ]  # fmt: skip
    if as_json:
        say_json({**resource_view(info), "holders": [job.id for job in holders]})
        return 0
    heading(f"resource {name}")
    say_pairs([
        ("slots", "no limit" if info.slots is None else number(info.slots)),
        ("in use", number(info.used)),
        ("waiting", number(info.waiting)),
        ("retries waiting", f"{number(info.retries_waiting)}; it is failing" if info.retries_waiting else ""),
        ("rate", "no limit" if info.rate == "none" else info.rate),
        ("burst", "" if info.rate == "none" else f"{counted(info.burst, 'start')} at once after an idle time"),
        ("max_waiting", "no limit" if info.max_waiting is None else number(info.max_waiting)),
        ("breaker", _breaker(info) or "none"),
        ("opens after", _opens(info.breaker_settings)),
        ("closes after", _closes(info.breaker_settings)),
        ("opened", counted(info.opened, "time") if info.opened else ""),
        ("set by", safe(info.set_by) or "the code"),
    ])  # fmt: skip
    say()
    for job in holders[:20]:
        say(f"held by {safe(job.spec.task)} {job.id} on {safe(job.worker or '')}")
    if info.differs:
        say(f"Return to the settings of the code with: {session().command('resources', 'reset', name)}")
    return 0


def _opens(breaker: Breaker | None) -> str:
    if breaker is None:
        return ""
    together = "" if breaker.forget_after is None else f", each within {lasted(breaker.forget_after)} of the last"
    return f"{counted(breaker.failures, 'failure')} in a row{together}; stays open for {lasted(breaker.open_for)}"


def _closes(breaker: Breaker | None) -> str:
    if breaker is None:
        return ""
    return (
        f"{counted(breaker.successes, 'success', 'successes')}, probing with {counted(breaker.probes, 'job')} at a time"
    )


async def _found(client: Client, name: str) -> ResourceInfo:
    known = [usage.name for usage in await client.store.usage()]
    if name not in known:
        hint = closest(name, known)
        raise NotFound(f"no resource named {name!r}" + (f"; did you mean {hint!r}?" if hint else ""))
    return await info_of(client, name)


# -- changes -----------------------------------------------------------------------------------------------------------


@click.command("set", short_help="Change the limits of a resource.")
@click.argument("name", type=NAME, shell_complete=completions.resources)
@click.argument("words", metavar="SETTING=VALUE...", nargs=-1, required=True)
@as_json
def set_(name: str, words: tuple[str, ...], as_json: bool) -> int:
    """Change the limits of a resource while it is in use. They override what the code declares, until the resource is
    reset.

    Settings:
      slots        how many jobs may hold the resource at once; none: no limit
      rate         how many jobs may start per time, for example 10/s or 100/min; none: no limit
      burst        how many of them may start at once after an idle time
      max_waiting  refuse new jobs while this many wait for the resource; none: no limit. In a queue
                   that sheds, a more urgent job pushes one of them out
      breaker      on or off; its settings are failures=5 successes=2 open_for=60s probes=1
                   forget_after=none

    Example:
      daybreak resources set api rate=10/s burst=5 breaker=on open_for=30s

    """
    given = pairs(words, "setting")
    for key in given:
        if key not in SETTINGS:
            hint = closest(key, SETTINGS)
            advice = f"did you mean {hint!r}?" if hint else f"the settings are {', '.join(SETTINGS)}"
            raise BadInput(f"a resource has no setting {key!r}; {advice}")

    async def apply(client: Client) -> int:
        changes = await _changes(client, name, given)
        await set_resource(client, name, **changes)
        info = await info_of(client, name)
        if as_json:
            say_json(resource_view(info))
        else:
            say(f"{safe(name)}: " + ", ".join(f"{key} {given[key]}" for key in given) + ".")
        return 0

    return session().run(apply, create=True)


async def _changes(client: Client, name: str, given: dict[str, str]) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    for key in ("slots", "burst", "max_waiting"):
        if key in given:
            changes[key] = _whole(key, given[key])
    if "rate" in given:
        changes["rate"] = given["rate"].strip().lower()
    of_breaker = {key: given[key] for key in BREAKER_SETTINGS if key in given}
    if "breaker" in given or of_breaker:
        changes["breaker"] = await _breaker_of(client, name, given.get("breaker"), of_breaker)
    return changes


async def _breaker_of(client: Client, name: str, word: str | None, given: dict[str, str]) -> Breaker | bool:
    word = None if word is None else word.strip().lower()
    if word in ("off", "none", "false", "no"):
        return False
    if word not in (None, "on", "true", "yes"):
        raise BadInput(f"breaker={word}: write on or off")
    before = await settings_in(client, name)
    changes: dict[str, Any] = {key: _of_breaker(key, text) for key, text in given.items()}
    return msgspec.structs.replace(before.breaker or Breaker(), **changes)


def _of_breaker(key: str, text: str) -> Any:
    if key == "forget_after" and text.strip().lower() == "none":
        return None
    if key in ("open_for", "forget_after"):
        return duration_setting(text, key)
    return _whole(key, text)


def _whole(key: str, text: str) -> int | str:
    word = text.strip().lower()
    may_be_none = key in ("slots", "max_waiting")
    if word == "none" and may_be_none:
        return word
    least = 0 if may_be_none else 1
    if not word.isascii() or not word.isdigit() or len(word) > 12 or not least <= int(word) <= MAX_SLOTS:
        others = ", or none for no limit" if may_be_none else ""
        raise BadInput(f"{key}={text[:50]}: write a whole number from {least} to {number(MAX_SLOTS)}{others}")
    return int(word)


@click.command(short_help="Return to the limits that the code declares.")
@click.argument("name", type=NAME, shell_complete=completions.resources)
@as_json
def reset(name: str, as_json: bool) -> int:
    """Undo what was set by hand: the limits that the code declares apply again, and an open breaker is closed.

    Example:
      daybreak resources reset plecs

    """

    async def apply(client: Client) -> int:
        await _found(client, name)
        await reset_resource(client, name)
        info = await info_of(client, name)
        if as_json:
            say_json(resource_view(info))
        else:
            slots = "no limit" if info.slots is None else counted(info.slots, "slot")
            say(f"{safe(name)} has the settings of the code again: {slots}{', ' + _rate(info) if _rate(info) else ''}.")
        return 0

    return session().run(apply)


for made in (show, set_, reset):
    command.add_command(made)
    store_options(made)
store_options(command)

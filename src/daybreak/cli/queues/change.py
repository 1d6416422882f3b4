"""`daybreak queues set | pause | resume`: changes the settings of queues that are in use."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import click

from daybreak.api.queue_info import QUEUE_SETTINGS, read_queues
from daybreak.api.views.queue import queue_view
from daybreak.cli import completions
from daybreak.cli.errors import NotFound
from daybreak.cli.options import NAME, as_json, pairs
from daybreak.cli.output import note, say, say_json
from daybreak.cli.queues.queue_text import found, unknown
from daybreak.cli.root import store_options
from daybreak.cli.session import session
from daybreak.client.client import Client
from daybreak.config import closest, duration_setting
from daybreak.core.errors import BadInput
from daybreak.core.model import QueueSettings
from daybreak.core.text import lasted, number, safe

MAX_LIMIT: Final = 2**31
_LEAST: Final = {"max_running": 0, "capacity": 0, "weight": 1}

_names = click.argument(
    "names", type=NAME, metavar="NAME...", nargs=-1, required=True, shell_complete=completions.queues
)
_new = click.option("--new", is_flag=True, help="Accept a new queue name that is similar to an existing one.")


@click.command("set", short_help="Change the settings of a queue.")
@click.argument("name", type=NAME, shell_complete=completions.queues)
@click.argument("words", metavar="SETTING=VALUE...", nargs=-1, required=True)
@_new
@as_json
def set_(name: str, words: tuple[str, ...], new: bool, as_json: bool) -> int:
    """Change the settings of a queue while it is in use. Every worker applies the change at its next claim.

    Settings:
      paused       true or false: whether workers start no jobs of this queue
      max_running  how many jobs may run at once, on all workers; none: no limit
      capacity     how many unfinished jobs the queue may hold; none: no limit
      when_full    refuse: reject new jobs; shed: drop the least urgent job for a more urgent one
      discipline   fifo, or aging: waiting jobs gain priority, so that none starves
      patience     with aging: how long a job waits to gain one priority, for example 2m
      weight       the queue's share among queues with equally urgent jobs

    Example:
      daybreak queues set mail max_running=4 discipline=aging patience=10m

    """
    changes = {key: _setting(key, text) for key, text in pairs(words, "setting").items()}
    return _apply([name], changes, new=new, as_json=as_json)


@click.command(short_help="Stop starting jobs of queues.")
@_names
@_new
@as_json
def pause(names: tuple[str, ...], new: bool, as_json: bool) -> int:
    """Stop starting jobs of these queues. Jobs that already run continue to their end.

    Example:
      daybreak queues pause mail reports

    """
    return _apply(names, {"paused": True}, new=new, as_json=as_json)


@click.command(short_help="Start jobs of paused queues again.")
@_names
@as_json
def resume(names: tuple[str, ...], as_json: bool) -> int:
    """Start jobs of paused queues again.

    Example:
      daybreak queues resume mail

    """
    return _apply(names, {"paused": False}, new=None, as_json=as_json)


for made in (set_, pause, resume):
    store_options(made)


def _setting(key: str, text: str) -> Any:
    if key not in QUEUE_SETTINGS:
        hint = closest(key, QUEUE_SETTINGS)
        raise BadInput(
            f"a queue has no setting {key!r}; "
            + (f"did you mean {hint!r}?" if hint else f"the settings are {', '.join(QUEUE_SETTINGS)}")
        )
    word = text.strip().lower()
    if key in ("max_running", "capacity") and word in ("none", "null"):
        return None
    if key in _LEAST:
        return _whole(key, text)
    if key == "patience":
        return duration_setting(text, key)
    if key == "paused":
        if word not in ("true", "false", "yes", "no", "on", "off", "1", "0"):
            raise BadInput(f"paused={text}: write true or false")
        return word in ("true", "yes", "on", "1")
    for choice, known in (("discipline", ("fifo", "aging")), ("when_full", ("refuse", "shed"))):
        if key == choice and word not in known:
            raise BadInput(f"{key}={text}: write {' or '.join(known)}")
    return word


def _whole(key: str, text: str) -> int:
    word = text.strip()
    if not word.isascii() or not word.isdigit() or len(word) > 12 or not _LEAST[key] <= int(word) <= MAX_LIMIT:
        others = "" if key == "weight" else ", or none for no limit"
        raise BadInput(f"{key}={text[:50]}: write a whole number from {_LEAST[key]} to {number(MAX_LIMIT)}{others}")
    return int(word)


def _apply(names: Iterable[str], changes: dict[str, Any], *, new: bool | None, as_json: bool) -> int:
    async def apply(client: Client) -> int:
        for name in names:
            await _check_known(client, name, new=new)
        after = {name: await client.set_queue(name, **changes) for name in names}
        if as_json:
            say_json({"queues": [queue_view(await found(client, name)) for name in after]})
        else:
            for name, settings in after.items():
                say(_summary(name, settings, changes))
        return 0

    return session().run(apply, create=new is not None)


async def _check_known(client: Client, name: str, *, new: bool | None) -> None:
    """Raise NotFound for a name that is probably misspelt. A queue may be set before its first job, but a name close to
    an existing one is more likely a typing error. `new` is None for a command that needs an existing queue."""
    known = [queue.name for queue in await read_queues(client)]
    if name in known or new:
        return
    if new is None or closest(name, known):
        raise NotFound(unknown(name, known) + ("" if new is None else " If the name is right, add --new."))
    note(f"queue {safe(name)!r} has no jobs yet")


def _summary(name: str, settings: QueueSettings, changes: dict[str, Any]) -> str:
    if set(changes) == {"paused"}:
        if settings.paused:
            return f"{safe(name)} is paused. Resume it with: {session().command('queues', 'resume', name)}"
        return f"{safe(name)} is resumed."
    return f"{safe(name)}: " + ", ".join(f"{key} {_setting_text(getattr(settings, key))}" for key in changes) + "."


def _setting_text(value: object) -> str:
    match value:
        case None:
            return "no limit"
        case bool():
            return "yes" if value else "no"
        case int():
            return number(value)
        case str():
            return value
        case _:
            return lasted(value)  # type: ignore[arg-type]

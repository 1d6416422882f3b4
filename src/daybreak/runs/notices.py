"""Notices that a run has ended or pauses: who is told, and how."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from daybreak.client.client import Client
from daybreak.core.units import moment
from daybreak.runs.record import NOTICE_LIMIT, RunNotice, RunRecord, change_run
from daybreak.system import notice_sinks
from daybreak.system.ports import Ids, World

_log = logging.getLogger("daybreak.runs")

ATTEMPTS: Final = 3
FIRST_RETRY_DELAY: Final = timedelta(seconds=2)
TAKEN_FOR: Final = timedelta(minutes=2)  # after which another process may send a notice that was not sent
GIVEN_UP_AFTER: Final = timedelta(minutes=10)  # if no process may run the command


class NoticeRights(Struct, frozen=True, kw_only=True):
    """What this process may do to tell somebody. The commands of runs are in the store, so they run only where the
    worker allows commands, or in the process that submitted the run with this very command."""

    secret: str | None = None
    allow_private: bool = False
    allow_commands: bool = False
    own: tuple[str, ...] = ()


def with_notice(run: RunRecord, change: str, text: str, world: World, new_id: Callable[[], str]) -> RunRecord:
    """The record with the notice of a change, if somebody is to be told."""
    if not run.notify:
        return run
    notice = RunNotice(id=new_id(), change=change, at=moment(world.wall()), text=text)
    return replace(run, notices=(*run.notices, notice)[-NOTICE_LIMIT:])


async def send_notices(client: Client, world: World, name: str, run: RunRecord, rights: NoticeRights) -> RunRecord:
    """Send what was not sent yet. Only the process that wrote itself down as the sender sends."""
    sender = Ids(world)()
    for notice in run.notices:
        if notice.sent_at is not None:
            continue
        now = moment(world.wall())
        error = ""
        if not _may_send(run.notify, rights):
            if now - notice.at < GIVEN_UP_AFTER:
                continue
            error = "no worker may run commands: start one with --allow-commands"
        elif notice.taken_at is not None and now - notice.taken_at < TAKEN_FOR:
            continue
        else:
            taken = replace(notice, taken_at=now, taken_by=sender)
            run = await change_run(client.store, name, _with(notice.id, taken, only_if=notice))
            if taken not in run.notices:
                continue
            error = await _send(world, name, run, notice, rights)
        if error:
            _log.error("run %s: its notice could not be sent: %s", name, error)
        sent = replace(notice, taken_at=now, taken_by=sender, sent_at=moment(world.wall()), error=error)
        run = await change_run(client.store, name, _with(notice.id, sent))
    return run


def has_unsent(run: RunRecord) -> bool:
    return any(notice.sent_at is None for notice in run.notices)


def _with(id_: str, after: RunNotice, only_if: RunNotice | None = None) -> Callable[[RunRecord], RunRecord]:
    def change(run: RunRecord) -> RunRecord:
        return replace(
            run,
            notices=tuple(
                after if notice.id == id_ and only_if in (None, notice) else notice for notice in run.notices
            ),
        )

    return change


def _may_send(notify: tuple[str, ...], rights: NoticeRights) -> bool:
    return notify[:1] != ("command",) or rights.allow_commands or rights.own == notify


async def _send(world: World, name: str, run: RunRecord, notice: RunNotice, rights: NoticeRights) -> str:
    """Send, with retries; why it failed in the end, or nothing."""
    error = ""
    for attempt in range(ATTEMPTS):
        error = await asyncio.to_thread(_tell, name, run, notice, rights)
        if not error or error.startswith("refused"):
            return error
        if attempt + 1 < ATTEMPTS:
            await world.sleep(FIRST_RETRY_DELAY * 2**attempt)
    return error


def _tell(name: str, run: RunRecord, notice: RunNotice, rights: NoticeRights) -> str:
    kind, *words = run.notify
    if kind == "desktop":
        return notice_sinks.show_on_desktop(f"Daybreak: run {name}", notice.text)
    body = msgspec.json.encode(notice_view(name, run, notice))
    if kind == "command":
        told = {"DAYBREAK_RUN": name, "DAYBREAK_CHANGE": notice.change, "DAYBREAK_TEXT": notice.text}
        return notice_sinks.run_command(words, body, {**os.environ, **told})
    return notice_sinks.send_webhook(kind, body, notice.id, secret=rights.secret, allow_private=rights.allow_private)


def notice_view(name: str, run: RunRecord, notice: RunNotice) -> dict[str, Any]:
    """The notice as data: what a webhook and a command get."""
    figures = run.figures
    return {
        "id": notice.id,
        "run": name,
        "epoch": run.epoch,
        "change": notice.change,
        "text": notice.text,
        "total": run.design.total,
        "jobs": {} if figures is None else figures.counts,
        "failed": {} if figures is None else figures.reasons,
        "at": notice.at.isoformat().replace("+00:00", "Z"),
    }

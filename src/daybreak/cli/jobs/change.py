"""`daybreak jobs cancel | retry | suspend | resume | remove | priority`: some jobs by id, or many by filter."""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import click
from msgspec.structs import replace as with_changes

from daybreak.api.views.job import amendment_view
from daybreak.cli import completions
from daybreak.cli.errors import Exit
from daybreak.cli.jobs.match import all_jobs
from daybreak.cli.options import PRIORITY, Where, as_json, filters
from daybreak.cli.output import console, is_person, note, say, say_json
from daybreak.cli.root import store_options
from daybreak.cli.session import session
from daybreak.cli.text import any_of, counted, number, priority_name, safe
from daybreak.client.client import Client, filter_of
from daybreak.core.model import FINAL, UNFINISHED, WAITING, State
from daybreak.store.protocol import Action, Amend, Amendment

CHUNK = 500


@dataclass(frozen=True, slots=True)
class Change:
    """What is done to jobs: in which states it can be, and which are meant when a filter names none."""

    action: Action
    verb: str
    done: str
    asked: str
    possible: frozenset[State]
    meant: frozenset[State]
    to: int | None = None
    note: str = ""


_CANCEL = Change("cancel", "cancel", "cancelled", "asked to stop", UNFINISHED, UNFINISHED)
_SUSPEND = Change(
    "suspend", "suspend", "suspended", "asked to pause", UNFINISHED - {State.SUSPENDED}, UNFINISHED - {State.SUSPENDED}
)
# A running job can be resumed too, if it was only asked to pause.
_RESUME = Change(
    "resume", "resume", "resumed", "resumed", frozenset({State.SUSPENDED, State.RUNNING}), frozenset({State.SUSPENDED})
)
# Completed and cancelled jobs can be retried, but whoever says "retry all" means what failed.
_RETRY = Change("retry", "retry", "queued again", "queued again", FINAL, frozenset({State.FAILED}))
_REMOVE = Change("remove", "remove", "removed", "removed", FINAL, FINAL)
_PRIORITY = Change("rerank", "move", "moved", "moved", WAITING, WAITING)


def _targets(command: Callable[..., Any]) -> Callable[..., Any]:
    """Ids, or a filter; and the questions that go with it."""
    for option in (
        as_json,
        click.option("--yes", "-y", is_flag=True, help="Do not ask before many jobs are changed."),
        click.option("--dry-run", is_flag=True, help="Only say how many jobs it would be."),
        filters,
        click.argument("ids", metavar="[ID]...", nargs=-1, shell_complete=completions.jobs),
    ):
        command = option(command)
    return command


def _command(change: Change, short: str, about: str, example: str, *, noted: bool = False) -> click.Command:
    @click.command(change.verb, help=f"{about}\n\nExample:\n  {example}", short_help=short)
    @_targets
    def command(ids: tuple[str, ...], where: Where, note: str = "", **how: Any) -> int:
        return _change(replace(change, note=note), ids, where, **how)

    if noted:
        command.params.append(click.Option(["--note"], default="", help="Why; kept in the job's history."))
    return store_options(command)


cancel = _command(
    _CANCEL, "End jobs that have not ended yet.",
    "End jobs that have not ended yet: waiting ones at once, running ones are asked to stop.",
    "daybreak jobs cancel --queue mail --state queued", noted=True,
)  # fmt: skip
suspend = _command(
    _SUSPEND, "Hold jobs until they are resumed.",
    "Hold jobs until they are resumed. A running job is asked; if it cannot pause, it goes on.",
    "daybreak jobs suspend --task simulate --note 'licence server is down'", noted=True,
)  # fmt: skip
resume = _command(
    _RESUME, "Let suspended jobs go on.", "Let suspended jobs go on, where they stood in line.",
    "daybreak jobs resume --task simulate",
)  # fmt: skip
retry = _command(
    _RETRY, "Run jobs again that have ended.",
    "Run jobs again that have ended, with a fresh budget of attempts; their history goes on. By filter, failed ones "
    "are meant unless --state says otherwise.",
    "daybreak jobs retry --queue mail --reason exhausted", noted=True,
)  # fmt: skip
remove = _command(
    _REMOVE, "Delete jobs that have ended.",
    "Delete jobs that have ended, with their results and history. Unfinished ones must be cancelled first.",
    "daybreak jobs remove --state completed --dry-run",
)  # fmt: skip


@click.command(short_help="Move waiting jobs to another priority.")
@click.argument("to", type=PRIORITY)
@_targets
def priority(to: int, ids: tuple[str, ...], where: Where, **how: Any) -> int:
    """Move waiting jobs to another priority: emergency 0, critical 1, high 2, normal 5, low 7, background 10, or any
    number between. Lower runs first.

    Examples:
      daybreak jobs priority high 0199b5a1-7c00-7a3e-9d2c-5f0e6a1b2c3d
      daybreak jobs priority low --owner ann

    """
    return _change(replace(_PRIORITY, to=to, done=f"moved to {priority_name(to)}"), ids, where, **how)


store_options(priority)


# -- doing it ----------------------------------------------------------------------------------------------------------


def _change(change: Change, ids: tuple[str, ...], where: Where, *, dry_run: bool, yes: bool, as_json: bool) -> int:
    ctx = click.get_current_context()
    if ids and not where.is_empty:
        ctx.fail("give ids or a filter, not both")
    if not ids and where.is_empty:
        ctx.fail(
            f"say which jobs: their ids, or a filter such as --queue mail --state {any_of(sorted(change.meant)[:1])}"
        )
    if ids:
        chosen = tuple(dict.fromkeys(ids))
        return session().run(lambda client: _by_id(client, change, chosen, dry_run=dry_run, as_json=as_json))
    states = frozenset(where.states) or change.meant
    if impossible := [state for state in where.states if state not in change.possible]:
        ctx.fail(
            f"{any_of(impossible)} jobs cannot be {_participle(change)}, only {any_of(sorted(change.possible))} ones"
        )
    where = replace(where, states=tuple(state for state in State if state in states))
    return session().run(lambda client: _by_filter(client, change, where, dry_run=dry_run, yes=yes, as_json=as_json))


def _participle(change: Change) -> str:
    return {"retry": "retried", "rerank": "moved"}.get(change.action, change.done)


async def _by_id(client: Client, change: Change, ids: tuple[str, ...], *, dry_run: bool, as_json: bool) -> int:
    answers = await (_judged if dry_run else _amended)(client, change, ids)
    if as_json:
        jobs = [amendment_view(answer) for answer in answers]
        say_json({"dry_run": dry_run, "changed": sum(_is_changed(a) for a in answers), "jobs": jobs})
    else:
        for answer in answers:
            _say_answer(change, answer, dry_run=dry_run)
    verdicts = {answer.verdict for answer in answers}
    return int(Exit.NOT_FOUND if "missing" in verdicts else Exit.FAILED if "refused" in verdicts else Exit.OK)


def _is_changed(answer: Amendment) -> bool:
    return answer.verdict in ("done", "requested")


async def _amended(client: Client, change: Change, ids: tuple[str, ...]) -> list[Amendment]:
    wanted = Amend(action=change.action, by=client.by, priority=change.to, note=change.note)
    answers: list[Amendment] = []
    for start in range(0, len(ids), CHUNK):
        chunk = with_changes(wanted, jobs=ids[start : start + CHUNK])
        answers += (await client.store.amend(chunk)).amendments
    return answers


async def _judged(client: Client, change: Change, ids: tuple[str, ...]) -> list[Amendment]:
    """What would be answered, as the jobs are now."""
    answers = []
    for job_id, job in zip(ids, await client.store.get(ids), strict=True):
        if job is None:
            answers.append(Amendment(job_id, "missing"))
        else:
            possible = job.state in change.possible and (
                job.state is not State.RUNNING or change.action != "resume" or job.suspending
            )
            asked = job.state is State.RUNNING and change.action != "resume"
            answers.append(Amendment(job_id, ("requested" if asked else "done") if possible else "refused", job.state))
    return answers


def _say_answer(change: Change, answer: Amendment, *, dry_run: bool) -> None:
    job = safe(answer.job)
    match answer.verdict:
        case "missing":
            hint = "" if len(job) >= 36 else " (ids are given in full, 36 characters)"
            note(f"no job {job}: never submitted here, or removed since{hint}")
        case "refused":
            note(
                f"job {job} is {answer.state}: only {any_of(sorted(change.possible))} jobs can be {_participle(change)}"
            )
        case verdict:
            told = change.done if verdict == "done" else change.asked
            say(f"{job} would be {told}" if dry_run else f"{job} {told}")


async def _by_filter(client: Client, change: Change, where: Where, *, dry_run: bool, yes: bool, as_json: bool) -> int:
    found = [(job.id, job.state) async for job in all_jobs(client, where)] if where.is_timed else []
    if where.is_timed:
        counts = dict(Counter(state for _, state in found))
    else:
        counts = {state: n for state, n in (await client.count(**where.asked)).items() if n}
    total = sum(counts.values())
    if dry_run or not total:
        if as_json:
            say_json(
                {
                    "dry_run": dry_run,
                    "matching": total,
                    "changed": 0,
                    "by_state": {s.value: n for s, n in counts.items()},
                }
            )
        elif not total:
            say(f"No {where.jobs()}. Nothing was changed.")
        else:
            say(f"{_summary(where, counts)} would be {_participle(change)}. Nothing was changed.")
        return int(Exit.OK)
    asks = not yes and not as_json and is_person()
    if asks and not click.confirm(f"{_summary(where, counts)} will be {_participle(change)}. Go on?"):
        say("Nothing was changed.")
        return int(Exit.FAILED)
    if where.is_timed:
        verdicts = await _amend_found(client, change, where, [job for job, _ in found])
    else:
        verdicts = await _amend_all(client, change, where, total)
    changed = sum(verdicts.values())
    if as_json:
        say_json({"dry_run": False, "matching": total, "changed": changed, **verdicts})
    else:
        _say_changed(change, verdicts)
    return int(Exit.OK)


def _summary(where: Where, counts: dict[State, int]) -> str:
    by_state = ", ".join(f"{number(n)} {state.value}" for state, n in counts.items())
    total = sum(counts.values())
    if len(counts) == 1:
        return replace(where, states=tuple(counts)).jobs(total)
    return f"{replace(where, states=()).jobs(total)} ({by_state})"


async def _amend_all(client: Client, change: Change, where: Where, total: int) -> Counter[str]:
    """All that match, chunk by chunk; what arrives meanwhile is not meant."""
    wanted = Amend(
        action=change.action,
        by=client.by,
        filter=filter_of(**where.asked),
        priority=change.to,
        note=change.note,
        limit=CHUNK,
    )
    verdicts: Counter[str] = Counter()
    with _progress(total) as advance:
        while True:
            amended = await client.store.amend(wanted)
            verdicts.update(answer.verdict for answer in amended.amendments)
            advance(len(amended.amendments))
            if amended.cursor is None:
                return verdicts
            wanted = with_changes(wanted, cursor=amended.cursor)


async def _amend_found(client: Client, change: Change, where: Where, ids: list[str]) -> Counter[str]:
    """These, chunk by chunk. What has moved on since it was found is left alone: each chunk is looked at again just
    before it is changed."""
    verdicts: Counter[str] = Counter()
    with _progress(len(ids)) as advance:
        for start in range(0, len(ids), CHUNK):
            chunk = ids[start : start + CHUNK]
            found = [job for job in await client.store.get(chunk) if job is not None]
            meant = tuple(job.id for job in found if job.state in where.states and where.is_within(job))
            verdicts.update(answer.verdict for answer in await _amended(client, change, meant) if _is_changed(answer))
            advance(len(chunk))
    return verdicts


@contextlib.contextmanager
def _progress(total: int) -> Iterator[Callable[[int], None]]:
    """A bar on stderr, for a person who waits for many."""
    if total < 5 * CHUNK or not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.progress import Progress  # noqa: PLC0415 - most changes need none

    with Progress(console=console(err=True), transient=True) as bar:
        task = bar.add_task("jobs", total=total)
        yield lambda n: bar.advance(task, n)


def _say_changed(change: Change, verdicts: Counter[str]) -> None:
    done, asked = verdicts["done"], verdicts["requested"]
    told = [f"{counted(done, 'job')} {change.done}"] if done or not asked else []
    told += [f"{counted(asked, 'running job')} {change.asked}"] if asked else []
    say(", ".join(told) + ".")

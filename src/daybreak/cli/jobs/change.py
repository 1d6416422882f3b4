"""`daybreak jobs cancel | retry | suspend | resume | remove | priority`: changes jobs by id, or by filter."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import click
from msgspec.structs import replace as with_changes

from daybreak.api.job_changes import amend_paced
from daybreak.api.job_filter import find_all_jobs
from daybreak.api.views.job import amendment_view
from daybreak.cli import completions
from daybreak.cli.errors import Exit
from daybreak.cli.job_selector import job_ids_of
from daybreak.cli.options import NAME, PRIORITY, Where, as_json, filters
from daybreak.cli.output import console, is_person, note, say, say_json
from daybreak.cli.root import store_options
from daybreak.cli.session import session
from daybreak.client.client import Client, filter_of
from daybreak.core.model import FINAL, UNFINISHED, WAITING, Job, State
from daybreak.core.text import any_of, counted, number, priority_name, safe
from daybreak.policy.resources import parse_rate
from daybreak.store.protocol import Action, Amend, Amendment

CHUNK = 500  # jobs in one call of the store


@dataclass(frozen=True, slots=True)
class Change:
    """A change of jobs. `possible` are the states in which a job can be changed; `default` are the states that a filter
    without `--state` selects. `done` and `requested` are the participles for the output: for a job that was changed,
    and for a running job that was only asked to change. With `every`, jobs are changed one by one, so long apart."""

    action: Action
    verb: str
    done: str
    requested: str
    possible: frozenset[State]
    default: frozenset[State]
    to: int | None = None
    note: str = ""
    every: timedelta | None = None


_CANCEL = Change("cancel", "cancel", "cancelled", "asked to stop", UNFINISHED, UNFINISHED)
_SUSPEND = Change(
    "suspend",
    "suspend",
    "suspended",
    "asked to suspend",
    UNFINISHED - {State.SUSPENDED},
    UNFINISHED - {State.SUSPENDED},
)
# A running job can be resumed too, if it was asked to suspend and has not yet done so.
_RESUME = Change(
    "resume", "resume", "resumed", "resumed", frozenset({State.SUSPENDED, State.RUNNING}), frozenset({State.SUSPENDED})
)
# Completed and cancelled jobs can be retried, but a filter without --state selects only failed ones.
_RETRY = Change("retry", "retry", "queued again", "queued again", FINAL, frozenset({State.FAILED}))
_START = Change(
    "start", "start-now", "queued now", "queued now", frozenset({State.SCHEDULED}), frozenset({State.SCHEDULED})
)
_REMOVE = Change("remove", "remove", "removed", "removed", FINAL, FINAL)
_PRIORITY = Change("rerank", "move", "moved", "moved", WAITING, WAITING)


def _targets(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the arguments and options that select jobs: ids or a filter, `--dry-run`, `--yes` and `--json`."""
    for option in (
        as_json,
        click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation before changing jobs by filter."),
        click.option("--dry-run", is_flag=True, help="Change nothing; print how many jobs would be changed."),
        filters,
        click.argument("ids", metavar="[ID]...", nargs=-1, shell_complete=completions.jobs),
    ):
        command = option(command)
    return command


def _command(
    change: Change, short: str, about: str, example: str, *, noted: bool = False, paced: bool = False
) -> click.Command:
    @click.command(change.verb, help=f"{about}\n\nExample:\n  {example}", short_help=short)
    @_targets
    def command(ids: tuple[str, ...], where: Where, note: str = "", rate: str | None = None, **how: Any) -> int:
        every = None if rate is None else parse_rate(rate, "--rate")
        return _change(replace(change, note=note, every=every), ids, where, **how)

    if noted:
        command.params.append(click.Option(["--note"], default="", help="The reason; it is kept in the job's history."))
    if paced:
        command.params.append(
            click.Option(["--rate"], type=NAME, help="Change at most so many per time, such as 5/min.")
        )
    return store_options(command)


cancel = _command(
    _CANCEL, "Cancel jobs that have not ended.",
    "Cancel jobs that have not ended. A waiting job ends at once; a running job is asked to stop.",
    "daybreak jobs cancel --queue mail --state queued", noted=True,
)  # fmt: skip
suspend = _command(
    _SUSPEND, "Suspend jobs until they are resumed.",
    "Suspend jobs until they are resumed. A running job is asked to suspend; if its task cannot, it continues.",
    "daybreak jobs suspend --task simulate --note 'licence server is down'", noted=True,
)  # fmt: skip
resume = _command(
    _RESUME, "Resume suspended jobs.", "Resume suspended jobs. They keep their place in the queue.",
    "daybreak jobs resume --task simulate",
)  # fmt: skip
retry = _command(
    _RETRY, "Run jobs again that have ended.",
    "Run jobs again that have ended, with all their attempts. Their history is kept. A filter without --state selects "
    "only failed jobs.",
    "daybreak jobs retry --queue mail --reason exhausted --rate 5/min", noted=True, paced=True,
)  # fmt: skip
start_now = _command(
    _START, "Start scheduled jobs before their time.",
    "Queue scheduled jobs now, before their time. This also ends the delay before the next attempt of a failed job.",
    "daybreak jobs start-now --queue reports", noted=True,
)  # fmt: skip
remove = _command(
    _REMOVE, "Delete jobs that have ended.",
    "Delete jobs that have ended, with their results and history. Cancel unfinished jobs first.",
    "daybreak jobs remove --state completed --dry-run",
)  # fmt: skip


@click.command(short_help="Change the priority of waiting jobs.")
@click.argument("to", type=PRIORITY)
@_targets
def priority(to: int, ids: tuple[str, ...], where: Where, **how: Any) -> int:
    """Change the priority of waiting jobs: emergency 0, critical 1, high 2, normal 5, low 7, background 10, or any
    number from 0 to 10. A lower number runs first.

    Examples:
      daybreak jobs priority high 0199b5a1-7c00-7a3e-9d2c-5f0e6a1b2c3d
      daybreak jobs priority low --owner ann

    """
    return _change(replace(_PRIORITY, to=to, done=f"moved to {priority_name(to)}"), ids, where, **how)


store_options(priority)


# -- the change --------------------------------------------------------------------------------------------------------


def _change(change: Change, ids: tuple[str, ...], where: Where, *, dry_run: bool, yes: bool, as_json: bool) -> int:
    ctx = click.get_current_context()
    if ids and not where.filter.is_empty:
        ctx.fail("give either ids or a filter, not both")
    if not ids and where.filter.is_empty:
        ctx.fail(f"select jobs by id, or by a filter such as --queue mail --state {any_of(sorted(change.default)[:1])}")
    if ids:
        return session().run(lambda client: _by_id(client, change, ids, dry_run=dry_run, as_json=as_json))
    states = frozenset(where.filter.states) or change.default
    if impossible := [state for state in where.filter.states if state not in change.possible]:
        ctx.fail(
            f"{any_of(impossible)} jobs cannot be {_participle(change)}, only {any_of(sorted(change.possible))} ones"
        )
    where = where.with_states(tuple(state for state in State if state in states))
    return session().run(lambda client: _by_filter(client, change, where, dry_run=dry_run, yes=yes, as_json=as_json))


def _participle(change: Change) -> str:
    return {"retry": "retried", "rerank": "moved", "start": "started early"}.get(change.action, change.done)


async def _by_id(client: Client, change: Change, words: tuple[str, ...], *, dry_run: bool, as_json: bool) -> int:
    ids = tuple(dict.fromkeys(await job_ids_of(client, words, announce=True)))
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
    """The answers that the store would give for the jobs as they are now."""
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
            note(f"no job {job}: it was never submitted to this store, or it was removed")
        case "refused":
            note(
                f"job {job} is {answer.state}: only {any_of(sorted(change.possible))} jobs can be {_participle(change)}"
            )
        case verdict:
            participle = change.done if verdict == "done" else change.requested
            say(f"{job} would be {participle}" if dry_run else f"{job} {participle}")


async def _by_filter(client: Client, change: Change, where: Where, *, dry_run: bool, yes: bool, as_json: bool) -> int:
    found: list[tuple[str, State]] = []
    if where.filter.is_timed:
        found = [(job.id, job.state) async for job in find_all_jobs(client, where.filter)]
        counts = dict(Counter(state for _, state in found))
    else:
        counts = {state: n for state, n in (await client.count(**where.filter.where())).items() if n}
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
    if asks and not click.confirm(f"{_summary(where, counts)} will be {_participle(change)}. Continue?"):
        say("Nothing was changed.")
        return int(Exit.FAILED)
    if change.every is not None:
        if not where.filter.is_timed:
            found = [(job.id, job.state) async for job in find_all_jobs(client, where.filter)]
        ids = [job for job, _ in found]
        verdicts = await _amend_paced(client, change, where, ids)
    elif where.filter.is_timed:
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
        return where.with_states(tuple(counts)).jobs(total)
    return f"{where.with_states(()).jobs(total)} ({by_state})"


async def _amend_all(client: Client, change: Change, where: Where, total: int) -> Counter[str]:
    """Change all jobs that match, chunk by chunk. Jobs that are submitted meanwhile are not changed."""
    wanted = Amend(
        action=change.action,
        by=client.by,
        filter=filter_of(**where.filter.where()),
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
    """Change these jobs, chunk by chunk. Each chunk is read again just before the change, so that a job that no longer
    matches the filter is left alone."""
    verdicts: Counter[str] = Counter()
    with _progress(len(ids)) as advance:
        for start in range(0, len(ids), CHUNK):
            chunk = ids[start : start + CHUNK]
            found = [job for job in await client.store.get(chunk) if job is not None]
            matching = tuple(
                job.id for job in found if job.state in where.filter.states and where.filter.is_within(job)
            )
            verdicts.update(
                answer.verdict for answer in await _amended(client, change, matching) if _is_changed(answer)
            )
            advance(len(chunk))
    return verdicts


async def _amend_paced(client: Client, change: Change, where: Where, ids: list[str]) -> Counter[str]:
    """Change these jobs one by one, and print each."""
    assert change.every is not None

    async def amend(job: Job) -> Amendment:
        [answer] = await _amended(client, change, (job.id,))
        if _is_changed(answer):
            _say_answer(change, answer, dry_run=False)
        return answer

    def still_matches(job: Job) -> bool:
        return job.state in where.filter.states and where.filter.is_within(job)

    return await amend_paced(
        client, amend, ids, every=change.every, still_matches=still_matches,
        sleep=lambda pause: asyncio.sleep(pause.total_seconds()),
    )  # fmt: skip


@contextlib.contextmanager
def _progress(total: int) -> Iterator[Callable[[int], None]]:
    """Show a progress bar on stderr if there are many jobs and stderr is a terminal."""
    if total < 5 * CHUNK or not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.progress import Progress  # noqa: PLC0415 - slow to import, and rarely needed

    with Progress(console=console(err=True), transient=True) as bar:
        task = bar.add_task("jobs", total=total)
        yield lambda n: bar.advance(task, n)


def _say_changed(change: Change, verdicts: Counter[str]) -> None:
    done, requested = verdicts["done"], verdicts["requested"]
    parts = []
    if done or not requested:
        parts.append(f"{counted(done, 'job')} {change.done}")
    if requested:
        parts.append(f"{counted(requested, 'running job')} {change.requested}")
    say(", ".join(parts) + ".")

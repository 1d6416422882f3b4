"""`daybreak cache`: what is known of cached tasks, why a job found no result, and how to drop results."""

from __future__ import annotations

import click

from daybreak.api.cache import CacheFigures, TaskFigures, cache_figures, cache_why, clear, invalidate
from daybreak.api.cache.changes import entry_of
from daybreak.api.cache.figures import entries_page
from daybreak.api.views.cache import cache_why_view, entry_view, figures_view
from daybreak.cli import completions
from daybreak.cli.errors import NotFound
from daybreak.cli.job_selector import job_id_of
from daybreak.cli.options import NAME, as_json
from daybreak.cli.output import Column, note, say, say_json, say_table
from daybreak.cli.root import Group, store_options
from daybreak.cli.session import session
from daybreak.client.client import Client
from daybreak.config import closest
from daybreak.core.errors import BadInput
from daybreak.core.text import ago, counted, lasted, number, safe
from daybreak.core.units import bytes_text, moment
from daybreak.store.protocol import CacheEntry, CacheQuery

FLIGHT_CHARS = 12  # of a flight in a table; so many are enough to name one
MAX_SEARCHED = 10_000  # entries that are read to find the beginning of a flight

_dry_run = click.option("--dry-run", is_flag=True, help="Only say how many results would be dropped.")
_task = click.option("--task", type=NAME, shell_complete=completions.tasks, help="Only results of this task.")


@click.group(
    cls=Group, name="cache", invoke_without_command=True, short_help="Show what is known, and drop known results."
)
@as_json
@click.pass_context
def command(ctx: click.Context, as_json: bool) -> int | None:
    """Show the results that are known of cached tasks, and what they have saved.

    Examples:
      daybreak cache
      daybreak cache why last
      daybreak cache invalidate --task simulate --dry-run

    """
    if ctx.invoked_subcommand is not None:
        if as_json:
            ctx.fail(f"put options after the command: daybreak cache {ctx.invoked_subcommand} --json")
        return None
    return session().run(lambda client: _stats(client, as_json=as_json))


@click.command(short_help="Show what is known and what that has saved.")
@as_json
def stats(as_json: bool) -> int:
    """Show, for each cached task, how many results are known, how often they were used, and how much time that saved.

    Example:
      daybreak cache stats

    """
    return session().run(lambda client: _stats(client, as_json=as_json))


@click.command("list", short_help="List known results.")
@_task
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="How many, the last used first."
)
@click.option("--cursor", type=NAME, help="Continue an earlier list: the cursor that it ended with.")
@as_json
def list_(task: str | None, limit: int, cursor: str | None, as_json: bool) -> int:
    """List known results, those that were used last first.

    Example:
      daybreak cache list --task simulate

    """

    async def run(client: Client) -> int:
        await _check_task(client, task)
        found, following = await entries_page(client, task=task, limit=limit, cursor=cursor)
        if as_json:
            say_json({"entries": [entry_view(entry) for entry in found], "cursor": following})
            return 0
        if not found:
            say(_nothing(task))
            return 0
        columns = [
            Column("FLIGHT"), Column("TASK", gives=True), Column("HITS", right=True), Column("SIZE", right=True),
            Column("RAN", right=True, drop=2), Column("USED", drop=1), Column("UNTIL", drop=3), Column("JOB", drop=4),
        ]  # fmt: skip
        now = moment(client.wall())
        say_table(columns, [_row(entry, now) for entry in found])
        if following is not None:
            note(f"there are more: {session().command('cache', 'list', *_of(task), '--cursor', following)}")
        return 0

    return session().run(run)


@click.command(short_help="Say what the cache did for a job.")
@click.argument("job_id", metavar="JOB", shell_complete=completions.jobs)
@as_json
def why(job_id: str, as_json: bool) -> int:
    """Say whether a job got a known result. If it had to be computed, name what differs from the nearest known result
    of its task: an argument, the content of a file, the version, the environment, the code, or a helper in the salt.

    Example:
      daybreak cache why last

    """

    async def run(client: Client) -> int:
        found = await cache_why(client, await job_id_of(client, job_id))
        if as_json:
            say_json(cache_why_view(found))
            return 0
        say(f"{safe(found.task)}  {found.job}  {found.outcome}")
        say()
        say(safe(f"{found.text[:1].upper()}{found.text[1:]}."))
        if found.nearest is not None:
            say(f"  {session().command('jobs', 'show', found.nearest.job)}")
        return 0

    return session().run(run)


@click.command("invalidate", short_help="Drop known results of a task, a job or a flight.")
@click.argument("what", metavar="[JOB|FLIGHT]", required=False)
@click.option("--task", type=NAME, shell_complete=completions.tasks, help="Drop all results of this task.")
@_dry_run
@as_json
def invalidate_(what: str | None, task: str | None, dry_run: bool, as_json: bool) -> int:
    """Drop known results, so that the next job computes them anew: all of a task, the one that a job has or would use,
    or that of a flight (a beginning of it is enough). Jobs that have such a result keep it.

    Examples:
      daybreak cache invalidate --task simulate --dry-run
      daybreak cache invalidate last

    """
    if (what is None) == (task is None):
        raise BadInput("name a job or a flight, or give --task NAME; one of them")

    async def run(client: Client) -> int:
        if task is not None:
            await _check_task(client, task)
            dropped = await invalidate(client, task=task, dry_run=dry_run)
        elif (flight := await _flight(client, str(what))) is not None:
            dropped = await invalidate(client, flight=flight, dry_run=dry_run)
        else:
            dropped = await invalidate(client, job=await job_id_of(client, str(what)), dry_run=dry_run)
        return _say_dropped(dropped, dry_run=dry_run, as_json=as_json)

    return session().run(run)


@click.command("clear", short_help="Drop all known results.")
@_dry_run
@as_json
def clear_(dry_run: bool, as_json: bool) -> int:
    """Drop all known results of all tasks. Jobs that have such a result keep it.

    Example:
      daybreak cache clear --dry-run

    """

    async def run(client: Client) -> int:
        return _say_dropped(await clear(client, dry_run=dry_run), dry_run=dry_run, as_json=as_json)

    return session().run(run)


for made in (stats, list_, why, invalidate_, clear_):
    command.add_command(made)
    store_options(made)
store_options(command)


async def _stats(client: Client, *, as_json: bool) -> int:
    figures = await cache_figures(client)
    if as_json:
        say_json(figures_view(figures))
        return 0
    if not figures.tasks:
        say(_nothing(None))
        return 0
    columns = [
        Column("TASK", gives=True), Column("ENTRIES", right=True), Column("SIZE", right=True, drop=1),
        Column("HITS", right=True), Column("COMPUTED", right=True, drop=2), Column("HIT RATE", right=True),
        Column("SAVED", right=True),
    ]  # fmt: skip
    say_table(columns, [_figures_row(one) for one in figures.tasks])
    say()
    say(_summary(figures))
    return 0


def _figures_row(one: TaskFigures) -> list[str]:
    return [
        safe(one.task), number(one.entries), bytes_text(one.bytes), number(one.hits), number(one.computed),
        f"{one.hit_rate:.0%}", lasted(one.saved) if one.hits else "",
    ]  # fmt: skip


def _summary(figures: CacheFigures) -> str:
    total = figures.total
    least = "" if figures.is_exact else "at least "
    kept = f"{least}{counted(total.entries, 'result')} of {bytes_text(total.bytes)}"
    if not total.hits:
        return f"{kept}; none was used yet."
    jobs = counted(total.hits, "job")
    return f"{kept}; {jobs} ({total.hit_rate:.0%}) did not run, which saved {lasted(total.saved)}."


def _row(entry: CacheEntry, now: object) -> list[str]:
    return [
        entry.flight[:FLIGHT_CHARS], safe(entry.task), number(entry.hits), bytes_text(entry.size), lasted(entry.ran),
        ago(entry.used_at, now),  # type: ignore[arg-type]
        "" if entry.until is None else ago(entry.until, now),  # type: ignore[arg-type]
        entry.job,
    ]  # fmt: skip


def _say_dropped(dropped: int, *, dry_run: bool, as_json: bool) -> int:
    if as_json:
        say_json({"dropped": dropped, "dry_run": dry_run})
    elif dry_run:
        say(f"{counted(dropped, 'result')} would be dropped.")
    else:
        say(f"{counted(dropped, 'result')} dropped.")
    return 0


def _nothing(task: str | None) -> str:
    if task is not None:
        return f"No result of the task {safe(task)!r} is known."
    return "No results are known. Tasks keep them with @app.task(cache=True)."


def _of(task: str | None) -> tuple[str, ...]:
    return () if task is None else ("--task", task)


async def _check_task(client: Client, task: str | None) -> None:
    """Refuse a misspelt task: one of which the store has never seen a job."""
    if task is None:
        return
    known = {total.task for total in await client.store.totals()}
    if task not in known:
        hint = closest(task, sorted(known))
        raise NotFound(f"no task {task!r} in this store{f'; did you mean {hint!r}?' if hint else ''}")


async def _flight(client: Client, word: str) -> str | None:
    """The flight that begins with the word; None if it is rather a job."""
    lower = word.lower()
    if not lower or any(c not in "0123456789abcdef" for c in lower) or len(lower) < 4:
        return None
    if await entry_of(client, lower) is not None:
        return lower
    found: list[str] = []
    cursor, read = None, 0
    while read < MAX_SEARCHED:
        page = await client.store.cached(CacheQuery(limit=1000, cursor=cursor))
        read += len(page.entries)
        found += [entry.flight for entry in page.entries if entry.flight.startswith(lower)]
        if (cursor := page.cursor) is None:
            break
    if len(found) > 1:
        raise BadInput(f"{len(found)} flights begin with {word}: write more characters")
    return found[0] if found else None

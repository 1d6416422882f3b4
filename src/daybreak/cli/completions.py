"""Shell completions: names and ids from the store, if the store exists and answers quickly."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

import click
from click.shell_completion import CompletionItem

from daybreak.cli.session import Session
from daybreak.client.client import Client

_TIMEOUT = 1.0  # seconds; the user waits after pressing Tab


def words(known: Iterable[str], incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(word) for word in known if word.startswith(incomplete) and word.isprintable()]


def queues(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG001
    return words(_ask(ctx, _queues), incomplete)


def tasks(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG001
    return words(_ask(ctx, _tasks), incomplete)


def jobs(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG001
    return words(_ask(ctx, _jobs), incomplete)


def resources(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG001
    return words(_ask(ctx, _resources), incomplete)


def locks(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG001
    return words([name[5:] for name in _ask(ctx, _resources) if name.startswith("lock:")], incomplete)


def runs(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG001
    return words(_ask(ctx, _runs), incomplete)


def schedules(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG001
    return words(_ask(ctx, _schedules), incomplete)


async def _schedules(client: Client) -> list[str]:
    return [record.name for record in await client.store.records("schedule")]


async def _runs(client: Client) -> list[str]:
    return sorted(record.name for record in await client.store.records("run"))


async def _resources(client: Client) -> list[str]:
    return [usage.name for usage in await client.store.usage()]


async def _queues(client: Client) -> list[str]:
    named = {record.name for record in await client.store.records("queue")}
    return sorted(named | {tally.queue for tally in await client.tallies()})


async def _tasks(client: Client) -> list[str]:
    from daybreak.api.worker_info import known_tasks, read_workers  # noqa: PLC0415 - only completion of tasks needs it

    known = {task for task, _ in known_tasks(await read_workers(client))}
    return sorted(known | {tally.task for tally in await client.tallies()})


async def _jobs(client: Client) -> list[str]:
    return ["last", *(job.id for job in (await client.find(limit=100)).jobs)]


def _ask(ctx: click.Context, read: Callable[[Client], Awaitable[list[str]]]) -> list[str]:
    """The answer of the store, or an empty list: a failed completion must print nothing into the line being typed."""
    session = ctx.find_object(Session) or Session()

    async def bounded(client: Client) -> list[str]:
        async with asyncio.timeout(_TIMEOUT):
            return await read(client)

    try:
        return session.run(bounded)
    except Exception:  # noqa: BLE001
        return []

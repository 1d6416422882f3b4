"""`daybreak sqs`: creates, counts and deletes the queues of a prefix, and redrives dead letters."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click
import msgspec

from daybreak.cli.jobs.show import found as found_job
from daybreak.cli.options import DURATION, NAME, as_json
from daybreak.cli.output import Column, say, say_json, say_table
from daybreak.cli.root import Group, store_options
from daybreak.cli.session import session
from daybreak.client.client import Client
from daybreak.core.errors import BadInput
from daybreak.core.text import counted, number, safe

if TYPE_CHECKING:
    from daybreak.sqs.queues import SqsQueues
    from daybreak.sqs.setup import QueueCount


@click.group(cls=Group, name="sqs", short_help="Create, count and delete the queues of remote workers.")
def command() -> None:
    """Create, count and delete the queues through which remote workers get jobs.

    Examples:
      daybreak sqs init --prefix transcribe --region eu-west-1
      daybreak sqs status --prefix transcribe --region eu-west-1

    """


store_options(command)


def _queues(function: Any) -> Any:
    """Add the options that name the queues."""
    for option in (
        click.option("--endpoint", type=NAME, help="A server that speaks SQS [default: AWS, or AWS_ENDPOINT_URL]."),
        click.option("--region", type=NAME, help="The AWS region [default: AWS_REGION]."),
        click.option("--prefix", type=NAME, required=True, help="What the names of the queues begin with."),
    ):
        function = option(function)
    return function


def _run(do: Callable[[SqsQueues], Awaitable[int]], region: str | None, prefix: str, endpoint: str | None) -> int:
    from daybreak.sqs.address import checked  # noqa: PLC0415 - an extra
    from daybreak.sqs.queues import open_queues  # noqa: PLC0415

    address = checked(region, prefix, endpoint)

    async def opened() -> int:
        async with open_queues(address) as queues:
            return await do(queues)

    return asyncio.run(opened())


@command.command("init", short_help="Create the queues of a prefix.")
@_queues
@click.option("--visibility", type=DURATION, default="60s", show_default=True, help="The visibility timeout of tasks.")
def init(prefix: str, region: str | None, endpoint: str | None, visibility: timedelta) -> int:
    """Create the queues of a prefix: a task queue per bucket of priorities, the status queue, the retry queue, one for
    messages that were set aside, and dead-letter queues. Workers create their control queues. May be repeated.

    Example:
      daybreak sqs init --prefix transcribe --region eu-west-1

    """
    if not timedelta(seconds=1) <= visibility <= timedelta(hours=12):
        raise BadInput("--visibility: SQS allows 1 s to 12 h")
    return _run(functools.partial(_init, visibility=int(visibility.total_seconds())), region, prefix, endpoint)


async def _init(queues: SqsQueues, *, visibility: int) -> int:
    from daybreak.sqs.setup import create  # noqa: PLC0415

    created = await create(queues, visibility=visibility)
    for name in created:
        say(f"created {name}")
    say(f"{counted(len(created), 'queue')} created; all queues of {queues.address} have their attributes.")
    return 0


@command.command("status", short_help="Show how many messages the queues have.")
@_queues
@as_json
def status(prefix: str, region: str | None, endpoint: str | None, as_json: bool) -> int:
    """Show how many messages each queue has, approximately, and why messages were set aside.

    Example:
      daybreak sqs status --prefix transcribe --region eu-west-1

    """
    return _run(functools.partial(_status, as_json=as_json), region, prefix, endpoint)


async def _status(queues: SqsQueues, *, as_json: bool) -> int:
    from daybreak.sqs import queue_names as names  # noqa: PLC0415
    from daybreak.sqs.setup import asides, count  # noqa: PLC0415

    found = await count(queues)
    has_asides = any(one.name == names.aside_queue(queues.address.prefix) and one.visible for one in found)
    aside = await asides(queues) if has_asides else []
    if as_json:
        say_json({
            "address": str(queues.address),
            "queues": [{"name": one.name, "exists": one.exists, "visible": one.visible, "in_flight": one.in_flight,
                        "delayed": one.delayed} for one in found],
            "set_aside": [{"queue": one.queue, "reason": one.reason} for one in aside],
        })  # fmt: skip
        return 0
    say_table(
        [Column("QUEUE"), *(Column(title, right=True) for title in ("WAITING", "IN FLIGHT", "DELAYED"))],
        [_row(one) for one in found],
    )
    if not all(one.exists for one in found):
        say()
        say(f"Create what is missing with: daybreak sqs init --prefix {queues.address.prefix}")
    for one in aside:
        say(f"set aside from {safe(one.queue)}: {safe(one.reason)}")
    return 0


def _row(one: QueueCount) -> list[str]:
    if not one.exists:
        return [safe(one.name), "missing", "", ""]
    return [safe(one.name), *map(number, (one.visible, one.in_flight, one.delayed))]


@command.command("task", short_help="Show the status of a job in the words of Orchestrator V2.")
@click.argument("job", type=NAME)
@as_json
def task(job: str, as_json: bool) -> int:
    """Show the status of a job as the Orchestrator V2 document names it: Pending, In-progress, Completed or Failed,
    with its worker, the age of its last heartbeat, the attempt and the reason of a failure.

    Example:
      daybreak sqs task 01a1eef5-571f-71d7-bf95-ee970bc1cb1d

    """
    return session().run(functools.partial(_task, job_id=job, as_json=as_json))


async def _task(client: Client, *, job_id: str, as_json: bool) -> int:
    from daybreak.sqs.statuses import read_status  # noqa: PLC0415

    found = await read_status(client.store, await found_job(client, job_id), datetime.now(UTC))
    told = msgspec.to_builtins(found)
    if as_json:
        say_json(told)
        return 0
    for name, value in told.items():
        if value is not None:
            say(f"{name:<15} {safe(str(value))}")
    return 0


@command.command("redrive", short_help="Move dead letters back to their queues.")
@_queues
def redrive(prefix: str, region: str | None, endpoint: str | None) -> int:
    """Move dead letters back. A task message that no longer counts is returned to the ledger by whoever takes it.

    Example:
      daybreak sqs redrive --prefix transcribe --region eu-west-1

    """
    return _run(_redrive, region, prefix, endpoint)


async def _redrive(queues: SqsQueues) -> int:
    from daybreak.sqs.setup import redrive as move  # noqa: PLC0415

    for name, moved in (await move(queues)).items():
        say(f"{name}: {counted(moved, 'message')} moved back")
    return 0


@command.command("destroy", short_help="Delete all queues of a prefix.")
@_queues
@click.option("--yes", is_flag=True, help="Do not ask.")
def destroy(prefix: str, region: str | None, endpoint: str | None, yes: bool) -> int:
    """Delete all queues of a prefix with their messages. No job is lost: the ledger runs again what was under way.

    Example:
      daybreak sqs destroy --prefix transcribe --region eu-west-1

    """
    if not yes:
        raise BadInput(f"this deletes every queue of {prefix!r} with its messages: add --yes if you mean it")
    return _run(_destroy, region, prefix, endpoint)


async def _destroy(queues: SqsQueues) -> int:
    from daybreak.sqs.setup import destroy as delete  # noqa: PLC0415

    say(f"{counted(len(await delete(queues)), 'queue')} deleted.")
    return 0


for subcommand in (init, status, task, redrive, destroy):
    store_options(subcommand)

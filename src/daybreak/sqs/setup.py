"""Creates, counts and deletes the queues of a prefix, and redrives dead letters. Each step may be repeated."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from daybreak.core.errors import BadInput, StoreUnavailable
from daybreak.sqs import queue_names as names
from daybreak.sqs.messages import SetAside, read_aside
from daybreak.sqs.queues import QueueMissing, SqsQueues

FILES_TAG: Final = "daybreak-files"  # the place of contents, for workers
_COUNTS: Final = (
    "ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible", "ApproximateNumberOfMessagesDelayed",
)  # fmt: skip


class QueueCount(Struct, frozen=True):
    """How many messages a queue has, approximately, as SQS says. `exists` is False if it is missing."""

    name: str
    exists: bool
    visible: int = 0
    in_flight: int = 0
    delayed: int = 0


async def create(queues: SqsQueues, *, visibility: int = names.VISIBILITY) -> list[str]:
    """Create the queues that are missing, and give all of them their attributes. Returns the names of the new ones."""
    prefix = queues.address.prefix
    arns: dict[str, str] = {}
    created = []
    for name in names.fixed_queues(prefix):
        dead = names.dead_queue_of(prefix, name)
        wanted = names.attributes(prefix, name, dead=None if dead is None else arns[dead], visibility=visibility)
        if await queues.exists(name):
            await queues.call("set_queue_attributes", QueueUrl=await queues.url(name), Attributes=wanted)
        else:
            await queues.call("create_queue", QueueName=name, Attributes=wanted)
            created.append(name)
        if name in names.dead_queues(prefix):
            url = await queues.url(name)
            reply = await queues.call("get_queue_attributes", QueueUrl=url, AttributeNames=["QueueArn"])
            arns[name] = reply["Attributes"]["QueueArn"]
    return created


async def count(queues: SqsQueues) -> list[QueueCount]:
    """The queues of the prefix, those of workers last."""
    prefix = queues.address.prefix
    found = []
    for name in [*names.fixed_queues(prefix), *await control_queues(queues)]:
        try:
            url = await queues.url(name)
            reply = await queues.call("get_queue_attributes", QueueUrl=url, AttributeNames=list(_COUNTS))
        except QueueMissing:
            queues.forget(name)
            found.append(QueueCount(name, exists=False))
            continue
        visible, in_flight, delayed = (int(reply["Attributes"].get(key, 0)) for key in _COUNTS)
        found.append(QueueCount(name, True, visible, in_flight, delayed))
    return found


async def control_queues(queues: SqsQueues) -> list[str]:
    """The names of the control queues that exist."""
    found: list[str] = []
    token: dict[str, str] = {}
    while True:
        reply = await queues.call(
            "list_queues", QueueNamePrefix=names.control_prefix(queues.address.prefix), MaxResults=1000, **token
        )
        found += [url.rsplit("/", 1)[-1] for url in reply.get("QueueUrls", [])]
        if not reply.get("NextToken"):
            return sorted(found)
        token = {"NextToken": reply["NextToken"]}


async def destroy(queues: SqsQueues) -> list[str]:
    """Delete every queue of the prefix, with its messages. The ledger loses nothing: it takes back what it sent."""
    prefix = queues.address.prefix
    deleted = []
    for name in [*await control_queues(queues), *reversed(names.fixed_queues(prefix))]:
        try:
            await queues.call("delete_queue", QueueUrl=await queues.url(name))
        except QueueMissing:
            continue
        finally:
            queues.forget(name)
        deleted.append(name)
    return deleted


async def redrive(queues: SqsQueues) -> dict[str, int]:
    """Move dead letters back: task messages to the most urgent task queue, whose receiver returns them to the ledger
    if they no longer count; status messages to the status queue. Sent before they are deleted, so a kill in between
    leaves a duplicate, which is harmless."""
    prefix = queues.address.prefix
    targets = {
        names.task_dead_queue(prefix): names.task_queues(prefix)[0],
        names.status_dead_queue(prefix): names.status_queue(prefix),
    }
    moved = dict.fromkeys(targets, 0)
    for source, target in targets.items():
        while messages := await queues.receive(source):
            await queues.send(target, [message.body for message in messages])
            await queues.delete(messages)
            moved[source] += len(messages)
    return moved


async def asides(queues: SqsQueues, *, most: int = 10) -> list[SetAside]:
    """Messages that were set aside, with their reasons. They stay in their queue."""
    found = []
    for message in await queues.receive(names.aside_queue(queues.address.prefix), most=most, visibility=0):
        try:
            found.append(read_aside(message.body))
        except BadInput as error:
            found.append(SetAside(v=1, queue=message.queue, reason=str(error), body=message.body))
    return found


async def tell_files(queues: SqsQueues, location: str) -> None:
    """Tell workers where the contents are."""
    url = await queues.url(names.status_queue(queues.address.prefix))
    await queues.call("tag_queue", QueueUrl=url, Tags={FILES_TAG: location[:256]})


async def told_files(queues: SqsQueues) -> str | None:
    """Where the contents are, as a dispatcher said; None if it did not, or this worker may not read it."""
    try:
        url = await queues.url(names.status_queue(queues.address.prefix))
        reply = await queues.call("list_queue_tags", QueueUrl=url)
    except QueueMissing:
        raise
    except StoreUnavailable:
        return None
    return reply.get("Tags", {}).get(FILES_TAG) or None
